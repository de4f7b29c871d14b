"""Topics of a load test: made with names of their own, filled, removed. Does I/O; driver only.

The scratch flow has an alias of its own for the source, so it has a ledger and topics of its own,
and the user's flow neither sees nor is seen. The scratch topic ends in `.replica`, which
MirrorMaker 2 and Heliograph leave out by default: no other mirror copies it on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.records import Record, RecordWriter
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.config.health import AlarmsConfig
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.config.sections import (
    CheckpointsConfig,
    HeartbeatsConfig,
    OffsetSyncsConfig,
    TopicAclsSync,
    TopicConfigsSync,
)
from heliograph.errors import BrokerError
from heliograph.ledger.entries import ledger_topic
from heliograph.model import ClusterAlias, FlowId, TopicName

PREFIX: Final = "heliograph-tune-"
_RECORDS_AT_ONCE: Final = 5_000
_WRITE_S_MAX: Final = 120.0
_KEPT_MS: Final = 86_400_000
"""Should nobody remove it, a broker does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The names of one load test."""

    flow: FlowId
    """The user's."""
    id: str

    @property
    def topic(self) -> TopicName:
        return TopicName(f"{PREFIX}{self.id}.replica")

    def alias(self, slots: int) -> ClusterAlias:
        """What the source is called in the run with so many slots."""
        return ClusterAlias(f"{PREFIX}{self.id}-{slots}")

    def on_target(self, slots: Sequence[int], topics: Sequence[TopicName]) -> list[TopicName]:
        """All that the runs leave on the target."""
        return [
            name
            for count in slots
            for name in (
                *(TopicName(f"{self.alias(count)}.{topic}") for topic in topics),
                ledger_topic(self.alias(count)),
            )
        ]


def new_scratch(flow: FlowId) -> Scratch:
    return Scratch(flow=flow, id=os.urandom(4).hex())


def scratch_config(
    config: MirrorConfig, scratch: Scratch, topics: Sequence[TopicName], slots: int
) -> MirrorConfig:
    """The user's clusters, clients and Spark, with one flow that copies these topics alone."""
    wanted, alias = config.flow(scratch.flow), scratch.alias(slots)
    flow = FlowConfig(
        id=FlowId(source=alias, target=scratch.flow.target),
        enabled=True,
        topics=tuple(re.escape(topic) for topic in topics),
        topics_exclude=(),
        replication_factor=wanted.replication_factor,
        refresh_enabled=False,
        read_committed=wanted.read_committed,
        clients=wanted.clients,
        topic_configs=TopicConfigsSync(enabled=False),
        acls=TopicAclsSync(enabled=False),
        checkpoints=CheckpointsConfig(enabled=False),
        heartbeats=HeartbeatsConfig(enabled=False, replicated=False),
        offset_syncs=OffsetSyncsConfig(enabled=False),
        alarms=AlarmsConfig(enabled=False),
    )
    source = config.clusters[scratch.flow.source].model_copy(update={"alias": alias})
    target = config.clusters[scratch.flow.target]
    return MirrorConfig(
        clusters={alias: source, scratch.flow.target: target},
        pairs=(flow,),
        engine=config.engine.model_copy(
            update={"slots": slots, "slots_min": 1, "slots_max": None, "reload_enabled": False}
        ),
        secret_variables=config.secret_variables,
    )


@contextmanager
def filled_topic(
    config: MirrorConfig, scratch: Scratch, *, partitions: int, size_bytes: int, record_bytes: int
) -> Iterator[int]:
    """The scratch topic on the source while the block runs; how many records it holds."""
    source = config.clusters[scratch.flow.source]
    admin = ClusterAdmin(source)
    made = TopicToCreate(
        source=scratch.topic,
        name=scratch.topic,
        partitions=partitions,
        replication_factor=-1,
        configs={"retention.ms": str(_KEPT_MS), "cleanup.policy": "delete"},
    )
    try:
        (outcome,) = admin.create_topics([made]).values()
        if isinstance(outcome, BrokerError):
            raise outcome
        count = max(partitions, size_bytes // record_bytes)
        _fill(
            RecordWriter(source, timeout_s=_WRITE_S_MAX),
            scratch.topic,
            count,
            partitions,
            record_bytes,
        )
        yield count
    finally:
        removed(admin, [scratch.topic])


def removed(admin: ClusterAdmin, names: Sequence[TopicName]) -> list[str]:
    """Delete what is there of these; sentences about what could not be deleted."""
    return [
        f"{name} could not be removed from {admin.alias}: {outcome}"
        for name, outcome in admin.delete_topics(names).items()
        if isinstance(outcome, BrokerError)
    ]


def _fill(
    writer: RecordWriter, topic: TopicName, count: int, partitions: int, record_bytes: int
) -> None:
    try:
        for begin in range(0, count, _RECORDS_AT_ONCE):
            numbers = range(begin, min(count, begin + _RECORDS_AT_ONCE))
            # Random bytes, others in each record: a user's `producer.compression.type` must not
            # make the copying look faster than it is.
            writer.write(
                topic,
                [
                    Record(key=None, value=os.urandom(record_bytes), partition=n % partitions)
                    for n in numbers
                ],
            )
    finally:
        writer.close()
