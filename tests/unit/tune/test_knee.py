"""Where more slots stop helping, what a run measured, and which hour was the busiest."""

from __future__ import annotations

import pytest

from heliograph.tune.knee import Peak, Step, knee_of, measured, peak_of, steps_up_to


def steps(*rates: tuple[int, int]) -> list[Step]:
    """Slots and MB/s."""
    return [
        Step(slots=slots, seconds=10.0, records=1, bytes=rate * 10_000_000, cpu_s=1.0)
        for slots, rate in rates
    ]


@pytest.mark.parametrize(
    ("rates", "slots", "is_open"),
    [
        ([(1, 100), (2, 190), (4, 200), (8, 195)], 2, False),
        ([(1, 100), (2, 109)], 1, False),
        ([(1, 100), (2, 200), (4, 400)], 4, True),
        ([(1, 100), (2, 80), (4, 60)], 1, False),
        ([(4, 100), (1, 95)], 1, False),
        ([(1, 100)], 1, False),
        ([(1, 0), (2, 0)], 1, False),
    ],
)
def test_the_fewest_slots_that_are_about_as_fast_as_any(
    rates: list[tuple[int, int]], slots: int, is_open: bool
) -> None:
    knee = knee_of(steps(*rates))

    assert (knee.slots, knee.is_open) == (slots, is_open)


@pytest.mark.parametrize(
    ("cores", "expected"), [(0, (1,)), (1, (1,)), (3, (1, 2)), (24, (1, 2, 4, 8, 16, 24))]
)
def test_steps_go_as_far_as_the_cores(cores: int, expected: tuple[int, ...]) -> None:
    assert steps_up_to(cores) == expected


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], (0.0, 0, 0)),
        ([(0.0, 0, 0), (1.0, 0, 0)], (0.0, 0, 0)),
        ([(0.0, 0, 0), (5.0, 10, 100), (6.0, 30, 300), (7.0, 50, 500)], (2.0, 40, 400)),
        ([(0.0, 0, 0), (5.0, 10, 100), (7.0, 50, 500), (9.0, 50, 500)], (2.0, 40, 400)),
        ([(0.0, 0, 0), (4.0, 0, 0), (5.0, 50, 500), (9.0, 50, 500)], (1.0, 50, 500)),
    ],
)
def test_only_the_time_in_which_records_moved_counts(
    samples: list[tuple[float, int, int]], expected: tuple[float, int, int]
) -> None:
    assert measured(samples) == expected


HOURS_MS = [0, 3_600_000, 7_200_000, 10_800_000]


def test_the_busiest_hour_is_that_of_all_topics_together() -> None:
    offsets = [
        ("orders", [0, 0, 3_600, 10_800]),
        ("orders", [5, 5, 5, 5]),
        ("logs", [0, 0, 72_000, 72_000]),
    ]

    peak = peak_of(HOURS_MS, offsets, {"orders": 100.0, "logs": 10.0}.__getitem__)

    assert peak == Peak(
        at_ms=3_600_000,
        bytes_per_s=300.0,
        records_per_s=21.0,
        mean_bytes_per_s=250.0,
        hours=2,
        topics=(("logs", 200.0), ("orders", 100.0)),
    )


def test_logs_without_a_record_of_these_hours_have_no_peak() -> None:
    assert peak_of(HOURS_MS, [("orders", [7, 7, 7, 7])], lambda _: 1.0) is None
