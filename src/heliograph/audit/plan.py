"""Which stretches of which lanes an audit compares, and what it notes of them. Runs on the driver.

A lane is cut into units that any worker can compare alone. How far a lane was compared is a memo in
the flow's ledger, so that an audit that was stopped goes on there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final

from heliograph.audit.findings import Finding, FindingKind, ranges_of
from heliograph.audit.units import AuditUnit, LaneWriters
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import fetch_once
from heliograph.errors import BrokerError, MirrorError, WireError
from heliograph.ledger.entries import RUNS_PER_ENTRY_MAX, MemoEntry, StartEntry
from heliograph.ledger.kept import NOTHING_KEPT, kept_of
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.memo import Memo, OffsetPair
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LedgerView
from heliograph.letters.notes import notes_of
from heliograph.model import LaneId, OffsetRange, StallReason, TopicPartition
from heliograph.wire.batch import parse_header

UNIT_RECORDS_MAX: Final = 500_000
UNIT_BYTES: Final = 64 * 1024 * 1024
_UNIT_RECORDS_MIN: Final = 1_000
_LOOK_BYTES: Final = 128 * 1024
_LOOKS_AT_ONCE: Final = 32
_SUBJECT: Final = "audit"
_SKIPPED: Final = (StallReason.TRANSFORM_FAILED, StallReason.REFUSED_BY_TARGET)
_REPAIRS: Final = "audit.repaired"
_NOTED_FINDINGS_MAX: Final = 100
_NOTED_REPAIRS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What somebody wants compared."""

    since_ms: int | None = None
    """Only records with this timestamp or a later one."""
    sample: float = 1.0
    """The share of the units that is compared."""
    seed: int = 0
    resume: bool = False
    """Go on where the last audit of each lane ended."""
    only_new: bool = False
    """Where no lane of the flow was ever compared, only note where each of them is: whoever audits
    while mirroring looks at what comes, and not at years of records that are there."""
    unit_records_max: int = UNIT_RECORDS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProgressNote:
    """How far a lane was compared, as the ledger has it."""

    position: int
    at_ms: int
    is_over: bool
    """Whether the audit that wrote it came to its end."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEndNote:
    """What the last audit that came to its end found, as the ledger has it."""

    at_ms: int
    records: int
    findings: Mapping[FindingKind, int]
    """Records of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairsNote:
    """Source offsets of a lane that repairs appended again, as the ledger has them."""

    source: tuple[OffsetPair, ...]


_PROGRESS: Final[Memo[LaneProgressNote]] = Memo(LaneProgressNote)
_END: Final[Memo[AuditEndNote]] = Memo(AuditEndNote)
_REPAIRED: Final[Memo[RepairsNote]] = Memo(RepairsNote)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePlan:
    lane: LaneId
    target: TopicPartition
    units: tuple[AuditUnit, ...]
    """Those to compare, in order."""
    end_position: int
    unit_count: int
    """Without sampling."""
    expired_records: int = 0
    """Of a source topic that is gone: nothing to compare them with. Or the ledger has forgotten
    their offsets."""
    earlier_records: int = 0
    """On the target since before the lane began, by somebody else: nothing says whose copies."""
    noted: tuple[Finding, ...] = ()
    """What an audit that is taken up again had found before."""
    repaired: tuple[OffsetRange, ...] = ()
    """Source offsets that earlier repairs appended again."""
    baseline: int | None = None
    """The position to note where nothing was compared yet; None where there is none to note."""
    problem: str = ""
    """Why the lane cannot be compared."""

    @property
    def records(self) -> int:
        return sum(unit.records for unit in self.units)


def tail_units(
    locations: Iterable[LaneLocation], records_max: int, *, read_committed: bool = True
) -> list[AuditUnit]:
    """The last records of every lane, one unit each; lanes without records have none."""
    units: list[AuditUnit] = []
    for location in locations:
        runs = location.record.runs
        if runs.overlap_at is not None:
            continue
        start = max(_first_position(location), location.position - records_max)
        units += cut_units(
            location,
            start,
            location.position,
            records_max=max(1, records_max),
            read_committed=read_committed,
        )
    return units


def cut_units(
    location: LaneLocation,
    start_position: int,
    end_position: int,
    *,
    records_max: int,
    read_committed: bool,
    producer_id: int = -1,
    target_end: int | None = None,
    left_out: Sequence[OffsetRange] = (),
    writers: LaneWriters | None = None,
) -> list[AuditUnit]:
    """`[start, end)` of a lane in units that one worker can take."""
    runs, first = location.record.runs, _first_position(location)
    units: list[AuditUnit] = []
    position = max(first, start_position)
    while position < end_position:
        here = Run(
            position=position,
            source_offset=runs.source_offset_at(position),
            target_offset=runs.target_offset_at(position),
        )
        wanted_end = min(end_position, position + records_max)
        following = _runs_between(runs, position + 1, wanted_end)
        if len(following) == RUNS_PER_ENTRY_MAX:
            wanted_end = following.pop().position
        is_last = wanted_end == location.position
        source_start = None if position == first else runs.source_offset_at(position - 1) + 1
        last_offset = runs.source_offset_at(wanted_end - 1)
        units.append(
            AuditUnit(
                left_out=tuple(
                    part
                    for part in left_out
                    if part.end > (source_start or 0) and (is_last or part.start < last_offset)
                ),
                lane=location.lane,
                target=location.target,
                start_position=position,
                end_position=wanted_end,
                runs=(here, *following),
                read_committed=read_committed,
                transforms=location.transforms,
                source_start=source_start,
                target_start=None if position == first else runs.target_offset_at(position - 1) + 1,
                source_end=location.source_next_offset if is_last else None,
                target_end=target_end if is_last else None,
                producer_id=producer_id,
                writers=writers,
            )
        )
        position = wanted_end
    return units


