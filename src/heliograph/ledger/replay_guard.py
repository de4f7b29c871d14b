"""Lay out again what has runs already, without taking those back. No I/O; runs anywhere.

A mirror writes the runs of a chunk, then its batches. Its successor may find runs for records
that are not in the log. They cannot be taken back: whoever wrote them may only be slow, and a batch
that still lands would then have no runs. They cannot be trusted either: the source may have been
compacted since, and a chunk without gaps says nothing that would replace them. So while there
are such runs each chunk says where it begins, gap or not, and thus replaces just its own part.

What is left of them behind the chunk stays true as long as as many records were laid out up to
there as they have. Where that is no longer so (compaction, a transform that drops what it kept
before, one that was taken out of the file), they would send the next resume to a wrong offset: the
chunk then replaces all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from heliograph.ledger.runs import Run, Runs


class Ahead:
    """The records that the ledger names and the log does not have: what was decided before."""

    __slots__ = ("_positions", "_sources", "end_position")

    def __init__(self, runs: Sequence[Run], end_position: int) -> None:
        self._positions = [run.position for run in runs]
        self._sources = [run.source_offset for run in runs]
        self.end_position = end_position

    @classmethod
    def of(cls, runs: Runs, position: int) -> Ahead | None:
        """Of a lane that goes on at `position`; None where the ledger names nothing behind it."""
        end = runs.written_until
        if end <= position or not runs.explains(position):
            return None
        ahead = [runs.run_at(position).at(position)]
        ahead += [run for run in runs.since(position + 1) if run.position < end]
        for before, after in pairwise(ahead):
            if before.at(after.position).source_offset > after.source_offset:
                # Of a source topic that was created again: the offsets of two topics.
                return None
        return cls(ahead, end)

    def has(self, source_offset: int) -> bool | None:
        """Whether it was to be a record; None where nothing was decided."""
        index = bisect_right(self._sources, source_offset) - 1
        if index < 0:
            return None
        if source_offset < self._sources[index] + self._count(index):
            return True
        return False if index + 1 < len(self._sources) else None

    def position_of(self, source_offset: int) -> int:
        """After as many records as there were to be before this offset."""
        index = bisect_left(self._sources, source_offset) - 1
        if index < 0:
            return self._positions[0]
        passed = source_offset - self._sources[index]
        return self._positions[index] + min(passed, self._count(index))

    def _count(self, index: int) -> int:
        last = index + 1 == len(self._positions)
        end = self.end_position if last else self._positions[index + 1]
        return end - self._positions[index]


class ReplayGuard:
    """What is known of a lane beyond its place when it resumed, by `Runs.written_until`."""

    __slots__ = ("_parted", "_until", "ahead")

    def __init__(
        self, position: int = 0, written_until: int = 0, ahead: Ahead | None = None
    ) -> None:
        # A run at the very place is where the lane goes on; were it wrong, the chunk would say so.
        self._until = written_until if written_until > position + 1 else -1
        self.ahead = ahead
        """None where nothing was decided before, or it no longer counts."""
        self._parted: Run | None = None
        """What stands behind the last chunk since the map was replaced."""

    def runs_to_write(self, first: Run, runs: Sequence[Run]) -> list[Run]:
        """What the chunk that begins with `first` and has these runs of its own has to say."""
        if first.position >= self._until or (runs and runs[0].position == first.position):
            return list(runs)
        return [first, *runs]

    def parts_until(self, end: Run) -> int | None:
        """Up to where a chunk replaces what was written before, should the rest of that be wrong:
        behind it the lane goes on at `end` with another number of records than was decided."""
        if self.ahead is not None and end.position >= self.ahead.end_position:
            # The lane is past all of it: its batches need not be opened for it any more.
            self.ahead = None
        until, ahead, parted = self._until, self.ahead, self._parted
        if end.position >= until:
            return None
        if parted is not None:
            stands = parted.at(end.position).source_offset == end.source_offset
        else:
            stands = ahead is None or ahead.position_of(end.source_offset) == end.position
        if stands:
            return None
        # Chunks up to there still say where they begin: behind one that ends before, the map goes
        # on as this one has it. A gap moves the lane away from that; a lane that resumes right
        # behind the chunk with it would copy again what the chunk has.
        self.ahead, self._parted = None, end
        return until
