"""Where a consumer goes on that has read records of both sides. No I/O; runs anywhere.

Two clusters that take writes under one name have each other's records, mixed in an order of their
own. A consumer of the source that goes to the target has two places there. Of what began on the
source, the flow's map says which record comes next. Of what began on the target, the map of the way
back says which one had not come to the source before the consumer's offset. It goes on at the
earlier of the two, so nothing is skipped; what lies between them and was read is read again.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.ledger.runs import Runs


def earlier_of(there: Runs, place: int, unread_from: int) -> int:
    """`place` is the map's; `unread_from`: the target's own records are read up to there, later
    ones are not. Records that the flow brought are no reason to go back."""
    return next(others_between(there, unread_from, place), place)


def others_between(there: Runs, start: int, end: int) -> Iterator[int]:
    """Offsets of the target in `[start, end)` at which records begin that the flow did not bring.

    `end` is not beyond what the flow has brought.
    """
    if start >= end:
        return
    if not there or start < there.target_offset_at(there.exact_from):
        # Nothing says who wrote what lies before.
        yield start
        return
    position = there.position_of_target(start)
    expected = there.target_offset_at(position)
    if expected > start:
        yield start
    for run in there.since(position + 1):
        before = expected + run.position - position
        if before >= end:
            return
        if run.target_offset > before:
            yield before
        position, expected = run.position, run.target_offset
