"""What the source says of its own ends, if it says anything. Driver only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from heliograph.broker.cluster import LATEST, Cluster, open_cluster
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.inspect.lag import PendingRecord, first_pending_record
from heliograph.ledger.access import within
from heliograph.ledger.locations import LaneLocation
from heliograph.model import TopicPartition
from heliograph.topics.naming import is_heartbeats, naming_policy

_LOOKS_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEnds:
    at_ms: int
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """First offset that the flow may not read; partitions the source does not tell are missing."""
    waiting: Mapping[TopicPartition, PendingRecord] = field(default_factory=dict)
    """The first record behind a lane's place, where the log goes further than that."""
    problem: str = ""
    """Why the source does not answer; then nothing else is known."""


async def look_at_source(
    config: MirrorConfig, flow: FlowConfig, locations: Collection[LaneLocation], *, wait_s: float
) -> SourceEnds:
    """Ends, and what waits there for each lane; bounded by `wait_s`, and never raises for it."""
    async with source_cluster(config, flow) as source:
        try:
            return await within(_look(source, flow, locations), wait_s, f"cluster {source.alias}")
        except BrokerError as exc:
            return SourceEnds(at_ms=now_ms(), problem=str(exc))


@asynccontextmanager
async def source_cluster(config: MirrorConfig, flow: FlowConfig) -> AsyncIterator[Cluster]:
    """With the settings of the consumer that mirrors the flow."""
    source = open_cluster(config.source_of(flow.id), "consumer")
    try:
        yield source
    finally:
        source.close()


def without_heartbeats(flow: FlowConfig, locations: Iterable[LaneLocation]) -> list[LaneLocation]:
    """Without heartbeats: this mirror writes those itself, so they never come to rest."""
    policy = naming_policy(flow)
    return [
        location for location in locations if not is_heartbeats(policy, location.lane.source.topic)
    ]


async def high_watermarks(
    source: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the logs end, open transactions included; raises `BrokerError` where one is unknown."""
    await source.refresh({partition.topic for partition in partitions})
    found = await source.list_offsets(partitions, LATEST)
    for answer in found.values():
        if isinstance(answer, BrokerError):
            raise BrokerUnreachable(str(answer)) from answer
    return {at: end for at, end in found.items() if isinstance(end, int)}


async def _look(
    source: Cluster, flow: FlowConfig, locations: Collection[LaneLocation]
) -> SourceEnds:
    partitions = [location.lane.source for location in locations]
    await source.refresh({partition.topic for partition in partitions})
    answers = await source.list_offsets(partitions, LATEST, read_committed=flow.read_committed)
    at_ms = now_ms()
    ends = {at: end for at, end in answers.items() if isinstance(end, int)}
    turns = asyncio.Semaphore(_LOOKS_AT_ONCE)

    async def first(location: LaneLocation) -> tuple[TopicPartition, PendingRecord]:
        partition = location.lane.source
        async with turns:
            return partition, await first_pending_record(
                source,
                partition,
                location.source_next_offset,
                ends[partition],
                read_committed=flow.read_committed,
            )

    behind = [p for p in locations if ends.get(p.lane.source, -1) > p.source_next_offset]
    return SourceEnds(
        at_ms=at_ms, ends=ends, waiting=dict(await asyncio.gather(*map(first, behind)))
    )
