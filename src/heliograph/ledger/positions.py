"""Positions and the 31-bit sequence numbers that stand for them in batches. No I/O; anywhere."""

from __future__ import annotations

from typing import Final

from heliograph.errors import WireError

SEQUENCES: Final = 2**31
HEAD_DISTANCE_MAX: Final = 2**30
"""How far log and head may be apart, either way, before a sequence means more than one position."""


def sequence_of(position: int) -> int:
    """The sequence number of the record at `position`; after 2^31 - 1 comes 0, as in the broker."""
    return position % SEQUENCES


def position_from_sequence(last_sequence: int, head_position: int) -> int:
    """The position after the record with `last_sequence`: the next one to append.

    Of all positions with that sequence it is the one in `[head - 2^30, head + 2^30)`. Heads are
    refreshed far more often than every 2^30 records, so the log's end is always in there.
    """
    if not 0 <= last_sequence < SEQUENCES:
        raise WireError(f"last sequence is {last_sequence}, expected 0 to {SEQUENCES - 1}")
    # There is a record before the answer, so it is at least 1, whatever the head says.
    lowest = max(1, head_position - HEAD_DISTANCE_MAX)
    return lowest + (last_sequence + 1 - lowest) % SEQUENCES
