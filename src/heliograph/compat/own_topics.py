"""The topics Heliograph makes for itself: ledger, checkpoints, offset syncs, heartbeats, canary,
dead letters. No I/O; runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.broker.topic_changes import TopicToCreate
from heliograph.config.schema import FlowConfig
from heliograph.ledger.entries import LEDGER_PARTITIONS, ledger_topic
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import (
    HEARTBEATS,
    canary_topic,
    naming_policy,
    source_alias,
    target_alias,
)

PARTITIONS: Final = 1
"""MirrorMaker 2's clients read partition 0 only."""
_LETTER_BYTES_MAX: Final = 100 * 1024 * 1024
"""What brokers take in one request unless they are told otherwise."""
_CANARY_RETENTION_MS: Final = 7 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopic:
    what: str
    cluster: ClusterAlias
    """Where it is made."""
    name: TopicName
    replication_factor: int
    factor_key: str
    """The key of the configuration that has the replication factor."""
    partitions: int = PARTITIONS
    configs: Mapping[str, str] = field(
        default_factory=lambda: {"cleanup.policy": "compact"}, hash=False
    )

    @property
    def to_create(self) -> TopicToCreate:
        return TopicToCreate(
            source=self.name,
            name=self.name,
            partitions=self.partitions,
            replication_factor=self.replication_factor,
            configs=self.configs,
            factor_key=self.factor_key,
        )


def own_topics(pair: FlowConfig) -> Iterator[OwnTopic]:
    """Those a run makes for one pair of clusters; one that mirrors nothing may have heartbeats."""
    if pair.enabled:
        yield ledger_of(pair)
    if pair.heartbeats.enabled:
        yield heartbeats_of(pair)
    if pair.enabled and pair.offset_syncs.enabled:
        yield offset_syncs_of(pair)
    if pair.enabled and pair.checkpoints.enabled:
        yield checkpoints_of(pair)
    if pair.enabled and pair.canary.enabled:
        yield canary_of(pair)
    if pair.enabled and pair.writes_letters:
        yield letters_of(pair)


def ledger_of(flow: FlowConfig) -> OwnTopic:
    return OwnTopic(
        what="ledger",
        cluster=flow.id.target,
        name=ledger_topic(flow.id.source),
        replication_factor=flow.replication_factor,
        factor_key="replication.factor",
        partitions=LEDGER_PARTITIONS,
    )


def letters_of(flow: FlowConfig) -> OwnTopic:
    """Takes records that other topics are too strict for, and keeps them."""
    return OwnTopic(
        what="dead letters",
        cluster=flow.id.target,
        name=flow.letters_topic,
        replication_factor=flow.dead_letter_replication_factor or flow.replication_factor,
        factor_key="dead.letter.topic.replication.factor",
        configs={
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "max.message.bytes": str(_LETTER_BYTES_MAX),
        },
    )


def heartbeats_of(flow: FlowConfig) -> OwnTopic:
    return OwnTopic(
        what="heartbeats",
        cluster=flow.id.target,
        name=HEARTBEATS,
        replication_factor=flow.heartbeats.replication_factor,
        factor_key="heartbeats.topic.replication.factor",
    )


def offset_syncs_of(flow: FlowConfig) -> OwnTopic:
    """On one side of the flow, named for the other."""
    on_source = flow.offset_syncs.location == "source"
    other = target_alias(flow) if on_source else source_alias(flow)
    return OwnTopic(
        what="offset syncs",
        cluster=flow.id.source if on_source else flow.id.target,
        name=naming_policy(flow).offset_syncs_topic(other),
        replication_factor=flow.offset_syncs.replication_factor,
        factor_key="offset-syncs.topic.replication.factor",
    )


def checkpoints_of(flow: FlowConfig) -> OwnTopic:
    return OwnTopic(
        what="checkpoints",
        cluster=flow.id.target,
        name=naming_policy(flow).checkpoints_topic(source_alias(flow)),
        replication_factor=flow.checkpoints.replication_factor,
        factor_key="checkpoints.topic.replication.factor",
    )


def canary_of(flow: FlowConfig) -> OwnTopic:
    """On the source, for all flows from there."""
    return OwnTopic(
        what="canary",
        cluster=flow.id.source,
        name=canary_topic(source_alias(flow)),
        replication_factor=flow.canary.replication_factor,
        factor_key="canary.topic.replication.factor",
        configs={"cleanup.policy": "delete", "retention.ms": str(_CANARY_RETENTION_MS)},
    )
