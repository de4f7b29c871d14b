"""Send lanes back, or forward, to a chosen source offset. Runs on the driver.

What Connect calls altering or resetting offsets. Nothing on the target is removed: from the next
record on the lane goes on at the chosen offset, and what it copies again is there twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, MirrorError
from heliograph.inspect.status import StatusReader
from heliograph.ledger.access import lease_ledger, require_unled
from heliograph.ledger.entries import StartEntry
from heliograph.ledger.locations import LaneLocation, Wanted
from heliograph.model import FlowId, LaneId, TopicPartition

TO_EARLIEST: Final = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReset:
    lane: LaneId
    position: int
    before_offset: int
    """The source offset the lane would have gone on with."""
    offset: int
    """The one it goes on with instead."""

    @property
    def repeated(self) -> int:
        """Source offsets that are copied again."""
        return max(0, self.before_offset - self.offset)

    @property
    def skipped(self) -> int:
        """Source offsets that are never copied."""
        return max(0, self.offset - self.before_offset)


async def reset_lanes(
    config: MirrorConfig,
    flow: FlowId,
    wanted: Wanted,
    to: str | int,
    *,
    partition: int | None = None,
    write: bool,
) -> tuple[LaneReset, ...]:
    """What a reset would do to each lane of the topics, done if `write`; raises `MirrorError`."""
    reader = StatusReader(config, wanted)
    try:
        planned = await _plan(reader, config.flow(flow), to, partition)
        require_unled(reader.ledger(flow).view, flow)
        if write:
            # A driver that started since would go on where the lanes are, so the flow is leased,
            # and planned again: it may have run and ended in between.
            async with lease_ledger(config, flow) as ledger:
                planned = await _plan(reader, config.flow(flow), to, partition)
                await ledger.store.write([_start(location, reset) for location, reset in planned])
        return tuple(reset for _, reset in planned)
    finally:
        await reader.close()


async def _plan(
    reader: StatusReader, flow: FlowConfig, to: str | int, partition: int | None
) -> list[tuple[LaneLocation, LaneReset]]:
    locations = [
        location
        for location in await reader.locations(flow)
        if partition is None or location.lane.source.partition == partition
    ]
    bounds = await _bounds(reader, flow, locations)
    return [
        (location, _reset(location, bounds[location.lane.source], to)) for location in locations
    ]


async def _bounds(
    reader: StatusReader, flow: FlowConfig, locations: list[LaneLocation]
) -> Mapping[TopicPartition, tuple[int, int]]:
    source = reader.source(flow.id)
    partitions = [location.lane.source for location in locations]
    await source.refresh({partition.topic for partition in partitions})
    first = await source.list_offsets(partitions, EARLIEST)
    end = await source.list_offsets(partitions, LATEST, read_committed=flow.read_committed)
    return {at: (_known(first[at]), _known(end[at])) for at in partitions}


def _known(offset: int | BrokerError) -> int:
    if isinstance(offset, BrokerError):
        raise offset
    return offset


def _reset(location: LaneLocation, bounds: tuple[int, int], to: str | int) -> LaneReset:
    first, end = bounds
    offset = first if to == TO_EARLIEST else int(to)
    if not first <= offset <= end:
        raise MirrorError(
            f"{location.lane}: offset {offset} is not on the source, which holds [{first}, {end})"
        )
    if not location.exact and location.position:
        raise MirrorError(
            f"{location.lane}: its exact position is unknown; run the mirror once first"
        )
    return LaneReset(
        lane=location.lane,
        position=location.position,
        before_offset=location.source_next_offset,
        offset=offset,
    )


def _start(location: LaneLocation, reset: LaneReset) -> StartEntry:
    last = location.record.starts[-1]
    # The first start at a position counts, so one that follows at once takes the other's key.
    author = last.author if last.position == location.position else uuid.uuid4().hex
    return replace(
        last,
        position=location.position,
        author=author,
        source_offset=reset.offset,
        target_offset=location.target_next_offset,
        at_ms=now_ms(),
    )
