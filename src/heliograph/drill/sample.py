"""Which records a drill compares, and what it tells of those that differ. No I/O; driver only.

What a group reads next on the target must be what it would have read next on the source, record by
record. Where it has little left to read, the records just before are compared as well: they show
that the group's offset itself is right. The comparing is the audit's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from heliograph.audit.findings import Finding, FindingKind, UnitResult
from heliograph.audit.plan import cut_units
from heliograph.audit.units import AuditUnit
from heliograph.groups.placement import GroupMove
from heliograph.ledger.locations import LaneLocation
from heliograph.model import OffsetRange, TopicPartition

GROUPS_MAX: Final = 8
"""Consumers that a drill starts one after the other."""
PARTITIONS_PER_GROUP_MAX: Final = 3
BYTES_MAX: Final = 48 * 1024 * 1024
"""Read by one drill, all stretches of both sides together."""
_STRETCH_BYTES_MAX: Final = 2 * 1024 * 1024
_STRETCHES_PER_MOVE: Final = 6
"""What the consumer reads, the source beside it, and both sides before it, each of the three up to
half a stretch too far."""
_TARGET_OFFSETS_PER_RECORD_MAX: Final = 4
"""Of a target that others write too, no more than so many offsets are read for each record."""

Doubtful = Set[tuple[str, TopicPartition]]
"""Groups and source partitions whose new offsets are not what they should be."""
_NONE: Final[Doubtful] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFinding:
    """Records next to each other that differ in the same way, and where they are."""

    kind: FindingKind
    source: TopicPartition
    source_offsets: OffsetRange
    target: TopicPartition
    target_offsets: OffsetRange | None
    """Where they are or should be; None where the map has no offset for them."""
    records: int
    note: str = ""

    def __str__(self) -> str:
        at = f"{self.source} {_told(self.source_offsets)}"
        there = "" if self.target_offsets is None else _told(self.target_offsets)
        where = f"{self.target} {there}".strip()
        note = f" ({self.note})" if self.note else ""
        return f"{self.records:,} {self.kind.value}: {at}, on the target {where}{note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing some records of a group found."""

    equal_records: int = 0
    findings: tuple[SampleFinding, ...] = ()
    others_records: int = 0
    """Records on the target that the flow did not write."""

    @property
    def records(self) -> int:
        return self.equal_records + sum(one.records for one in self.findings)

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            equal_records=self.equal_records + other.equal_records,
            findings=self.findings + other.findings,
            others_records=self.others_records + other.others_records,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMove:
    """One group on one partition of the sample: where it goes on, and what it reads next there."""

    move: GroupMove
    location: LaneLocation
    source_offset: int
    """Where it goes on, on the source."""
    start_position: int
    end_position: int
    """Of the mirrored records to compare; equal where the group has nothing left to read."""

    @property
    def target_end(self) -> int:
        """Where a consumer of the target has read what is to be compared."""
        if self.end_position <= self.start_position:
            return self.move.target_offset
        last = self.location.record.runs.target_offset_at(self.end_position - 1)
        records = self.end_position - self.start_position
        most = self.move.target_offset + _TARGET_OFFSETS_PER_RECORD_MAX * records
        return max(self.move.target_offset, min(last + 1, most))


def spread(
    partitions: Mapping[str, Sequence[TopicPartition]], turn: int, doubtful: Doubtful = _NONE
) -> dict[str, tuple[TopicPartition, ...]]:
    """Some groups, and of each some partitions; another `turn` takes others of both.

    Of a group that was taken, partitions that are `doubtful` go first.
    """
    names = sorted(group for group, each in partitions.items() if each)
    skip = turn * GROUPS_MAX % len(names) if names else 0
    chosen = (names[skip:] + names[:skip])[:GROUPS_MAX]
    taken: dict[str, tuple[TopicPartition, ...]] = {}
    for number, group in enumerate(chosen):
        own = sorted(partitions[group])
        # Groups of the same topics begin at different partitions.
        begin = (turn + number) * PARTITIONS_PER_GROUP_MAX % len(own)
        turned = own[begin:] + own[:begin]
        first = [at for at in turned if (group, at) in doubtful]
        rest = [at for at in turned if (group, at) not in doubtful]
        taken[group] = tuple((first + rest)[:PARTITIONS_PER_GROUP_MAX])
    return taken


