"""A consumer's place on one side, found on the other. Pure; runs anywhere.

Exact means: the mirrored records after the answer are those after the question, no more and no
fewer. Where there is no exact answer, the nearest one that skips nothing is given and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heliograph.errors import InvariantError
from heliograph.ledger.runs import Runs

Clamped = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnd:
    """The first record that is not mirrored: where it would be on each side."""

    position: int
    source_next_offset: int
    target_next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    offset: int
    """The consumer's next offset on the other side."""
    clamped: Clamped | None = None
    """None: exact. `before`: the consumer had yet to read records that are not on the other side.
    `after`: it had read further than what is mirrored, and will read that part again."""


def to_target(runs: Runs, end: LaneEnd, source_next_offset: int) -> Translated:
    """Where a consumer of the source continues on the target; never past what is mirrored."""
    _require_consistent(runs)
    if source_next_offset >= end.source_next_offset:
        beyond = source_next_offset > end.source_next_offset
        return Translated(offset=end.target_next_offset, clamped="after" if beyond else None)
    if not runs or runs.source_restart_position >= end.position:
        return Translated(offset=end.target_next_offset, clamped="before")

    position = runs.position_of_source(source_next_offset)
    if position >= end.position:
        # What the consumer has not read yet lies in a gap at the end: nothing of it is mirrored.
        return Translated(offset=end.target_next_offset)
    before = source_next_offset < runs.source_offset_at(runs.source_restart_position)
    return Translated(offset=runs.target_offset_at(position), clamped="before" if before else None)


def to_source(runs: Runs, end: LaneEnd, target_next_offset: int) -> Translated:
    """Where a consumer of the target continues on the source; others' records count as read."""
    _require_consistent(runs)
    if target_next_offset >= end.target_next_offset:
        beyond = target_next_offset > end.target_next_offset
        return Translated(offset=end.source_next_offset, clamped="after" if beyond else None)
    if not runs or runs.source_restart_position >= end.position:
        return Translated(offset=end.source_next_offset, clamped="before")

    # Records of a source topic that has been replaced are not there to be read again.
    first_position = runs.source_restart_position
    position = max(runs.position_of_target(target_next_offset), first_position)
    if position >= end.position:
        return Translated(offset=end.source_next_offset)
    before = target_next_offset < runs.target_offset_at(first_position)
    return Translated(offset=runs.source_offset_at(position), clamped="before" if before else None)


def _require_consistent(runs: Runs) -> None:
    if runs.overlap_at is not None:
        # Translating anyway would move a group to a place nobody can vouch for.
        raise InvariantError(f"target offsets go back at position {runs.overlap_at}")
