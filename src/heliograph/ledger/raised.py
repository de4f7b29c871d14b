"""Runs that take back nothing of what is known, for entries that may land late. No I/O; anywhere.

Where others write to the target too, its offsets in runs are predictions: the least that they can
be, since records of others only move a batch further on. Of two the higher counts. So it does not
matter when an entry lands, nor whether its writer had seen the records that its successor saw.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile

from heliograph.ledger.runs import OFFSET_MAX, Block, LooseRuns, Run, Runs


def raised(
    known: Runs, block: Block, end_position: int, *, keeps_sources: bool
) -> tuple[Block, int]:
    """The block up to its end, with target offsets as they are known where those are higher, and
    with `keeps_sources` source offsets as somebody wrote them; behind its end what it pushes on."""
    start, written_until, end = block.first.position, known.written_until, known.last
    if end is None or (
        start >= max(written_until, end.position)
        and end.at(start).target_offset <= block.first.target_offset
    ):
        # As it is with nearly all: behind what is known, and no lower.
        return block, end_position
    theirs = list(takewhile(lambda run: run.position < end_position, _from(known, start)))
    if keeps_sources and theirs and theirs[-1].position < written_until < end_position:
        theirs.append(theirs[-1].at(written_until))
    runs: list[Run] = []
    if theirs and (keeps_sources or not _is_above(block, theirs)):
        for run, other in _side_by_side(block, theirs):
            source, target = run.source_offset, run.target_offset
            if other is not None:
                if keeps_sources and run.position < written_until:
                    source = other.source_offset
                target = max(target, other.target_offset)
            _add(runs, Run(position=run.position, source_offset=source, target_offset=target))
    last, behind = runs[-1] if runs else block.last, end_position
    if end_position < written_until:
        pushed, behind = _pushed(known, last, end_position)
        if pushed and not runs:
            columns = block.columns()
            runs = [columns.run(index) for index in range(block.count)]
        for run in pushed:
            _add(runs, run)
    if not runs or max(max(run.source_offset, run.target_offset) for run in runs) > OFFSET_MAX:
        return block, end_position
    return LooseRuns.of(runs), behind


def _from(known: Runs, position: int) -> Iterator[Run]:
    """What is known from there on, the run that lasts there first."""
    if known.explains(position):
        yield known.run_at(position).at(position)
    yield from known.since(position + 1)


def _pushed(known: Runs, last: Run, position: int) -> tuple[list[Run], int]:
    """Known runs from `position` on that the records before leave no room for, and where they end:
    they lie behind those, so they are further on by as much at least."""
    pushed: list[Run] = []
    for run in _from(known, position):
        target = last.at(run.position).target_offset
        if run.target_offset >= target:
            return pushed, run.position
        pushed.append(run._replace(target_offset=target))
    return pushed, max(known.written_until, position)


def _add(runs: list[Run], run: Run) -> None:
    if runs:
        before = runs[-1].at(run.position)
        # What is known may contradict itself.
        run = run._replace(target_offset=max(run.target_offset, before.target_offset))
        if run == before:
            return
    runs.append(run)


def _is_above(block: Block, others: Sequence[Run]) -> bool:
    """Whether none of the others is higher."""
    return all(
        other.target_offset <= block.first.at(other.position).target_offset for other in others
    )


def _side_by_side(block: Block, others: Sequence[Run]) -> Iterator[tuple[Run, Run | None]]:
    """Both maps at each position where a run of either begins."""
    columns = block.columns()
    starts = [other.position for other in others]
    for position in sorted({*columns.positions, *starts}):
        index = bisect_right(starts, position)
        mine = columns.run(bisect_right(columns.positions, position) - 1)
        yield mine.at(position), others[index - 1].at(position) if index else None