def stretch_bytes_max(moves: int) -> int:
    return min(_STRETCH_BYTES_MAX, BYTES_MAX // max(1, moves * _STRETCHES_PER_MOVE))


def sampled_move(
    move: GroupMove, location: LaneLocation, records_max: int, *, is_compacted: bool = False
) -> SampledMove:
    """`is_compacted`: records that the target no longer has are no fault."""
    source_offset = _source_offset(location, move)
    start = target_position(location, move.target_offset)
    if is_compacted:
        start = min(start, source_position(location, source_offset))
    return SampledMove(
        move=move,
        location=location,
        source_offset=source_offset,
        start_position=start,
        end_position=min(start + records_max, location.position),
    )


def next_units(
    sampled: SampledMove, next_offset: int, *, read_committed: bool
) -> Iterator[AuditUnit]:
    """What the group reads next, as far as a consumer has read the target: up to `next_offset`."""
    end = min(sampled.end_position, target_position(sampled.location, next_offset))
    units = _units(sampled.location, sampled.start_position, end, read_committed=read_committed)
    for number, unit in enumerate(units):
        if number:
            yield unit
            continue
        # What lies between the group's offset and the first mirrored record is looked at too.
        yield replace(
            unit, source_start=sampled.source_offset, target_start=sampled.move.target_offset
        )


def units_before(
    sampled: SampledMove, records_max: int, *, target_start: int, read_committed: bool
) -> list[AuditUnit]:
    """The last mirrored records before a group that has fewer than `records_max` left to read.

    The group has read them, so none that retention took is missed.
    """
    location = sampled.location
    left = sampled.end_position - sampled.start_position
    end = source_position(location, sampled.source_offset)
    held = target_position(location, target_start)
    start = max(end - max(0, records_max - left), held)
    return _units(location, start, end, read_committed=read_committed)


def _units(
    location: LaneLocation, start: int, end: int, *, read_committed: bool
) -> list[AuditUnit]:
    return cut_units(
        location, start, end, records_max=max(1, end - start), read_committed=read_committed
    )


def compared_of(
    location: LaneLocation, results: Iterable[UnitResult], *, target_start: int
) -> Compared:
    """What the audit says of the records of one lane; `target_start` is what the target has yet."""
    found = Compared()
    for result in results:
        own = [one for one in result.findings if one.kind is not FindingKind.FOREIGN]
        found += Compared(
            equal_records=result.equal_records,
            findings=tuple(each for one in own for each in _placed(location, one, target_start)),
            others_records=result.counts.get(FindingKind.FOREIGN, 0) + result.others_records,
        )
    return found


def source_position(location: LaneLocation, source_offset: int) -> int:
    """Of the first mirrored record at or after this offset; the lane's end where none is."""
    if source_offset >= location.source_next_offset:
        return location.position
    return min(location.position, location.record.runs.position_of_source(source_offset))


def target_position(location: LaneLocation, target_offset: int) -> int:
    if target_offset >= location.target_next_offset:
        return location.position
    return min(location.position, location.record.runs.position_of_target(target_offset))


def _source_offset(location: LaneLocation, move: GroupMove) -> int:
    """Where on the source a group goes on whose offset on the target is known."""
    runs, position = location.record.runs, target_position(location, move.target_offset)
    # Offsets of a source topic that was replaced mean nothing in the present one.
    begun_at = location.record.starts[0].position
    is_replaced = bool(runs) and runs.source_restart_position > begun_at
    stood = move.source_offset
    if stood is not None and not (is_replaced and source_position(location, stood) != position):
        return stood
    if position >= location.position:
        return location.source_next_offset
    return runs.source_offset_at(max(position, runs.exact_from))


def _placed(location: LaneLocation, finding: Finding, target_start: int) -> Iterator[SampleFinding]:
    """With its partitions; what is missing, with where the map says that it should be, and why."""
    source = finding.source or OffsetRange(start=0, end=0)
    if finding.kind is not FindingKind.MISSING:
        yield _finding(
            location, finding.kind, source, finding.target, finding.records, finding.note
        )
        return
    offsets = range(source.start, source.end)
    for note, each in groupby(offsets, lambda at: _why_missing(location, at, target_start)):
        own = list(each)
        target = None
        if note != _UNMAPPED:
            first, last = (_target_offset(location, at) for at in (own[0], own[-1]))
            target = OffsetRange(start=first, end=last + 1)
        span = OffsetRange(start=own[0], end=own[-1] + 1)
        yield _finding(location, finding.kind, span, target, len(own), note)


_UNMAPPED: Final = "not in the map"


def _why_missing(location: LaneLocation, source_offset: int, target_start: int) -> str:
    runs = location.record.runs
    position = source_position(location, source_offset)
    if position >= location.position or runs.source_offset_at(position) != source_offset:
        return _UNMAPPED
    is_gone = runs.target_offset_at(position) < target_start
    return "before the first offset that is left there" if is_gone else ""


def _target_offset(location: LaneLocation, source_offset: int) -> int:
    return location.record.runs.target_offset_at(source_position(location, source_offset))


def _finding(
    location: LaneLocation,
    kind: FindingKind,
    source: OffsetRange,
    target: OffsetRange | None,
    records: int,
    note: str,
) -> SampleFinding:
    return SampleFinding(
        kind=kind,
        source=location.lane.source,
        source_offsets=source,
        target=location.target,
        target_offsets=target,
        records=records,
        note=note,
    )


def _told(offsets: OffsetRange) -> str:
    if offsets.count <= 1:
        return f"offset {offsets.start}"
    return f"offsets {offsets.start} to {offsets.end - 1}"
