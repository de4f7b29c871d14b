"""How many records the target holds, and when: one clock for all systems. Runs on the driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError
from heliograph_tools.bench.raw import RawConnection

POLL_S: Final = 0.02
_FIRST_RECORD_S_MAX: Final = 180.0
_NO_PROGRESS_S_MAX: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """From the first record seen on the target to the last."""

    first: Sample
    last: Sample

    @property
    def seconds(self) -> float:
        return self.last.at_s - self.first.at_s

    @property
    def records_per_s(self) -> float:
        """Of the records that came after the first look: those before it have no known start."""
        if self.seconds <= 0:
            return 0.0
        return (self.last.records - self.first.records) / self.seconds


def watch(
    connection: RawConnection,
    topic: str,
    partitions: int,
    records: int,
    *,
    seconds_max: float | None = None,
    on_first: Callable[[], None] = lambda: None,
    ensure_alive: Callable[[], None] = lambda: None,
) -> Sighting:
    """Look until the target holds `records`, at most `seconds_max` from the first sight of any,
    at which `on_first` is called."""
    first: Sample | None = None
    moved_s, seen = monotonic_s(), 0
    while True:
        asked_s = monotonic_s()
        count = sum(connection.end_offsets(topic, partitions))
        at_s = monotonic_s()
        if count > seen:
            moved_s, seen = at_s, count
            if first is None:
                first = Sample(at_s=at_s, records=count)
                on_first()
        is_over = seconds_max is not None and first is not None and at_s > first.at_s + seconds_max
        if first is not None and (count >= records or is_over):
            return Sighting(first=first, last=Sample(at_s=at_s, records=count))
        ensure_alive()
        limit_s = _FIRST_RECORD_S_MAX if first is None else _NO_PROGRESS_S_MAX
        if at_s - moved_s > limit_s:
            raise BenchError(f"{topic}: {count} of {records} records, none for {limit_s:.0f} s")
        time.sleep(max(0.0, POLL_S - (monotonic_s() - asked_s)))


def wait_until(condition: Callable[[], bool], ensure_alive: Callable[[], None], what: str) -> None:
    deadline_s = monotonic_s() + _FIRST_RECORD_S_MAX
    while not condition():
        ensure_alive()
        if monotonic_s() > deadline_s:
            raise BenchError(f"{what}: not in {_FIRST_RECORD_S_MAX:.0f} s")
        time.sleep(POLL_S)
