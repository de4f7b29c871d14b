"""Runs by example; tests/property/test_ledger.py has them for every lane."""

from __future__ import annotations

import time

import pytest

from heliograph.errors import InvariantError
from heliograph.ledger.runs import Run, Runs


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def test_an_offset_in_a_gap_belongs_to_the_record_after_it() -> None:
    runs = Runs([run(0, 100, 50), run(10, 115, 60), run(20, 125, 77)])

    assert runs.position_of_source(109) == 9
    assert runs.position_of_source(110) == 10
    assert runs.position_of_source(114) == 10
    assert runs.position_of_target(70) == 20
    assert runs.position_of_target(76) == 20


def test_an_offset_before_the_lane_belongs_to_its_first_record() -> None:
    runs = Runs([run(7, 100, 50)])

    assert runs.position_of_source(3) == 7
    assert runs.position_of_target(3) == 7


def test_new_runs_replace_every_run_at_or_after_the_first_of_them() -> None:
    runs = Runs([run(0, 0, 0), run(10, 20, 10), run(20, 40, 20), run(30, 60, 30)])

    runs.replace_from([run(20, 41, 21), run(25, 50, 26)])

    assert list(runs) == [run(0, 0, 0), run(10, 20, 10), run(20, 41, 21), run(25, 50, 26)]
    assert runs.source_offset_at(19) == 29
    assert runs.source_offset_at(24) == 45


def test_no_runs_replace_nothing() -> None:
    runs = Runs([run(0, 5, 5)])

    runs.replace_from([])

    assert list(runs) == [run(0, 5, 5)]


def test_a_position_before_the_first_run_is_not_explained() -> None:
    runs = Runs([run(7, 100, 50)])

    assert runs.explains(7)
    assert not runs.explains(6)
    with pytest.raises(InvariantError, match="no run explains position 6"):
        runs.source_offset_at(6)


def test_a_lane_without_runs_explains_nothing() -> None:
    runs = Runs()

    assert not runs
    assert runs.first is None
    assert runs.last is None
    assert not runs.explains(0)
    assert runs.identical(0)
    with pytest.raises(InvariantError, match="no runs"):
        runs.position_of_source(0)


@pytest.mark.parametrize(
    "second",
    [run(0, 10, 10), run(5, 10, 4), run(5, 10, -1), run(5, -1, 5), run(5, 10, 2**63)],
    ids=["same position", "target too near", "target negative", "source negative", "64 bits"],
)
def test_runs_that_cannot_be_are_refused_and_change_nothing(second: Run) -> None:
    runs = Runs([run(0, 0, 0)])

    with pytest.raises(InvariantError):
        runs.replace_from([run(0, 3, 3), second])

    assert list(runs) == [run(0, 0, 0)]


def test_after_the_source_topic_was_created_again_its_offsets_mean_the_new_one() -> None:
    runs = Runs([run(0, 0, 0), run(500, 600, 500), run(1_000, 0, 1_000), run(1_010, 11, 1_010)])

    assert runs.source_restart_position == 1_000
    assert runs.position_of_source(0) == 1_000
    assert runs.position_of_source(12) == 1_011
    assert runs.position_of_target(3) == 3
    assert runs.source_offset_at(501) == 601


def test_a_restart_that_is_replaced_never_happened() -> None:
    runs = Runs([run(0, 0, 0), run(1_000, 0, 1_000)])

    runs.replace_from([run(900, 950, 900)])

    assert runs.source_restart_position == 0
    assert runs.position_of_source(3) == 3


def test_a_target_offset_that_goes_back_is_kept_and_named() -> None:
    runs = Runs([run(0, 0, 100)])

    runs.replace_from([run(50, 60, 120)])

    assert runs.overlap_at == 50
    assert runs.target_offset_at(50) == 120
    with pytest.raises(InvariantError, match="go back at position 50"):
        runs.position_of_target(130)


def test_a_target_offset_that_goes_back_is_forgotten_once_it_is_replaced() -> None:
    runs = Runs([run(0, 0, 100)])
    runs.replace_from([run(50, 60, 120)])

    runs.replace_from([run(50, 60, 150)])

    assert runs.overlap_at is None
    assert runs.position_of_target(130) == 30


