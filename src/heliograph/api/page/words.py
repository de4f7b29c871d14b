"""Figures and times as the page says them. No I/O; runs anywhere.

What is not known is said to be so: it is never 0, and never an empty cell.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from heliograph.lag.figures import NEVER_TEXT, Seconds, seconds_words
from heliograph.words import bytes_words

UNKNOWN: Final = "unknown"


def count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def rate(number: float | None) -> str:
    """Records a second."""
    if number is None:
        return UNKNOWN
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"


def size(number: float | None) -> str:
    return UNKNOWN if number is None else bytes_words(round(number))


def seconds(number: Seconds) -> str:
    """As `/v1` has them."""
    if number is None:
        return UNKNOWN
    return NEVER_TEXT if isinstance(number, str) else seconds_words(number)


def utc(at_ms: int | None) -> str:
    return UNKNOWN if at_ms is None else _at(at_ms).strftime("%Y-%m-%d %H:%M:%S")


def clock(at_ms: int) -> str:
    return _at(at_ms).strftime("%H:%M:%S")


def iso(at_ms: int) -> str:
    return _at(at_ms).isoformat(timespec="seconds")


def _at(at_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):  # a clock elsewhere that is far off
        return datetime.max.replace(tzinfo=UTC)
