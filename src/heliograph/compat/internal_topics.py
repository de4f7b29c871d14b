"""Topics of one partition that MirrorMaker 2's tools read, made when first needed. Runs on the
driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.records import Record
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError
from heliograph.model import TopicName

PARTITIONS: Final = 1
"""MirrorMaker 2's clients read partition 0 only."""


class InternalTopic:
    """Created compacted; one that is there is taken as it is, as MirrorMaker 2 does."""

    def __init__(
        self, clients: Clients, cluster: ClusterConfig, name: TopicName, *, replication_factor: int
    ) -> None:
        self.cluster: Final = cluster
        self.name: Final = name
        self._clients = clients
        self._replication_factor = replication_factor
        self._is_there = False

    def ensure(self) -> None:
        """Raises `BrokerError`."""
        if self._is_there:
            return
        admin = self._clients.admin(self.cluster)
        if self.name not in admin.describe_topics([self.name]):
            wanted = TopicToCreate(
                source=self.name,
                name=self.name,
                partitions=PARTITIONS,
                replication_factor=self._replication_factor,
                configs={"cleanup.policy": "compact"},
            )
            self._require(admin.create_topics([wanted])[self.name])
            self._require(admin.await_partitions({self.name: PARTITIONS})[self.name])
        self._is_there = True

    def write(self, records: Sequence[Record]) -> None:
        """Returns when all are acknowledged. Raises `BrokerError`."""
        self.ensure()
        try:
            self._clients.writer(self.cluster).write(self.name, records)
        except BrokerError:
            # Somebody may have deleted it; the next call looks, and makes it again.
            self._is_there = False
            raise

    def _require(self, outcome: object) -> None:
        if not isinstance(outcome, BrokerError):
            return
        if self.name in str(outcome):
            raise outcome
        factor = self._replication_factor
        text = f"{outcome} (topic {self.name}, replication factor {factor})"
        raise type(outcome)(text) from outcome
