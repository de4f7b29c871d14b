"""Where each lane goes on: the log first, the ledger second. Runs on executors.

1. The target partition's end and the last sequence it has of our producer.
2. The ledger, read to its end *after* that: a run is durable before the first batch that needs it,
   so a ledger read later than the log always explains the log.
3. `ledger.locate` says what the two amount to; where it asks for that, our batches are read and
   the map is corrected by them.
4. Position to source offset, by the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, assert_never

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.broker.log import read_batches
from heliograph.broker.seed import is_filler, seed
from heliograph.clock import now_ms
from heliograph.copy.chunk import LaneCursor
from heliograph.copy.flow import Flow
from heliograph.copy.phases import source_recreated
from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError, LeaderMoved
from heliograph.ledger.entries import StartEntry, new_author, runs_entries
from heliograph.ledger.locate import (
    AheadOfEnd,
    At,
    LogState,
    NeedsScan,
    Scan,
    TargetRecreated,
    Truncated,
    Unexplained,
    is_other_topic,
    locate,
    source_next_offset,
)
from heliograph.ledger.view import LaneRecord
from heliograph.model import Lane, OffsetRange, Offsets, OnExisting, StallReason, StartAt, TopicId
from heliograph.probe import LANES_CREATED, LANES_TO_CREATE, probe
from heliograph.wire.batch import Stamp

_FLUSH_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    cursor: LaneCursor
    target_topic_id: TopicId
    """Of the topic whose log was looked at; what the cluster names later may be another."""
    identical: bool
    foreign_records: int = 0
    """Found since the last head and not in the map before."""
    written_until: int = 0
    """Up to where the map has been written, records there or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Somebody must decide; the lane's own place is known all the same."""

    reason: StallReason
    detail: str
    position: int = 0
    source_next_offset: int = 0
    """Of the source topic the lane read."""
    target_next_offset: int = -1
    """Where the target's log ends; -1 where that log is not the lane's."""


Found = ResumePoint | Blocked | BrokerError


class Resumable(Protocol):
    """A lane, as far as a resume looks at it."""

    @property
    def spec(self) -> Lane: ...


L = TypeVar("L", bound=Resumable)


async def find_resume_points(flow: Flow, lanes: Sequence[L]) -> dict[L, Found]:
    """Where each lane goes on; what one lane meets does not touch the others."""
    found: dict[L, Found] = {}
    # What these lanes wrote before must not come to stand behind what is written now.
    await flow.ledger.flush(_FLUSH_S_MAX)
    await flow.source.refresh({lane.spec.id.source.topic for lane in lanes})
    await flow.target.refresh({lane.spec.target.topic for lane in lanes})
    if flow.stamp is None:
        await flow.ledger.catch_up()
        flow.stamp = _stamp(flow)
    seen = await _read_log_states(flow, lanes, found)
    await flow.ledger.catch_up()
    newborn = [lane for lane in seen if _record(flow, lane) is None]
    if newborn:
        probe(LANES_TO_CREATE)
        await _create_lanes(flow, newborn, seen, found)
        probe(LANES_CREATED)
        await flow.ledger.catch_up()
    for lane, partition in seen.items():
        if lane in found:
            continue
        record = _record(flow, lane)
        if record is None:
            raise InvariantError(f"{lane.spec.id}: its start entry is not in the ledger")
        try:
            found[lane] = await _resume_point(flow, lane, record, partition)
        except BrokerError as exc:
            found[lane] = exc
    return found


def _stamp(flow: Flow) -> Stamp:
    entry = flow.ledger.view.flow
    if entry is None:
        raise BrokerUnreachable(f"{flow.id}: the ledger names no producer yet")
    return Stamp(entry.producer_id, entry.producer_epoch)


def _record(flow: Flow, lane: Resumable) -> LaneRecord | None:
    source = lane.spec.id.source
    return flow.ledger.view.begun_lane(source.topic, source.partition)


async def _read_log_states(
    flow: Flow, lanes: Sequence[L], found: dict[L, Found]
) -> dict[L, LogState]:
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: looked at the log without a producer")
    targets = [lane.spec.target for lane in lanes]
    sequences = await flow.target.last_sequences(targets, flow.stamp.producer_id)
    starts = await flow.target.list_offsets(targets, EARLIEST)
    ends = await flow.target.list_offsets(targets, LATEST)
    seen: dict[L, LogState] = {}
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
            seen[lane] = LogState(start=start, end=end, last_sequence=sequence)
    return seen


# -- lanes without history


