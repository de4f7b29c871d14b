"""Find per partition where the histories of two clusters part. Driver only.

Source and target are those of the flow that was failed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.view import ConfigOrigin, TopicSetting, TopicView
from heliograph.config.schema import FlowConfig
from heliograph.errors import MirrorError, NotAuthorised
from heliograph.failback.divergence import PartitionDivergence, TopicDivergence
from heliograph.failback.export import TOPIC_PREFIX
from heliograph.failback.lane import ClusterPair, known, part, with_mirrors
from heliograph.ledger.locations import all_topics, begun_topics, locate_lanes
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName, TopicPartition
from heliograph.topics.naming import naming_policy
from heliograph.topics.provisioning import is_topic_level
from heliograph.topics.selection import select_topics

_AT_ONCE_MAX: Final = 8
_CLEANUP: Final = "cleanup.policy"

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""First offset and end of each partition that is there."""


def is_renaming(flow: FlowConfig, view: LedgerView) -> bool:
    """Whether mirrored topics have other names than their originals, so that only the flow writes
    them."""
    policy = naming_policy(flow)
    held = begun_topics(view) or {TopicName("topic")}
    return not any(policy.target_topic(topic) == topic for topic in held)


async def find_divergences(pair: ClusterPair) -> tuple[TopicDivergence, ...]:
    """Every topic that either side has, in order of name. Raises `MirrorError`."""
    await pair.ledger.store.catch_up()
    admin = ClusterAdmin(pair.source_config)
    names = _topics(pair, admin)
    seen = admin.describe_topics(names)
    settings = admin.topic_configs(seen)
    compacted = _compacted(settings) | _compacted(
        ClusterAdmin(pair.target_config).topic_configs(names)
    )
    await pair.source.refresh(names)
    await pair.target.refresh(names)
    pair = await with_mirrors(pair)
    source, target = await _bounds(pair.source, names), await _bounds(pair.target, names)
    await _require_no_open_transactions(pair, source)
    locations = {
        location.lane.source: location
        for location in await locate_lanes(pair.flow, pair.target, pair.ledger.store, all_topics())
    }
    turns = asyncio.Semaphore(_AT_ONCE_MAX)

    async def found_at(at: TopicPartition) -> tuple[PartitionDivergence, bool]:
        async with turns:
            return await part(
                pair,
                at,
                locations.get(at),
                source.get(at),
                target.get(at),
                is_compacted=at.topic in compacted,
            )

    found: list[TopicDivergence] = []
    for name in names:
        count = max(_partition_count(cluster, name) for cluster in (pair.source, pair.target))
        parts = await asyncio.gather(
            *(found_at(TopicPartition(topic=name, partition=number)) for number in range(count))
        )
        on_source, on_target = pair.source.topic(name), pair.target.topic(name)
        configs = _own_settings(settings.get(name, {}))
        found.append(
            TopicDivergence(
                topic=name,
                source_topic_id=None if on_source is None else on_source.id,
                target_topic_id=None if on_target is None else on_target.id,
                partitions=tuple(partition for partition, _ in parts),
                is_recreated=any(recreated for _, recreated in parts),
                replication_factor=_replicas(seen.get(name), pair.flow),
                configs=configs,
                is_seedable="delete" in _cleanup(settings.get(name, {})),
            )
        )
    return tuple(found)


def _topics(pair: ClusterPair, source: ClusterAdmin) -> list[TopicName]:
    """Mirrored ones, and those that the flow or the way back would mirror."""
    target = ClusterAdmin(pair.target_config)
    policy = naming_policy(pair.flow)
    wanted = {
        topic
        for topic in begun_topics(pair.ledger.store.view)
        if policy.target_topic(topic) == topic
    }
    back = pair.config.flow(pair.back)
    for flow, admin in ((pair.flow, source), (back, target)):
        selected = select_topics(flow, admin.topic_names()).mirrored
        wanted |= {topic for topic, renamed in selected if topic == renamed}
    return sorted(topic for topic in wanted if not topic.startswith(TOPIC_PREFIX))


async def _bounds(cluster: Cluster, names: Iterable[TopicName]) -> Bounds:
    partitions = _partitions(cluster, names)
    starts = await cluster.list_offsets(partitions, EARLIEST)
    ends = await cluster.list_offsets(partitions, LATEST)
    return {at: (known(starts[at]), known(ends[at])) for at in partitions}


async def _require_no_open_transactions(pair: ClusterPair, source: Bounds) -> None:
    if not pair.flow.read_committed:
        return
    stable = await pair.source.list_offsets(source, LATEST, read_committed=True)
    for at, (_, end) in source.items():
        if known(stable[at]) < end:
            raise MirrorError(
                f"cluster {pair.source.alias}: a transaction is open on {at}, so it is not known "
                "yet which of its records count; the broker ends it when it times out "
                "(transaction.timeout.ms), then run this command again"
            )


def _partitions(cluster: Cluster, names: Iterable[TopicName]) -> list[TopicPartition]:
    return [
        TopicPartition(topic=name, partition=number)
        for name in names
        for number in range(_partition_count(cluster, name))
    ]


def _partition_count(cluster: Cluster, name: TopicName) -> int:
    topic = cluster.topic(name)
    return 0 if topic is None else topic.partition_count


def _own_settings(
    settings: Mapping[str, TopicSetting] | NotAuthorised,
) -> dict[str, str]:
    """What was set on the topic itself; a new one gets the rest from its brokers."""
    if isinstance(settings, NotAuthorised):
        raise settings
    return {
        setting.name: setting.value
        for setting in settings.values()
        if setting.value is not None
        and setting.origin is ConfigOrigin.TOPIC
        and is_topic_level(setting)
    }


def _compacted(
    settings: Mapping[TopicName, Mapping[str, TopicSetting] | NotAuthorised],
) -> set[TopicName]:
    return {name for name, found in settings.items() if "compact" in _cleanup(found)}


def _cleanup(settings: Mapping[str, TopicSetting] | NotAuthorised) -> str:
    setting = None if isinstance(settings, NotAuthorised) else settings.get(_CLEANUP)
    return "delete" if setting is None or setting.value is None else setting.value


def _replicas(topic: TopicView | None, flow: FlowConfig) -> int:
    counts = [] if topic is None else [each.replica_count or 0 for each in topic.partitions]
    return max(counts, default=0) or flow.replication_factor
