"""Where each mirrored record came from and went to, as runs. No I/O; runs anywhere.

A lane's records are numbered by position. While source and target offset both advance by one with
the position, a single `Run` says it all; every gap on either side begins another.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from heliograph.errors import InvariantError

OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Run:
    """The first record of the run; it lasts until the next run's position, or the lane's end."""

    position: int
    source_offset: int
    target_offset: int

    def at(self, position: int) -> Run:
        """The same run, told from a later record on."""
        records = position - self.position
        return Run(
            position=position,
            source_offset=self.source_offset + records,
            target_offset=self.target_offset + records,
        )


class Runs:
    """All runs of one lane, in the order of their positions.

    Belongs to one task and is changed in place: a lane may have a million runs, and a chunk of new
    ones costs only its own length. Nothing here knows where the lane ends: runs are written before
    the records they explain, so the last ones may describe records that are not there yet.

    Within a lane the source offset goes back only where the source topic was created again. From
    then on source offsets mean the new topic, so only the runs since then answer for them.
    """

    __slots__ = (
        "_first_mapped",
        "_known_end",
        "_positions",
        "_restarts",
        "_sources",
        "_target_back",
        "_targets",
    )

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.clear()
        self.replace_from(runs)

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[Run]:
        return self.since(0)

    @property
    def first(self) -> Run | None:
        return self._run(0) if self._positions else None

    @property
    def last(self) -> Run | None:
        return self._run(len(self) - 1) if self._positions else None

    @property
    def written_until(self) -> int:
        """After the last position somebody had seen; from here on the last run is only a guess."""
        return self._known_end

    @property
    def source_restart_position(self) -> int:
        """Where the present source topic begins; the first position unless it was replaced."""
        if not self._positions:
            raise InvariantError("the lane has no runs")
        return self._positions[self._era_start()]

    @property
    def overlap_at(self) -> int | None:
        """Position of the first run that starts before its predecessor's records end on the target.

        Target offsets in runs are predictions. One made late by a mirror that had not seen
        another's records can be wrong until the lane is resynced; nothing translates until then.
        """
        return None if self._target_back is None else self._positions[self._target_back]

    @property
    def run_before_overlap(self) -> Run | None:
        """The last run before `overlap_at`: where to begin to read what the target has.

        Either of the two may be the wrong one, so it has the lower of the offsets they claim.
        """
        if self._target_back is None:
            return None
        before, back = self._run(self._target_back - 1), self._run(self._target_back)
        records = back.position - before.position
        return Run(
            position=before.position,
            source_offset=before.source_offset,
            target_offset=max(0, min(before.target_offset, back.target_offset - records)),
        )

    def replace_from(self, runs: Sequence[Run]) -> None:
        """Forget every run at or after the first one's position, and take these instead."""
        if not runs:
            return
        require_ascending(runs)
        self._truncate(bisect_left(self._positions, runs[0].position))
        self._append(runs)
        self._known_end = runs[-1].position + 1

    def replace_between(
        self, start_position: int, end_position: int | None, runs: Sequence[Run]
    ) -> None:
        """Forget the runs in `[start, end)` and take these, of which the first begins at `start`.

        What is known of the lane after `end` stays: a run that began inside and lasted beyond
        begins again at `end`, unless the new ones say the same there. Where nothing is known after
        `end`, it lasted only for want of another, and the new ones last instead.
        """
        if end_position is None:
            self.replace_from(runs)
            return
        require_ascending(runs)
        if not runs or runs[0].position != start_position or runs[-1].position >= end_position:
            raise InvariantError(f"not runs of [{start_position}, {end_position}): {runs[:3]}")
        start, end = (
            bisect_left(self._positions, position) for position in (start_position, end_position)
        )
        after = [self._run(index) for index in range(end, len(self))]
        begins_there = bool(after) and after[0].position == end_position
        if end > start and end_position < self._known_end and not begins_there:
            resumed = self._run(end - 1).at(end_position)
            exists = max(resumed.source_offset, resumed.target_offset) <= OFFSET_MAX
            if exists and resumed != runs[-1].at(end_position):
                after.insert(0, resumed)
        self._truncate(start)
        self._append(runs)
        self._append(after)
        self._known_end = max(self._known_end, end_position)

    def since(self, position: int) -> Iterator[Run]:
        """The runs that begin at or after `position`."""
        start = bisect_left(self._positions, position)
        return (self._run(index) for index in range(start, len(self)))

    def explains(self, position: int) -> bool:
        return bool(self._positions) and self._positions[0] <= position

    def source_offset_at(self, position: int) -> int:
        index = self._index_at(position)
        return self._sources[index] + position - self._positions[index]

    def target_offset_at(self, position: int) -> int:
        index = self._index_at(position)
        return self._targets[index] + position - self._positions[index]

    def position_of_source(self, source_offset: int) -> int:
        """Position of the first record at or after this offset of the present source topic.

        In the last run it counts on without end; the caller knows where the lane ends.
        """
        return self._position_of(self._sources, source_offset, self._era_start())

    def position_of_target(self, target_offset: int) -> int:
        """Position of the first mirrored record at or after this offset, past others' records.

        In the last run it counts on without end; the caller knows where the lane ends.
        """
        if self.overlap_at is not None:
            raise InvariantError(f"target offsets go back at position {self.overlap_at}")
        return self._position_of(self._targets, target_offset, 0)

    def identical(self, upto_position: int) -> bool:
        """Whether every record before `upto_position` has the same offset on both sides."""
        mapped = self._first_mapped
        return mapped is None or self._positions[mapped] >= upto_position

    def clear(self) -> None:
        self._positions = array("q")
        self._sources = array("q")
        self._targets = array("q")
        self._restarts: list[int] = []
        self._target_back: int | None = None
        self._first_mapped: int | None = None
        self._known_end = 0

    def _truncate(self, length: int) -> None:
        del self._positions[length:]
        del self._sources[length:]
        del self._targets[length:]
        while self._restarts and self._restarts[-1] >= length:
            self._restarts.pop()
        if self._target_back is not None and self._target_back >= length:
            self._target_back = None
        if self._first_mapped is not None and self._first_mapped >= length:
            self._first_mapped = None

    def _append(self, runs: Iterable[Run]) -> None:
        previous = self.last
        for run in runs:
            if previous is not None:
                records = run.position - previous.position
                if run.source_offset < previous.source_offset + records:
                    self._restarts.append(len(self))
                target_goes_back = run.target_offset < previous.target_offset + records
                if target_goes_back and self._target_back is None:
                    self._target_back = len(self)
            if self._first_mapped is None and run.source_offset != run.target_offset:
                self._first_mapped = len(self)
            self._positions.append(run.position)
            self._sources.append(run.source_offset)
            self._targets.append(run.target_offset)
            previous = run

    def _run(self, index: int) -> Run:
        return Run(
            position=self._positions[index],
            source_offset=self._sources[index],
            target_offset=self._targets[index],
        )

    def _era_start(self) -> int:
        return self._restarts[-1] if self._restarts else 0

    def _index_at(self, position: int) -> int:
        index = bisect_right(self._positions, position) - 1
        if index < 0:
            raise InvariantError(f"no run explains position {position}")
        return index

    def _position_of(self, offsets: array[int], offset: int, start: int) -> int:
        if not offsets:
            raise InvariantError("the lane has no runs")
        index = bisect_right(offsets, offset, lo=start) - 1
        if index < start:
            return self._positions[start]
        position = self._positions[index] + offset - offsets[index]
        if index + 1 < len(self):
            return min(position, self._positions[index + 1])
        return position


def require_ascending(runs: Sequence[Run]) -> None:
    """Refuse what no writer can have seen: runs out of order, two records in one place."""
    for run in runs:
        if min(run.position, run.source_offset, run.target_offset) < 0:
            raise InvariantError(f"negative: {run}")
        if max(run.position, run.source_offset, run.target_offset) > OFFSET_MAX:
            raise InvariantError(f"more than 63 bits: {run}")
    for before, after in pairwise(runs):
        records = after.position - before.position
        if records < 1 or after.target_offset < before.target_offset + records:
            raise InvariantError(f"{after} does not follow {before}")
