"""The map told from the other side where the source was replaced or the map is not whole."""

from __future__ import annotations

import pytest

from heliograph.errors import InvariantError
from heliograph.ledger.reverse import reversed_runs
from heliograph.ledger.runs import Run, Runs


def run(position: int, source: int, target: int) -> Run:
    return Run(position=position, source_offset=source, target_offset=target)


def test_records_of_a_source_topic_that_was_replaced_are_not_in_the_inverse() -> None:
    runs = Runs([run(0, 0, 0), run(10, 0, 10), run(15, 9, 17)])

    found = reversed_runs(runs, 20)

    assert found == (run(10, 10, 0), run(15, 17, 9))


def test_runs_written_ahead_are_left_out() -> None:
    runs = Runs([run(0, 0, 0), run(10, 12, 10)])

    assert reversed_runs(runs, 10) == (run(0, 0, 0),)
    assert reversed_runs(runs, 0) == ()
    assert reversed_runs(Runs(), 5) == ()


def test_a_map_that_contradicts_itself_has_no_inverse() -> None:
    runs = Runs()
    runs.replace_from([run(0, 0, 0)])
    runs.replace_from([run(10, 20, 30)])
    runs.replace_between(5, 10, [run(5, 6, 40)])

    with pytest.raises(InvariantError, match=r"go back at position 10"):
        reversed_runs(runs, 11)
    assert reversed_runs(runs, 10) == (run(0, 0, 0), run(5, 40, 6))