async def _create_lanes(
    flow: Flow,
    lanes: Sequence[L],
    seen: dict[L, LogState],
    found: dict[L, Found],
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
                found[lane] = Blocked(
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


async def _seeded(flow: Flow, lane: Resumable, partition: LogState, offset: int) -> LogState:
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
    return LogState(start=end, end=end, last_sequence=-1)


def _start_entry(flow: Flow, lane: Resumable, source_offset: int, target_offset: int) -> StartEntry:
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


async def _resume_point(flow: Flow, lane: Resumable, record: LaneRecord, log: LogState) -> Found:
    target_topic = flow.target.topic(lane.spec.target.topic)
    if target_topic is None:
        return LeaderMoved(f"cluster {flow.target.alias}: {lane.spec.target} is gone")
    foreign, start = 0, record.starts[-1]
    found = locate(record, log, target_topic_id=target_topic.id)
    if isinstance(found, TargetRecreated):
        detail = (
            f"{lane.spec.target} is not the topic this lane began to write; `heliograph reset` "
            "begins the lane anew"
        )
        return _blocked(StallReason.TARGET_RECREATED, detail, record, found.position)
    if isinstance(found, Truncated):
        raise await _too_short(flow, lane, log, found.anchor.target_offset)
    if isinstance(found, NeedsScan):
        found, foreign = await _scan_log(flow, lane, record, log, found)
    if isinstance(found, AheadOfEnd):
        # The leader has batches its followers do not have yet; they show soon, or are gone.
        raise LeaderMoved(f"{lane.spec.target}: the log is ahead of its high watermark")
    if is_other_topic(start.source_topic_id, lane.spec.source_topic_id):
        detail = source_recreated(lane.spec.id.source)
        return _blocked(
            StallReason.TOPIC_RECREATED,
            detail,
            record,
            found.position,
            target_next_offset=log.end,
        )
    match found:
        case Unexplained(position=position):
            detail = f"{lane.spec.target}: no run explains position {position}"
            return _blocked(StallReason.UNEXPLAINED_LOG, detail, record, position)
        case At():
            return _resume_at(flow, lane, found, log, target_topic.id, foreign)
        case _:
            assert_never(found)


def _blocked(
    reason: StallReason,
    detail: str,
    record: LaneRecord,
    position: int,
    *,
    target_next_offset: int = -1,
) -> Blocked:
    is_known = record.runs.explains(position)
    return Blocked(
        reason=reason,
        detail=detail,
        position=position,
        source_next_offset=source_next_offset(record, position) if is_known else 0,
        target_next_offset=target_next_offset,
    )


def _resume_at(
    flow: Flow,
    lane: Resumable,
    found: At,
    log: LogState,
    target_topic_id: TopicId,
    foreign_records: int,
) -> ResumePoint:
    record = _record(flow, lane)
    if record is None:
        raise InvariantError(f"{lane.spec.id}: the ledger forgot the lane while it was resumed")
    runs, position = record.runs, found.position
    source_offset = runs.source_offset_at(position)
    return ResumePoint(
        cursor=LaneCursor(
            next_offset=source_offset,
            position=position,
            target_offset=max(log.end, runs.target_offset_at(position)),
            source_expected=source_offset,
        ),
        target_topic_id=target_topic_id,
        identical=runs.identical(position + 1),
        foreign_records=foreign_records,
        written_until=runs.written_until,
    )


async def _too_short(flow: Flow, lane: Resumable, log: LogState, acknowledged: int) -> BrokerError:
    # Another mirror may have written both since: the log was looked at before the ledger.
    target = lane.spec.target
    end = (await flow.target.list_offsets([target], LATEST))[target]
    if isinstance(end, BrokerError):
        return end
    if end >= acknowledged:
        return LeaderMoved(f"{target}: has grown from {log.end} to {end} meanwhile")
    return BrokerError(
        f"{target}: ends at {log.end}, but {acknowledged} was acknowledged: "
        "the target lost records and no longer knows their producer"
    )


async def _scan_log(
    flow: Flow, lane: Resumable, record: LaneRecord, log: LogState, needs: NeedsScan
) -> tuple[At | AheadOfEnd, int]:
    """Read our batches; correct the map where they lie elsewhere than it says.

    Also returns the records of others that the map did not know of.
    """
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: scanned a log without a producer")
    scan = Scan(record, needs, log)
    async for header, _ in read_batches(flow.target, lane.spec.target, scan.read_from, log.end):
        if header.producer_id == flow.stamp.producer_id:
            scan.see(header)
    found = scan.found(only_ours=True)
    if isinstance(found, AheadOfEnd):
        return found, 0
    foreign = log.end - record.runs.target_offset_at(found.position)
    corrected = scan.corrected(found.position, log.end)
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
    return found, max(foreign, 0)
