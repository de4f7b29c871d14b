"""Where a lane is and why its offsets differ, from what the ledger and the log say."""

from __future__ import annotations

import pytest

from heliograph.errors import BrokerUnreachable
from heliograph.ledger.locations import LaneLocation, first_offset_difference, location_of
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicId, TopicPartition
from heliograph.wire.batch import SEQUENCES
from tests.kit.lane_records import TOPIC, head, lane_record, runs, start

LANE = LaneId(
    flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
    source=TopicPartition(topic=TOPIC, partition=0),
)


def location(lane: LaneRecord, last_sequence: int, end: int) -> LaneLocation:
    return location_of(LANE, LANE.source, lane, last_sequence=last_sequence, end=end)


def test_the_log_knows_better_than_the_last_note() -> None:
    found = location(lane_record(start(), head(10, 10)), last_sequence=99, end=100)

    assert (found.position, found.exact, found.source_next_offset) == (100, True, 100)


def test_without_an_answer_from_the_log_the_last_note_stands() -> None:
    down = BrokerUnreachable("cluster B: down")

    lane = lane_record(start(), head(10, 12))
    found = location_of(LANE, LANE.source, lane, last_sequence=down, end=down)

    assert (found.position, found.exact, found.source_next_offset) == (10, False, 12)


def test_a_lane_that_was_only_seeded_has_copied_nothing() -> None:
    seeded = lane_record(start(source=57_000, target=57_000))

    found = location(seeded, last_sequence=SEQUENCES - 1, end=57_000)

    assert (found.position, found.exact) == (0, True)
    assert (found.source_next_offset, found.target_next_offset) == (57_000, 57_000)


def test_a_log_that_ends_where_the_ledger_last_noted_it_bears_the_note_out() -> None:
    noted = lane_record(start(), head(10, 12))

    forgotten = location(noted, last_sequence=-1, end=10)
    longer = location(noted, last_sequence=-1, end=11)

    assert (forgotten.position, forgotten.exact, forgotten.source_next_offset) == (10, True, 12)
    assert (longer.position, longer.exact) == (10, False)


def test_a_position_that_no_run_explains_is_not_used() -> None:
    adopted = lane_record(start(position=50, source=50, target=50))

    found = location(adopted, last_sequence=3, end=60)

    assert (found.position, found.exact) == (50, False)


def test_a_mirror_that_appends_while_the_log_is_read_is_not_in_doubt() -> None:
    found = location(lane_record(start()), last_sequence=119, end=100)

    assert (found.position, found.exact, found.foreign_records) == (120, True, 0)


def test_of_a_target_that_was_created_again_only_the_note_is_known() -> None:
    lane = lane_record(start(target_topic_id=TopicId("first")), head(10, 10))

    found = location_of(
        LANE, LANE.source, lane, last_sequence=29, end=30, target_topic_id=TopicId("second")
    )

    assert (found.position, found.exact, found.foreign_records) == (10, False, 0)


def test_records_of_others_are_counted_between_ours_and_behind_them() -> None:
    found = location(lane_record(start(), runs((50, 50, 53))), last_sequence=99, end=105)

    assert found.foreign_records == 3 + 2


@pytest.mark.parametrize(
    ("lane", "why"),
    [
        (lane_record(start()), ""),
        (lane_record(start(source=5)), "start"),
        (lane_record(start(), runs((50, 52, 50))), "gap"),
        (lane_record(start(), runs((50, 50, 53))), "foreign"),
        (lane_record(start(), runs((200, 300, 200))), ""),
    ],
    ids=["identical", "start", "gap", "foreign", "a gap that lies ahead"],
)
def test_the_first_reason_why_offsets_differ_is_told(lane: LaneRecord, why: str) -> None:
    found = location(lane, last_sequence=99, end=100)

    assert first_offset_difference(found).partition(":")[0] == why
