"""Which records a drill compares, and how they differ. Pure; runs on the driver.

What a group reads next on the target must be what it would have read next on the source, record by
record. Where it has little left to read, the records just before its place are compared as well:
they show that the place itself is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heliograph.broker.range_reader import Stretch, StretchRecord
from heliograph.ledger.runs import Runs
from heliograph.ledger.translate import LaneEnd
from heliograph.model import OffsetRange, TopicPartition

GROUPS_MAX: Final = 8
"""Consumers that a drill starts one after the other."""
PARTITIONS_PER_GROUP_MAX: Final = 3
BYTES_MAX: Final = 48 * 1024 * 1024
"""Read by one drill, all stretches of both sides together."""
_STRETCH_BYTES_MAX: Final = 2 * 1024 * 1024
_STRETCHES_PER_PLACE: Final = 4
_TARGET_OFFSETS_PER_RECORD_MAX: Final = 4
"""Of a target that others write too, no more than so many offsets are read for each record."""

Doubtful = Set[tuple[str, TopicPartition]]
"""Groups and source partitions whose places are not what they should be."""
_NONE: Final[Doubtful] = frozenset()


class Difference(StrEnum):
    LOST = "lost"
    CHANGED = "changed"
    OUT_OF_ORDER = "out of order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Records next to each other that differ in the same way."""

    kind: Difference
    source: TopicPartition
    source_offsets: OffsetRange
    target: TopicPartition
    target_offsets: OffsetRange | None
    """Where they should be; None where the map has no place for them."""
    records: int
    note: str = ""

    def __str__(self) -> str:
        at = f"{self.source} {_told(self.source_offsets)}"
        there = "" if self.target_offsets is None else _told(self.target_offsets)
        where = f"{self.target} {there}".strip()
        note = f" ({self.note})" if self.note else ""
        return f"{self.records:,} {self.kind.value}: {at}, on the target {where}{note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Mirrored records of one lane, by position, and where they are on both sides."""

    source: TopicPartition
    source_offsets: OffsetRange
    target: TopicPartition
    target_offsets: OffsetRange

    @property
    def is_empty(self) -> bool:
        return self.source_offsets.count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What the map says of one lane."""

    source: TopicPartition
    target: TopicPartition
    runs: Runs
    end: LaneEnd
    is_compacted: bool = False

    def position_of(self, source_offset: int) -> int:
        """Of the first mirrored record at or after this offset; the lane's end where none is."""
        if source_offset >= self.end.source_next_offset:
            return self.end.position
        return min(self.end.position, self.runs.position_of_source(source_offset))

    def records_between(self, from_offset: int, to_offset: int) -> int:
        """Mirrored records of `[from_offset, to_offset)` of the source."""
        return max(0, self.position_of(to_offset) - self.position_of(from_offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the comparison of one window found."""

    equal_records: int = 0
    findings: tuple[Finding, ...] = ()
    others_records: int = 0
    """Records on the target that the flow did not write."""
    gone_records: int = 0
    """Compared with nothing: retention or compaction took them on one side."""

    @property
    def records(self) -> int:
        return self.equal_records + sum(one.records for one in self.findings)

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            equal_records=self.equal_records + other.equal_records,
            findings=self.findings + other.findings,
            others_records=self.others_records + other.others_records,
            gone_records=self.gone_records + other.gone_records,
        )


def spread(
    partitions: Mapping[str, Sequence[TopicPartition]], turn: int, doubtful: Doubtful = _NONE
) -> dict[str, tuple[TopicPartition, ...]]:
    """Some groups, and of each some partitions; another `turn` takes others of both.

    Of a group that was taken, places that are `doubtful` go first.
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


def stretch_bytes_max(locations: int) -> int:
    return min(_STRETCH_BYTES_MAX, BYTES_MAX // max(1, locations * _STRETCHES_PER_PLACE))


def next_window(lane: Lane, source_offset: int, target_offset: int, records_max: int) -> Window:
    """What a group reads next on both sides, from its two places on; empty where nothing is."""
    first = lane.position_of(source_offset)
    last = min(first + records_max, lane.end.position) - 1
    source_end, target_end = source_offset, target_offset
    if last >= first:
        source_end = max(source_offset, lane.runs.source_offset_at(last) + 1)
        target_end = max(target_offset, lane.runs.target_offset_at(last) + 1)
    most = target_offset + _TARGET_OFFSETS_PER_RECORD_MAX * records_max
    return Window(
        source=lane.source,
        source_offsets=OffsetRange(start=source_offset, end=source_end),
        target=lane.target,
        target_offsets=OffsetRange(start=target_offset, end=min(target_end, most)),
    )


def window_before(lane: Lane, source_offset: int, records_max: int, *, target_start: int) -> Window:
    """The last mirrored records before a group's place, of those the target still holds.

    The group has read them, so none that retention took is missed.
    """
    end = lane.position_of(source_offset)
    held = lane.runs.position_of_target(target_start)
    first = max(end - records_max, lane.runs.source_restart_position, held)
    if first >= end:
        at_source, at_target = source_offset, lane.end.target_next_offset
        return Window(
            source=lane.source,
            source_offsets=OffsetRange(start=at_source, end=at_source),
            target=lane.target,
            target_offsets=OffsetRange(start=at_target, end=at_target),
        )
    return Window(
        source=lane.source,
        source_offsets=OffsetRange(
            start=lane.runs.source_offset_at(first), end=lane.runs.source_offset_at(end - 1) + 1
        ),
        target=lane.target,
        target_offsets=OffsetRange(
            start=lane.runs.target_offset_at(first), end=lane.runs.target_offset_at(end - 1) + 1
        ),
    )


def compare(lane: Lane, window: Window, source: Stretch, target: Stretch) -> Compared:
    """By the map, over what of the window was read on both sides."""
    there, others_records = _by_position(lane, target)
    wanted = window.source_offsets
    sent = [rec for rec in source.records if wanted.start <= rec.offset < wanted.end]
    contents = {_content(rec) for rec in sent}
    single: list[Finding] = []
    equal_records = gone_records = 0
    for rec in sent:
        position = lane.runs.position_of_source(rec.offset)
        at = lane.runs.target_offset_at(position)
        if lane.runs.source_offset_at(position) != rec.offset or position >= lane.end.position:
            single.append(_finding(lane, Difference.LOST, rec.offset, None, "not in the map"))
            continue
        if at >= min(target.next_offset, window.target_offsets.end):
            break
        got = there.pop(position, None)
        if got is None and lane.is_compacted:
            gone_records += 1
        elif got is None:
            note = "" if at >= target.start else "before the first offset that is left there"
            single.append(_finding(lane, Difference.LOST, rec.offset, at, note))
        elif _content(got) == _content(rec):
            equal_records += 1
        else:
            moved = _content(got) in contents
            kind = Difference.OUT_OF_ORDER if moved else Difference.CHANGED
            single.append(_finding(lane, kind, rec.offset, at, _differing(rec, got)))
    # What only the target still has is no fault: the source's retention or compaction took it.
    gone_records += sum(
        source.start <= lane.runs.source_offset_at(position) < min(source.next_offset, wanted.end)
        for position in there
    )
    return Compared(
        equal_records=equal_records,
        findings=tuple(joined(single)),
        others_records=others_records,
        gone_records=gone_records,
    )


def joined(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Neighbours of the same kind as one; records in between that do not exist join them too."""
    last: Finding | None = None
    for one in findings:
        if last is not None and _follows(last, one):
            last = _together(last, one)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _follows(last: Finding, one: Finding) -> bool:
    if (last.kind, last.note, last.source) != (one.kind, one.note, one.source):
        return False
    if last.target_offsets is None or one.target_offsets is None:
        mapped = last.target_offsets is not None or one.target_offsets is not None
        return not mapped and last.source_offsets.end == one.source_offsets.start
    return last.target_offsets.end == one.target_offsets.start


def _together(last: Finding, one: Finding) -> Finding:
    target = None
    if last.target_offsets is not None and one.target_offsets is not None:
        target = OffsetRange(start=last.target_offsets.start, end=one.target_offsets.end)
    return Finding(
        kind=last.kind,
        source=last.source,
        source_offsets=OffsetRange(start=last.source_offsets.start, end=one.source_offsets.end),
        target=last.target,
        target_offsets=target,
        records=last.records + one.records,
        note=last.note,
    )


def _by_position(lane: Lane, target: Stretch) -> tuple[dict[int, StretchRecord], int]:
    """The flow's own records, and how many others wrote."""
    found: dict[int, StretchRecord] = {}
    others_records = 0
    for rec in target.records:
        position = lane.runs.position_of_target(rec.offset)
        is_own = position < lane.end.position and lane.runs.explains(position)
        if is_own and lane.runs.target_offset_at(position) == rec.offset:
            found[position] = rec
        else:
            others_records += 1
    return found, others_records


def _finding(lane: Lane, kind: Difference, source: int, target: int | None, note: str) -> Finding:
    return Finding(
        kind=kind,
        source=lane.source,
        source_offsets=OffsetRange(start=source, end=source + 1),
        target=lane.target,
        target_offsets=None if target is None else OffsetRange(start=target, end=target + 1),
        records=1,
        note=note,
    )


def _content(rec: StretchRecord) -> tuple[object, ...]:
    return (rec.key, rec.value, rec.headers, rec.timestamp_ms)


def _differing(sent: StretchRecord, got: StretchRecord) -> str:
    names = ("key", "value", "headers", "timestamp")
    pairs = zip(names, _content(sent), _content(got), strict=True)
    return ", ".join(name for name, one, other in pairs if one != other)


def _told(offsets: OffsetRange) -> str:
    if offsets.count <= 1:
        return f"offset {offsets.start}"
    return f"offsets {offsets.start} to {offsets.end - 1}"
