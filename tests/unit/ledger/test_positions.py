"""Sequences at the places where they are easy to get wrong."""

from __future__ import annotations

import pytest

from heliograph.errors import WireError
from heliograph.ledger.positions import position_from_sequence, sequence_of

WRAP = 2**31


@pytest.mark.parametrize(
    ("last_sequence", "head_position", "expected"),
    [
        (0, 0, 1),
        (41, 0, 42),
        (WRAP - 1, 0, WRAP),
        (41, 42, 42),
        (WRAP - 1, WRAP - 5, WRAP),
        (WRAP - 1, WRAP + 5, WRAP),
        (3, WRAP - 10, WRAP + 4),
        (3, 5 * WRAP + 9, 5 * WRAP + 4),
        (0, 2**30, 1),
    ],
)
def test_the_next_position_follows_from_the_last_sequence_and_the_head(
    last_sequence: int, head_position: int, expected: int
) -> None:
    assert position_from_sequence(last_sequence, head_position) == expected


def test_the_sequence_after_the_largest_is_zero() -> None:
    assert sequence_of(WRAP - 1) == WRAP - 1
    assert sequence_of(WRAP) == 0


@pytest.mark.parametrize("last_sequence", [-1, WRAP])
def test_what_is_no_sequence_is_refused(last_sequence: int) -> None:
    with pytest.raises(WireError, match="last sequence"):
        position_from_sequence(last_sequence, 0)
