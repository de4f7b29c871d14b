"""Find where each lane goes on: log first, ledger second, as compare-and-append demands. Runs on
executors.

1. The target partition's end and the last sequence it has of our producer, hence the position.
2. The ledger, read to its end *after* that: a run is durable before the first batch that needs it,
so a
   ledger read later than the log always explains the log.
3. Position to source offset, by the runs.

Where the broker no longer remembers the producer, or others wrote in between, the batches since
the last
head are read and say it themselves.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.broker.log import read_batches
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError, LeaderMoved
from heliograph.ledger.entries import StartEntry, runs_entries
from heliograph.ledger.positions import position_from_sequence
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LaneRecord
from heliograph.model import Offsets, OnExisting, StallReason, StartAt
from heliograph.shuttle.flow import Flow
from heliograph.shuttle.lane import CarriedLane
from heliograph.shuttle.layout import Cursor, Stamp
from heliograph.shuttle.seed import seed

AUTHOR: Final = uuid.uuid4().hex
"""Tells this process's start entries from another's; the first one in the ledger counts for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A target partition as the log showed it, before the ledger was read."""

    start: int
    end: int
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    cursor: Cursor
    identical: bool
    foreign_records: int = 0
    """Found since the last head and not in the map before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Somebody must decide; the lane's own position is known all the same."""

    reason: StallReason
    detail: str
    position: int = 0


Found = Place | Refused | BrokerError


async def find_places(flow: Flow, lanes: Sequence[CarriedLane]) -> dict[CarriedLane, Found]:
    """Where each lane goes on; what one lane meets does not touch the others."""
    found: dict[CarriedLane, Found] = {}
    await flow.source.refresh({lane.spec.id.source.topic for lane in lanes})
    await flow.target.refresh({lane.spec.target.topic for lane in lanes})
    if flow.stamp is None:
        await flow.ledger.catch_up()
        flow.stamp = _stamp(flow)
    seen = await _look(flow, lanes, found)
    await flow.ledger.catch_up()
    newborn = [lane for lane in seen if _record(flow, lane) is None]
    if newborn:
        await _bear(flow, newborn, seen, found)
        await flow.ledger.catch_up()
    for lane, partition in seen.items():
        if lane in found:
            continue
        record = _record(flow, lane)
        if record is None:
            raise InvariantError(f"{lane.spec.id}: its start entry is not in the ledger")
        try:
            found[lane] = await _place(flow, lane, record, partition)
        except BrokerError as exc:
            found[lane] = exc
    return found


def _stamp(flow: Flow) -> Stamp:
    entry = flow.ledger.view.flow
    if entry is None:
        raise BrokerUnreachable(f"{flow.id}: the ledger names no producer yet")
    return Stamp(entry.producer_id, entry.producer_epoch)


def _record(flow: Flow, lane: CarriedLane) -> LaneRecord | None:
    source = lane.spec.id.source
    record = flow.ledger.view.lane(source.topic, source.partition)
    return record if record is not None and record.starts else None


async def _look(
    flow: Flow, lanes: Sequence[CarriedLane], found: dict[CarriedLane, Found]
) -> dict[CarriedLane, Seen]:
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: looked at the log without a producer")
    targets = [lane.spec.target for lane in lanes]
    sequences = await flow.target.last_sequences(targets, flow.stamp.producer_id)
    starts = await flow.target.list_offsets(targets, EARLIEST)
    ends = await flow.target.list_offsets(targets, LATEST)
    seen: dict[CarriedLane, Seen] = {}
    for lane in lanes:
        target = lane.spec.target
        sequence, start, end = sequences[target], starts[target], ends[target]
        if isinstance(sequence, BrokerError):
            found[lane] = sequence
        elif isinstance(start, BrokerError):
            found[lane] = start
        elif isinstance(end, BrokerError):
            found[lane] = end
        else:
            seen[lane] = Seen(start=start, end=end, last_sequence=sequence)
    return seen


# -- lanes without history


async def _bear(
    flow: Flow,
    lanes: Sequence[CarriedLane],
    seen: dict[CarriedLane, Seen],
    found: dict[CarriedLane, Found],
) -> None:
    """Write where each new lane starts. Two mirrors may do so at once: the first entry counts for
    both."""
    entries: list[StartEntry] = []
    for start_at in StartAt:
        some = [lane for lane in lanes if lane.spec.start_at is start_at]
        offsets = await flow.source.list_offsets(
            [lane.spec.id.source for lane in some],
            EARLIEST if start_at is StartAt.EARLIEST else LATEST,
        )
        for lane in some:
            offset, partition = offsets[lane.spec.id.source], seen[lane]
            if isinstance(offset, BrokerError):
                found[lane] = offset
                continue
            occupied = partition.end > partition.start
            if occupied and lane.spec.on_existing is OnExisting.REFUSE:
                found[lane] = Refused(
                    reason=StallReason.TARGET_NOT_EMPTY,
                    detail=f"{lane.spec.target} holds {partition.end - partition.start} records "
                    "this flow did not write, and on.existing = refuse",
                )
                continue
            if lane.spec.offsets is Offsets.PRESERVE and not occupied and partition.end < offset:
                try:
                    partition = await _seeded(flow, lane, partition, offset)
                except BrokerError as exc:
                    found[lane] = exc
                    continue
                seen[lane] = partition
            entries.append(_start_entry(flow, lane, offset, partition.end))
    await flow.ledger.write(entries)


async def _seeded(flow: Flow, lane: CarriedLane, partition: Seen, offset: int) -> Seen:
    end = await seed(flow.target, lane.spec.target, partition.end, offset)
    return Seen(start=end, end=end, last_sequence=partition.last_sequence)


