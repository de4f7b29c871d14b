"""Topics of one partition that Heliograph writes records to, made when first needed. Runs on the
driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heliograph.broker.admin import Outcome
from heliograph.broker.clients import Clients
from heliograph.broker.records import Record
from heliograph.compat.own_topics import OwnTopic
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError
from heliograph.model import TopicName


class InternalTopic:
    """Created as `OwnTopic` says; one that is there is taken as it is, as MirrorMaker 2 does."""

    def __init__(self, clients: Clients, cluster: ClusterConfig, topic: OwnTopic) -> None:
        """`cluster` is the topic's, as a client of the flow reaches it."""
        self.cluster: Final = cluster
        self.name: Final[TopicName] = topic.name
        self._clients, self._topic = clients, topic
        self._is_there = False

    def ensure(self) -> None:
        """Raises `BrokerError`."""
        if self._is_there:
            return
        admin, partitions = self._clients.admin(self.cluster), self._topic.partitions
        if self.name not in admin.describe_topics([self.name]):
            _require(admin.create_topics([self._topic.to_create])[self.name])
            _require(admin.await_partitions({self.name: partitions})[self.name])
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


def _require(outcome: Outcome) -> None:
    if isinstance(outcome, BrokerError):
        raise outcome
