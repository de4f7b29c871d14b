"""Where each lane goes on: the log first, the ledger second. Runs on executors.

1. The target partition's end and the last sequence it has of our producer.
2. The ledger, read to its end *after* that: a run is durable before the first batch that needs it,
   so a ledger read later than the log always explains the log.
3. `ledger.locate` says what the two amount to; where it asks for that, our batches are read and
   the map is corrected by them.
4. Position to source offset, by the runs; and whether the source still has there what it had.

What concerns one lane (a log that must be read, one that cannot be, filler to be written) takes the
time of that lane only: each is reported as soon as its place is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, assert_never

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.broker.log import read_batches
from heliograph.clock import monotonic_s
from heliograph.copy.chunk import LaneCursor
from heliograph.copy.flow import Flow
from heliograph.copy.found import (
    Blocked,
    FlowFenced,
    Found,
    L,
    Report,
    Resumable,
    ResumePoint,
    SourceTrouble,
    report_found,
)
from heliograph.copy.last_record import as_last_record_says, is_in_doubt
from heliograph.copy.new_start import begun_anew
from heliograph.copy.newborn import begin_lanes
from heliograph.copy.nothing_left import as_known_otherwise, why_unknown
from heliograph.copy.phases import RETRY_S, source_recreated
from heliograph.copy.source_check import SourceCheck, as_source_says, by_leader, check_source
from heliograph.copy.strays import find_strays
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    InvariantError,
    LeaderMoved,
    MirrorError,
)
from heliograph.ledger.entries import new_author, new_corrector, runs_entries
from heliograph.ledger.fence import fence_of, topic_fences
from heliograph.ledger.locate import (
    AheadOfEnd,
    At,
    LogState,
    NeedsScan,
    NothingLeft,
    RecordsMissing,
    Scan,
    TargetRecreated,
    Truncated,
    Unexplained,
    contradicts_head,
    if_lasting,
    is_of_earlier_topic,
    is_other_topic,
    locate,
    source_next_offset,
)
from heliograph.ledger.replay_guard import Ahead
from heliograph.ledger.store import WRITE_S_MAX
from heliograph.ledger.view import LaneRecord
from heliograph.model import StallReason, TopicId, TopicPartition
from heliograph.wire.batch import Stamp

BEHIND_S_MAX: Final = 5.0
"""How long a log may end before what the map says. A leader learns soon what its followers have;
what takes longer is a wrong map, or a target that lost records."""

_Scanned = At | AheadOfEnd | RecordsMissing | NothingLeft | SourceTrouble
_Place = At | TargetRecreated | Truncated | RecordsMissing | NothingLeft | Unexplained


async def find_resume_points(flow: Flow, lanes: Sequence[L], report: Report[L]) -> None:
    """Report where each lane goes on; what one lane meets neither fails nor delays the others.

    Raises `MirrorError` where nothing can be said of the lanes that were not reported.
    """
    flow.ledger.carry(lane.spec.id.source for lane in lanes)
    # What these lanes wrote before must not come to stand behind what is written now.
    await flow.ledger.flush(WRITE_S_MAX)
    try:
        await flow.source.refresh({lane.spec.id.source.topic for lane in lanes})
    except MirrorError as exc:
        for lane in lanes:
            report(lane, SourceTrouble(error=exc))
        return
    await flow.target.refresh({lane.spec.target.topic for lane in lanes})
    seen = await _read_logs_then_ledger(flow, lanes, report)
    fence = fence_of(flow.ledger.view)
    if fence is not None:
        # Every lane that lost its connection comes here before it appends again, so a slot that was
        # cut off while the flow was failed over puts nothing behind what clients wrote since.
        for lane in seen:
            report(lane, FlowFenced(why=fence.why))
        return
    seen = _without_fenced(flow, _without_given_away(flow, seen, report), report)
    begun = {lane: state for lane, state in seen.items() if _record(flow, lane) is not None}
    newborn = {lane: state for lane, state in seen.items() if lane not in begun}
    async with asyncio.TaskGroup() as tasks:
        # A source broker that does not answer keeps only the lanes waiting that it leads.
        for some in by_leader(flow, begun):
            tasks.create_task(_resume_lanes(flow, some, report))
        if newborn:
            tasks.create_task(_begin_newborn(flow, newborn, report))


def _without_given_away(
    flow: Flow, seen: dict[L, LogState], report: Report[L]
) -> dict[L, LogState]:
    """A lane that was taken off the slot is in its ledger's view no more: it would pass for new."""
    left: dict[L, LogState] = {}
    for lane, state in seen.items():
        if flow.ledger.view.folds(lane.spec.id.source):
            left[lane] = state
        else:
            report(lane, LeaderMoved(f"{lane.spec.id}: taken away while its place was looked for"))
    return left


def _without_fenced(flow: Flow, seen: dict[L, LogState], report: Report[L]) -> dict[L, LogState]:
    """As for a whole flow, where some of its topics were failed over alone."""
    fences = topic_fences(flow.ledger.view)
    if not fences:
        return seen
    left: dict[L, LogState] = {}
    for lane, state in seen.items():
        fence = fences.get(lane.spec.id.source.topic)
        if fence is None:
            left[lane] = state
        else:
            report(lane, FlowFenced(why=fence.why))
    return left


