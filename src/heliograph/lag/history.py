"""What was seen of a lane before, for rates and trends. Pure; runs anywhere.

A history is a value: `observed` makes the next one. So one thread may look while another samples.
A lane that is as it was is not sampled, so ten thousand idle lanes cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from heliograph.lag.figures import Trend

SAMPLE_S: Final = 5.0
"""How often a lane is sampled at most."""
_KEPT_S: Final = 120.0
_RATE_S: Final = 30.0
"""Rates are of so long ago until now."""
_TREND_S: Final = 60.0
_MEASURED_S_MIN: Final = 1.0
"""Two samples that are closer say nothing about a rate."""
_STEADY_SHARE: Final = 0.05
_STEADY_RECORDS: Final = 10


class Sample(NamedTuple):
    """A lane at one moment. A tuple because there are many."""

    at_s: float
    acknowledged: int
    """Next offset of the source that the target does not have."""
    end: int | None
    oldest_ms: int | None
    """Timestamp of the oldest record that waited."""

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.acknowledged)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneHistory:
    samples: tuple[Sample, ...]
    """The oldest first, at least one."""
    moved_s: float
    """When more was last seen acknowledged; when the lane was first seen, before that."""
    level_s: float | None = None
    """When nothing was last seen to wait."""
    record_bytes: float | None = None
    """What a record of the lane weighs, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Over the last half minute; None until that can be told."""

    acknowledged: float | None = None
    """Records a second."""
    written: float | None = None
    oldest: float | None = None
    """How fast the timestamp of the oldest record that waits advances: 1 keeps pace with time."""
    trend: Trend | None = None


def observed(
    before: LaneHistory | None,
    now: Sample,
    *,
    unchanged_until_s: float | None = None,
    record_bytes: float | None = None,
) -> LaneHistory:
    """The history with one more sample; one whose offsets went back begins anew.

    A lane need not be sampled while it is as it was: who samples it again says until when.
    """
    if before is None or _went_back(before.samples[-1], now):
        return LaneHistory(
            samples=(now,),
            moved_s=now.at_s,
            level_s=now.at_s if now.lag == 0 else None,
            record_bytes=record_bytes,
        )
    if unchanged_until_s is not None:
        before = carried(before, unchanged_until_s)
    samples, last = before.samples, before.samples[-1]
    # The newest of those that are too old is the base of what follows it.
    begin = 0
    while begin + 1 < len(samples) and samples[begin + 1].at_s < now.at_s - _KEPT_S:
        begin += 1
    return LaneHistory(
        samples=(*samples[begin:], now),
        moved_s=now.at_s if now.acknowledged > last.acknowledged else before.moved_s,
        level_s=now.at_s if now.lag == 0 else before.level_s,
        record_bytes=before.record_bytes if record_bytes is None else record_bytes,
    )


def carried(history: LaneHistory, until_s: float) -> LaneHistory:
    """The history of a lane that has been as it was until then."""
    last = history.samples[-1]
    if until_s <= last.at_s:
        return history
    # In full, since `replace` costs several times as much, and this is for each lane at each look.
    return LaneHistory(
        samples=(*history.samples, Sample(until_s, *last[1:])),
        moved_s=history.moved_s,
        level_s=until_s if last.lag == 0 else history.level_s,
        record_bytes=history.record_bytes,
    )


def rates_of(history: LaneHistory, now: Sample) -> Rates:
    """From the history up to `now`."""
    base = _base(history, now.at_s - _RATE_S)
    elapsed_s = now.at_s - base.at_s
    if elapsed_s < _MEASURED_S_MIN or _went_back(base, now):
        return Rates()
    written = oldest = None
    if base.end is not None and now.end is not None:
        written = (now.end - base.end) / elapsed_s
    if base.oldest_ms is not None and now.oldest_ms is not None:
        oldest = max(0.0, (now.oldest_ms - base.oldest_ms) / 1000 / elapsed_s)
    return Rates(
        acknowledged=(now.acknowledged - base.acknowledged) / elapsed_s,
        written=written,
        oldest=oldest,
        trend=trend_of(_base(history, now.at_s - _TREND_S).lag, now.lag),
    )


def trend_of(before: int | None, now: int | None) -> Trend | None:
    if before is None or now is None:
        return None
    change, small = now - before, max(_STEADY_RECORDS, _STEADY_SHARE * max(before, now))
    if abs(change) <= small:
        return Trend.STEADY
    return Trend.GROWING if change > 0 else Trend.SHRINKING


def _base(history: LaneHistory, at_s: float) -> Sample:
    """The lane as it was then, between two samples as if it had gone evenly; or the oldest."""
    before = history.samples[0]
    for after in history.samples[1:]:
        if after.at_s > at_s:
            return _between(before, after, at_s) if before.at_s < at_s else before
        before = after
    return before._replace(at_s=at_s) if before.at_s < at_s else before


def _between(before: Sample, after: Sample, at_s: float) -> Sample:
    share = (at_s - before.at_s) / (after.at_s - before.at_s)

    def at(low: int | None, high: int | None) -> int | None:
        return None if low is None or high is None else round(low + share * (high - low))

    return Sample(
        at_s,
        round(before.acknowledged + share * (after.acknowledged - before.acknowledged)),
        at(before.end, after.end),
        at(before.oldest_ms, after.oldest_ms),
    )


def _went_back(before: Sample, now: Sample) -> bool:
    """Whether these are other offsets: the lane was reset, or its source created again."""
    if now.acknowledged < before.acknowledged:
        return True
    return before.end is not None and now.end is not None and now.end < before.end
