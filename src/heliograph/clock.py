"""The time, in one place, so that tests can stand in for it. Runs anywhere."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Wall clock, comparable with record timestamps."""
    return time.time_ns() // 1_000_000


def ms_of(at: datetime) -> int:
    """Of a time with its zone. A part of a millisecond is left out: a record of that millisecond
    may be of that time."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def monotonic_s() -> float:
    """For durations only; never leaves the process."""
    return time.monotonic()
