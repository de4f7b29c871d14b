"""Translation by example; tests/property/test_ledger.py has it for every lane and consumer."""

from __future__ import annotations

import pytest

from heliograph.errors import InvariantError
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.translate import LaneEnd, Translated, to_source, to_target


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


LANE = (run(0, 100, 50), run(10, 115, 60), run(20, 125, 77))
END = LaneEnd(position=25, source_next_offset=131, target_next_offset=82)


@pytest.mark.parametrize(
    ("source_next_offset", "expected"),
    [
        (99, Translated(offset=50, clamped="before")),
        (100, Translated(offset=50)),
        (109, Translated(offset=59)),
        (110, Translated(offset=60)),
        (114, Translated(offset=60)),
        (125, Translated(offset=77)),
        (129, Translated(offset=81)),
        (130, Translated(offset=82)),
        (131, Translated(offset=82)),
        (132, Translated(offset=82, clamped="after")),
    ],
)
def test_a_place_on_the_source_is_found_on_the_target(
    source_next_offset: int, expected: Translated
) -> None:
    assert to_target(Runs(LANE), END, source_next_offset) == expected


@pytest.mark.parametrize(
    ("target_next_offset", "expected"),
    [
        (0, Translated(offset=100, clamped="before")),
        (50, Translated(offset=100)),
        (69, Translated(offset=124)),
        (70, Translated(offset=125)),
        (76, Translated(offset=125)),
        (82, Translated(offset=131)),
        (83, Translated(offset=131, clamped="after")),
    ],
)
def test_a_place_on_the_target_is_found_on_the_source(
    target_next_offset: int, expected: Translated
) -> None:
    assert to_source(Runs(LANE), END, target_next_offset) == expected


def test_runs_written_ahead_of_their_records_lead_nobody_past_the_end() -> None:
    end = LaneEnd(position=12, source_next_offset=117, target_next_offset=62)

    assert to_target(Runs(LANE), end, 116) == Translated(offset=61)
    assert to_target(Runs(LANE), end, 126) == Translated(offset=62, clamped="after")
    assert to_source(Runs(LANE), end, 80) == Translated(offset=117, clamped="after")


def test_in_a_gap_at_the_end_the_place_of_a_record_that_may_never_come_is_not_used() -> None:
    runs = Runs([run(0, 100, 50), run(10, 115, 66)])
    end = LaneEnd(position=10, source_next_offset=115, target_next_offset=60)

    assert to_target(runs, end, 112) == Translated(offset=60)
    assert to_source(runs, end, 60) == Translated(offset=115)


@pytest.mark.parametrize("runs", [(), (run(0, 10, 7),)], ids=["no runs", "runs written ahead"])
def test_of_a_lane_with_nothing_mirrored_every_place_is_its_end(runs: tuple[Run, ...]) -> None:
    end = LaneEnd(position=0, source_next_offset=10, target_next_offset=7)

    assert to_target(Runs(runs), end, 3) == Translated(offset=7, clamped="before")
    assert to_target(Runs(runs), end, 10) == Translated(offset=7)
    assert to_target(Runs(runs), end, 12) == Translated(offset=7, clamped="after")
    assert to_source(Runs(runs), end, 3) == Translated(offset=10, clamped="before")


def test_records_of_a_source_topic_that_was_replaced_are_not_looked_for_in_the_new_one() -> None:
    runs = Runs([run(0, 500, 0), run(100, 5, 100)])
    end = LaneEnd(position=110, source_next_offset=15, target_next_offset=110)

    assert to_source(runs, end, 40) == Translated(offset=5, clamped="before")
    assert to_source(runs, end, 103) == Translated(offset=8)
    assert to_target(runs, end, 8) == Translated(offset=103)
    assert to_target(runs, end, 2) == Translated(offset=100, clamped="before")


def test_nothing_is_translated_by_runs_that_contradict_each_other() -> None:
    runs = Runs([run(0, 0, 100)])
    runs.replace_from([run(50, 60, 120)])
    end = LaneEnd(position=90, source_next_offset=100, target_next_offset=160)

    with pytest.raises(InvariantError, match="position 50"):
        to_target(runs, end, 20)
    with pytest.raises(InvariantError, match="position 50"):
        to_source(runs, end, 120)
