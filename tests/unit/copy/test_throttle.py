"""A token bucket that many lanes share keeps its rate, whatever they do."""

from __future__ import annotations

import pytest

from heliograph.copy.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def spent_in(throttle: Throttle, clock: Clock, seconds: float, lanes: int) -> int:
    """What so many lanes fetch, each as soon as it may."""
    due_s = dict.fromkeys(range(lanes), clock.now_s)
    end_s, spent = clock.now_s + seconds, 0
    while (next_s := min(due_s.values())) < end_s:
        clock.now_s = max(clock.now_s, next_s)
        lane = min(due_s, key=lambda each: due_s[each])
        fetched = throttle.fetch_bytes
        assert fetched is not None
        spent += fetched
        due_s[lane] = clock.now_s + throttle.spend(fetched) + 0.002
    clock.now_s = end_s
    return spent


@pytest.mark.parametrize("lanes", [1, 7, 50])
@pytest.mark.parametrize("rate", [200_000, 5_000_000])
def test_the_rate_is_held_within_five_percent_over_ten_seconds(lanes: int, rate: int) -> None:
    clock = Clock()
    throttle = Throttle(clock)
    throttle.set_rate(rate)
    throttle.lanes = lanes

    first = spent_in(throttle, clock, 10.0, lanes)
    clock.now_s += 60.0
    after_a_rest = spent_in(throttle, clock, 10.0, lanes)

    assert first == pytest.approx(10 * rate, rel=0.05)
    assert after_a_rest == pytest.approx(10 * rate, rel=0.05)


def test_another_rate_forgives_no_debt() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    throttle.set_rate(1_000)
    throttle.spend(5_000)

    throttle.set_rate(2_000)

    assert throttle.spend(0) == pytest.approx(2.5)


def test_without_a_rate_nothing_waits_and_no_fetch_is_made_smaller() -> None:
    throttle = Throttle(Clock())

    assert throttle.spend(10**9) == 0.0
    assert throttle.fetch_bytes is None


@pytest.mark.parametrize("lanes", [1, 7])
@pytest.mark.parametrize(
    ("rate", "at_once"), [(5_000_000, 100_000), (50_000_000, 262_144), (200_000_000, 1_000_000)]
)
def test_a_smooth_one_keeps_its_rate_with_little_at_once(
    lanes: int, rate: int, at_once: int
) -> None:
    clock = Clock()
    throttle = Throttle(clock, is_smooth=True)
    throttle.set_rate(rate)
    throttle.lanes = lanes

    spent = spent_in(throttle, clock, 10.0, lanes)

    assert spent == pytest.approx(10 * rate, rel=0.05)
    assert throttle.fetch_bytes is not None
    assert throttle.fetch_bytes * lanes <= at_once
