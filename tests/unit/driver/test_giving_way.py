"""What lanes may copy beside critical ones: found by itself, given back at once, never for ever."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from heliograph.driver.giving_way import (
    FIRST_BYTES_PER_S,
    HELPLESS_S,
    LEAST_BYTES_PER_S,
    LIFTED_S,
    Allowance,
    Seen,
    late_from,
    seen_between,
)
from heliograph.model import LATENCY_BUCKETS_MS
from tests.unit.engine.lanes import lane, progress

MB = 1_000_000.0
_ALL = 1e12


class Plant:
    """Brokers, links and machines that bear so much beside critical lanes."""

    def __init__(self, *, slow: bool = False) -> None:
        """`slow`: what was copied in a second still delays critical records in the next."""
        self.allowance, self._slow = Allowance(), slow
        self.now_s = self._before = 0.0

    def play(
        self, seconds: int, *, bears: float, wanted: float = _ALL, counted: int = 500
    ) -> list[tuple[float, bool]]:
        """Every second what the others copied, and whether a tenth of the critical batches was
        late: they are as soon as the others copy more than `bears`."""
        played: list[tuple[float, bool]] = []
        for _ in range(seconds):
            self.now_s += 1.0
            allowed = self.allowance.bytes_per_s
            copied = wanted if allowed is None else min(allowed, wanted)
            delays = max(copied, self._before) if self._slow else copied
            self._before = copied
            late = counted // 10 if delays > bears else 0
            self.allowance.look(self.now_s, Seen(counted=counted, late=late, bytes_per_s=copied))
            played.append((copied, bool(late)))
        return played


class RoughPlant:
    """As they are: some critical batches are late anyway, all are for a moment now and then, and
    they are for some seconds, at a tenth of what is borne later, when others begin."""

    def __init__(self, seed: int, *, bears: float, begins_s: int, pause_every_s: float) -> None:
        self._random, self._bears = random.Random(seed), bears
        self._begins_s, self._pause_every_s = begins_s, pause_every_s
        self.copied: list[float] = []
        self.late = self.late_anyway = 0

    def play(self, seconds: int, counted: int = 500) -> None:
        allowance = Allowance()
        for second in range(1, seconds + 1):
            copied = allowance.bytes_per_s or 0.0
            bears = self._bears / (10 if second <= self._begins_s else 1)
            pauses = self._random.random() < 1 / self._pause_every_s
            anyway = 0.002 + (self._random.choice((0.05, 0.1, 0.2)) if pauses else 0.0)
            share = anyway + (0.02 + 0.1 * (copied / bears - 1) if copied > bears else 0.0)
            late = int(counted * min(0.5, share))
            allowance.look(float(second), Seen(counted=counted, late=late, bytes_per_s=copied))
            self.copied.append(copied)
            self.late += late
            self.late_anyway += int(counted * anyway)


@pytest.mark.parametrize("begins_s", [0, 6, 15])
@pytest.mark.parametrize("seed", range(5))
def test_what_delays_critical_records_for_moments_is_not_laid_to_the_others(
    seed: int, begins_s: int
) -> None:
    plant = RoughPlant(seed, bears=40 * MB, begins_s=begins_s, pause_every_s=30)

    plant.play(300)

    settled = plant.copied[60:]
    assert sum(settled) / len(settled) > 0.5 * 40 * MB
    assert max(settled) < 1.5 * 40 * MB
    assert plant.late - plant.late_anyway < 0.005 * 500 * 300


@pytest.mark.parametrize("begins_s", [6, 15])
def test_what_others_bear_is_found_soon_after_they_began(begins_s: int) -> None:
    plant = RoughPlant(1, bears=40 * MB, begins_s=begins_s, pause_every_s=1e9)

    plant.play(120)

    found_s = next(s for s, copied in enumerate(plant.copied) if copied > 0.75 * 40 * MB)
    assert found_s - begins_s <= 30
    assert min(plant.copied[begins_s + 30 :]) > 0.4 * 40 * MB


@pytest.mark.parametrize("slow", [False, True])
def test_others_soon_copy_most_of_what_leaves_critical_records_on_time(slow: bool) -> None:
    plant = Plant(slow=slow)

    played = plant.play(1_800, bears=40 * MB)

    assert played[0][0] == FIRST_BYTES_PER_S
    settled = [copied for copied, _ in played[30:]]
    assert sum(settled) / len(settled) > 0.75 * 40 * MB
    assert sum(late for _, late in played) <= 0.01 * len(played)


def test_what_critical_records_bear_is_followed_down() -> None:
    plant = Plant()
    plant.play(60, bears=80 * MB)

    played = plant.play(120, bears=5 * MB)

    assert sum(late for _, late in played) <= 10
    assert max(copied for copied, _ in played[10:]) <= 6 * MB


def test_and_up_again() -> None:
    plant = Plant()
    plant.play(60, bears=5 * MB)

    played = plant.play(1_200, bears=80 * MB)

    assert played[-1][0] > 30 * MB


def test_one_late_record_in_a_busy_second_is_none() -> None:
    allowance = Allowance()

    allowance.look(1.0, Seen(counted=500, late=5, bytes_per_s=FIRST_BYTES_PER_S))

    assert allowance.bytes_per_s is not None
    assert allowance.bytes_per_s > FIRST_BYTES_PER_S


def test_a_pause_now_and_then_is_not_laid_to_the_others() -> None:
    allowance = Allowance()

    for second in range(1, 601):
        late = 20 if second % 12 == 0 else 0
        copied = allowance.bytes_per_s or 0.0
        allowance.look(float(second), Seen(counted=500, late=late, bytes_per_s=copied))

    assert allowance.bytes_per_s is not None
    assert allowance.bytes_per_s > 20 * FIRST_BYTES_PER_S


def test_and_though_it_is_long_others_are_not_held_back_ever_more() -> None:
    allowance, plays = Allowance(), list[float]()

    for second in range(1, 601):
        copied = allowance.bytes_per_s or 0.0
        late = 60 if second % 25 == 0 or copied > 40 * MB else 0
        allowance.look(float(second), Seen(counted=500, late=late, bytes_per_s=copied))
        plays.append(copied)

    assert sum(plays[60:]) / len(plays[60:]) > 8 * MB


def test_others_that_have_only_just_begun_do_not_say_how_much_is_too_much() -> None:
    allowance = Allowance()

    allowance.look(1.0, Seen(counted=500, late=100, bytes_per_s=LEAST_BYTES_PER_S))

    assert allowance.bytes_per_s == FIRST_BYTES_PER_S / 4


def test_what_was_found_far_too_little_is_left_soon() -> None:
    plant = Plant()
    plant.play(60, bears=2 * MB)

    played = plant.play(300, bears=80 * MB)

    assert max(copied for copied, _ in played) > 60 * MB


def test_a_quiet_topic_is_judged_by_what_comes_in_some_seconds() -> None:
    allowance = Allowance()

    for second in range(1, 7):
        seen = Seen(counted=3, late=1 if second == 2 else 0, bytes_per_s=FIRST_BYTES_PER_S)
        allowance.look(float(second), seen)

    assert allowance.bytes_per_s == FIRST_BYTES_PER_S / 2


def test_an_allowance_that_nobody_uses_does_not_grow() -> None:
    plant = Plant()

    plant.play(100, bears=_ALL, wanted=1 * MB)

    assert plant.allowance.bytes_per_s == FIRST_BYTES_PER_S


def test_a_critical_topic_without_records_holds_nothing_up() -> None:
    plant = Plant()

    played = plant.play(100, bears=_ALL, wanted=100 * MB, counted=0)

    assert played[-1][0] == 100 * MB


def test_where_others_are_not_the_reason_they_are_let_go_for_a_while() -> None:
    plant = Plant()

    played = plant.play(60, bears=-1.0)
    lifted_at = next(second for second, (copied, _) in enumerate(played) if copied == _ALL)
    held = [copied for copied, _ in plant.play(int(LIFTED_S), bears=-1.0)]

    assert min(copied for copied, _ in played) == LEAST_BYTES_PER_S
    assert HELPLESS_S <= lifted_at < HELPLESS_S + 10
    assert held[0] == _ALL
    assert held[-1] <= FIRST_BYTES_PER_S


@pytest.mark.parametrize(("bound_ms", "first_late_ms"), [(1, 2), (5, 10), (7, 10), (60_000, None)])
def test_a_bound_counts_as_the_bucket_at_or_below_it(
    bound_ms: int, first_late_ms: int | None
) -> None:
    first = late_from(bound_ms)

    bounds = [*LATENCY_BUCKETS_MS, None]
    assert bounds[first] == first_late_ms


def test_critical_batches_and_bytes_of_others_are_told_apart() -> None:
    counts = (0,) * (len(LATENCY_BUCKETS_MS) + 1)
    before = [
        replace(progress(0), latency_counts=(4, *counts[1:])),
        replace(progress(1), received_bytes=1_000),
        replace(progress(2), received_bytes=9_000),
    ]
    after = [
        replace(progress(0), latency_counts=(5, 0, 0, 2, *counts[4:])),
        replace(progress(1), received_bytes=3_000),
        replace(progress(2), received_bytes=500),  # another slot has it, and counts anew
        replace(progress(3), received_bytes=100),
    ]

    seen = seen_between(
        {at.lane: at for at in before},
        {at.lane: at for at in after},
        {lane(0).id: 5},
        elapsed_s=2.0,
    )

    assert seen == Seen(counted=3, late=2, bytes_per_s=1_300.0)
