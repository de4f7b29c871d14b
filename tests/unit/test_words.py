"""Times and rates as an operator writes them, and as they are told."""

from __future__ import annotations

import pytest

from heliograph.words import bytes_of, in_words, rate_words, seconds_of


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


def test_a_rate_is_a_number_of_bytes_with_a_unit() -> None:
    texts = ("500000", "10MB", "10MB/s", "1.5 MiB/s", "500kB", "2g", "1Ki")
    assert [bytes_of(text) for text in texts] == [
        500_000,
        10_000_000,
        10_000_000,
        1_572_864,
        500_000,
        2_000_000_000,
        1_024,
    ]


@pytest.mark.parametrize("text", ["", "fast", "-1MB", "1.5.2MB", "10MB/h", "10 TB", "9" * 16])
def test_anything_else_is_no_rate(text: str) -> None:
    assert bytes_of(text) is None


def test_rates_are_told_in_their_largest_unit() -> None:
    assert [rate_words(rate) for rate in (12, 1_500, 2_500_000, 3e9)] == [
        "12 B/s",
        "1.5 kB/s",
        "2.5 MB/s",
        "3 GB/s",
    ]
