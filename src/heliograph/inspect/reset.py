"""Send lanes back, or forward, to a chosen source offset. Runs on the driver.

What Connect calls altering or resetting offsets. Nothing on the target is removed: from the next
record on the lane goes on at the chosen offset, and what it copies again is there twice. A lane
whose source topic was deleted and created again goes on with the new one; a lane whose target topic
was is forgotten and begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import read_batches
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, MirrorError
from heliograph.inspect.status import StatusReader
from heliograph.ledger.access import lease_ledger, require_unled
from heliograph.ledger.entries import Entry, StartEntry, Tombstone, new_author
from heliograph.ledger.locate import anchor_of, is_other_topic
from heliograph.ledger.locations import LaneLocation, Wanted
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId, LaneId, TopicId, TopicPartition

TO_EARLIEST: Final = "earliest"

Destination = Callable[[TopicPartition], str | int | None]
"""Where a lane shall go on, by its source partition; None leaves it where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReset:
    lane: LaneId
    position: int
    before_offset: int | None
    """The source offset the lane would have gone on with; None where the source topic or the
    target's log is another one."""
    first_offset: int
    """The first one the source has."""
    offset: int
    """The one it goes on with instead."""
    remark: str = ""

    @property
    def repeated(self) -> int:
        """Source offsets that are copied again."""
        return 0 if self.before_offset is None else max(0, self.before_offset - self.offset)

    @property
    def skipped(self) -> int:
        """Source offsets that are never copied."""
        reached = self.first_offset if self.before_offset is None else self.before_offset
        return max(0, self.offset - reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    location: LaneLocation
    reset: LaneReset
    start: StartEntry
    begins_anew: bool
    """Whether all that the ledger has of the lane is about a target log that is gone."""

    def entries(self, view: LedgerView) -> list[Entry | Tombstone]:
        source = self.location.lane.source
        gone = view.lane_keys(source.topic, source.partition) if self.begins_anew else ()
        return [*(Tombstone(key=key) for key in gone), self.start]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResets:
    resets: tuple[LaneReset, ...]
    entries: tuple[Entry | Tombstone, ...]
    """What the ledger has to hear, in this order."""


async def plan_resets(
    config: MirrorConfig, flow: FlowId, wanted: Wanted, to: Destination
) -> PlannedResets:
    """For the driver that leads the flow and carries none of the lanes; raises `MirrorError`."""
    reader = StatusReader(config, wanted)
    try:
        planned = await _plan(reader, config.flow(flow), to)
        view = reader.ledger(flow).view
        return PlannedResets(
            resets=tuple(each.reset for each in planned),
            entries=tuple(entry for each in planned for entry in each.entries(view)),
        )
    finally:
        await reader.close()


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

    def chosen(lane: TopicPartition) -> str | int | None:
        return to if partition is None or lane.partition == partition else None

    return await reset_each(config, flow, wanted, chosen, write=write)


async def reset_each(
    config: MirrorConfig, flow: FlowId, wanted: Wanted, to: Destination, *, write: bool
) -> tuple[LaneReset, ...]:
    """The same with an offset for each lane. All are written at once, or none."""
    reader = StatusReader(config, wanted)
    try:
        planned = await _plan(reader, config.flow(flow), to)
        await require_unled(reader.ledger(flow), flow)
        if write:
            # A driver that started since would go on where the lanes are, so the flow is leased,
            # and planned again: it may have run and ended in between.
            async with lease_ledger(config, flow) as ledger:
                planned = await _plan(reader, config.flow(flow), to)
                view = ledger.store.view
                await ledger.store.write([e for each in planned for e in each.entries(view)])
        return tuple(each.reset for each in planned)
    finally:
        await reader.close()


async def _plan(reader: StatusReader, flow: FlowConfig, to: Destination) -> list[_Planned]:
    located = [(each, to(each.lane.source)) for each in await reader.locations(flow)]
    chosen = {each.lane: offset for each, offset in located if offset is not None}
    locations = [each for each, _ in located if each.lane in chosen]
    source, target = reader.source(flow.id), reader.target(flow.id)
    partitions = [location.lane.source for location in locations]
    await source.refresh({partition.topic for partition in partitions})
    first = await source.list_offsets(partitions, EARLIEST)
    end = await source.list_offsets(partitions, LATEST, read_committed=flow.read_committed)
    at_target = [location.target for location in locations]
    target_first = await target.list_offsets(at_target, EARLIEST)
    target_end = await target.list_offsets(at_target, LATEST)
    flow_entry = reader.ledger(flow.id).view.flow
    producer_id = -1 if flow_entry is None else flow_entry.producer_id
    planned: list[_Planned] = []
    for location in locations:
        at = location.lane.source
        bounds = _known(first[at]), _known(end[at])
        log = _known(target_first[location.target]), _known(target_end[location.target])
        source_topic, target_topic = source.topic(at.topic), target.topic(location.target.topic)
        planned.append(
            _planned(
                location,
                chosen[location.lane],
                bounds,
                target_end=log[1],
                nothing_left=await _is_nothing_left(target, location, log, producer_id),
                source_topic_id=None if source_topic is None else source_topic.id,
                target_topic_id=None if target_topic is None else target_topic.id,
            )
        )
    return planned


async def _is_nothing_left(
    target: Cluster, location: LaneLocation, log: tuple[int, int], producer_id: int
) -> bool:
    """Whether the target has deleted all since the lane's head and forgotten who wrote it: no
    mirror finds the lane's place then (`copy.nothing_left`)."""
    start, end = log
    if location.last_sequence >= 0 or start <= anchor_of(location.record).target_offset:
        return False
    async for header, _ in read_batches(target, location.target, start, end):
        if header.producer_id == producer_id:
            return False
    return True


def _known(offset: int | BrokerError) -> int:
    if isinstance(offset, BrokerError):
        raise offset
    return offset


def _planned(
    location: LaneLocation,
    to: str | int,
    bounds: tuple[int, int],
    *,
    target_end: int,
    nothing_left: bool,
    source_topic_id: TopicId | None,
    target_topic_id: TopicId | None,
) -> _Planned:
    first, end = bounds
    offset = first if to == TO_EARLIEST else int(to)
    if not first <= offset <= end:
        raise MirrorError(
            f"{location.lane}: offset {offset} is not on the source, which holds [{first}, {end})"
        )
    last = location.record.starts[-1]
    other_source = is_other_topic(last.source_topic_id, source_topic_id)
    other_target = is_other_topic(last.target_topic_id, target_topic_id)
    # A target that lost records ends before where the map says, and the map is of no use any more.
    is_cut = not other_target and target_end < location.target_next_offset
    # Nor is one that ends before what is left of the log.
    is_lost = not other_target and (is_cut or nothing_left)
    _require_place(location, other_target=other_target, is_lost=is_lost)
    position = 0 if other_target else location.position
    # The first start at a position counts, so one that follows at once takes the other's key.
    keeps_key = not other_target and last.position == position
    start = replace(
        last,
        position=position,
        author=last.author if keeps_key else new_author(),
        source_offset=offset,
        target_offset=target_end if other_target or is_lost else location.target_next_offset,
        source_topic_id=source_topic_id or last.source_topic_id,
        target_topic_id=target_topic_id or last.target_topic_id,
        at_ms=now_ms(),
        adopted=is_lost or (last.adopted and not other_target),
    )
    remarks = [
        *["source topic recreated"] * other_source,
        *["target topic recreated"] * other_target,
        *["target lost records"] * is_cut,
        *["nothing since its last head is left on the target"] * (is_lost and not is_cut),
    ]
    reset = LaneReset(
        lane=location.lane,
        position=position,
        before_offset=None if remarks else location.source_next_offset,
        first_offset=first,
        offset=offset,
        remark=", ".join(remarks),
    )
    anew = other_target or is_lost
    return _Planned(location=location, reset=reset, start=start, begins_anew=anew)


def _require_place(location: LaneLocation, *, other_target: bool, is_lost: bool) -> None:
    """Raises `MirrorError` where a start could not be told apart from what the target has."""
    if other_target and location.last_sequence >= 0:
        raise MirrorError(
            f"{location.lane}: the recreated {location.target.topic} already holds batches of this "
            "flow; delete it, let the mirror create it again, then reset the lane"
        )
    # Behind the end of a log that was cut nothing of ours can be, whatever the head says.
    if not (other_target or location.exact or is_lost) and location.position:
        raise MirrorError(
            f"{location.lane}: its exact position is unknown; run the mirror once first"
        )
