"""Several lanes of one flow, and a source that counts the looks at its metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from heliograph.broker.cluster import Leader
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running
from heliograph.model import TopicName, TopicPartition
from tests.unit.copy.kit import FakeCluster, carried_lane, running_at


class CountedCluster(FakeCluster):
    """Counts the looks at its metadata."""

    def __init__(self) -> None:
        self.looks: list[set[TopicName]] = []
        self.at = Leader(broker=1, epoch=0)

    def leader(self, partition: TopicPartition) -> Leader | None:
        return self.at

    async def refresh(self, names: Iterable[TopicName]) -> None:
        self.looks.append(set(names))
        await asyncio.sleep(0)


def lanes_of(count: int, cluster: FakeCluster | None = None) -> list[tuple[CarriedLane, Running]]:
    """Lanes of one flow, running, one for each partition."""
    first, flow = carried_lane(), carried_lane(FetchLimits(metadata_ms_max=1)).flow
    flow.source = cluster or CountedCluster()  # type: ignore[assignment]
    found: list[tuple[CarriedLane, Running]] = []
    for number in range(count):
        source = TopicPartition(topic=TopicName("orders"), partition=number)
        spec = replace(first.spec, id=replace(first.spec.id, source=source))
        lane = CarriedLane(spec, flow)
        lane.enter(running := running_at(lane))
        found.append((lane, running))
    return found
