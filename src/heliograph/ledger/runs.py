"""Where each mirrored record came from and went to, as runs. No I/O; runs anywhere.

A lane's records are numbered by position. While source and target offset both advance by one with
the position, a single `Run` says it all; every gap on either side begins another.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import NamedTuple, Protocol

from heliograph.errors import InvariantError

OFFSET_MAX = 2**63 - 1


class Run(NamedTuple):
    """The first record of the run; it lasts until the next run's position, or the lane's end.

    A tuple, since a filter that keeps some records makes one for nearly each of them.
    """

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


class Columns(NamedTuple):
    """Runs by column, for there may be millions."""

    positions: array[int]
    sources: array[int]
    targets: array[int]

    def run(self, index: int) -> Run:
        return Run(
            position=self.positions[index],
            source_offset=self.sources[index],
            target_offset=self.targets[index],
        )


class Block(Protocol):
    """Runs that follow each other; on the target they never go back."""

    @property
    def first(self) -> Run: ...
    @property
    def last(self) -> Run: ...
    @property
    def count(self) -> int: ...
    @property
    def is_identical(self) -> bool:
        """Whether source and target offset are the same in each of them."""
        ...

    @property
    def goes_back(self) -> bool:
        """Whether a source offset goes back within, since the source topic was created again."""
        ...

    def columns(self) -> Columns:
        """All of them; a packed block decodes itself for that."""
        ...


class LooseRuns:
    """A block that is not packed."""

    __slots__ = ("_columns", "count", "first", "goes_back", "is_identical", "last")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.count = len(columns.positions)
        self.first, self.last = columns.run(0), columns.run(self.count - 1)
        self.is_identical = columns.sources == columns.targets
        self.goes_back = any(True for _ in restarts(columns))

    @classmethod
    def of(cls, runs: Sequence[Run]) -> LooseRuns:
        require_ascending(runs)
        return cls(
            Columns(
                array("q", [run.position for run in runs]),
                array("q", [run.source_offset for run in runs]),
                array("q", [run.target_offset for run in runs]),
            )
        )

    def columns(self) -> Columns:
        return self._columns


def restarts(columns: Columns) -> Iterator[int]:
    """Where the source topic was created again: indexes at which its offsets go back."""
    positions, sources, _ = columns
    for index in range(1, len(positions)):
        if sources[index] - sources[index - 1] < positions[index] - positions[index - 1]:
            yield index


@dataclass(frozen=True, slots=True)
class _Shape:
    """What follows from all runs together; made when it is asked for, until they change."""

    restart_block: int
    restart_position: int
    overlap_block: int | None


class Runs:
    """All runs of one lane, in the order of their positions.

    Belongs to one task and is changed in place: a lane may have millions of runs, and a chunk of
    new ones costs only its own length. They are held in blocks, as the ledger has them; most
    questions need the first and last run of each block and the runs of one. Nothing here knows
    where the lane ends: runs are written before the records they explain, so the last ones may
    describe records that are not there yet.

    Within a lane the source offset goes back only where the source topic was created again. From
    then on source offsets mean the new topic, so only the runs since then answer for them.

    The ledger forgets the oldest runs. Of those it keeps anchors: some of them, the first one of
    their source topic among them. What is before `floor` is known by its anchors only.
    """

    __slots__ = ("_anchors", "_blocks", "_first_mapped", "_known_end", "_shape", "floor")

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self._blocks: list[Block] = []
        self._anchors: Block | None = None
        self.floor = 0
        """The first position with exact offsets; 0 where nothing was forgotten."""
        self._shape: _Shape | None = None
        self._first_mapped: int | None = None
        self._known_end = 0
        self.replace_from(runs)

    def __len__(self) -> int:
        return sum(block.count for block in self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[Run]:
        return self.since(0)

    @property
    def first(self) -> Run | None:
        return self._blocks[0].first if self._blocks else None

    @property
    def last(self) -> Run | None:
        return self._blocks[-1].last if self._blocks else None

    @property
    def written_until(self) -> int:
        """After the last position somebody had seen; from here on the last run is only a guess."""
        return self._known_end

    @property
    def source_restart_position(self) -> int:
        """Where the present source topic begins; the first position unless it was replaced."""
        anchors = self.anchors
        return self.exact_from if anchors is None else anchors.positions[0]

    @property
    def exact_from(self) -> int:
        """The first position of the present source topic whose offsets were not forgotten."""
        return self._shaped().restart_position

    @property
    def anchors(self) -> Columns | None:
        """Of the present source topic, before `exact_from`; None where nothing was forgotten."""
        if self._anchors is None or self.exact_from != self._blocks[0].first.position:
            return None
        return self._anchors.columns()

    @property
    def overlap_at(self) -> int | None:
        """Position of the first run that starts before its predecessor's records end on the target.

        Target offsets in runs are predictions. One made late by a mirror that had not seen
        another's records can be wrong until the lane is resynced; nothing translates until then.
        """
        back = self._shaped().overlap_block if self._blocks else None
        return None if back is None else self._blocks[back].first.position

    @property
    def run_before_overlap(self) -> Run | None:
        """The last run before `overlap_at`: where to begin to read what the target has.

        Either of the two may be the wrong one, so it has the lower of the offsets they claim.
        """
        index = self._shaped().overlap_block if self._blocks else None
        if index is None:
            return None
        before, back = self._blocks[index - 1].last, self._blocks[index].first
        records = back.position - before.position
        return Run(
            position=before.position,
            source_offset=before.source_offset,
            target_offset=max(0, min(before.target_offset, back.target_offset - records)),
        )

    def replace_from(self, runs: Sequence[Run]) -> None:
        """Forget every run at or after the first one's position, and take these instead."""
        if runs:
            self.put(LooseRuns.of(runs), None)

    def replace_between(
        self, start_position: int, end_position: int | None, runs: Sequence[Run]
    ) -> None:
        """Forget the runs in `[start, end)` and take these; the first begins at `start`."""
        if end_position is not None and not (
            runs and runs[0].position == start_position and runs[-1].position < end_position
        ):
            raise InvariantError(f"not runs of [{start_position}, {end_position}): {runs[:3]}")
        if runs:
            self.put(LooseRuns.of(runs), end_position)

    def put(self, block: Block, end_position: int | None, *, resumes: bool = True) -> None:
        """Forget the runs from the block's first position to `end_position` and take the block's;
        without end, all runs from there on.

        What is known of the lane after the end stays: a run that began inside and lasted beyond
        begins again at the end, unless the new ones say the same there. Where nothing is known
        after the end, it lasted only for want of another, and the new ones last instead. So they
        do where the block is a segment, which does not let others resume: see `segments`.
        """
        self._shape, self._first_mapped = None, None
        if block.first.position < self.floor:
            if end_position is None:
                self._anchors, self.floor = None, 0
            elif end_position <= self.floor:
                return
            else:
                block = _since(block, self.floor)
        start = self._split(block.first.position)
        if end_position is None:
            self._blocks[start:] = [block]
            self._known_end = block.last.position + 1
            return
        end = self._split(end_position)
        new = [block]
        begins_there = end < len(self._blocks) and (
            self._blocks[end].first.position == end_position
        )
        if resumes and end > start and end_position < self._known_end and not begins_there:
            resumed = self._blocks[end - 1].last.at(end_position)
            exists = max(resumed.source_offset, resumed.target_offset) <= OFFSET_MAX
            if exists and resumed != block.last.at(end_position):
                new.append(LooseRuns.of([resumed]))
        self._blocks[start:end] = new
        self._known_end = max(self._known_end, end_position)

    def coarsen(self, anchors: Block, end_position: int) -> None:
        """Forget what is before `end_position` but for these runs, which are some of it.

        What was forgotten stays so, whatever is written there later, unless it has no end.
        """
        if end_position <= self.floor:
            return
        self._shape, self._first_mapped = None, None
        index = self._split(end_position)
        kept = self._blocks[index:]
        if index and not (kept and kept[0].first.position == end_position):
            resumed = self._blocks[index - 1].last.at(end_position)
            if max(resumed.source_offset, resumed.target_offset) <= OFFSET_MAX:
                kept.insert(0, LooseRuns.of([resumed]))
        self._blocks, self._anchors, self.floor = kept, anchors, end_position
        self._known_end = max(self._known_end, end_position)

    def anchors_before(self, position: int) -> list[Run]:
        """What to keep of the runs before `position`, where a block begins, to forget them: those
        that were kept, and the first run of each block, from where their source topic begins."""
        found: list[Run] = []
        if self._anchors is not None:
            columns = self._anchors.columns()
            found = [columns.run(index) for index in range(self._anchors.count)]
        before: Run | None = None
        for block in takewhile(lambda block: block.first.position < position, self._blocks):
            if before is not None and _is_back(before, block.first):
                found = []
            found.append(block.first)
            if block.goes_back:
                columns = block.columns()
                found = [columns.run(list(restarts(columns))[-1])]
            before = block.last
        return found

    def is_restart(self, position: int) -> bool:
        """Whether the run that begins at `position` is the first of another source topic."""
        return self.explains(position - 1) and _is_back(
            self.run_at(position - 1), self.run_at(position)
        )

    def copy(self) -> Runs:
        """For whoever would change them; the blocks themselves never change."""
        other = Runs()
        other._blocks, other._known_end = self._blocks.copy(), self._known_end
        other._anchors, other.floor = self._anchors, self.floor
        return other

    def since(self, position: int) -> Iterator[Run]:
        """The runs that begin at or after `position`."""
        for block in self._blocks[self._block_at(position) :]:
            if block.last.position < position:
                continue
            columns = block.columns()
            start = bisect_left(columns.positions, position)
            yield from (columns.run(index) for index in range(start, block.count))

    def explains(self, position: int) -> bool:
        return bool(self._blocks) and self._blocks[0].first.position <= position

    def source_offset_at(self, position: int) -> int:
        return self.run_at(position).at(position).source_offset

    def target_offset_at(self, position: int) -> int:
        return self.run_at(position).at(position).target_offset

    def run_at(self, position: int) -> Run:
        """The run that the record at `position` belongs to."""
        if not self.explains(position):
            raise InvariantError(f"no run explains position {position}")
        block = self._blocks[self._block_at(position)]
        if position >= block.last.position:
            return block.last
        columns = block.columns()
        return columns.run(bisect_right(columns.positions, position) - 1)

    def position_of_source(self, source_offset: int) -> int:
        """Position of the first record at or after this offset of the present source topic.

        In the last run it counts on without end; the caller knows where the lane ends.
        """
        shape = self._shaped()
        start = shape.restart_block
        index = bisect_right(
            self._blocks, source_offset, lo=start + 1, key=lambda block: block.first.source_offset
        )
        block, floor = self._blocks[index - 1], shape.restart_position
        if source_offset >= block.last.source_offset:
            position = block.last.position + source_offset - block.last.source_offset
        else:
            columns = block.columns()
            position = _position_in(columns.sources, columns.positions, source_offset, floor)
        return self._before_block(index, position)

    def position_of_target(self, target_offset: int) -> int:
        """Position of the first mirrored record at or after this offset, past others' records.

        In the last run it counts on without end; the caller knows where the lane ends.
        """
        if self.overlap_at is not None:
            raise InvariantError(f"target offsets go back at position {self.overlap_at}")
        index = bisect_right(
            self._blocks, target_offset, lo=1, key=lambda block: block.first.target_offset
        )
        if not self._blocks:
            raise InvariantError("the lane has no runs")
        block = self._blocks[index - 1]
        if target_offset >= block.last.target_offset:
            position = block.last.position + target_offset - block.last.target_offset
        else:
            columns = block.columns()
            position = _position_in(columns.targets, columns.positions, target_offset, 0)
        return self._before_block(index, position)

    def identical(self, upto_position: int) -> bool:
        """Whether every record before `upto_position` has the same offset on both sides."""
        if self._anchors is not None and not self._anchors.is_identical:
            return self._anchors.first.position >= upto_position
        if self._first_mapped is None:
            self._first_mapped = self._find_mapped()
        return self._first_mapped >= upto_position

    def clear(self) -> None:
        self._blocks, self._shape, self._first_mapped, self._known_end = [], None, None, 0
        self._anchors, self.floor = None, 0

    def _find_mapped(self) -> int:
        for block in self._blocks:
            if not block.is_identical:
                positions, sources, targets = block.columns()
                return next(
                    position
                    for position, source, target in zip(positions, sources, targets, strict=True)
                    if source != target
                )
        return OFFSET_MAX

    def _shaped(self) -> _Shape:
        if not self._blocks:
            raise InvariantError("the lane has no runs")
        if self._shape is None:
            self._shape = self._find_shape()
        return self._shape

    def _find_shape(self) -> _Shape:
        restart, restart_position = 0, self._blocks[0].first.position
        overlap: int | None = None
        before: Run | None = None
        for index, block in enumerate(self._blocks):
            first = block.first
            if before is not None:
                records = first.position - before.position
                if _is_back(before, first):
                    restart, restart_position = index, first.position
                if overlap is None and first.target_offset < before.target_offset + records:
                    overlap = index
            if block.goes_back:
                columns = block.columns()
                restart, restart_position = index, columns.positions[list(restarts(columns))[-1]]
            before = block.last
        return _Shape(restart, restart_position, overlap)

    def _block_at(self, position: int) -> int:
        """Of the run at this position; the first one where it comes before all runs."""
        found = bisect_right(self._blocks, position, key=lambda block: block.first.position)
        return max(0, found - 1)

    def _before_block(self, index: int, position: int) -> int:
        """The position, unless the block at `index` begins before it."""
        if index < len(self._blocks):
            return min(position, self._blocks[index].first.position)
        return position

    def _split(self, position: int) -> int:
        """The first block with runs at or after `position`; one that has some before is cut."""
        index = bisect_left(self._blocks, position, key=lambda block: block.first.position)
        if index and self._blocks[index - 1].last.position >= position:
            columns = self._blocks[index - 1].columns()
            cut = bisect_left(columns.positions, position)
            self._blocks[index - 1 : index] = [
                LooseRuns(Columns(*(column[:cut] for column in columns))),
                LooseRuns(Columns(*(column[cut:] for column in columns))),
            ]
        return index


def _is_back(before: Run, after: Run) -> bool:
    """Whether source offsets go back between the two."""
    return after.source_offset < before.source_offset + after.position - before.position


def _since(block: Block, position: int) -> LooseRuns:
    """The block's runs from `position` on, which the block reaches beyond."""
    columns = block.columns()
    index = bisect_right(columns.positions, position) - 1
    later = Columns(*(column[index + 1 :] for column in columns))
    first = columns.run(index).at(position)
    return LooseRuns(
        Columns(
            array("q", [first.position]) + later.positions,
            array("q", [first.source_offset]) + later.sources,
            array("q", [first.target_offset]) + later.targets,
        )
    )


def _position_in(
    offsets: array[int], positions: array[int], offset: int, floor_position: int
) -> int:
    """Of the first record at or after `offset`, in the runs of a block since `floor_position`."""
    start = bisect_left(positions, floor_position)
    index = bisect_right(offsets, offset, lo=start) - 1
    if index < start:
        return positions[start]
    position = positions[index] + offset - offsets[index]
    return min(position, positions[index + 1]) if index + 1 < len(positions) else position


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
