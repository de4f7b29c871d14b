"""Times as an operator writes them, and as they are told."""

from __future__ import annotations

import pytest

from heliograph.words import in_words, seconds_of


def test_intervals_are_told_in_their_largest_unit() -> None:
    assert [in_words(s) for s in (45, 90, 120, 7_200, 604_800)] == [
        "45 s",
        "90 s",
        "2 min",
        "2 h",
        "7 d",
    ]


def test_a_time_is_a_number_and_a_unit() -> None:
    assert [seconds_of(text) for text in ("30s", " 90m ", "1h", "7d", "2w")] == [
        30,
        5_400,
        3_600,
        604_800,
        1_209_600,
    ]


@pytest.mark.parametrize(
    "text", ["", "1", "0s", "-5m", "1.5h", "1 h", "5y", "1h30m", "9" * 12 + "s"]
)
def test_anything_else_is_no_time(text: str) -> None:
    assert seconds_of(text) is None
