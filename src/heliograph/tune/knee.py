"""Where more slots stop helping, and how much is left at the peak. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

STEPS: Final = (1, 2, 4, 8, 16, 24, 32)
GAIN: Final = 0.1
"""More slots help if they copy faster by more than this: less is within what two runs differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one cluster had to do with a run."""

    bytes: int = 0
    requests: int = 0
    answer_ms: float | None = None
    """From a request to its answer, on the average; None without one."""
    throttle_ms: int = 0
    """Which the cluster held requests back for, by quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of the load test."""

    slots: int
    seconds: float
    """From the first record to the last."""
    records: int
    bytes: int
    cpu_s: float
    """Of the slots."""
    source: Side = Side()
    target: Side = Side()

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def cpu_s_per_gb(self) -> float | None:
        return 1e9 * self.cpu_s / self.bytes if self.bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    slots: int
    """The fewest with which it is about as fast as it gets."""
    bytes_per_s: float
    is_open: bool
    """Whether the last step still helped, so that more might."""


def steps_up_to(most: int) -> tuple[int, ...]:
    """Those that are tried where there is room for so many."""
    return tuple(count for count in STEPS if count <= max(1, most))


def knee_of(steps: Sequence[Step]) -> Knee:
    """Of at least one step."""
    ordered = sorted(steps, key=lambda step: step.slots)
    best = max(step.bytes_per_s for step in ordered)
    found = next(step for step in ordered if step.bytes_per_s * (1 + GAIN) >= best)
    is_open = found is ordered[-1] and len(ordered) > 1
    return Knee(slots=found.slots, bytes_per_s=found.bytes_per_s, is_open=is_open)


def measured(samples: Sequence[tuple[float, int, int]]) -> tuple[float, int, int]:
    """Seconds, records and bytes of a run, by what was seen of it: time, records, bytes in all.

    The time before the first record is not counted, nor what comes after the last. What was there
    when records were first seen came in a time that is not known, so it is left out, unless
    everything came at once.
    """
    moving = [index for index, (_, records, _) in enumerate(samples) if records]
    if not moving:
        return 0.0, 0, 0
    first, last = moving[0], len(samples) - 1
    while last > first and samples[last - 1][1] == samples[last][1]:
        last -= 1
    if last == first:
        first = max(0, first - 1)
    (began_s, records, size), (ended_s, records_all, size_all) = samples[first], samples[last]
    return ended_s - began_s, records_all - records, size_all - size


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The busiest hour of the last days."""

    at_ms: int
    """When it began."""
    bytes_per_s: float
    records_per_s: float
    mean_bytes_per_s: float
    """Over all hours that the logs reach back to."""
    hours: int
    topics: tuple[tuple[str, float], ...]
    """What each topic brought in that hour, in bytes a second, the most first."""


def peak_of(
    bounds_ms: Sequence[int],
    offsets: Iterable[tuple[str, Sequence[int]]],
    record_bytes: Callable[[str], float],
) -> Peak | None:
    """`offsets` has, for each partition's topic, the offset at each bound; None without records."""
    spans = [(b - a) / 1000 for a, b in pairwise(bounds_ms)]
    totals, counts = [0.0] * len(spans), [0] * len(spans)
    by_topic: dict[str, list[float]] = {}
    for topic, at in offsets:
        sizes = by_topic.setdefault(topic, [0.0] * len(spans))
        for hour, (before, after) in enumerate(pairwise(at)):
            records = max(0, after - before)
            counts[hour] += records
            sizes[hour] += records * record_bytes(topic)
            totals[hour] += records * record_bytes(topic)
    seen = [hour for hour, count in enumerate(counts) if count]
    if not seen:
        return None
    busiest = max(seen, key=lambda hour: totals[hour] / spans[hour])
    span_s = spans[busiest]
    brought = sorted(
        ((topic, sizes[busiest] / span_s) for topic, sizes in by_topic.items() if sizes[busiest]),
        key=lambda row: (-row[1], row[0]),
    )
    return Peak(
        at_ms=bounds_ms[busiest],
        bytes_per_s=totals[busiest] / span_s,
        records_per_s=counts[busiest] / span_s,
        mean_bytes_per_s=sum(totals[seen[0] :]) / sum(spans[seen[0] :]),
        hours=len(spans) - seen[0],
        topics=tuple(brought),
    )
