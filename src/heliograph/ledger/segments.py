"""Settled runs in segments, in the place of the entries they came from. No I/O; runs anywhere.

A chunk's entry has a key of its own, so that no late writer takes away what another wrote, and
compaction can remove none. Whoever carries the lane merges them: all runs of a stretch of positions
in segments, then a tombstone for each entry that the segments cover. What that must keep:

- The map is the same before, between and after these records, whichever of them compaction has
  removed. So what is merged and what is not never overlap: entries that reach beyond the merged
  stretch begin after it, and a segment lets nothing resume at its end.
- A merge that lands late, of a slot presumed dead, changes nothing. So only positions before the
  lane's last head are merged: what is there is settled, and every later correction is beyond it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.ledger.entries import RunsKey, SegmentEntry, StartEntry, Tombstone
from heliograph.ledger.lane_fold import LaneFold
from heliograph.ledger.packed_runs import PackedRuns, pack_runs
from heliograph.ledger.runs import Run, Runs

SEGMENT_RUNS: Final = 4_096
"""In a full segment, which is left alone from then on; the last one of a lane grows until it is."""
MERGE_ENTRIES_MIN: Final = 128
"""As many entries make a merge worth its bytes."""
MERGE_ENTRIES_MAX: Final = 1_024
"""As many are merged at once; a ledger of before there were segments takes several turns."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run entry of the lane."""

    place: int
    """Its place in the log, among the lane's."""
    key: RunsKey
    start: int
    end: int
    has_end: bool
    is_full: bool

    def overlaps(self, other: _Piece) -> bool:
        return self.start < other.end and other.start < self.end


_Start = tuple[int, int]
"""Place in the log, and position."""


def unmerged_count(fold: LaneFold) -> int:
    """Entries of runs that a merge could put together."""
    return sum(not piece.is_full for piece in _pieces(fold))


def merged(
    fold: LaneFold, settled_position: int, *, author: str, least: int
) -> list[SegmentEntry | Tombstone]:
    """What to write, in order, to merge the lane's runs before `settled_position`.

    Nothing, where there are fewer than `least` entries to merge, or where it must wait until those
    that overlap them are settled as well.
    """
    pieces = _pieces(fold)
    full = _untouched(pieces, fold)
    loose = [piece for piece in pieces if piece not in full]
    bound = min(settled_position, _end_of_turn(loose))
    starts = list(_starts(fold))
    chosen, left = _apart(loose, bound, starts)
    if len(chosen) < least or _are_cut(left, starts):
        return []
    end = min((piece.start for piece in left), default=fold.runs.written_until)
    overlap_at = fold.runs.overlap_at
    if overlap_at is not None and overlap_at < end:
        # The lane's next resume finds out which of the two is right.
        return []
    segments = [
        SegmentEntry(
            topic=fold.lane.topic, partition=fold.lane.partition, author=author, packed=packed
        )
        for start, stop in _stretches(chosen, full, end)
        for packed in _packed(fold.runs, start, stop)
    ]
    taken = {segment.key for segment in segments}
    # From the oldest on, so that nothing that was replaced comes back in between.
    gone = [Tombstone(key=piece.key) for piece in chosen if piece.key not in taken]
    return [*segments, *gone]


def _pieces(fold: LaneFold) -> list[_Piece]:
    """In log order."""
    found: list[_Piece] = []
    for place, key in enumerate(tuple(fold.written)):
        if not isinstance(key, RunsKey):
            continue
        written = fold.runs_written(key)
        if isinstance(written, PackedRuns):
            is_full = written.count >= SEGMENT_RUNS or written.is_coarse
            found.append(_Piece(place, key, key.position, written.end_position, True, is_full))
        elif written is not None:
            block, end = written
            until = block.last.position + 1 if end is None else end
            found.append(_Piece(place, key, key.position, until, end is not None, False))
    return found


def _untouched(pieces: Sequence[_Piece], fold: LaneFold) -> set[_Piece]:
    """Full segments that no later entry says anything about."""
    full = sorted((piece for piece in pieces if piece.is_full), key=lambda piece: piece.start)
    starts = [piece.start for piece in full]
    longest = max((piece.end - piece.start for piece in full), default=0)
    touched: set[_Piece] = set()
    for other in pieces:
        first = bisect_left(starts, other.start - longest)
        for piece in full[first : bisect_right(starts, other.end)]:
            if piece.place < other.place and piece.overlaps(other):
                touched.add(piece)
    for place, position in _starts(fold):
        touched.update(piece for piece in full if piece.place < place and position < piece.end)
    return set(full) - touched


def _starts(fold: LaneFold) -> Iterator[_Start]:
    for place, written in enumerate(fold.written.values()):
        if isinstance(written, StartEntry):
            yield place, written.position


def _end_of_turn(loose: Sequence[_Piece]) -> int:
    ends = sorted(piece.end for piece in loose)
    return ends[min(len(ends), MERGE_ENTRIES_MAX) - 1] if ends else 0


def _apart(
    loose: Sequence[_Piece], bound: int, starts: Sequence[_Start]
) -> tuple[list[_Piece], list[_Piece]]:
    """Entries that end by `bound`, and the others; no entry of the one overlaps the others."""
    chosen: list[_Piece] = []
    left: list[_Piece] = []
    for piece in loose:
        (left if piece.end > bound or _holds_down(piece, starts) else chosen).append(piece)
    while left and chosen:
        lowest, oldest = (
            min(piece.start for piece in left),
            min(piece.place for piece in left),
        )
        # An entry without end holds down what came before it.
        caught = [
            piece
            for piece in chosen
            if piece.end > lowest or (not piece.has_end and oldest < piece.place)
        ]
        if not caught:
            break
        left += caught
        places = {piece.place for piece in caught}
        chosen = [piece for piece in chosen if piece.place not in places]
    return chosen, left


def _holds_down(piece: _Piece, starts: Iterable[_Start]) -> bool:
    """Whether the entry, which has no end, replaced a start that would come back without it."""
    return not piece.has_end and any(
        place < piece.place and position > piece.start for place, position in starts
    )


def _are_cut(left: Iterable[_Piece], starts: Iterable[_Start]) -> bool:
    """Whether a start replaced some of what is left; that may not count as known."""
    oldest = min((piece.place for piece in left), default=None)
    return oldest is not None and any(place > oldest for place, _ in starts)


def _stretches(chosen: Sequence[_Piece], full: Iterable[_Piece], end: int) -> list[tuple[int, int]]:
    """Where new segments are needed: what the chosen entries have between full segments."""
    edges = sorted(full, key=lambda piece: piece.start)
    found: dict[int, int] = {}
    stops: dict[int, int] = {}
    for piece in chosen:
        position = piece.start
        while position < min(piece.end, end):
            after = bisect_right(edges, position, key=lambda edge: edge.start)
            if after and edges[after - 1].end > position:
                position = edges[after - 1].end
                continue
            stop = min(edges[after].start, end) if after < len(edges) else end
            found[after] = min(found.get(after, position), position)
            stops[after] = stop
            position = stop
    return sorted((found[zone], stops[zone]) for zone in found)


def _packed(runs: Runs, start: int, end: int) -> Iterator[PackedRuns]:
    some: list[Run] = [runs.run_at(start).at(start)]
    for run in runs.since(start + 1):
        if run.position >= end:
            break
        if len(some) == SEGMENT_RUNS:
            yield pack_runs(some, run.position)
            some = []
        some.append(run)
    yield pack_runs(some, end)
