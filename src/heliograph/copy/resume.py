"""Where each lane goes on: the log first, the ledger second. Runs on executors.

1. The target partition's end and the last sequence it has of our producer, hence the position.
2. The ledger, read to its end *after* that: a run is durable before the first batch that needs it,
   so a ledger read later than the log always explains the log.
3. Position to source offset, by the runs.

Where the broker no longer remembers the producer, others wrote in between, or two runs claim the
same place, the batches since the last head are read and say it themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.broker.log import read_batches
from heliograph.broker.seed import is_filler, seed
from heliograph.clock import now_ms
from heliograph.copy.chunk import LaneCursor
from heliograph.copy.flow import Flow
from heliograph.copy.lane import CarriedLane
from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError, LeaderMoved
from heliograph.ledger.correction import Correction
from heliograph.ledger.entries import StartEntry, new_author, runs_entries
from heliograph.ledger.positions import position_from_sequence
from heliograph.ledger.view import LaneRecord
from heliograph.model import OffsetRange, Offsets, OnExisting, StallReason, StartAt, TopicId
from heliograph.wire.batch import SEQUENCES, Stamp

_FLUSH_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A target partition as the log showed it, before the ledger was read."""

    start: int
    end: int
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    cursor: LaneCursor
    target_topic_id: TopicId
    """Of the topic whose log was looked at; what the cluster names later may be another."""
    identical: bool
    foreign_records: int = 0
    """Found since the last head and not in the map before."""
    is_unknown: bool = False
    """Whether the target knows nothing of the producer, and so takes any sequence as its first."""
    written_until: int = 0
    """Up to where the map has been written, records there or not."""


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
    # What these lanes wrote before must not come to stand behind what is written now.
    await flow.ledger.flush(_FLUSH_S_MAX)
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
            is_seeding = is_filler(partition.last_sequence)
            occupied = partition.end > partition.start and not is_seeding
            if occupied and lane.spec.on_existing is OnExisting.REFUSE:
                found[lane] = Refused(
                    reason=StallReason.TARGET_NOT_EMPTY,
                    detail=f"{lane.spec.target} holds {partition.end - partition.start} records "
                    "this flow did not write, and on.existing = refuse",
                )
                continue
            is_early = partition.end < offset and not occupied
            if is_seeding or (lane.spec.offsets is Offsets.PRESERVE and is_early):
                try:
                    partition = await _seeded(flow, lane, partition, offset)
                except BrokerError as exc:
                    found[lane] = exc
                    continue
                seen[lane] = partition
            entries.append(_start_entry(flow, lane, offset, partition.end))
    await flow.ledger.write_or_refuse(entries)


async def _seeded(flow: Flow, lane: CarriedLane, partition: Seen, offset: int) -> Seen:
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: seeded a log without a producer")
    end = await seed(
        flow.target,
        lane.spec.target,
        flow.stamp,
        log=OffsetRange(start=partition.start, end=partition.end),
        last_sequence=partition.last_sequence,
        wanted=offset,
    )
    return Seen(start=end, end=end, last_sequence=-1)


