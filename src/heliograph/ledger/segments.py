"""Settled runs in segments, in the place of the entries they came from. No I/O; runs anywhere.

A chunk's entry has a key of its own, so that no late writer takes away what another wrote, and
compaction can remove none. Whoever carries the lane merges them: all runs of a stretch of positions
in segments, then a tombstone for each entry that the segments cover. What that must keep:

- The map is the same before, between and after these records, whichever of them compaction has
  removed. So what is merged and what is not never overlap: entries that reach beyond the merged
  stretch begin after it, and a segment lets nothing resume at its end.
- A merge that lands late, of a slot presumed dead, changes nothing. So only positions before the
  lane's last head are merged: what is there is settled, and every later correction is beyond it.

The oldest full segments are forgotten: one segment of anchors takes their place, see
`Runs.coarsen`. The highest of such segments counts wherever it stands, so one that lands late
changes nothing either; and all of it lies before the head, so no resume asks for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from heliograph.ledger.entries import RunsKey, SegmentEntry, StartEntry, Tombstone
from heliograph.ledger.lane_fold import LaneFold
from heliograph.ledger.packed_runs import PackedRuns, pack_anchors, pack_runs
from heliograph.ledger.runs import Run, Runs

SEGMENT_RUNS: Final = 4_096
"""In a full segment, which is left alone from then on; the last one of a lane grows until it is."""
MERGE_ENTRIES_MIN: Final = 128
"""As many entries make a merge worth its bytes."""
MERGE_ENTRIES_MAX: Final = 1_024
"""As many are merged at once; a ledger of before there were segments takes several turns."""
FORGET_SEGMENTS_MIN: Final = 8
"""As many are worth that the anchors are written again."""
ANCHORS_MAX: Final = 4_096
"""Where there are more, every second one goes."""


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
    is_coarse: bool = False

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
    pieces = [piece for piece in _pieces(fold) if not piece.is_coarse]
    floor = fold.runs.floor
    full = {piece for piece in _untouched(pieces, fold) if piece.end > floor}
    loose = [piece for piece in pieces if piece not in full]
    for bound in sorted({min(settled_position, _end_of_turn(loose)), settled_position}):
        chosen, left = _apart(loose, bound, list(_starts(fold)))
        if len(chosen) < least or _are_cut(left, list(_starts(fold))):
            continue
        end = min((piece.start for piece in left), default=fold.runs.written_until)
        overlap_at = fold.runs.overlap_at
        if overlap_at is not None and overlap_at < end:
            # The lane's next resume finds out which of the two is right.
            return []
        entries = _in_place_of(fold, chosen, _stretches(chosen, full, floor, end), author)
        if not left or _is_same_from(end, fold.runs, fold.runs_after(entries)):
            return entries
    return []


def _in_place_of(
    fold: LaneFold,
    chosen: Sequence[_Piece],
    stretches: Iterable[tuple[int, int]],
    author: str,
) -> list[SegmentEntry | Tombstone]:
    segments = [
        SegmentEntry(
            topic=fold.lane.topic, partition=fold.lane.partition, author=author, packed=packed
        )
        for start, stop in stretches
        for packed in _packed(fold.runs, start, stop)
    ]
    taken = {segment.key for segment in segments}
    # From the oldest on, so that nothing that was replaced comes back in between.
    gone = [Tombstone(key=piece.key) for piece in chosen if piece.key not in taken]
    return [*segments, *gone]


def _is_same_from(position: int, before: Runs, after: Runs) -> bool:
    """Whether the entries that stay say what they said: those that were merged may have pushed them
    on (`raised`), and would come to stand behind them. Then they are merged together, later."""
    at = {position, *(run.position for runs in (before, after) for run in runs.since(position))}
    return all(before.run_at(each).at(each) == after.run_at(each).at(each) for each in at)


def forgotten(
    fold: LaneFold, *, runs_max: int, log_starts: Run | None, author: str, least: int
) -> list[SegmentEntry | Tombstone]:
    """What to write, in order, to forget the oldest runs: those of a lane that has more than
    `runs_max`, and those of records that neither log has; `log_starts` are the logs' first offsets.

    Nothing, where fewer than `least` segments would go.
    """
    runs = fold.runs
    if runs.overlap_at is not None:
        return []
    pieces = _pieces(fold)
    floor = _new_floor(fold, pieces, runs_max, log_starts)
    gone = [
        piece for piece in pieces if not piece.is_coarse and piece.has_end and piece.end <= floor
    ]
    if len(gone) < least:
        return []
    anchors = runs.anchors_before(floor)
    while len(anchors) > ANCHORS_MAX:
        # The first stays: it says where the source topic begins.
        anchors = anchors[::2]
    entry = SegmentEntry(
        topic=fold.lane.topic,
        partition=fold.lane.partition,
        author=author,
        packed=pack_anchors(anchors, floor, is_identical=runs.identical(floor)),
    )
    old = [piece for piece in pieces if piece.is_coarse] + gone
    return [entry, *(Tombstone(key=piece.key) for piece in old if piece.key != entry.key)]


def forgettable_count(fold: LaneFold) -> int:
    """Segments that might be forgotten; without a look at how old their records are."""
    return sum(piece.is_full and not piece.is_coarse for piece in _pieces(fold)) - 1


def _new_floor(
    fold: LaneFold, pieces: Sequence[_Piece], runs_max: int, log_starts: Run | None
) -> int:
    """Where exact offsets are to begin: at a full segment, with nothing but such before it."""
    runs, floor = fold.runs, fold.runs.floor
    full = [piece for piece in _untouched(pieces, fold) if not piece.is_coarse]
    exact = sorted((each for each in full if each.start >= floor), key=lambda each: each.start)
    loose = min(
        (each.start for each in pieces if each not in full and each.end > floor), default=None
    )
    too_many = len(runs) - runs_max
    for piece, after in pairwise(exact):
        if loose is not None and loose < after.start:
            break
        if too_many <= 0 and not _is_gone(runs, after.start, log_starts):
            break
        too_many -= _count(fold, piece)
        if not runs.is_restart(after.start):
            floor = after.start
    return floor


def _count(fold: LaneFold, piece: _Piece) -> int:
    written = fold.runs_written(piece.key)
    return written.count if isinstance(written, PackedRuns) else 0


def _is_gone(runs: Runs, position: int, log_starts: Run | None) -> bool:
    """Whether neither log has records from before `position`, or only another source topic did."""
    if position <= runs.exact_from and runs.exact_from > runs.floor:
        return True
    here = runs.run_at(position)
    return log_starts is not None and (
        here.source_offset <= log_starts.source_offset
        and here.target_offset <= log_starts.target_offset
    )


def _pieces(fold: LaneFold) -> list[_Piece]:
    """In log order."""
    found: list[_Piece] = []
    for place, key in enumerate(tuple(fold.written)):
        if not isinstance(key, RunsKey):
            continue
        written = fold.runs_written(key)
        if isinstance(written, PackedRuns):
            coarse, end_position = written.is_coarse, written.end_position
            is_full = written.count >= SEGMENT_RUNS or coarse
            found.append(_Piece(place, key, key.position, end_position, True, is_full, coarse))
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


def _stretches(
    chosen: Sequence[_Piece], full: Iterable[_Piece], floor: int, end: int
) -> list[tuple[int, int]]:
    """Where new segments are needed: what the chosen entries have between full segments, and not
    before `floor`, where all was forgotten."""
    edges = sorted(full, key=lambda piece: piece.start)
    found: dict[int, int] = {}
    stops: dict[int, int] = {}
    for piece in chosen:
        position = max(piece.start, floor)
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