def _start_entry(
    flow: Flow, lane: CarriedLane, source_offset: int, target_offset: int
) -> StartEntry:
    target_topic = flow.target.topic(lane.spec.target.topic)
    return StartEntry(
        topic=lane.spec.id.source.topic,
        partition=lane.spec.id.source.partition,
        position=0,
        author=AUTHOR,
        source_offset=source_offset,
        target_offset=target_offset,
        source_topic_id=lane.spec.source_topic_id,
        target_topic_id=target_topic.id if target_topic else None,
        at_ms=now_ms(),
    )


# -- lanes with history


async def _place(flow: Flow, lane: CarriedLane, record: LaneRecord, seen: Seen) -> Found:
    start = record.starts[-1]
    anchor_position, anchor_target = start.position, start.target_offset
    if record.head is not None and record.head.position >= start.position:
        anchor_position, anchor_target = record.head.position, record.head.target_next_offset
    position, foreign = await _position(flow, lane, record, seen, (anchor_position, anchor_target))
    target_topic = flow.target.topic(lane.spec.target.topic)
    if target_topic is None:
        return LeaderMoved(f"cluster {flow.target.alias}: {lane.spec.target} is gone")
    if start.target_topic_id not in (None, target_topic.id):
        detail = f"{lane.spec.target} is not the topic this lane began to write"
        return Refused(reason=StallReason.TARGET_RECREATED, detail=detail, position=position)
    if start.source_topic_id not in (None, lane.spec.source_topic_id):
        detail = f"{lane.spec.id.source} was deleted and created again"
        return Refused(reason=StallReason.TOPIC_RECREATED, detail=detail, position=position)
    if not record.runs.explains(position):
        detail = f"{lane.spec.target}: no run explains position {position}"
        return Refused(reason=StallReason.UNEXPLAINED_LOG, detail=detail, position=position)
    source_offset = record.runs.source_offset_at(position)
    return Place(
        cursor=Cursor(
            source_offset,
            position,
            max(seen.end, record.runs.target_offset_at(position)),
            source_offset,
        ),
        identical=record.runs.identical(position + 1),
        foreign_records=foreign,
    )


async def _position(
    flow: Flow, lane: CarriedLane, record: LaneRecord, seen: Seen, anchor: tuple[int, int]
) -> tuple[int, int]:
    """The lane's position, and the records of others that the map did not know of."""
    anchor_position, anchor_target = anchor
    if seen.last_sequence >= 0:
        position = position_from_sequence(seen.last_sequence, anchor_position)
        if not record.runs.explains(position):
            return position, 0
        expected = record.runs.target_offset_at(position)
        if expected == seen.end:
            return position, 0
        if expected > seen.end:
            # The leader has batches its followers do not have yet; they show soon, or are gone.
            raise LeaderMoved(f"{lane.spec.target}: the log is ahead of its high watermark")
    elif seen.end == anchor_target:
        return anchor_position, 0
    elif seen.end < anchor_target:
        raise BrokerError(
            f"{lane.spec.target}: ends at {seen.end}, but {anchor_target} was acknowledged: "
            "the target lost records and no longer knows their producer"
        )
    return await _scan(flow, lane, record, seen, anchor)


async def _scan(
    flow: Flow, lane: CarriedLane, record: LaneRecord, seen: Seen, anchor: tuple[int, int]
) -> tuple[int, int]:
    """Read the batches since the last head; correct the map where others wrote between ours."""
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: scanned a log without a producer")
    position, target_next = anchor
    if seen.start > target_next:
        # What lay between was deleted on the target; while only we write there, it was ours.
        position, target_next = position + seen.start - target_next, seen.start
    corrections: list[Run] = []
    shift = 0
    foreign = 0
    async for header, _ in read_batches(flow.target, lane.spec.target, target_next, seen.end):
        if header.producer_id != flow.stamp.producer_id:
            continue
        first = position_from_sequence(header.base_sequence, anchor[0]) - 1
        if first < position:
            continue
        expected = record.runs.target_offset_at(first) + shift
        if header.base_offset != expected:
            foreign += header.base_offset - expected
            shift += header.base_offset - expected
            corrections.append(_run_at(record, first, header.base_offset))
        position = first + header.last_offset_delta + 1
    expected = record.runs.target_offset_at(position) + shift
    if expected != seen.end:
        foreign += seen.end - expected
        corrections.append(_run_at(record, position, seen.end))
    if corrections:
        await _write_corrections(flow, lane, record, corrections)
    return position, max(foreign, 0)


def _run_at(record: LaneRecord, position: int, target_offset: int) -> Run:
    return Run(
        position=position,
        source_offset=record.runs.source_offset_at(position),
        target_offset=target_offset,
    )


async def _write_corrections(
    flow: Flow, lane: CarriedLane, record: LaneRecord, corrections: Sequence[Run]
) -> None:
    """A ledger record replaces all runs from its position on, so those that stay are written
    again, shifted."""
    merged = {run.position: run for run in corrections}
    for run in record.runs.since(corrections[0].position):
        if run.position in merged:
            continue
        before = [c for c in corrections if c.position <= run.position][-1]
        shift = before.target_offset - record.runs.target_offset_at(before.position)
        merged[run.position] = Run(
            position=run.position,
            source_offset=run.source_offset,
            target_offset=run.target_offset + shift,
        )
    source = lane.spec.id.source
    runs = [merged[position] for position in sorted(merged)]
    await flow.ledger.write(runs_entries(source.topic, source.partition, runs))
    await flow.ledger.catch_up()