async def _begin_newborn(flow: Flow, newborn: dict[L, LogState], report: Report[L]) -> None:
    for lane, found in (await find_strays(flow, newborn)).items():
        del newborn[lane]
        report(lane, found)
    if newborn:
        await begin_lanes(flow, newborn, partial(_resume_point, flow, source=None), report)


async def _resume_lanes(flow: Flow, begun: Mapping[L, LogState], report: Report[L]) -> None:
    checks = await check_source(flow, {lane: _begun(flow, lane) for lane in begun})
    async with asyncio.TaskGroup() as tasks:
        for lane, state in begun.items():
            found = _resume_point(flow, lane, state, source=checks.get(lane))
            tasks.create_task(report_found(lane, found, report))


async def _read_logs_then_ledger(
    flow: Flow, lanes: Sequence[L], report: Report[L]
) -> dict[L, LogState]:
    """What the logs have of the flow's producer; lanes whose log cannot be read are reported."""
    if flow.stamp is None:
        await flow.ledger.catch_up()
        flow.use(_stamp(flow))
    while True:
        asked = flow.stamp
        seen = await _read_log_states(flow, lanes, report)
        await flow.ledger.catch_up()
        # A failback renews the producer; then the logs were asked about that of another time.
        flow.use(_stamp(flow))
        if flow.stamp == asked:
            return seen
        lanes = tuple(seen)


def _stamp(flow: Flow) -> Stamp:
    entry = flow.ledger.view.flow
    if entry is None:
        raise BrokerUnreachable(f"{flow.id}: the ledger names no producer yet")
    return Stamp(entry.producer_id, entry.producer_epoch)


def _record(flow: Flow, lane: Resumable) -> LaneRecord | None:
    source = lane.spec.id.source
    return flow.ledger.view.begun_lane(source.topic, source.partition)


def _begun(flow: Flow, lane: Resumable) -> LaneRecord:
    record = _record(flow, lane)
    if record is None:
        raise InvariantError(f"{lane.spec.id}: its start entry is not in the ledger")
    return record


async def _read_log_states(flow: Flow, lanes: Sequence[L], report: Report[L]) -> dict[L, LogState]:
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
            report(lane, sequence)
        elif isinstance(start, BrokerError):
            report(lane, start)
        elif isinstance(end, BrokerError):
            report(lane, end)
        else:
            seen[lane] = LogState(start=start, end=end, last_sequence=sequence)
    return seen


# -- lanes with history


async def _resume_point(
    flow: Flow, lane: Resumable, log: LogState, *, source: SourceCheck | None
) -> Found:
    record = _begun(flow, lane)
    target_topic = flow.target.topic(lane.spec.target.topic)
    if target_topic is None:
        return LeaderMoved(f"cluster {flow.target.alias}: {lane.spec.target} is gone")
    start = record.starts[-1]
    found, foreign = await _located(flow, lane, record, log, target_topic.id)
    if isinstance(found, SourceTrouble):
        return found
    if isinstance(found, TargetRecreated):
        detail = (
            f"{lane.spec.target} is not the topic this lane began to write; `heliograph reset` "
            "begins the lane anew"
        )
        return _blocked(StallReason.TARGET_RECREATED, detail, record, found.position)
    if isinstance(found, Truncated | RecordsMissing):
        return _records_lost(lane, record, log, found)
    is_recreated = is_other_topic(start.source_topic_id, lane.spec.source_topic_id)
    may_begin = isinstance(found, At) or (is_recreated and isinstance(found, Unexplained))
    if may_begin and await begun_anew(flow, lane, record, found.position, log):
        # What the source was asked about is not what the lane goes on from.
        anew = await _resume_point(flow, lane, log, source=None)
        if isinstance(anew, ResumePoint):
            anew = replace(anew, foreign_records=anew.foreign_records + foreign)
        return anew
    if is_recreated:
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
        case NothingLeft(position=position):
            detail = why_unknown(lane, record, found)
            return _blocked(StallReason.UNEXPLAINED_LOG, detail, record, position)
        case At():
            at = _resume_at(flow, lane, found.position, log, target_topic.id, foreign)
            if isinstance(at, Blocked):
                return at
            at = await flow.with_letters(lane.spec, at)
            record = _begun(flow, lane)
            if is_in_doubt(record, at, source):
                return await as_last_record_says(flow, lane, record, at, source)
            if source is None:
                return at
            return as_source_says(lane, at, source)
        case _:
            assert_never(found)


