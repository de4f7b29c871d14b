"""Where a lane with a history goes on, for every state its target and its ledger may be in."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Blocked, Found
from heliograph.copy.resume import find_resume_points
from heliograph.errors import LeaderMoved
from heliograph.ledger.entries import new_author
from heliograph.ledger.store import LedgerStore
from heliograph.model import StallReason, TopicId, TopicPartition
from heliograph.wire.batch import SEQUENCES
from tests.kit.fake_cluster import Asked
from tests.kit.fake_records import append_foreign, filler
from tests.kit.lane_records import TOPIC, head, lane_record, runs, start
from tests.unit.copy.resume_kit import (
    FLOW,
    LEDGER,
    ORDERS,
    PRODUCER,
    SPEC,
    ALane,
    Stage,
    at,
    corrections,
    flow_entry,
    placed,
    refused,
)


def test_a_lane_goes_on_behind_the_last_batch_the_broker_remembers() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)

    found = stage.resume(start(), head(10, 10))

    assert at(found) == (15, 15, 15)
    assert placed(found).identical
    assert placed(found).target_topic_id == stage.target.id_of(TOPIC)
    assert placed(found).foreign_records == 0


def test_runs_turn_the_position_into_a_source_offset() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)

    found = stage.resume(start(), runs((10, 14, 10)), runs((40, 50, 40)))

    assert at(found) == (15, 19, 15)
    assert placed(found).written_until == 41


def test_a_lane_that_was_only_seeded_begins_with_its_first_record() -> None:
    stage = Stage()
    stage.written.append(filler(PRODUCER, count=57, left=57))
    stage.written.delete_before(57)

    found = stage.resume(start(source=57, target=57))

    assert at(found) == (0, 57, 57)


def test_a_lane_goes_on_after_sequences_began_again() -> None:
    stage = Stage()
    behind = SEQUENCES - 5
    stage.own(behind, 5)
    stage.own(SEQUENCES, 5)

    found = stage.resume(start(position=behind, source=behind, target=0))

    assert at(found) == (SEQUENCES + 5, SEQUENCES + 5, 10)


def test_records_of_others_are_counted_and_the_map_is_corrected() -> None:
    stage = Stage()
    stage.own(0, 10)
    append_foreign(stage.written, 3)
    stage.own(10, 5)

    found, record = stage.resumed(start())

    assert at(found) == (15, 15, 18)
    assert placed(found).foreign_records == 3
    assert record is not None
    assert (record.runs.target_offset_at(9), record.runs.target_offset_at(10)) == (9, 13)


def test_a_forgotten_producers_batches_since_the_head_say_how_far_the_lane_came() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.expire_producers()

    found = stage.resume(start(), head(10, 10))

    assert at(found) == (15, 15, 15)


def test_a_forgotten_lane_with_nothing_since_its_head_goes_on_there() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.written.expire_producers()

    found = stage.resume(start(), head(10, 12))

    # What was dropped before the head need not be read again.
    assert at(found) == (10, 12, 10)
    assert Asked("fetch", frozenset({TOPIC})) not in stage.target.asked


def test_batches_above_the_high_watermark_are_waited_for() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.unreplicated = 5

    found = stage.resume(start())

    assert isinstance(found, LeaderMoved)
    assert "ahead of its high watermark" in str(found)


def test_batches_above_the_high_watermark_are_waited_for_in_a_scan_too() -> None:
    stage = Stage()
    append_foreign(stage.written, 9)
    stage.own(0, 5)
    stage.written.unreplicated = 5

    found = stage.resume(start())

    assert isinstance(found, LeaderMoved)
    assert "ahead of its high watermark" in str(found)


def test_a_target_that_lost_acknowledged_records_and_their_producer_is_waited_for_a_while() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.truncate(10)
    stage.written.expire_producers()

    assert isinstance(stage.resume(start(), head(15, 15)), LeaderMoved)


def test_a_target_that_lost_acknowledged_records_and_their_producer_needs_a_decision(
    behind_for_long: None,
) -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.truncate(10)
    stage.written.expire_producers()

    found = stage.resume(start(), head(15, 15))

    assert refused(found) == (StallReason.TARGET_LOST_RECORDS, 15)
    assert isinstance(found, Blocked)
    assert "ends at 10, but 15 was acknowledged" in found.detail
    assert found.retry_s is not None


def test_a_log_that_lost_all_and_was_written_since_needs_a_decision(behind_for_long: None) -> None:
    """A disk that was replaced: the next batch is the first of an empty log."""
    stage = Stage()
    stage.own(20, 5)

    found = stage.resume(start(), head(20, 20))

    assert refused(found) == (StallReason.TARGET_LOST_RECORDS, 20)


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["remembered", "forgotten"])
def test_records_missing_in_the_middle_need_a_decision(
    is_forgotten: bool, behind_for_long: None
) -> None:
    """A broker that had forgotten the producer refused a batch and took the one behind it."""
    stage = Stage()
    stage.own(0, 10)
    stage.written.expire_producers()
    stage.own(15, 5)
    if is_forgotten:
        stage.written.expire_producers()

    found = stage.resume(start(), head(10, 10), runs((12, 14, 12)))

    assert refused(found) == (StallReason.TARGET_LOST_RECORDS, 10)
    assert isinstance(found, Blocked)
    assert "source offsets [10, 17) are missing" in found.detail


def test_a_map_that_is_ahead_of_a_log_that_misses_nothing_is_corrected(
    behind_for_long: None,
) -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)

    found, record = stage.resumed(start(), runs((10, 10, 13), end_position=15))

    assert at(found) == (15, 15, 15)
    assert record is not None
    assert record.runs.target_offset_at(10) == 10


def test_records_of_others_that_an_unclean_election_cut_off_are_no_loss_of_ours(
    behind_for_long: None,
) -> None:
    """The head counts three of them behind the lane's ten; since then the lane wrote ten more."""
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 2)
    stage.own(12, 8)

    found, record = stage.resumed(
        start(), runs((10, 10, 13), end_position=20), head(10, 10, target_next=13)
    )

    assert at(found) == (20, 20, 20)
    assert record is not None
    assert [record.runs.target_offset_at(each) for each in (10, 12, 19)] == [10, 12, 19]


