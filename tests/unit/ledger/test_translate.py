"""Translation by example; tests/property/test_ledger.py has it for every lane and consumer."""

from __future__ import annotations

import pytest

from heliograph.ledger.entries import StartEntry
from heliograph.ledger.runs import LooseRuns, Run, Runs
from heliograph.ledger.translate import (
    Clamped,
    Exact,
    LaneEnd,
    Translation,
    Unsafe,
    has_unknown_before,
)
from heliograph.model import TopicId
from tests.kit.entries import start_entry
from tests.kit.maps import map_of


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


LANE = (run(0, 100, 50), run(10, 115, 60), run(20, 125, 77))
END = LaneEnd(position=25, source_next_offset=131, target_next_offset=82)


@pytest.mark.parametrize(
    ("source_next_offset", "expected"),
    [
        (99, Clamped(offset=50, side="before")),
        (100, Exact(offset=50)),
        (109, Exact(offset=59)),
        (110, Exact(offset=60)),
        (114, Exact(offset=60)),
        (125, Exact(offset=77)),
        (129, Exact(offset=81)),
        (130, Exact(offset=82)),
        (131, Exact(offset=82)),
        (132, Clamped(offset=82, side="after")),
    ],
)
def test_a_place_on_the_source_is_found_on_the_target(
    source_next_offset: int, expected: Translation
) -> None:
    assert map_of(Runs(LANE), END).to_target(source_next_offset) == expected


@pytest.mark.parametrize(
    ("target_next_offset", "expected"),
    [
        (0, Clamped(offset=100, side="before")),
        (50, Exact(offset=100)),
        (69, Exact(offset=124)),
        (70, Exact(offset=125)),
        (76, Exact(offset=125)),
        (82, Exact(offset=131)),
        (83, Clamped(offset=131, side="after")),
    ],
)
def test_a_place_on_the_target_is_found_on_the_source(
    target_next_offset: int, expected: Translation
) -> None:
    assert map_of(Runs(LANE), END).to_source(target_next_offset) == expected


def test_runs_written_ahead_of_their_records_lead_nobody_past_the_end() -> None:
    end = LaneEnd(position=12, source_next_offset=117, target_next_offset=62)

    assert map_of(Runs(LANE), end).to_target(116) == Exact(offset=61)
    assert map_of(Runs(LANE), end).to_target(126) == Clamped(offset=62, side="after")
    assert map_of(Runs(LANE), end).to_source(80) == Clamped(offset=117, side="after")


def test_in_a_gap_at_the_end_the_place_of_a_record_that_may_never_come_is_not_used() -> None:
    runs = Runs([run(0, 100, 50), run(10, 115, 66)])
    end = LaneEnd(position=10, source_next_offset=115, target_next_offset=60)

    assert map_of(runs, end).to_target(112) == Exact(offset=60)
    assert map_of(runs, end).to_source(60) == Exact(offset=115)


def test_of_a_lane_with_nothing_mirrored_every_place_is_its_end() -> None:
    runs = Runs([run(0, 10, 7)])
    end = LaneEnd(position=0, source_next_offset=10, target_next_offset=7)

    assert map_of(runs, end).to_target(3) == Clamped(offset=7, side="before")
    assert map_of(runs, end).to_target(10) == Exact(offset=7)
    assert map_of(runs, end).to_target(12) == Clamped(offset=7, side="after")
    assert map_of(runs, end).to_source(3) == Clamped(offset=10, side="before")


def test_records_of_a_source_topic_that_was_replaced_are_not_looked_for_in_the_new_one() -> None:
    runs = Runs([run(0, 500, 0), run(100, 5, 100)])
    end = LaneEnd(position=110, source_next_offset=15, target_next_offset=110)

    assert map_of(runs, end).to_source(40) == Clamped(offset=5, side="before")
    assert map_of(runs, end).to_source(103) == Exact(offset=8)
    assert map_of(runs, end).to_target(8) == Exact(offset=103)
    assert map_of(runs, end).to_target(2) == Clamped(offset=100, side="before")


def test_nothing_is_translated_by_runs_that_contradict_each_other() -> None:
    runs = Runs([run(0, 0, 100)])
    runs.replace_from([run(50, 60, 120)])
    offsets = map_of(runs, LaneEnd(position=90, source_next_offset=100, target_next_offset=160))

    there, back = offsets.to_target(20), offsets.to_source(120)

    assert isinstance(there, Unsafe)
    assert "contradicts itself until the lane is resynced" in there.reason
    assert "position 50" in there.reason
    assert there == back == offsets.unsafe


def test_nothing_is_translated_for_a_lane_whose_end_no_run_explains() -> None:
    end = LaneEnd(position=3, source_next_offset=100, target_next_offset=160)

    for runs in (Runs(), Runs([run(10, 10, 10)])):
        found = map_of(runs, end).to_target(20)
        assert isinstance(found, Unsafe)
        assert "position 3" in found.reason


OLD, NEW = (
    TopicId("0b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"),
    TopicId("1b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"),
)


def start(position: int, topic_id: TopicId, *, adopted: bool = False) -> StartEntry:
    return start_entry(
        "orders",
        position=position,
        target_offset=position,
        source_topic_id=topic_id,
        adopted=adopted,
    )


def test_before_an_adoption_there_is_no_safe_offset_on_either_side() -> None:
    end = LaneEnd(position=10, source_next_offset=110, target_next_offset=100)
    offsets = map_of(Runs([run(0, 100, 90)]), end, [start(0, OLD, adopted=True)])

    there, back = offsets.to_target(99), offsets.to_source(89)

    assert there == Unsafe(
        reason="source offset 99 is from before the lane was adopted: what came before source "
        "offset 100 was mirrored at offsets the ledger does not know"
    )
    assert isinstance(back, Unsafe)
    assert "target offset 89 is from before the lane was adopted" in back.reason
    assert offsets.to_target(100) == Exact(offset=90)
    assert offsets.to_source(90) == Exact(offset=100)
    assert offsets.to_target(111) == Clamped(offset=100, side="after")
    assert offsets.unsafe is None


