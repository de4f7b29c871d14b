"""The time, in one place, so that tests can stand in for it. Runs anywhere."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall clock, comparable with record timestamps."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """For durations only; never leaves the process."""
    return time.monotonic()