def lane_writers(
    view: LedgerView, location: LaneLocation, source: Cluster, brought: frozenset[int] | None
) -> LaneWriters | None:
    """`brought` as `plan_lanes` has it; the source's metadata must know the topic."""
    at = location.lane.source
    topic = source.topic(at.topic)
    if brought is None:
        return None
    return LaneWriters(
        brought=brought,
        own=frozenset(each.producer_id for each in view.producers),
        kept=NOTHING_KEPT if topic is None else kept_of(view, at, topic.id),
    )


def left_out_of(view: LedgerView, lane: TopicPartition) -> tuple[OffsetRange, ...]:
    """Source offsets of records that could not be mirrored, as far as it can be read."""
    record = view.lane(lane.topic, lane.partition)
    skipped = [
        offset
        for loss in (record.losses if record is not None else ())
        if loss.reason in _SKIPPED
        for offset in range(loss.lost.start, loss.lost.end)
    ]
    try:
        letters = [each.offset for note in notes_of(view, lane) for each in note.letters]
    except WireError:
        letters = []
    return tuple(ranges_of([*skipped, *letters]))


def _runs_between(runs: Runs, start: int, end: int) -> list[Run]:
    """Those that begin in `[start, end)`, up to as many as a unit takes along."""
    inside = takewhile(lambda run: run.position < end, runs.since(start))
    return list(islice(inside, RUNS_PER_ENTRY_MAX))


async def plan_lanes(
    source: Cluster,
    target: Cluster,
    locations: Sequence[LaneLocation],
    view: LedgerView,
    choice: AuditOptions,
    *,
    read_committed: bool,
    brought: frozenset[int] | None = None,
) -> list[LanePlan]:
    """What to compare of each lane. `brought`: producers of the mirrors whose records on the source
    the flow leaves out; None where it takes everything. Raises `BrokerError`."""
    await source.refresh({location.lane.source.topic for location in locations})
    await target.refresh({location.target.topic for location in locations})
    ends = await target.list_offsets([location.target for location in locations], LATEST)
    starts = await target.list_offsets([location.target for location in locations], EARLIEST)
    begins = await _begins(source, locations, choice.since_ms)
    sizes = await _record_bytes(target, locations)
    chosen = random.Random(choice.seed)
    producer_id = view.flow.producer_id if view.flow is not None else -1
    plans: list[LanePlan] = []
    is_new = choice.only_new and not any(note_of(view, lane) for lane in view.lanes)
    for location in locations:
        note = note_of(view, location.lane.source) if choice.resume else None
        problem = _why_not(source, location, ends[location.target])
        start = max(_first_position(location), begins[location.lane], note.position if note else 0)
        units: list[AuditUnit] = []
        if not problem and not is_new:
            units = cut_units(
                location,
                start,
                location.position,
                records_max=_unit_records(sizes.get(location.target, 0.0), choice),
                read_committed=read_committed,
                producer_id=producer_id,
                target_end=_known(ends[location.target]),
                left_out=left_out_of(view, location.lane.source),
                writers=lane_writers(view, location, source, brought),
            )
        picked = [unit for unit in units if choice.sample >= 1 or chosen.random() < choice.sample]
        if units and not picked:
            picked = [chosen.choice(units)]
        first = location.record.starts[0]
        plans.append(
            LanePlan(
                lane=location.lane,
                target=location.target,
                units=tuple(picked),
                end_position=location.position,
                unit_count=len(units),
                expired_records=max(0, _first_position(location) - first.position)
                if not note
                else 0,
                earlier_records=_earlier_records(first, starts[location.target]),
                noted=note.findings if note is not None and not note.is_over else (),
                repaired=repairs_of(view, location.lane.source),
                baseline=location.position if is_new else None,
                problem=problem,
            )
        )
    return plans


def note_of(view: LedgerView, lane: TopicPartition) -> LaneProgressNote | None:
    """How far the lane was compared; None where that was not noted, or cannot be read."""
    try:
        return _PROGRESS.read(view, f"{_SUBJECT}/{lane.topic}/{lane.partition}")
    except WireError:
        return None


def last_audit(view: LedgerView) -> AuditEndNote | None:
    """What the last audit of the flow found that came to its end; None also where that cannot be
    read."""
    try:
        return _END.read(view, _SUBJECT)
    except WireError:
        return None


