"""What must hold of a lane's map told from its other side, for every lane and consumer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.entries import new_author
from heliograph.ledger.reverse import LaneStart, lane_entries, reversed_runs
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicName
from tests.kit.maps import exact_offset, offset_of
from tests.property.test_ledger import UNHURRIED, ALane, lanes

TOPIC = TopicName("orders")


def way_back(lane: ALane, unmirrored: int) -> tuple[LaneRecord, LaneEnd]:
    """The ledger of the lane back, as whoever reads it has it; more lies on the old primary."""
    here = Run(
        position=lane.end.position,
        source_offset=lane.end.target_next_offset,
        target_offset=lane.end.source_next_offset + unmirrored,
    )
    begun = LaneStart(
        topic=TOPIC,
        partition=0,
        here=here,
        before=reversed_runs(lane.runs, here.position),
        source_end_offset=here.source_offset,
        source_topic_id=None,
        target_topic_id=None,
    )
    view = LedgerView()
    for entry in lane_entries(begun, author=new_author(), at_ms=1, detail=""):
        view.apply(entry)
    record = view.lane(TOPIC, 0)
    assert record is not None
    end = LaneEnd(
        position=here.position,
        source_next_offset=here.source_offset,
        target_next_offset=here.target_offset,
    )
    return record, end


@given(lanes(), st.integers(0, 20))
@UNHURRIED
def test_every_mirrored_record_is_found_from_the_other_side_and_back(
    lane: ALane, unmirrored: int
) -> None:
    record, end = way_back(lane, unmirrored)
    offsets = OffsetMap(record, end)

    for mirrored in lane.records:
        assert offsets.to_target(mirrored.target_offset) == Exact(offset=mirrored.source_offset)
        assert offsets.to_source(mirrored.source_offset) == Exact(offset=mirrored.target_offset)
    assert offsets.to_target(end.source_next_offset) == Exact(offset=end.target_next_offset)


@given(lanes(), st.integers(0, 200), st.integers(0, 20))
@UNHURRIED
def test_a_consumer_that_goes_over_and_comes_back_has_the_same_records_before_it(
    lane: ALane, source_offset: int, unmirrored: int
) -> None:
    record, end = way_back(lane, unmirrored)
    over = offset_of(lane.map.to_target(source_offset))

    back = exact_offset(OffsetMap(record, end).to_target(over))

    left = [each for each in lane.records if each.source_offset >= source_offset]
    after = [each for each in lane.records if each.source_offset >= back]
    assert left == after


@given(lanes())
@UNHURRIED
def test_the_inverse_of_the_inverse_has_every_record_where_it_was(lane: ALane) -> None:
    once = reversed_runs(lane.runs, lane.end.position)

    twice = Runs(reversed_runs(Runs(once), lane.end.position))

    first = lane.end.position - len(lane.records)
    for index, mirrored in enumerate(lane.records):
        position = first + index
        assert twice.source_offset_at(position) == mirrored.source_offset
        assert twice.target_offset_at(position) == mirrored.target_offset
    assert all(run.position < lane.end.position for run in twice)


@given(lanes(), st.integers(0, 20))
@UNHURRIED
def test_the_lane_back_goes_on_at_the_position_where_the_other_stopped(
    lane: ALane, unmirrored: int
) -> None:
    record, end = way_back(lane, unmirrored)

    assert record.head is not None
    assert record.head.position == lane.end.position
    assert record.runs.source_offset_at(lane.end.position) == end.source_next_offset
    assert record.runs.target_offset_at(lane.end.position) == end.target_next_offset
    assert record.runs.overlap_at is None
