"""Positions of a query on the source, found on the target, and what is said where they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.errors import CheckpointError
from heliograph.ledger.runs import LooseRuns, Run, Runs
from heliograph.ledger.translate import LaneEnd, Translation, Unsafe
from heliograph.model import TopicName, TopicPartition
from heliograph.spark_checkpoint.translate import (
    FlowPositions,
    Mirrored,
    is_of_flow,
    translate_past,
    translate_source,
)
from tests.kit.maps import map_of

FIRST, MIRRORED, SHIFT = 10, 100, 5
"""Source offsets 10 to 99 are mirrored, at 15 to 104 of the target; others wrote 105 to 109."""


def at(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=partition)


def flow(*, target_start: int = 0, partitions: int = 2, unsure: bool = False) -> FlowPositions:
    runs = Runs([Run(position=0, source_offset=FIRST, target_offset=FIRST + SHIFT)])
    end = LaneEnd(
        position=MIRRORED - FIRST,
        source_next_offset=MIRRORED,
        target_next_offset=MIRRORED + SHIFT,
    )

    def answer(_: TopicPartition, offset: int) -> Translation:
        return Unsafe(reason="not today") if unsure else map_of(runs, end).to_target(offset)

    return FlowPositions(
        lanes={
            at(number): Mirrored(
                target=at(number, "A.orders"),
                source_next_offset=MIRRORED,
                target_start_offset=target_start,
                target_end_offset=MIRRORED + 2 * SHIFT,
            )
            for number in range(partitions)
        },
        to_target=answer,
        target_topic=lambda topic: TopicName(f"A.{topic}"),
    )


def test_a_committed_position_is_exact_within_what_is_mirrored() -> None:
    found = translate_source("0", {at(0): 40, at(1): MIRRORED}, None, flow())

    assert found.start == {at(0, "A.orders"): 45, at(1, "A.orders"): 105}
    assert found.planned is None
    assert [(move.is_exact, move.lag_records) for move in found.moves] == [(True, 65), (True, 5)]


def test_both_ends_of_a_planned_batch_are_translated() -> None:
    found = translate_source("0", {at(0): 40}, {at(0): 60}, flow())

    assert found.start == {at(0, "A.orders"): 45}
    assert found.planned == {at(0, "A.orders"): 65}
    assert found.moves[0].is_exact


def test_the_end_of_a_planned_batch_comes_down_to_what_is_mirrored_and_it_is_said() -> None:
    found = translate_source("0", {at(0): 40}, {at(0): 130}, flow())

    (move,) = found.moves
    assert found.planned == {at(0, "A.orders"): 105}
    assert (move.clamped, move.planned_clamped) == (None, "after")
    assert not move.is_exact
    assert "batch ended 30 offsets beyond" in move.notes[0]


def test_a_position_beyond_what_is_mirrored_goes_on_where_that_ends_and_it_is_said_once() -> None:
    found = translate_source("0", {at(0): 120}, {at(0): 130}, flow())

    (move,) = found.moves
    assert (move.target_offset, move.planned_target_offset) == (105, 105)
    assert move.clamped == "after"
    assert len(move.notes) == 1
    assert "read 20 offsets beyond" in move.notes[0]


def test_a_position_before_the_first_mirrored_record_goes_on_with_it_and_it_is_said() -> None:
    found = translate_source("0", {at(0): 3}, None, flow())

    (move,) = found.moves
    assert move.target_offset == FIRST + SHIFT
    assert move.clamped == "before"
    assert "before the first mirrored record" in move.notes[0]


def test_a_position_the_target_no_longer_holds_is_kept_so_that_spark_sees_it() -> None:
    found = translate_source("0", {at(0): 40}, None, flow(target_start=50))

    (move,) = found.moves
    assert move.target_offset == 45
    assert "5 offsets are gone" in move.notes[0]
    assert "failOnDataLoss" in move.notes[0]


def test_a_partition_that_is_new_in_the_planned_batch_begins_at_the_first_mirrored_record() -> None:
    found = translate_source("0", {at(0): 40}, {at(0): 50, at(1): 20}, flow())

    assert found.start == {at(0, "A.orders"): 45, at(1, "A.orders"): 15}
    assert found.planned == {at(0, "A.orders"): 55, at(1, "A.orders"): 25}
    assert all(move.is_exact for move in found.moves)
    assert found.moves[1].source_offset is None


def test_a_partition_without_a_lane_is_left_out_of_both_ends() -> None:
    found = translate_source("0", {at(0): 40, at(1): 7}, {at(0): 50, at(1): 9}, flow(partitions=1))

    assert found.start.keys() == {at(0, "A.orders")}
    assert found.planned is not None
    assert found.planned.keys() == {at(0, "A.orders")}
    assert "nothing of it is mirrored" in found.moves[1].notes[0]


def test_a_partition_of_which_nothing_was_read_may_be_missing_on_the_target() -> None:
    found = translate_source("0", {at(1): 0}, None, flow(partitions=1))

    assert found.start == {}
    assert found.moves[0].is_exact


def test_a_position_the_ledger_cannot_answer_for_is_refused() -> None:
    with pytest.raises(CheckpointError, match="orders-0: the ledger does not say"):
        translate_source("0", {at(0): 40}, None, flow(unsure=True))


def test_positions_of_the_past_have_no_need_of_an_answer() -> None:
    assert translate_past({at(0): 40, at(9): 1}, flow()) == {at(0, "A.orders"): 45}
    assert translate_past({at(0): 40}, flow(unsure=True)) == {}


def test_a_source_is_of_the_flow_where_all_its_topics_are() -> None:
    topics = {TopicName("orders"), TopicName("payments")}

    assert is_of_flow({at(0): 1, at(0, "payments"): 2}, topics, "offsets/1")
    assert not is_of_flow({at(0, "clicks"): 1}, topics, "offsets/1")
    assert not is_of_flow(None, topics, "offsets/1")


def test_a_source_with_topics_that_are_not_mirrored_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="offsets/1: reads clicks, which the flow has not"):
        is_of_flow({at(0): 1, at(0, "clicks"): 1}, {TopicName("orders")}, "offsets/1")


def test_a_negative_offset_of_a_mirrored_topic_is_refused() -> None:
    with pytest.raises(CheckpointError, match="-1 is no offset of orders-0"):
        is_of_flow({at(0): -1}, {TopicName("orders")}, "offsets/1")


def test_a_position_that_was_forgotten_goes_on_before_it_and_it_is_said() -> None:
    runs = Runs([Run(position=0, source_offset=FIRST, target_offset=FIRST + SHIFT)])
    runs.coarsen(LooseRuns.of(list(runs)), 50)
    end = LaneEnd(
        position=MIRRORED - FIRST, source_next_offset=MIRRORED, target_next_offset=MIRRORED + SHIFT
    )
    known = replace(flow(), to_target=lambda _, offset: map_of(runs, end).to_target(offset))

    found = translate_source("0", {at(0): 40}, {at(0): 70}, known)

    (move,) = found.moves
    assert (move.target_offset, move.clamped) == (FIRST + SHIFT, "coarse")
    assert (move.planned_target_offset, move.planned_clamped) == (75, None)
    assert "forgotten the exact offsets" in move.notes[0]