def test_a_lane_is_identical_up_to_its_first_run_with_different_offsets() -> None:
    runs = Runs([run(0, 7, 7), run(10, 20, 20), run(20, 31, 30)])

    assert runs.identical(20)
    assert not runs.identical(21)

    runs.replace_from([run(20, 30, 30)])

    assert runs.identical(1_000)


def test_runs_with_an_end_leave_what_begins_at_or_after_it() -> None:
    runs = Runs([run(0, 1, 0), run(10, 20, 10), run(20, 3, 20), run(30, 60, 30)])

    runs.replace_between(10, 30, [run(10, 21, 10)])

    assert list(runs) == [run(0, 1, 0), run(10, 21, 10), run(30, 60, 30)]
    assert runs.source_restart_position == 0


def test_a_run_that_began_inside_and_lasted_beyond_begins_again_at_the_end() -> None:
    runs = Runs([run(0, 0, 0), run(10, 20, 15), run(30, 60, 35)])

    runs.replace_between(5, 20, [run(5, 8, 5), run(10, 20, 10)])

    assert list(runs) == [
        run(0, 0, 0),
        run(5, 8, 5),
        run(10, 20, 10),
        run(20, 30, 25),
        run(30, 60, 35),
    ]


def test_runs_that_say_the_same_at_their_end_need_nothing_there() -> None:
    runs = Runs([run(0, 0, 0), run(10, 20, 10), run(30, 60, 30)])

    runs.replace_between(10, 20, [run(10, 20, 10)])

    assert list(runs) == [run(0, 0, 0), run(10, 20, 10), run(30, 60, 30)]


def test_a_run_that_began_before_is_over_and_the_new_one_lasts_until_the_next() -> None:
    runs = Runs([run(0, 0, 0), run(30, 60, 30)])

    runs.replace_between(10, 20, [run(10, 20, 10)])

    assert list(runs) == [run(0, 0, 0), run(10, 20, 10), run(30, 60, 30)]
    assert runs.source_offset_at(25) == 35


def test_a_run_that_lasted_for_want_of_another_gives_way_to_the_new_ones() -> None:
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(10, 12, [run(10, 20, 10)])
    assert runs.written_until == 12

    runs.replace_between(10, 20, [run(10, 20, 10), run(12, 25, 12)])

    assert list(runs) == [run(0, 0, 0), run(10, 20, 10), run(12, 25, 12)]
    assert runs.written_until == 20


def test_a_run_at_the_very_start_begins_again_where_only_its_first_records_were_guessed() -> None:
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(10, 30, [run(10, 20, 15)])

    runs.replace_between(10, 20, [run(10, 20, 10)])

    assert [runs.target_offset_at(position) for position in (10, 20, 25)] == [10, 25, 30]


@pytest.mark.parametrize(
    "wrong",
    [[], [run(11, 20, 11)], [run(10, 20, 10), run(20, 30, 20)]],
    ids=["none", "late", "far"],
)
def test_runs_that_are_not_of_their_stretch_are_refused_and_change_nothing(
    wrong: list[Run],
) -> None:
    runs = Runs([run(0, 0, 0)])

    with pytest.raises(InvariantError):
        runs.replace_between(10, 20, wrong)

    assert list(runs) == [run(0, 0, 0)]


def test_a_run_that_would_leave_63_bits_does_not_begin_again() -> None:
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(10, 30, [run(10, 2**63 - 2, 10)])

    runs.replace_between(5, 20, [run(5, 7, 5)])

    assert list(runs) == [run(0, 0, 0), run(5, 7, 5)]


def test_reading_begins_at_the_lower_of_two_offsets_that_contradict_each_other() -> None:
    runs = Runs([run(0, 0, 100)])
    assert runs.run_before_overlap is None

    runs.replace_between(50, 60, [run(50, 60, 120)])

    assert runs.run_before_overlap == run(0, 0, 70)


def test_a_million_runs_are_appended_and_searched_without_copying_them() -> None:
    runs = Runs()
    started_s = time.process_time()

    for first in range(0, 1_000_000, 1_000):
        runs.replace_from([run(at * 10, at * 11, at * 10) for at in range(first, first + 1_000)])
    lookups = [runs.position_of_source(at * 11 + 10) for at in range(0, 1_000_000, 100)]

    assert len(runs) == 1_000_000
    assert lookups == [(at + 1) * 10 for at in range(0, 1_000_000, 100)]
    # Copying all runs for each of the thousand chunks would take minutes.
    assert time.process_time() - started_s < 30