def test_before_an_adoption_of_a_lane_that_has_copied_nothing_since_nothing_is_safe_either() -> (
    None
):
    end = LaneEnd(position=0, source_next_offset=100, target_next_offset=90)
    offsets = map_of(Runs([run(0, 100, 90)]), end, [start(0, OLD, adopted=True)])

    assert isinstance(offsets.to_target(99), Unsafe)
    assert isinstance(offsets.to_source(89), Unsafe)
    assert offsets.to_target(100) == Exact(offset=90)


def test_what_was_mirrored_before_a_reset_has_no_safe_offset() -> None:
    """Source 500 to 999 is on the target twice, 0 to 499 once and before the map's first offset."""
    end = LaneEnd(position=1_100, source_next_offset=600, target_next_offset=1_100)
    runs = Runs([run(0, 0, 0), run(1_000, 500, 1_000)])
    offsets = map_of(runs, end, [start(0, OLD), start(1_000, OLD)])

    there, back = offsets.to_target(200), offsets.to_source(200)

    assert isinstance(there, Unsafe)
    assert "source offset 200 is from before the lane was reset" in there.reason
    assert isinstance(back, Unsafe)
    assert offsets.to_target(550) == Exact(offset=1_050)


def test_after_an_adopted_topic_was_created_again_nothing_before_it_is_unknown() -> None:
    end = LaneEnd(position=110, source_next_offset=15, target_next_offset=110)
    runs = Runs([run(0, 500, 0), run(100, 5, 100)])
    offsets = map_of(runs, end, [start(0, OLD, adopted=True), start(100, NEW)])

    assert offsets.to_target(2) == Clamped(offset=100, side="before")
    assert offsets.to_source(40) == Clamped(offset=5, side="before")


@pytest.mark.parametrize(
    ("starts", "first_position", "unknown"),
    [
        ([start(0, OLD)], 0, False),
        ([start(0, OLD, adopted=True)], 0, True),
        # Sent back: what was copied before is elsewhere too.
        ([start(0, OLD), start(10, OLD)], 10, True),
        # Created again: what was before is gone from the source.
        ([start(0, OLD), start(10, NEW)], 10, False),
        ([start(0, OLD, adopted=True), start(10, NEW)], 10, False),
    ],
)
def test_what_lies_before_the_map_is_unknown_only_where_there_is_something(
    starts: list[StartEntry], first_position: int, unknown: bool
) -> None:
    assert has_unknown_before(starts, first_position) is unknown


def forgotten() -> Runs:
    """As `LANE`, with the first run left of all before position 20."""
    runs = Runs(LANE)
    runs.coarsen(LooseRuns.of(LANE[:1]), 20)
    return runs


@pytest.mark.parametrize(
    ("source_next_offset", "expected"),
    [
        (99, Clamped(offset=50, side="before")),
        (100, Exact(offset=50)),
        (101, Clamped(offset=50, side="coarse")),
        (124, Clamped(offset=50, side="coarse")),
        (125, Exact(offset=77)),
        (132, Clamped(offset=82, side="after")),
    ],
)
def test_an_offset_that_was_forgotten_becomes_the_last_one_known_before_it(
    source_next_offset: int, expected: Translation
) -> None:
    assert map_of(forgotten(), END).to_target(source_next_offset) == expected


@pytest.mark.parametrize(
    ("target_next_offset", "expected"),
    [
        (49, Clamped(offset=100, side="before")),
        (50, Exact(offset=100)),
        (70, Clamped(offset=100, side="coarse")),
        (76, Clamped(offset=100, side="coarse")),
        (77, Exact(offset=125)),
    ],
)
def test_so_it_does_on_the_way_back(target_next_offset: int, expected: Translation) -> None:
    assert map_of(forgotten(), END).to_source(target_next_offset) == expected


def test_what_was_forgotten_before_the_source_topic_was_created_again_is_not_asked_for() -> None:
    runs = Runs((*LANE, run(30, 0, 90)))
    runs.coarsen(LooseRuns.of(LANE[:1]), 20)
    end = LaneEnd(position=40, source_next_offset=10, target_next_offset=100)

    assert map_of(runs, end).to_target(4) == Exact(offset=94)
    assert runs.source_restart_position == runs.exact_from == 30


def test_a_lane_that_ends_before_what_is_known_exactly_is_not_translated() -> None:
    end = LaneEnd(position=15, source_next_offset=120, target_next_offset=65)

    assert isinstance(map_of(forgotten(), end).to_target(101), Unsafe)


def test_offsets_that_another_mirror_copied_in_between_are_known_to_be_unknown() -> None:
    starts = (
        start_entry("orders", position=0, source_offset=100, target_offset=50),
        start_entry("orders", position=10, source_offset=130, target_offset=75, adopted=True),
    )
    runs = Runs([run(0, 100, 50), run(10, 130, 75)])
    end = LaneEnd(position=15, source_next_offset=135, target_next_offset=80)
    found = map_of(runs, end, starts)

    assert found.to_target(109) == Exact(offset=59)
    assert isinstance(found.to_target(110), Unsafe)
    assert isinstance(found.to_target(129), Unsafe)
    assert found.to_target(130) == Exact(offset=75)
    assert isinstance(found.to_source(60), Unsafe)
    assert found.to_source(75) == Exact(offset=130)