def test_a_log_that_lost_its_end_and_was_written_by_others_since_is_filled_again() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.truncate(10)
    append_foreign(stage.written, 3)

    found, record = stage.resumed(start(), head(15, 15))

    assert at(found) == (10, 10, 13)
    assert placed(found).foreign_records == 3
    assert record is not None
    assert record.runs.target_offset_at(10) == 13


def test_a_correction_that_is_late_changes_no_source_offset() -> None:
    """Another slot has written meanwhile that a gap is in front of position 10."""
    stage = Stage()
    stage.own(0, 10)
    append_foreign(stage.written, 3)
    stage.resume(start(), runs((0, 0, 0), end_position=1), head(10, 10))
    (late,) = corrections(stage)

    found = lane_record(start(), runs((10, 14, 10), end_position=12), late).runs

    assert (found.source_offset_at(10), found.target_offset_at(10)) == (14, 13)


def test_a_log_that_was_read_before_others_wrote_lowers_nothing() -> None:
    """Another slot has seen more of it since, and written that; nothing of the lane has landed."""
    stage = Stage()
    append_foreign(stage.written, 3)

    found, record = stage.resumed(start(), runs((0, 0, 8), end_position=4))

    assert at(found) == (0, 0, 8)
    assert record is not None
    assert record.runs.target_offset_at(0) == 8


def test_a_correction_leaves_alone_what_was_written_behind_the_map_it_read() -> None:
    """It may be durable only after a successor resumed and wrote on."""
    stage = Stage()
    stage.own(0, 10)
    append_foreign(stage.written, 3)
    stage.own(10, 5)

    _, record = stage.resumed(start(), runs((12, 14, 12), end_position=14))

    assert record is not None
    (entry,) = corrections(stage)
    assert entry.end_position == 15
    assert [(run.position, run.source_offset, run.target_offset) for run in entry.runs] == [
        (10, 10, 13),
        (12, 14, 15),
    ]


def test_runs_that_fall_behind_what_the_head_had_passed_are_not_followed() -> None:
    """Three gaps were known at the head; what says so was wiped, and records would be repeated."""
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)

    found = stage.resume(start(), head(10, 13))

    assert refused(found) == (StallReason.UNEXPLAINED_LOG, 15)
    assert isinstance(found, Blocked)
    assert "source offset 15, which its head had passed" in found.detail


def test_a_lane_sent_back_at_its_head_goes_on_where_it_was_sent() -> None:
    stage = Stage()
    stage.own(0, 10)

    found = stage.resume(start(), head(10, 13), start(position=10, source=4, target=10))

    assert at(found) == (10, 4, 10)


def test_a_target_that_lost_records_and_knows_the_producer_is_filled_again() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.truncate(10)

    found = stage.resume(start(), head(15, 15))

    assert at(found) == (10, 10, 10)


def test_a_log_that_another_mirror_made_longer_meanwhile_is_looked_at_again() -> None:
    stage = Stage()
    stage.before_third_look(lambda: stage.own(0, 10))

    found = stage.resume(start(), head(10, 10))

    assert isinstance(found, LeaderMoved)


def test_a_target_that_was_created_again_needs_a_decision() -> None:
    stage = Stage()
    first = stage.target.id_of(TOPIC)
    stage.target.create(TOPIC)
    stage.own(0, 3)

    found = stage.resume(start(target_topic_id=first), head(7, 7))

    assert refused(found) == (StallReason.TARGET_RECREATED, 7)


def test_a_source_that_was_created_again_needs_a_decision() -> None:
    stage = Stage()
    stage.own(0, 10)

    found = stage.resume(
        start(source_topic_id=TopicId("0b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11")),
        spec=replace(SPEC, source_topic_id=TopicId("1b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11")),
    )

    assert refused(found) == (StallReason.TOPIC_RECREATED, 10)