def _start_entry(
    flow: Flow, lane: CarriedLane, source_offset: int, target_offset: int
) -> StartEntry:
    target_topic = flow.target.topic(lane.spec.target.topic)
    return StartEntry(
        topic=lane.spec.id.source.topic,
        partition=lane.spec.id.source.partition,
        position=0,
        author=flow.ledger.author,
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
    if anchor_position == 0 and seen.last_sequence == SEQUENCES - 1:
        # The last of the filler: nothing of the lane's own is there yet.
        seen = Seen(start=seen.start, end=seen.end, last_sequence=-1)
    if record.head is not None and record.head.position > start.position:
        anchor_position, anchor_target = record.head.position, record.head.target_next_offset
    target_topic = flow.target.topic(lane.spec.target.topic)
    if target_topic is None:
        return LeaderMoved(f"cluster {flow.target.alias}: {lane.spec.target} is gone")
    if start.target_topic_id not in (None, target_topic.id):
        # Before anything is read off its log: nothing there says how far this lane came.
        detail = f"{lane.spec.target} is not the topic this lane began to write"
        return Refused(reason=StallReason.TARGET_RECREATED, detail=detail, position=anchor_position)
    position, foreign = await _position(flow, lane, record, seen, (anchor_position, anchor_target))
    record = _record(flow, lane) or record
    if start.source_topic_id not in (None, lane.spec.source_topic_id):
        detail = f"{lane.spec.id.source} was deleted and created again"
        return Refused(reason=StallReason.TOPIC_RECREATED, detail=detail, position=position)
    if not record.runs.explains(position):
        detail = f"{lane.spec.target}: no run explains position {position}"
        return Refused(reason=StallReason.UNEXPLAINED_LOG, detail=detail, position=position)
    source_offset = record.runs.source_offset_at(position)
    return Place(
        cursor=LaneCursor(
            next_offset=source_offset,
            position=position,
            target_offset=max(seen.end, record.runs.target_offset_at(position)),
            source_expected=source_offset,
        ),
        target_topic_id=target_topic.id,
        identical=record.runs.identical(position + 1),
        foreign_records=foreign,
        is_unknown=seen.last_sequence < 0,
        written_until=record.runs.written_until,
    )


async def _position(
    flow: Flow, lane: CarriedLane, record: LaneRecord, seen: Seen, anchor: tuple[int, int]
) -> tuple[int, int]:
    """The lane's position, and the records of others that the map did not know of."""
    anchor_position, anchor_target = anchor
    overlap_at = record.runs.overlap_at
    if seen.last_sequence >= 0:
        position = position_from_sequence(seen.last_sequence, anchor_position)
        if not record.runs.explains(position):
            return position, 0
        if overlap_at is None or overlap_at > position:
            expected = record.runs.target_offset_at(position)
            if expected == seen.end:
                return position, 0
            if expected > seen.end:
                raise _ahead_of_watermark(lane)
    elif seen.end < anchor_target:
        # Another mirror may have written both since: the log was looked at before the ledger.
        end = (await flow.target.list_offsets([lane.spec.target], LATEST))[lane.spec.target]
        if isinstance(end, BrokerError):
            raise end
        if end >= anchor_target:
            raise LeaderMoved(f"{lane.spec.target}: has grown from {seen.end} to {end} meanwhile")
        raise BrokerError(
            f"{lane.spec.target}: ends at {seen.end}, but {anchor_target} was acknowledged: "
            "the target lost records and no longer knows their producer"
        )
    elif seen.end == anchor_target and (overlap_at is None or overlap_at > anchor_position):
        return anchor_position, 0
    before = record.runs.run_before_overlap
    if before is not None and before.position < anchor_position:
        # The log says which of the two runs is right; the last head is too late to begin there.
        anchor = before.position, before.target_offset
    return await _scan(flow, lane, record, seen, anchor)


def _ahead_of_watermark(lane: CarriedLane) -> LeaderMoved:
    # The leader has batches its followers do not have yet; they show soon, or are gone.
    return LeaderMoved(f"{lane.spec.target}: the log is ahead of its high watermark")


async def _scan(
    flow: Flow, lane: CarriedLane, record: LaneRecord, seen: Seen, anchor: tuple[int, int]
) -> tuple[int, int]:
    """Read our batches since `anchor`; correct the map where they lie elsewhere than it says."""
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: scanned a log without a producer")
    anchor_position, read_from = anchor[0], max(anchor[1], seen.start)
    correction = Correction(record.runs, anchor_position)
    async for header, _ in read_batches(flow.target, lane.spec.target, read_from, seen.end):
        if header.producer_id == flow.stamp.producer_id:
            first = position_from_sequence(header.base_sequence, anchor_position) - 1
            correction.see(first, header.last_offset_delta + 1, header.base_offset)
    position = correction.position
    if seen.last_sequence >= 0:
        known = position_from_sequence(seen.last_sequence, anchor_position)
        if position is None and seen.start > anchor[1]:
            position = known
        elif (position or anchor_position) < known:
            raise _ahead_of_watermark(lane)
    if position is None:
        # What lay between was deleted on the target; while only we write there, it was ours.
        position = anchor_position + max(0, seen.start - anchor[1])
    foreign = seen.end - record.runs.target_offset_at(position)
    corrected = correction.runs(position, seen.end)
    if corrected:
        source = lane.spec.id.source
        # What is after the last of them moves too, so there is no end; hence an author of its own.
        await flow.ledger.write_or_refuse(
            runs_entries(
                source.topic,
                source.partition,
                corrected,
                author=new_author(),
                end_position=None,
            )
        )
        await flow.ledger.catch_up()
    return position, max(foreign, 0)
