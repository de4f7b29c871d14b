from __future__ import annotations

from typing import Any

import pytest

from heliograph.lag.figures import NEVER, NOT_KNOWN, NOTHING, LaneLag, Motion, Trend
from heliograph.lag.history import LaneHistory
from heliograph.lag.lanes import STUCK_S, lane_lag
from heliograph.lag.retention import Retention
from tests.unit.lag.facts import NOW_MS, facts, history


def lag_of(
    acknowledged: int,
    end: int | None,
    seen: LaneHistory | None = None,
    *,
    at_s: float = 100.0,
    retention: Retention | None = None,
    **more: Any,
) -> LaneLag:
    return lane_lag(facts(acknowledged, end, **more), seen, retention, at_s=at_s, now_ms=NOW_MS)


def test_a_lane_without_lag_is_idle_and_has_caught_up() -> None:
    lag = lag_of(10, 10, history((0.0, 10, 10)), read=10, committed=10)

    assert lag.motion is Motion.IDLE
    assert (lag.read, lag.acknowledged, lag.committed) == (NOTHING, NOTHING, NOTHING)
    assert (lag.catch_up_s, lag.overrun_s, lag.still_s) == (0.0, NEVER, None)


def test_read_acknowledged_and_committed_are_told_apart() -> None:
    lag = lag_of(60, 100, read=80, committed=50, record_bytes=10.0)

    assert (lag.read.records, lag.acknowledged.records, lag.committed.records) == (20, 40, 50)
    assert (lag.read.bytes, lag.acknowledged.bytes, lag.committed.bytes) == (200, 400, 500)


def test_what_is_not_known_is_none_and_not_zero() -> None:
    lag = lag_of(60, None, kept_by=Motion.UNKNOWN)

    assert lag.motion is Motion.UNKNOWN
    assert (lag.read, lag.acknowledged, lag.committed) == (NOT_KNOWN,) * 3
    assert (lag.catch_up_s, lag.overrun_s, lag.records_per_s) == (None, None, None)


def test_time_to_catch_up_counts_what_is_written_meanwhile() -> None:
    seen = history((70.0, 0, 10_000), (100.0, 3_000, 10_300))

    lag = lag_of(3_000, 10_300, seen)

    assert lag.records_per_s == pytest.approx(100.0)
    assert lag.source_records_per_s == pytest.approx(10.0)
    assert lag.catch_up_s == pytest.approx(7_300 / 90)
    assert (lag.motion, lag.trend) == (Motion.MOVING, Trend.SHRINKING)


def test_a_source_that_is_written_to_as_fast_is_never_caught_up_with() -> None:
    seen = history((40.0, 0, 1_000), (70.0, 0, 1_000), (100.0, 300, 4_000))

    lag = lag_of(300, 4_000, seen)

    assert (lag.catch_up_s, lag.trend) == (NEVER, Trend.GROWING)


def test_a_lane_is_stuck_only_after_it_stood_for_a_while() -> None:
    seen = history((0.0, 5, 5), (10.0, 5, 9))

    soon, later = lag_of(5, 9, seen, at_s=12.0), lag_of(5, 9, seen, at_s=1.0 + STUCK_S)

    assert (soon.motion, later.motion) == (Motion.MOVING, Motion.STUCK)
    assert later.still_s == pytest.approx(1.0 + STUCK_S)


def test_a_lane_that_has_moved_since_the_last_sample_is_not_stuck() -> None:
    lag = lag_of(6, 9, history((0.0, 5, 9)), at_s=100.0)

    assert (lag.motion, lag.still_s) == (Motion.MOVING, 0.0)


def test_a_paused_lane_is_held_and_not_stuck() -> None:
    lag = lag_of(5, 9, history((0.0, 5, 9)), at_s=500.0, kept_by=Motion.HELD)

    assert lag.motion is Motion.HELD
    assert (lag.acknowledged.records, lag.catch_up_s) == (4, NEVER)


def test_a_stalled_lane_with_known_ends_says_when_it_is_overrun() -> None:
    lag = lag_of(
        5,
        9,
        history((0.0, 5, 9), (50.0, 5, 9)),
        kept_by=Motion.STALLED,
        oldest_ms=NOW_MS - 1_000,
        retention=Retention(ms=61_000),
    )

    assert lag.motion is Motion.STALLED
    assert (lag.overrun_s, lag.overrun_by) == (60.0, "retention.ms")


def test_a_source_that_does_not_answer_goes_on_deleting_what_waits() -> None:
    stands: dict[str, Any] = {
        "kept_by": Motion.STALLED,
        "oldest_ms": NOW_MS - 1_000,
        "retention": Retention(ms=61_000),
    }

    waits, rests = (lag_of(5, None, None, waits=some, **stands) for some in (True, False))

    assert (waits.overrun_s, waits.retention_s) == (60.0, 61.0)
    assert rests.overrun_s is None


def test_a_record_that_comes_after_an_hour_of_quiet_is_not_an_hour_old() -> None:
    seen = history((0.0, 5, 5), (99.0, 5, 5))

    lag = lag_of(5, 6, seen, oldest_ms=NOW_MS - 3_600_000)

    assert lag.acknowledged.seconds == pytest.approx(1.0)


def test_the_age_of_a_backlog_is_that_of_its_records() -> None:
    lag = lag_of(5, 9, history((0.0, 5, 9)), oldest_ms=NOW_MS - 3_600_000)

    assert lag.acknowledged.seconds == pytest.approx(3_600.0)


def test_the_age_of_what_is_not_committed_is_found_by_when_the_source_ended_there() -> None:
    seen = history((80.0, 10, 10), (90.0, 20, 20), (95.0, 30, 30))

    lag = lag_of(30, 30, seen, committed=20)

    assert lag.committed.seconds == pytest.approx(10.0)
    assert lag_of(30, 30, seen, committed=5).committed.seconds is None


def test_bytes_are_weighed_by_what_the_lane_weighed_before_its_slot_was_new() -> None:
    from heliograph.lag.history import Sample, observed

    seen = observed(None, Sample(0.0, 5, 9, None), record_bytes=7.0)

    assert lag_of(5, 9, seen).acknowledged.bytes == 28
    assert lag_of(5, 9, history((0.0, 5, 9))).acknowledged.bytes is None