def test_a_lane_restarted_on_an_emptied_target_skips_nothing_of_the_new_topic() -> None:
    """The lane began at target offset 500; since then its records were deleted on the target, and
    the leader forgot the producer. What is counted from a wrong offset is skipped in silence."""
    stage = Stage()
    append_foreign(stage.written, 500)
    append_foreign(stage.written, 1_000)
    stage.written.delete_before(1_500)
    first, second = (TopicId(f"{n}b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11") for n in (0, 1))
    entries = (start(target=500, source_topic_id=first), head(1_000, 1_000, 1_500))
    spec = replace(SPEC, source_topic_id=second)

    blocked = stage.resume(*entries, spec=spec)

    assert isinstance(blocked, Blocked)
    assert (blocked.position, blocked.target_next_offset) == (1_000, 1_500)
    again = start(
        blocked.position,
        target=blocked.target_next_offset,
        source_topic_id=second,
        author=new_author(),
    )
    assert at(stage.resume(*entries, again, spec=spec)) == (1_000, 0, 1_500)


def test_a_correction_says_nothing_of_what_a_new_start_begins_with() -> None:
    """The driver's start may be in the ledger before this slot's word about the old topic."""
    stage = Stage()
    stage.own(0, 10)
    append_foreign(stage.written, 3)
    stage.own(10, 5)
    append_foreign(stage.written, 2)
    first, second = (TopicId(f"{n}b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11") for n in (0, 1))

    blocked = stage.resume(start(source_topic_id=first), spec=replace(SPEC, source_topic_id=second))

    (written,) = corrections(stage, first=0)
    assert refused(blocked) == (StallReason.TOPIC_RECREATED, 15)
    assert [run.position for run in written.runs] == [10]
    assert written.end_position == 15


def test_what_a_target_lost_of_a_topic_that_is_gone_is_not_filled_from_the_new_one(
    behind_for_long: None,
) -> None:
    """The log ends among the records of the old topic: their offsets are other records now."""
    stage = Stage()
    stage.own(0, 4)
    first, second = (TopicId(f"{n}b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11") for n in (0, 1))
    again = start(10, target=10, source_topic_id=second, author=new_author())

    found = stage.resume(
        start(source_topic_id=first), again, spec=replace(SPEC, source_topic_id=second)
    )

    assert refused(found) == (StallReason.TARGET_LOST_RECORDS, 4)
    assert isinstance(found, Blocked)
    assert found.retry_s is not None


def test_a_log_that_no_run_explains_needs_a_decision() -> None:
    stage = Stage()
    stage.own(0, 10)

    found = stage.resume(start(position=50, source=50, target=50))

    assert refused(found) == (StallReason.UNEXPLAINED_LOG, 10)


def test_a_target_that_disappears_between_two_looks_is_waited_for() -> None:
    stage = Stage()
    stage.own(0, 10)

    def forget(asked: Asked) -> None:
        # The ledger is read after the log was looked at; another task may refresh meanwhile.
        is_looked_at = Asked("describe_producers", frozenset({TOPIC})) in stage.target.asked
        if is_looked_at and asked.name == "metadata":
            stage.target._topics.pop(TOPIC, None)

    stage.target.before = forget

    found = stage.resume(start())

    assert isinstance(found, LeaderMoved)
    assert "is gone" in str(found)


def test_two_runs_that_claim_the_same_offsets_are_settled_by_the_log() -> None:
    stage = Stage()
    stage.own(0, 40)
    append_foreign(stage.written, 10)
    stage.own(40, 20)
    stage.own(60, 30)

    found, record = stage.resumed(
        start(), runs((40, 40, 60)), runs((60, 60, 70)), head(90, 90, target_next=100)
    )

    assert at(found) == (90, 90, 100)
    assert record is not None
    assert record.runs.overlap_at is None
    assert [record.runs.target_offset_at(each) for each in (39, 40, 59, 60)] == [39, 50, 69, 70]


def test_a_lane_that_is_taken_away_while_its_place_is_looked_for_does_not_begin_anew() -> None:
    stage = Stage()

    async def resume() -> tuple[Found, int]:
        driver, store = (LedgerStore(stage.target, LEDGER, lanes=()) for _ in range(2))
        await driver.write([flow_entry(), start()])
        written = stage.target.log(TopicPartition(topic=LEDGER, partition=0)).end
        flow = Flow(FLOW, stage.source, stage.target, store, FetchLimits())
        read = store.catch_up

        async def read_and_lose() -> None:
            await read()
            store.drop([ORDERS])

        store.catch_up = read_and_lose  # type: ignore[method-assign]
        found: dict[ALane, Found] = {}
        lane = ALane(SPEC)
        await find_resume_points(flow, [lane], found.__setitem__)
        for each in (driver, store):
            await each.close()
        ledger = stage.target.log(TopicPartition(topic=LEDGER, partition=0))
        return found[lane], ledger.end - written

    found, added = asyncio.run(resume())

    assert isinstance(found, LeaderMoved)
    assert added == 0
