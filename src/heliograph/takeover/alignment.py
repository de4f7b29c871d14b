"""Which source record each record of a copy is, and where the copy ends. No I/O; runs anywhere.

MirrorMaker 2 copies a partition in *lives*. Each begins one record after the position stored last
and copies what follows, in order, until it is stopped. Where it is killed, the next life begins
before the end of the one before, and the target has those records twice. So a copy is a row of
stretches of the source, each of which begins at or before the end of what was there already.

Records are compared by fingerprint. Where identical records leave more than one way to read a copy,
the reading is taken that loses nothing, and `Alignment.unsure` says what it may repeat (`lives`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.errors import InvariantError
from heliograph.ledger.runs import Run
from heliograph.model import OffsetRange
from heliograph.takeover.generations import Lives, read_lives

LOOKAHEAD_RECORDS_MAX: Final = 1_024
_CANDIDATES_MAX: Final = 64
_COMPARED_AT_ONCE: Final = 4_096


@dataclass(slots=True)
class Stretch:
    """Records of one partition, ascending: an offset and a 64-bit fingerprint of each."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    prints: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, fingerprint: int) -> None:
        self.offsets.append(offset)
        self.prints.append(fingerprint)

    def index_at(self, offset: int) -> int:
        """Of the first record at or after this offset."""
        return bisect_left(self.offsets, offset)

    def index_of(self, offset: int) -> int | None:
        """Of the record with this offset; None where there is none."""
        index = self.index_at(offset)
        return index if index < len(self) and self.offsets[index] == offset else None

    def covering(self, start: int, end: int) -> OffsetRange:
        """The offsets of the records `[start, end)`, of which there is at least one."""
        return OffsetRange(start=self.offsets[start], end=self.offsets[end - 1] + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSyncAnchor:
    """MirrorMaker 2 said that these are the same record."""

    source_offset: int
    target_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Records of the source that the target already had when they were copied again."""

    source: OffsetRange
    target: OffsetRange
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    next_source_offset: int | None
    """The first record that is not on the target; None where none of the target was found."""
    unsure: OffsetRange | None
    """Source offsets, from the next one on, that may be on the target already: the bytes of
    identical records do not tell."""
    runs: tuple[Run, ...]
    """What is mirrored before `next_source_offset`; of each record the last copy that keeps the
    order, so that a consumer sent there reads as little as possible twice."""
    mapped_records: int
    """Records that the runs explain."""
    copies: int
    """Records of the target that were found in the source."""
    repeats: tuple[Repeat, ...]
    foreign: tuple[OffsetRange, ...]
    """Target offsets of records that are not in the source."""
    foreign_records: int
    missing: tuple[OffsetRange, ...]
    """Source offsets of records that are not on the target, though later ones are."""
    missing_records: int
    is_short: bool
    """Whether the copy ends before the stored position."""
    reached: int
    """How many records of the source had to be known; the rest may be left unread."""

    @property
    def repeated_records(self) -> int:
        return sum(repeat.records for repeat in self.repeats)


def align(
    source: Stretch,
    target: Stretch,
    *,
    stored_next: int | None,
    anchors: Iterable[OffsetSyncAnchor] = (),
    is_compacted: bool = False,
) -> Alignment:
    """Read `target` as a copy of `source`.

    `stored_next` is the first source offset that MirrorMaker 2 would copy next; without one it
    would begin at the first of `source`. A target that `is_compacted` lacks records by right.
    """
    read = _Reading(source, target, stored_next, anchors)
    segments = read.segments()
    low, high, is_short = _ends(read, segments, is_compacted=is_compacted)
    lives = None if is_compacted or not segments else read.lives(segments[0])
    if lives is not None:
        segments = [_Segment(*each) for each in lives.segments]
        low, high, is_short = lives.least, lives.most, False
    first = min((segment.source for segment in segments), default=None)
    covered = _Cover(segments)
    kept = _kept(segments, low) if first is not None else []
    runs = _runs(source, target, kept)
    missing = [] if first is None else list(covered.gaps(first, low))
    gaps = _gaps_in_target(segments, len(target))
    foreign = [target.covering(start, end) for start, end in gaps]
    unsure = None
    if high > low:
        unsure = source.covering(low, high)
    return Alignment(
        next_source_offset=None if first is None else _offset_after(source, low),
        unsure=unsure,
        runs=tuple(runs),
        mapped_records=sum(segment.count for segment in kept),
        copies=sum(segment.count for segment in segments),
        repeats=tuple(_repeats(source, target, segments)),
        foreign=tuple(foreign),
        foreign_records=sum(end - start for start, end in gaps),
        missing=tuple(source.covering(start, end) for start, end in missing),
        missing_records=sum(end - start for start, end in missing),
        is_short=is_short,
        reached=max((segment.source_end for segment in segments), default=0),
    )


def _offset_after(source: Stretch, index: int) -> int:
    """The offset after the record before `index`: nothing that can be read lies in between."""
    return source.offsets[index - 1] + 1 if index else source.offsets[0]


@dataclass(frozen=True, slots=True)
class _Segment:
    """`count` target records from index `target` on are the source's from index `source` on."""

    target: int
    source: int
    count: int

    @property
    def target_end(self) -> int:
        return self.target + self.count

    @property
    def source_end(self) -> int:
        return self.source + self.count


class _Reading:
    """The target cut into segments, first to last."""

    def __init__(
        self,
        source: Stretch,
        target: Stretch,
        stored_next: int | None,
        anchors: Iterable[OffsetSyncAnchor],
    ) -> None:
        self.source, self.target = source.prints, target.prints
        self.is_stored = stored_next is not None
        self.first_unstored = 0 if stored_next is None else source.index_at(stored_next)
        """Index of the record that a new life would begin with."""
        # Of two that disagree about one record the later is about the topic there is.
        self.anchors = sorted(dict(_verified(source, target, anchors)).items())
        """Indexes on the target and on the source."""
        self._by_print: array[int] | None = None

    def segments(self) -> list[_Segment]:
        found: list[_Segment] = []
        at_target = at_source = 0
        while at_target < len(self.target):
            room, pinned = self._room(at_target, at_source)
            if pinned is not None:
                at_source = pinned
                continue
            count = self._same(at_target, at_source, room)
            if not count:
                candidate = self._candidate(at_target, at_source)
                if candidate is None:
                    at_target += 1
                    continue
                at_source = candidate
                count = self._same(at_target, at_source, self._room(at_target, at_source)[0])
            found.append(_Segment(at_target, at_source, count))
            at_target, at_source = at_target + count, at_source + count
        return found

    def lives(self, first: _Segment) -> Lives | None:
        """The reading that holds least, where MirrorMaker 2 alone has made the copy."""
        return read_lives(
            self.source,
            self.target,
            first=(first.target, first.source),
            first_unstored=self.first_unstored,
            anchors=dict(self.anchors),
            is_known=lambda fingerprint: bool(self.indexes_of(fingerprint, 0)),
        )

    def _room(self, at_target: int, at_source: int) -> tuple[int, int | None]:
        """Records until a pin says otherwise, and where the source goes on if it says so here."""
        room = min(len(self.target) - at_target, max(0, len(self.source) - at_source))
        for pinned_target, pinned_source in self.anchors[
            bisect_left(self.anchors, (at_target, -1)) :
        ]:
            ahead = pinned_target - at_target
            if ahead >= room and ahead:
                break
            if pinned_source - at_source != ahead:
                return (ahead, None) if ahead else (0, pinned_source)
        return room, None

    def _same(self, at_target: int, at_source: int, most: int) -> int:
        """How many records are equal from here on."""
        target, source, count = self.target, self.source, 0
        while count < most:
            some = min(_COMPARED_AT_ONCE, most - count)
            left = target[at_target + count : at_target + count + some]
            right = source[at_source + count : at_source + count + some]
            if left != right:
                pairs = zip(left, right, strict=True)
                return count + next(n for n, (a, b) in enumerate(pairs) if a != b)
            count += some
        return count

    def _candidate(self, at_target: int, at_source: int) -> int | None:
        """Where in the source the copy goes on: where most of it fits, of those the nearest back.

        Where several fit as well, `lives` finds what they could mean.
        """
        best, best_count = None, 0
        for index in self.indexes_of(self.target[at_target], at_source):
            room = self._room(at_target, index)[0]
            count = self._same(at_target, index, min(LOOKAHEAD_RECORDS_MAX, room))
            is_back = index <= at_source
            if count > best_count or (count == best_count and is_back):
                best, best_count = index, count
        return best

    def indexes_of(self, fingerprint: int, near: int) -> Sequence[int]:
        if self._by_print is None:
            order = sorted(range(len(self.source)), key=self.source.__getitem__)
            self._by_print = array("q", order)
        order_of, key = self._by_print, self.source.__getitem__
        start = bisect_left(order_of, fingerprint, key=key)
        end = bisect_right(order_of, fingerprint, lo=start, key=key)
        indexes = order_of[start:end]
        if len(indexes) <= _CANDIDATES_MAX:
            return indexes
        # Identical records without end: those around the two places that are likely.
        chosen: set[int] = set()
        for place in (near, self.first_unstored):
            middle = bisect_left(indexes, place)
            chosen.update(indexes[max(0, middle - _CANDIDATES_MAX // 2) : middle + 2])
        return sorted(chosen)


def _verified(
    source: Stretch, target: Stretch, anchors: Iterable[OffsetSyncAnchor]
) -> Iterator[tuple[int, int]]:
    """Pins whose two records are there and equal; a topic that was recreated leaves others."""
    for anchor in anchors:
        at_source, at_target = (
            source.index_of(anchor.source_offset),
            target.index_of(anchor.target_offset),
        )
        if at_source is None or at_target is None:
            continue
        if source.prints[at_source] == target.prints[at_target]:
            yield at_target, at_source


class _Cover:
    """Source indexes that some segment has, as disjoint ascending ranges."""

    def __init__(self, segments: Iterable[_Segment] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for segment in segments:
            self.add(segment.source, segment.source_end)

    def add(self, start: int, end: int) -> None:
        left = bisect_left(self._ends, start)
        right = bisect_right(self._starts, end)
        if left < right:
            start, end = min(start, self._starts[left]), max(end, self._ends[right - 1])
        self._starts[left:right] = [start]
        self._ends[left:right] = [end]

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else 0

    def first_gap(self, start: int) -> int:
        """The first index from `start` on that is not covered."""
        index = bisect_right(self._starts, start) - 1
        return max(start, self._ends[index]) if index >= 0 else start

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        while start < end:
            start = self.first_gap(start)
            index = bisect_right(self._starts, start)
            gap_end = min(end, self._starts[index] if index < len(self._starts) else end)
            if start < gap_end:
                yield start, gap_end
            start = gap_end

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The covered parts of `[start, end)`."""
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[index] >= end:
                return
            yield max(start, self._starts[index]), min(end, self._ends[index])


def _ends(
    read: _Reading, segments: Sequence[_Segment], *, is_compacted: bool
) -> tuple[int, int, bool]:
    """Where the copy ends, twice, as a source index, and whether that is before what was stored."""
    if not segments:
        return 0, 0, False
    covered = _Cover(segments)
    if is_compacted or covered.end < read.first_unstored:
        return covered.end, covered.end, covered.end < read.first_unstored
    # Without a position the target says where the copy began; what it deleted since is no gap.
    begun = min(segment.source for segment in segments)
    end = covered.first_gap(read.first_unstored if read.is_stored else begun)
    return end, end, False


def _kept(segments: Sequence[_Segment], end: int) -> list[_Segment]:
    """Of every record before `end` one copy, ascending on both sides, the last where possible.

    A life that comes as far as those before it replaces them from its first record on. One that
    does not must not: what follows its last record is on the target before it.
    """
    kept: list[_Segment] = []
    for life in _lives(segments):
        if kept and life[-1].source_end < kept[-1].source_end:
            continue
        replacing = _from_last_gap(kept, life)
        _truncate(kept, replacing[0].source)
        kept.extend(replacing)
    _truncate(kept, end)
    return kept


def _from_last_gap(kept: Sequence[_Segment], life: list[_Segment]) -> list[_Segment]:
    """The part of a life that skips nothing which only those before it have."""
    for index in range(len(life) - 1, 0, -1):
        start, end = life[index - 1].source_end, life[index].source
        if start < end and any(s.source < end and s.source_end > start for s in reversed(kept)):
            return life[index:]
    return life


def _lives(segments: Sequence[_Segment]) -> Iterator[list[_Segment]]:
    life: list[_Segment] = []
    for segment in segments:
        if life and segment.source < life[-1].source_end:
            yield life
            life = []
        life.append(segment)
    if life:
        yield life


def _truncate(kept: list[_Segment], end: int) -> None:
    while kept and kept[-1].source >= end:
        kept.pop()
    if kept and kept[-1].source_end > end:
        last = kept.pop()
        kept.append(_Segment(last.target, last.source, end - last.source))


def _runs(source: Stretch, target: Stretch, kept: Iterable[_Segment]) -> list[Run]:
    runs: list[Run] = []
    position = 0
    for segment in kept:
        for first in _starts(source.offsets, target.offsets, segment):
            run = Run(
                position=position + first,
                source_offset=source.offsets[segment.source + first],
                target_offset=target.offsets[segment.target + first],
            )
            if not runs or runs[-1].at(run.position) != run:
                runs.append(run)
        position += segment.count
    return runs


def _starts(sources: Sequence[int], targets: Sequence[int], segment: _Segment) -> Iterator[int]:
    """Records of the segment before which one of the two sides has a gap."""
    yield 0
    at_source, at_target, count = segment.source, segment.target, segment.count
    if (
        sources[segment.source_end - 1] - sources[at_source] == count - 1
        and targets[segment.target_end - 1] - targets[at_target] == count - 1
    ):
        return
    for n in range(1, count):
        source_step = sources[at_source + n] - sources[at_source + n - 1]
        target_step = targets[at_target + n] - targets[at_target + n - 1]
        if source_step < 1 or target_step < 1:
            raise InvariantError(f"offsets do not ascend at record {n} of {segment}")
        if source_step != 1 or target_step != 1:
            yield n


def _repeats(source: Stretch, target: Stretch, segments: Iterable[_Segment]) -> Iterator[Repeat]:
    seen = _Cover()
    for segment in segments:
        for start, end in seen.within(segment.source, segment.source_end):
            first = segment.target + start - segment.source
            yield Repeat(
                source=source.covering(start, end),
                target=target.covering(first, first + end - start),
                records=end - start,
            )
        seen.add(segment.source, segment.source_end)


def _gaps_in_target(segments: Iterable[_Segment], end: int) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    at = 0
    for segment in segments:
        if segment.target > at:
            gaps.append((at, segment.target))
        at = segment.target_end
    if at < end:
        gaps.append((at, end))
    return gaps