async def _located(
    flow: Flow, lane: Resumable, record: LaneRecord, log: LogState, target_topic_id: TopicId
) -> tuple[_Place | SourceTrouble, int]:
    """Where the lane stands, our batches read where log and ledger do not settle it.

    Also returns the records of others that the map did not know of. Raises `LeaderMoved` while the
    log may only have to catch up.
    """
    target, foreign = lane.spec.target, 0
    found = locate(record, log, target_topic_id=target_topic_id)
    is_lasting = isinstance(found, AheadOfEnd)
    if isinstance(found, AheadOfEnd | Truncated):
        since_s = flow.behind_since_s.setdefault(target, monotonic_s())
        if monotonic_s() - since_s < BEHIND_S_MAX:
            raise _behind(target)
        if isinstance(found, AheadOfEnd):
            found = if_lasting(record, log, found)
    else:
        flow.behind_since_s.pop(target, None)
    if isinstance(found, NeedsScan):
        async with flow.long_reads:
            scanned, foreign = await _scan_log(
                flow, lane, record, log, found, is_lasting=is_lasting
            )
        if isinstance(scanned, AheadOfEnd):
            raise _behind(target)
        return scanned, foreign
    return found, foreign


def _behind(target: TopicPartition) -> LeaderMoved:
    # The leader has batches its followers do not have yet; they show soon, or are gone.
    return LeaderMoved(f"{target}: the log is ahead of its high watermark")


def _records_lost(
    lane: Resumable, record: LaneRecord, log: LogState, found: Truncated | RecordsMissing
) -> Blocked:
    if isinstance(found, Truncated):
        anchor = found.anchor
        position = anchor.position
        what = f"ends at {log.end}, but {anchor.target_offset} was acknowledged"
    else:
        runs, position = record.runs, found.position
        first, last = (runs.source_offset_at(at) for at in (position, found.end_position - 1))
        what = f"source offsets [{first}, {last + 1}) are missing, though later ones are there"
    detail = f"{lane.spec.target}: {what}; `heliograph reset` says where the lane goes on"
    blocked = _blocked(StallReason.TARGET_LOST_RECORDS, detail, record, position)
    # A replica that has the records may come back.
    return replace(blocked, retry_s=RETRY_S)


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
    position: int,
    log: LogState,
    target_topic_id: TopicId,
    foreign_records: int,
) -> ResumePoint | Blocked:
    record = _begun(flow, lane)
    runs = record.runs
    if is_of_earlier_topic(record, position):
        detail = (
            f"{lane.spec.target}: lost records of the topic that {lane.spec.id.source} was before "
            "it was created again; `heliograph reset` says where the lane goes on"
        )
        blocked = _blocked(StallReason.TARGET_LOST_RECORDS, detail, record, position)
        return replace(blocked, retry_s=RETRY_S)
    if contradicts_head(record, position):
        detail = (
            f"{lane.spec.target}: the ledger's runs put position {position} at source offset "
            f"{runs.source_offset_at(position)}, which its head had passed before"
        )
        return _blocked(StallReason.UNEXPLAINED_LOG, detail, record, position)
    return ResumePoint(
        cursor=LaneCursor(
            next_offset=source_next_offset(record, position),
            position=position,
            target_offset=max(log.end, runs.target_offset_at(position)),
            source_expected=runs.source_offset_at(position),
        ),
        target_topic_id=target_topic_id,
        identical=runs.identical(position + 1),
        foreign_records=foreign_records,
        written_until=runs.written_until,
        ahead=Ahead.of(runs, position),
    )


async def _scan_log(
    flow: Flow,
    lane: Resumable,
    record: LaneRecord,
    log: LogState,
    needs: NeedsScan,
    *,
    is_lasting: bool,
) -> tuple[_Scanned, int]:
    """Read our batches; correct the map where they lie elsewhere than it says.

    Also returns the records of others that the map did not know of. `is_lasting`: the log has ended
    before what the map says for as long as it may.
    """
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: scanned a log without a producer")
    scan = Scan(record, needs, log)
    async for header, _ in read_batches(flow.target, lane.spec.target, scan.read_from, log.end):
        if header.producer_id == flow.stamp.producer_id:
            scan.see(header)
    found: _Scanned = scan.found()
    if isinstance(found, NothingLeft):
        found = await as_known_otherwise(flow, lane, record, found)
    if not isinstance(found, At):
        return found, 0
    foreign = log.end - record.runs.target_offset_at(found.position)
    corrected = scan.corrected(found.position, log.end)
    # Up to where the map was written when it was read: what a successor writes behind that is
    # not this lane's to move, should this entry be late.
    end_position = max(record.runs.written_until, found.position)
    if is_other_topic(record.starts[-1].source_topic_id, lane.spec.source_topic_id):
        # What comes next is the new start's to say, and that may be in the ledger by now.
        corrected = [run for run in corrected if run.position < found.position]
        end_position = found.position
    if corrected:
        flow.counted.corrections += 1
        source = lane.spec.id.source
        runs = record.runs
        lowers = is_lasting or any(
            run.position < found.position
            and run.target_offset < runs.target_offset_at(run.position)
            for run in corrected
        )
        await flow.ledger.write_or_refuse(
            runs_entries(
                source.topic,
                source.partition,
                corrected,
                # Late it changes nothing, but where the target has lost records of others. Behind
                # our last record the log may have grown since it was read, so that alone is none.
                author=new_author() if lowers else new_corrector(),
                end_position=max(end_position, corrected[-1].position + 1),
            ),
            WRITE_S_MAX,
        )
        await flow.ledger.catch_up()
    return found, max(foreign, 0)
