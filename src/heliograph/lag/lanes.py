"""The lag of one lane, from what was seen of it now and before. Pure; runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.lag.figures import NEVER, NOT_KNOWN, NOTHING, Behind, LaneLag, Motion
from heliograph.lag.history import LaneHistory, Rates, Sample, rates_of
from heliograph.lag.retention import Retention, overrun
from heliograph.model import LaneId

STUCK_S: Final = 30.0
"""Records that wait so long without one being acknowledged make a lane stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFacts:
    """A lane as it was last seen; None is what is not known now."""

    lane: LaneId
    acknowledged: int
    """Next offset of the source that the target does not have, as all positions here."""
    read: int | None = None
    committed: int | None = None
    source_start: int | None = None
    source_end: int | None = None
    """First offset that the source would not give."""
    oldest_ms: int | None = None
    """Timestamp of the oldest record that waits, or of one before it."""
    waits: bool = False
    """Whether some do, also where it is not known how many."""
    record_bytes: float | None = None
    kept_by: Motion | None = None
    """`STALLED` or `HELD` where the lane is; `UNKNOWN` where it has not begun or was not heard."""

    def sample(self, at_s: float) -> Sample:
        return Sample(at_s, self.acknowledged, self.source_end, self.oldest_ms)


def lane_lag(
    facts: LaneFacts,
    history: LaneHistory | None,
    retention: Retention | None,
    *,
    at_s: float,
    now_ms: int,
) -> LaneLag:
    """`at_s` is on the history's clock, `now_ms` on that of records."""
    now = facts.sample(at_s)
    rates = Rates() if history is None else rates_of(history, now)
    # A source that does not answer goes on deleting, so its end need not be known.
    is_behind = facts.source_end is not None or facts.waits
    if is_behind and facts.kept_by in (Motion.STALLED, Motion.HELD):
        rates = _of_one_that_stands(rates)
    record_bytes = facts.record_bytes
    if record_bytes is None and history is not None:
        record_bytes = history.record_bytes
    still_s = _still_s(now, history)
    oldest_ms = _oldest_ms(facts, history, at_s, now_ms)
    seconds = None if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)
    acknowledged = _behind(now.lag, record_bytes, seconds)
    margin = None if facts.source_start is None else facts.acknowledged - facts.source_start
    overrun_s, overrun_by = overrun(
        retention,
        lag_records=now.lag,
        lag_bytes=acknowledged.bytes,
        record_bytes=record_bytes,
        margin_records=margin,
        oldest_ms=oldest_ms,
        rates=rates,
        now_ms=now_ms,
    )
    return LaneLag(
        lane=facts.lane,
        motion=_motion(facts, now.lag, still_s),
        read=_of_position(facts, facts.read, record_bytes, history, at_s),
        acknowledged=acknowledged,
        committed=_of_position(facts, facts.committed, record_bytes, history, at_s),
        records_per_s=rates.acknowledged,
        bytes_per_s=_times(rates.acknowledged, record_bytes),
        source_records_per_s=rates.written,
        catch_up_s=_catch_up_s(now.lag, rates),
        trend=rates.trend,
        overrun_s=overrun_s,
        overrun_by=overrun_by,
        still_s=still_s,
        retention_s=None if retention is None else retention.kept_s,
    )


def _still_s(now: Sample, history: LaneHistory | None) -> float | None:
    if history is None or not now.lag:
        return None
    has_moved = now.acknowledged > history.samples[-1].acknowledged
    return 0.0 if has_moved else now.at_s - history.moved_s


def _of_one_that_stands(rates: Rates) -> Rates:
    return Rates(acknowledged=0.0, written=rates.written, oldest=0.0, trend=rates.trend)


def _oldest_ms(
    facts: LaneFacts, history: LaneHistory | None, at_s: float, now_ms: int
) -> int | None:
    """Since when the oldest record waits.

    Of a lane that was idle the last timestamp it copied may be hours old. What waits came after
    nothing waited, so it cannot be older than that moment, whatever its own timestamp says.
    """
    level_ms = None
    if history is not None and history.level_s is not None:
        level_ms = now_ms - int((at_s - history.level_s) * 1000)
    known = [ms for ms in (facts.oldest_ms, level_ms) if ms is not None]
    return max(known, default=None)


def _motion(facts: LaneFacts, lag: int | None, still_s: float | None) -> Motion:
    if facts.kept_by is not None:
        return facts.kept_by
    if lag is None:
        return Motion.UNKNOWN
    if lag == 0:
        return Motion.IDLE
    return Motion.STUCK if still_s is not None and still_s >= STUCK_S else Motion.MOVING


def _behind(records: int | None, record_bytes: float | None, seconds: float | None) -> Behind:
    if records is None:
        return NOT_KNOWN
    if records == 0:
        return NOTHING
    weight = None if record_bytes is None else round(records * record_bytes)
    return Behind(records=records, bytes=weight, seconds=seconds)


def _of_position(
    facts: LaneFacts,
    position: int | None,
    record_bytes: float | None,
    history: LaneHistory | None,
    at_s: float,
) -> Behind:
    if position is None or facts.source_end is None:
        return NOT_KNOWN
    records = max(0, facts.source_end - position)
    return _behind(records, record_bytes, _passed_s(position, history, at_s))


def _passed_s(position: int, history: LaneHistory | None, at_s: float) -> float | None:
    """How long ago the source's end was last seen at or before a position."""
    for sample in reversed(() if history is None else history.samples):
        if sample.end is not None and sample.end <= position:
            return at_s - sample.at_s
    return None


def _catch_up_s(lag: int | None, rates: Rates) -> float | None:
    if lag is None:
        return None
    if lag == 0:
        return 0.0
    if rates.acknowledged is None or rates.written is None:
        return None
    faster_by = rates.acknowledged - rates.written
    return lag / faster_by if faster_by > 0 else NEVER


def _times(rate: float | None, weight: float | None) -> float | None:
    if rate is None or weight is None:
        return 0.0 if rate == 0 else None
    return rate * weight
