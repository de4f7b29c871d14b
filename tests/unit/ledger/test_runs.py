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

    assert runs.contradicted_at == 50
    assert runs.target_offset_at(50) == 120
    with pytest.raises(InvariantError, match="go back at position 50"):
        runs.position_of_target(130)


def test_a_target_offset_that_goes_back_is_forgotten_once_it_is_replaced() -> None:
    runs = Runs([run(0, 0, 100)])
    runs.replace_from([run(50, 60, 120)])

    runs.replace_from([run(50, 60, 150)])

    assert runs.contradicted_at is None
    assert runs.position_of_target(130) == 30


def test_a_lane_is_identical_up_to_its_first_run_with_different_offsets() -> None:
    runs = Runs([run(0, 7, 7), run(10, 20, 20), run(20, 31, 30)])

    assert runs.identical(20)
    assert not runs.identical(21)

    runs.replace_from([run(20, 30, 30)])

    assert runs.identical(1_000)


def test_removing_runs_from_the_middle_leaves_the_others_as_they_were() -> None:
    runs = Runs([run(0, 1, 0), run(10, 20, 10), run(20, 3, 20), run(30, 60, 30)])

    runs.remove_between(10, 30)

    assert list(runs) == [run(0, 1, 0), run(30, 60, 30)]
    assert runs.source_restart_position == 0


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
