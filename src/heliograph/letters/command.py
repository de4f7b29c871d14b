"""What `heliograph letters` does with one flow. Runs on the driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.config.plugins import UnusableClass, load_function
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import TransformUnusable
from heliograph.ledger.access import OpenLedger, read_ledger
from heliograph.letters.append import end_of, records_from
from heliograph.letters.letter import ReadLetter
from heliograph.letters.reading import Wanted, read_letters
from heliograph.letters.replay import Repair, Replay, Replayed, Replayer, replayed_of
from heliograph.model import OffsetRange, TopicPartition
from heliograph.topics.naming import naming_policy
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLetter:
    letter: ReadLetter
    is_replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How records are replayed."""

    repair: str | None = None
    """`module:function` on one record."""
    again: bool = False
    """Also those that were replayed before."""
    writes: bool = True


async def listed(config: MirrorConfig, flow: FlowConfig, wanted: Wanted) -> list[ListedLetter]:
    """Raises `MirrorError`."""
    async with read_ledger(config, flow.id) as ledger:
        replayed = replayed_of(ledger.store.view)
        return [
            ListedLetter(letter=each, is_replayed=(each.source, each.offset) in replayed)
            async for each in read_letters(ledger.target, flow.id, flow.letters_topic, wanted)
        ]


async def replay_letters(
    config: MirrorConfig, flow: FlowConfig, wanted: Wanted, how: How
) -> list[Replayed]:
    """Those that are wanted to the ends of their target partitions. Raises `MirrorError`."""
    async with read_ledger(config, flow.id) as ledger:
        found = [
            Replay(source=each.source, offset=each.offset, content=each.content)
            async for each in read_letters(ledger.target, flow.id, flow.letters_topic, wanted)
        ]
        replayer = _replayer(config, flow, ledger, how)
        return await replayer.replay(found, again=how.again, writes=how.writes)


async def replay_source(
    config: MirrorConfig, flow: FlowConfig, source: TopicPartition, offsets: OffsetRange, how: How
) -> list[Replayed]:
    """What the source still has of these offsets, whether it was mirrored or not."""
    async with read_ledger(config, flow.id) as ledger, _source(config, flow) as cluster:
        await cluster.refresh([source.topic])
        start = max(offsets.start, await end_of(cluster, source, EARLIEST))
        end = min(offsets.end, await end_of(cluster, source, LATEST))
        found = [
            Replay(source=source, offset=offset, content=content)
            async for offset, content in records_from(cluster, source, start, end)
        ]
        replayer = _replayer(config, flow, ledger, how)
        return await replayer.replay(found, again=how.again, writes=how.writes)


@asynccontextmanager
async def _source(config: MirrorConfig, flow: FlowConfig) -> AsyncIterator[Cluster]:
    cluster = open_cluster(config.source_of(flow.id), "consumer")
    try:
        yield cluster
    finally:
        cluster.close()


def _replayer(config: MirrorConfig, flow: FlowConfig, ledger: OpenLedger, how: How) -> Replayer:
    policy = naming_policy(flow)
    registries = config.source_of(flow.id).registry, config.target_of(flow.id).registry

    def target_of(source: TopicPartition) -> TopicPartition:
        topic = policy.target_topic(source.topic)
        return TopicPartition(topic=topic, partition=source.partition)

    def transform_of(source: TopicPartition) -> LaneTransform | None:
        where = Where(source.topic, target_of(source).topic, source.partition)
        return LaneTransform.of(flow.transforms, where, registries)

    return Replayer(
        flow=flow.id,
        target=ledger.target,
        ledger=ledger.store,
        target_of=target_of,
        transform_of=transform_of,
        repair=None if how.repair is None else _repair(how.repair),
    )


def _repair(path: str) -> Repair:
    try:
        return load_function(path)
    except UnusableClass as exc:
        raise TransformUnusable("repair", f"`{path}`, {exc}") from exc