def lane_memo(lane: TopicPartition, note: LaneProgressNote) -> MemoEntry:
    kept = replace(note, findings=note.findings[:_NOTED_FINDINGS_MAX])
    return _PROGRESS.entry(f"{_SUBJECT}/{lane.topic}/{lane.partition}", kept)


def end_memo(*, at_ms: int, records: int, counts: Mapping[FindingKind, int]) -> MemoEntry:
    """That an audit came to its end, and what it found."""
    return _END.entry(_SUBJECT, AuditEndNote(at_ms=at_ms, records=records, findings=dict(counts)))


def repairs_of(view: LedgerView, lane: TopicPartition) -> tuple[OffsetRange, ...]:
    """Source offsets that `--repair` appended again, as far as that was noted and can be read."""
    try:
        note = _REPAIRED.read(view, f"{_REPAIRS}/{lane.topic}/{lane.partition}")
    except WireError:
        return ()
    return () if note is None else note.source


def repairs_memo(lane: TopicPartition, ranges: Iterable[OffsetRange]) -> MemoEntry:
    # Of more than fit a memo the rest is known by the header of each record.
    note = RepairsNote(source=tuple(islice(ranges, _NOTED_REPAIRS_MAX)))
    return _REPAIRED.entry(f"{_REPAIRS}/{lane.topic}/{lane.partition}", note)


def round_robin(plans: Iterable[LanePlan]) -> Iterator[AuditUnit]:
    """All units, each lane's in order and the lanes taking turns, so that all make progress."""
    queues = [list(reversed(plan.units)) for plan in plans if plan.units]
    while queues:
        for queue in queues:
            yield queue.pop()
        queues = [queue for queue in queues if queue]


def _first_position(location: LaneLocation) -> int:
    """What came before belongs to a source topic that was replaced, was never mirrored, or was
    forgotten by the ledger."""
    runs = location.record.runs
    return max(runs.exact_from, location.record.starts[0].position) if runs else 0


def _earlier_records(first: StartEntry, target_start: int | BrokerError) -> int:
    """Up to so many: offsets may be empty."""
    known = target_start if isinstance(target_start, int) else first.target_offset
    return max(0, first.target_offset - known)


def _why_not(source: Cluster, location: LaneLocation, end: int | BrokerError) -> str:
    contradicted = location.record.runs.overlap_at
    if contradicted is not None:
        return f"the ledger contradicts itself at position {contradicted}; the lane resyncs first"
    if isinstance(end, BrokerError):
        return str(end)
    topic, noted = (
        source.topic(location.lane.source.topic),
        location.record.starts[-1].source_topic_id,
    )
    if topic is None or source.leader(location.lane.source) is None:
        return str(source.no_leader_error(location.lane.source))
    if noted is not None and noted != topic.id:
        return "the source topic was deleted and created again since"
    return ""


async def _begins(
    source: Cluster, locations: Sequence[LaneLocation], since_ms: int | None
) -> dict[LaneId, int]:
    """The position of each lane's first record at or after a time."""
    if since_ms is None:
        return {location.lane: 0 for location in locations}
    found = await source.list_offsets([location.lane.source for location in locations], since_ms)
    begins: dict[LaneId, int] = {}
    for location in locations:
        offset = found[location.lane.source]
        if isinstance(offset, BrokerError):
            begins[location.lane] = 0
        elif offset < 0 or not location.record.runs:
            begins[location.lane] = location.position
        else:
            begins[location.lane] = location.record.runs.position_of_source(offset)
    return begins


async def _record_bytes(
    target: Cluster, locations: Sequence[LaneLocation]
) -> dict[TopicPartition, float]:
    """About how large the records of each lane are, by a look at where it began; 0: unknown."""
    turns = asyncio.Semaphore(_LOOKS_AT_ONCE)

    async def look(location: LaneLocation) -> float:
        if location.position <= _UNIT_RECORDS_MIN or not location.record.runs:
            return 0.0
        offset = location.record.runs.target_offset_at(_first_position(location))
        async with turns:
            try:
                fetched = await fetch_once(target, location.target, offset, bytes_max=_LOOK_BYTES)
                return _mean_bytes(fetched.records, offset)
            except MirrorError:
                # Only how units are cut depends on it; whoever compares them will say what is up.
                return 0.0

    found = await asyncio.gather(*(look(location) for location in locations))
    return {location.target: size for location, size in zip(locations, found, strict=True)}


def _mean_bytes(chunk: memoryview, offset: int) -> float:
    at = next_offset = 0
    while (header := parse_header(chunk[at:])) is not None:
        at += header.size_bytes
        next_offset = header.next_offset
    return at / (next_offset - offset) if next_offset > offset else 0.0


def _unit_records(record_bytes: float, choice: AuditOptions) -> int:
    if record_bytes <= 0:
        return choice.unit_records_max
    fitting = int(UNIT_BYTES / record_bytes)
    return max(_UNIT_RECORDS_MIN, min(choice.unit_records_max, fitting))


def _known(offset: int | BrokerError) -> int | None:
    return offset if isinstance(offset, int) else None
