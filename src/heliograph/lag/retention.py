"""When the source deletes what a lane has yet to copy. Pure; runs anywhere.

A broker deletes whole segments, so what is told here is the earliest moment, never one too late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.lag.figures import LOG_START, NEVER, OverrunBy
from heliograph.lag.history import Rates

_PACE_SHARE: Final = 0.999
"""A lane whose oldest record advances this fast keeps its distance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What of a topic its brokers delete; None is no limit."""

    ms: int | None = None
    bytes: int | None = None
    """Of each partition."""

    @property
    def kept_s(self) -> float:
        return NEVER if self.ms is None else self.ms / 1000


def retention_of(settings: Mapping[str, str]) -> Retention | None:
    """From a topic's settings, defaults included; None where they do not say.

    Only `delete` deletes what is old: a topic that is compacted alone, or that has no policy, which
    Kafka takes for keeping everything, loses nothing a lane has not read.
    """
    policy = settings.get("cleanup.policy")
    if policy is None:
        return None
    if "delete" not in {word.strip() for word in policy.split(",")}:
        return Retention()
    limits = [_limit(settings.get(name)) for name in ("retention.ms", "retention.bytes")]
    if any(limit is None for limit in limits):
        return None
    ms, most = (None if limit == NEVER else int(limit or 0) for limit in limits)
    return Retention(ms=ms, bytes=most)


def overrun(
    retention: Retention | None,
    *,
    lag_records: int | None,
    lag_bytes: int | None,
    record_bytes: float | None,
    margin_records: int | None,
    oldest_ms: int | None,
    rates: Rates,
    now_ms: int,
) -> tuple[float | None, OverrunBy]:
    """Seconds until the first record that waits may be deleted, and what deletes it.

    `margin_records` lie between the log's start and that record; below 0 it is gone already.
    """
    if margin_records is not None and margin_records < 0:
        return 0.0, LOG_START
    if lag_records == 0:
        return NEVER, ""
    if retention is None:
        return None, ""
    found: list[tuple[float | None, OverrunBy]] = []
    if retention.ms is not None:
        found.append((_by_time(retention.ms, oldest_ms, rates, now_ms), "retention.ms"))
    if retention.bytes is not None:
        by_bytes = _by_bytes(retention.bytes, lag_bytes, record_bytes, rates)
        found.append((by_bytes, "retention.bytes"))
    first = min(
        ((seconds, by) for seconds, by in found if seconds is not None and seconds != NEVER),
        default=None,
    )
    if first is not None:
        return first
    return (None if any(seconds is None for seconds, _ in found) else NEVER), ""


def _by_time(retention_ms: int, oldest_ms: int | None, rates: Rates, now_ms: int) -> float | None:
    if oldest_ms is None or rates.oldest is None:
        return None
    margin_s = max(0.0, (oldest_ms + retention_ms - now_ms) / 1000)
    return NEVER if rates.oldest >= _PACE_SHARE else margin_s / (1 - rates.oldest)


def _by_bytes(
    retention_bytes: int, lag_bytes: int | None, record_bytes: float | None, rates: Rates
) -> float | None:
    if lag_bytes is None or record_bytes is None:
        return None
    if rates.written is None or rates.acknowledged is None:
        return None
    grows_by = (rates.written - rates.acknowledged) * record_bytes
    margin_bytes = max(0, retention_bytes - lag_bytes)
    return margin_bytes / grows_by if grows_by > 0 else NEVER


def _limit(text: str | None) -> float | None:
    """`NEVER` for no limit, None for what is no number."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if number >= 0 else NEVER
