from __future__ import annotations

import pytest

from heliograph.lag.figures import Trend
from heliograph.lag.history import Sample, carried, observed, rates_of, trend_of
from tests.unit.lag.facts import history


def sample(at_s: float, acknowledged: int, end: int | None, oldest_ms: int | None = None) -> Sample:
    return Sample(at_s, acknowledged, end, oldest_ms)


def test_a_rate_is_that_of_the_last_half_minute() -> None:
    seen = history((0.0, 0, 0), (60.0, 6_000, 6_000), (70.0, 6_000, 6_000), (100.0, 9_000, 6_300))

    rates = rates_of(seen, sample(100.0, 9_000, 9_300))

    assert rates.acknowledged == pytest.approx(100.0)
    assert rates.written == pytest.approx(110.0)


def test_one_look_says_nothing_about_a_rate() -> None:
    rates = rates_of(history((10.0, 5, 9)), sample(10.5, 6, 9))

    assert rates.acknowledged is None and rates.written is None


def test_a_lane_that_was_idle_for_an_hour_has_the_rate_of_what_it_does_now() -> None:
    seen = carried(history((0.0, 100, 100)), 3_600.0)

    rates = rates_of(seen, sample(3_605.0, 100, 1_100))

    assert rates.written == pytest.approx(1_000 / 30, rel=0.01)
    assert seen.level_s == 3_600.0


def test_what_waits_came_after_nothing_waited() -> None:
    before = history((0.0, 100, 100))

    seen = observed(before, sample(3_605.0, 100, 200), unchanged_until_s=3_600.0)

    assert seen.level_s == 3_600.0
    assert seen.moved_s == 0.0


def test_offsets_that_go_back_begin_a_new_history() -> None:
    reset = observed(history((0.0, 100, 100)), sample(5.0, 10, 100))
    recreated = observed(history((0.0, 100, 100)), sample(5.0, 100, 7))

    assert len(reset.samples) == len(recreated.samples) == 1


def test_old_samples_are_forgotten_but_for_the_base_of_what_follows() -> None:
    seen = history(*((at_s * 5.0, at_s, at_s) for at_s in range(200)))

    assert len(seen.samples) <= 27
    assert rates_of(seen, sample(995.0, 199, 199)).acknowledged == pytest.approx(0.2)


def test_the_weight_of_records_is_kept_when_a_new_slot_does_not_know_it() -> None:
    known = observed(None, sample(0.0, 1, 1), record_bytes=50.0)

    assert observed(known, sample(5.0, 1, 1), record_bytes=None).record_bytes == 50.0


@pytest.mark.parametrize(
    ("before", "now", "trend"),
    [
        (1_000, 1_030, Trend.STEADY),
        (1_000, 2_000, Trend.GROWING),
        (1_000, 100, Trend.SHRINKING),
        (0, 8, Trend.STEADY),
        (None, 8, None),
        (8, None, None),
    ],
)
def test_a_trend_is_more_than_noise(
    before: int | None, now: int | None, trend: Trend | None
) -> None:
    assert trend_of(before, now) is trend
