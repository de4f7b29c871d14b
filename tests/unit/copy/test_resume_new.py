"""Where a lane without a history begins, and what it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.copy.found import Blocked, SourceTrouble
from heliograph.errors import BrokerUnreachable, LeaderMoved
from heliograph.model import Offsets, OnExisting, StallReason, Start, StartAt, StartBack, StartTime
from heliograph.wire.batch import SEQUENCES
from tests.kit.fake_cluster import Asked
from tests.kit.fake_records import append_foreign, filler, records_batch
from tests.kit.lane_records import TOPIC, start
from tests.unit.copy.resume_kit import PRODUCER, SPEC, Stage, at, placed, refused


@pytest.mark.parametrize(
    ("start_at", "offset"), [(StartAt.EARLIEST, 5), (StartAt.LATEST, 12)], ids=["start", "end"]
)
def test_a_new_lane_begins_at_the_sources_start_or_end(start_at: Start, offset: int) -> None:
    stage = Stage()
    append_foreign(stage.read, 12)
    stage.read.delete_before(5)
    append_foreign(stage.written, 3)

    found, record = stage.resumed(spec=replace(SPEC, start_at=start_at))

    assert at(found) == (0, offset, 3)
    assert not placed(found).identical
    assert record is not None
    (begun,) = record.starts
    assert (begun.position, begun.source_offset, begun.target_offset) == (0, offset, 3)
    assert begun.target_topic_id == stage.target.id_of(TOPIC)


@pytest.mark.parametrize(
    ("start_at", "offset"),
    [
        (StartTime(0), 0),
        (StartTime(2_000), 1),
        (StartTime(2_001), 2),
        (StartTime(4_000), 3),
        (StartBack(60_000), 3),
        (StartBack(10**15), 0),
    ],
    ids=str,
)
def test_a_new_lane_begins_with_the_first_record_of_a_time_or_else_at_the_end(
    start_at: Start, offset: int
) -> None:
    stage = Stage()
    for at_ms in (1_000, 2_000, 3_000):
        stage.read.append(records_batch(1, timestamp_ms=at_ms))

    found = stage.resume(spec=replace(SPEC, start_at=start_at))

    assert at(found)[1] == offset


def test_a_record_that_arrives_while_a_new_lane_asks_for_its_start_is_not_skipped() -> None:
    stage = Stage()
    stage.read.append(records_batch(1, timestamp_ms=1_000))
    asked = iter(range(10))

    def arrive(request: Asked) -> None:
        if request.name == "list_offsets" and next(asked) == 1:
            stage.read.append(records_batch(1, timestamp_ms=2_500))

    stage.source.before = arrive

    found = stage.resume(spec=replace(SPEC, start_at=StartTime(2_000)))

    assert at(found)[1] == 1


def test_the_start_that_another_mirror_wrote_first_counts() -> None:
    stage = Stage()

    found, record = stage.resumed(start(source=0, target=0))

    assert at(found) == (0, 0, 0)
    assert record is not None
    assert len(record.starts) == 1


def test_a_lane_that_wrote_records_and_is_not_in_the_ledger_does_not_begin_again() -> None:
    """To begin it where its log ends put a second map over the first: source 0 at target 1309."""
    stage = Stage()
    stage.own(0, 5)

    found, record = stage.resumed()

    assert isinstance(found, LeaderMoved)
    assert record is None


def test_a_lane_that_stays_unknown_to_the_ledger_needs_an_operator(behind_for_long: None) -> None:
    stage = Stage()
    stage.own(0, 5)

    found, record = stage.resumed()

    assert refused(found)[0] is StallReason.LEDGER_UNUSABLE
    assert record is None


def test_a_target_with_records_may_be_refused() -> None:
    stage = Stage()
    append_foreign(stage.written, 3)

    found = stage.resume(spec=replace(SPEC, on_existing=OnExisting.REFUSE))

    assert refused(found) == (StallReason.TARGET_NOT_EMPTY, 0)
    assert isinstance(found, Blocked)
    assert "holds 3 records" in found.detail


def test_a_lane_whose_source_has_no_leader_waits_for_it() -> None:
    stage = Stage()
    stage.source.topics[TOPIC].leaderless.add(0)

    found = stage.resume()

    assert isinstance(found, SourceTrouble)
    assert isinstance(found.error, LeaderMoved)


def test_a_lane_whose_target_has_no_leader_waits_for_it() -> None:
    stage = Stage()
    stage.target.topics[TOPIC].leaderless.add(0)

    assert isinstance(stage.resume(start()), LeaderMoved)


@pytest.mark.parametrize("request_name", ["describe_producers", "list_offsets"])
def test_a_broker_that_does_not_answer_for_the_target_is_that_lanes_error(
    request_name: str,
) -> None:
    stage = Stage()
    stage.break_link(request_name)

    assert isinstance(stage.resume(start()), BrokerUnreachable)


def test_a_flow_whose_producer_the_ledger_does_not_name_cannot_resume() -> None:
    stage = Stage(has_producer=False)

    with pytest.raises(BrokerUnreachable, match="names no producer yet"):
        stage.resume()


def test_a_preserved_lane_is_seeded_to_the_sources_start() -> None:
    stage = Stage()
    append_foreign(stage.read, 60)
    stage.read.delete_before(57)

    found, record = stage.resumed(spec=replace(SPEC, offsets=Offsets.PRESERVE))

    assert at(found) == (0, 57, 57)
    assert placed(found).identical
    assert (stage.written.start, stage.written.end) == (57, 57)
    assert stage.written.last_sequences()[PRODUCER] == (0, SEQUENCES - 1)
    assert record is not None
    assert record.starts[0].target_offset == 57


def test_a_seeding_that_was_broken_off_is_finished_whatever_the_lane_asks_for() -> None:
    stage = Stage()
    append_foreign(stage.read, 60)
    stage.read.delete_before(57)
    stage.written.append(filler(PRODUCER, count=20, left=57))

    found = stage.resume()

    assert at(found) == (0, 57, 57)
    assert stage.written.start == 57


def test_a_topic_that_is_only_compacted_is_not_seeded() -> None:
    stage = Stage()
    append_foreign(stage.read, 60)
    stage.read.delete_before(57)
    stage.written.is_compacted = True

    found = stage.resume(spec=replace(SPEC, offsets=Offsets.PRESERVE))

    assert at(found) == (0, 57, 0)
    assert not placed(found).identical


def test_a_seeding_that_fails_is_that_lanes_error() -> None:
    stage = Stage()
    append_foreign(stage.read, 60)
    stage.read.delete_before(57)

    stage.break_link("delete_records")

    found, record = stage.resumed(spec=replace(SPEC, offsets=Offsets.PRESERVE))

    assert isinstance(found, BrokerUnreachable)
    assert record is None
