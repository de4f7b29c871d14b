"""The map told from the other side where the source was replaced, reset or adopted."""

from __future__ import annotations

import pytest

from heliograph.errors import InvariantError
from heliograph.ledger.entries import StartEntry, new_author
from heliograph.ledger.reverse import has_unknown_before, reversed_runs
from heliograph.ledger.runs import Run, Runs
from heliograph.model import TopicId, TopicName

OLD, NEW = (
    TopicId("0b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"),
    TopicId("1b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"),
)


def run(position: int, source: int, target: int) -> Run:
    return Run(position=position, source_offset=source, target_offset=target)


def start(position: int, topic_id: TopicId, *, adopted: bool = False) -> StartEntry:
    return StartEntry(
        topic=TopicName("orders"),
        partition=0,
        position=position,
        author=new_author(),
        source_offset=0,
        target_offset=position,
        source_topic_id=topic_id,
        target_topic_id=None,
        at_ms=1,
        adopted=adopted,
    )


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
