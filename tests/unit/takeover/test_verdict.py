"""What adopting a lane comes to, for logs that a broker would take long to come into."""

from __future__ import annotations

from heliograph.model import ClusterAlias, FlowId, Lane, LaneId, OffsetRange, TopicName
from heliograph.model import TopicPartition as At
from heliograph.takeover.alignment import OffsetSyncAnchor, Stretch, align
from heliograph.takeover.verdict import LaneFinding, Verdict, impossible, judge
from heliograph.takeover.walk import LaneLogs, Walked

LANE = Lane(
    id=LaneId(
        flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
        source=At(topic=TopicName("orders"), partition=0),
    ),
    target=At(topic=TopicName("A.orders"), partition=0),
    source_topic_id=None,
)


def stretch(records: str, first: int) -> Stretch:
    made = Stretch()
    for index, letter in enumerate(records):
        made.add(first + index, ord(letter))
    return made


def finding(
    source: str,
    target: str,
    *,
    stored_next: int | None,
    source_start: int = 0,
    target_start: int = 0,
    anchors: tuple[OffsetSyncAnchor, ...] = (),
    resumed: OffsetSyncAnchor | None = None,
    is_compacted: bool = False,
) -> LaneFinding:
    """Both logs as they are, walked from their first records."""
    logs = LaneLogs(
        lane=LANE,
        stored_next=stored_next,
        anchors=anchors,
        source=OffsetRange(start=source_start, end=source_start + len(source)),
        target=OffsetRange(start=target_start, end=target_start + len(target)),
        is_compacted=is_compacted,
        resumed=resumed,
    )
    read, copy = stretch(source, source_start), stretch(target, target_start)
    found = align(read, copy, stored_next=stored_next, anchors=anchors, is_compacted=is_compacted)
    walked = Walked(
        logs=logs,
        alignment=found,
        source_from=source_start,
        target_from=target_start,
        source_records=len(read),
        target_records=len(copy),
        has_older_source=stored_next is not None and read.index_at(stored_next) > 0,
        is_untimed=False,
    )
    return judge(walked, None, None if resumed is None else 7)


def test_a_target_that_deleted_everything_goes_on_after_its_last_offset_sync() -> None:
    anchors = (OffsetSyncAnchor(source_offset=40, target_offset=49),)

    found = finding("ab", "", stored_next=30, source_start=40, target_start=50, anchors=anchors)

    assert (found.verdict, found.next_source_offset) == (Verdict.ADOPT, 41)
    assert found.doubts == ()


def test_a_target_that_deleted_everything_and_has_no_such_sync_is_in_doubt() -> None:
    found = finding("ab", "", stored_next=30, source_start=40, target_start=50)

    assert found.next_source_offset == 30
    assert "deleted all records" in found.doubts[0]


def test_a_source_that_deleted_everything_copied_goes_on_at_the_stored_position() -> None:
    found = finding("xy", "abc", stored_next=3, source_start=3)

    assert (found.verdict, found.next_source_offset) == (Verdict.ADOPT, 3)
    assert "the source no longer has any record it copied" in found.doubts


def test_records_older_than_the_source_are_no_doubt() -> None:
    found = finding("def", "abcde", stored_next=5, source_start=3)

    assert found.doubts == ()
    assert found.notes == ("3 target records older than the first of the source",)


def test_a_target_that_lost_records_is_in_doubt_and_loses_no_more() -> None:
    found = finding("abcdef", "abc", stored_next=5)

    assert found.next_source_offset == 3
    assert "it lost records" in found.doubts[0]


def test_missing_records_are_a_doubt_unless_the_target_is_compacted() -> None:
    plain = finding("abcdef", "abef", stored_next=6)
    compacted = finding("abcdef", "abef", stored_next=6, is_compacted=True)

    assert plain.doubts == ("2 source records missing before the end of the copy",)
    assert compacted.doubts == ()


def test_records_of_others_where_nothing_is_stored_leave_the_lane_to_begin_anew() -> None:
    found = finding("abc", "xyz", stored_next=None)

    assert (found.verdict, found.notes) == (Verdict.NEW, ("the target holds foreign records",))


def test_a_lane_handed_back_and_not_touched_goes_on_where_it_was() -> None:
    resumed = OffsetSyncAnchor(source_offset=20, target_offset=30)

    found = finding("", "", stored_next=20, source_start=20, target_start=30, resumed=resumed)

    assert (found.verdict, found.next_source_offset) == (Verdict.ADOPT, 20)
    assert (found.target_next_offset, found.resumed_position) == (30, 7)


def test_a_position_after_the_source_ends_is_impossible() -> None:
    logs = LaneLogs(
        lane=LANE,
        stored_next=11,
        anchors=(),
        source=OffsetRange(start=0, end=10),
        target=OffsetRange(start=0, end=10),
        is_compacted=False,
    )

    assert "the source ends at 10" in impossible(logs)
