"""Where a lane goes on, for every state its target, its ledger and its source may be in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.broker.log import read_batches
from heliograph.copy.chunk import SourcePoint
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Blocked, FlowFenced, Found, ResumePoint, SourceTrouble
from heliograph.copy.resume import find_resume_points
from heliograph.errors import BrokerUnreachable, LeaderMoved
from heliograph.ledger.entries import (
    Entry,
    FlowEntry,
    FlowKey,
    HeadEntry,
    MemoEntry,
    RunsEntry,
    Tombstone,
    ledger_topic,
    new_author,
)
from heliograph.ledger.entry_codec import decode
from heliograph.ledger.fence import Fence, fence_entry
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LaneRecord
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    Offsets,
    OnExisting,
    StallReason,
    Start,
    StartAt,
    StartBack,
    StartTime,
    TopicId,
    TopicPartition,
)
from heliograph.wire.batch import SEQUENCES, Stamp
from tests.kit.fake_cluster import Asked, FakeCluster
from tests.kit.fake_log import FakeLog
from tests.kit.fake_records import append_foreign, append_own, filler, records_batch
from tests.kit.lane_records import TOPIC, head, runs, start

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PRODUCER = 4_711
ORDERS = TopicPartition(topic=TOPIC, partition=0)
LEDGER = ledger_topic(FLOW.source)
SPEC = Lane(id=LaneId(flow=FLOW, source=ORDERS), target=ORDERS, source_topic_id=None)


@dataclass(frozen=True, slots=True)
class ALane:
    spec: Lane
    source_point: SourcePoint | None = None


@dataclass(slots=True)
class Stage:
    """One lane between two clusters in memory, and its ledger."""

    source: FakeCluster = field(default_factory=lambda: FakeCluster("A"))
    target: FakeCluster = field(default_factory=lambda: FakeCluster("B"))
    has_producer: bool = True
    own_point: SourcePoint | None = None
    """What the lane's slot knows itself."""

    def __post_init__(self) -> None:
        self.source.create(TOPIC)
        self.target.create(TOPIC)
        self.target.create(LEDGER, is_compacted=True)

    @property
    def read(self) -> FakeLog:
        return self.source.log(ORDERS)

    @property
    def written(self) -> FakeLog:
        return self.target.log(ORDERS)

    def own(self, position: int, count: int) -> None:
        append_own(self.written, PRODUCER, position, count)

    def before_third_look(self, change: Callable[[], None]) -> None:
        """The log is asked for its start and its end; then the ledger is read."""
        looks = 0

        def count(asked: Asked) -> None:
            nonlocal looks
            looks += asked == Asked("list_offsets", frozenset({TOPIC}))
            if looks == 3:
                change()

        self.target.before = count

    def break_link(self, request_name: str) -> None:
        def unreachable(asked: Asked) -> None:
            if asked == Asked(request_name, frozenset({TOPIC})):
                raise BrokerUnreachable("cluster B: gone")

        self.target.before = unreachable

    def resume(self, *entries: Entry, spec: Lane = SPEC) -> Found:
        """Where the lane goes on once the ledger holds `entries`."""
        return self.resumed(*entries, spec=spec)[0]

    def resumed(self, *entries: Entry, spec: Lane = SPEC) -> tuple[Found, LaneRecord | None]:
        return asyncio.run(self._resumed(entries, spec))

    async def _resumed(
        self, entries: tuple[Entry, ...], spec: Lane
    ) -> tuple[Found, LaneRecord | None]:
        store = LedgerStore(self.target, LEDGER)
        try:
            if self.has_producer:
                await store.write([_flow_entry(), *entries])
            flow = Flow(FLOW, self.source, self.target, store, FetchLimits())
            lane = ALane(spec, self.own_point)
            found: dict[ALane, Found] = {}
            await find_resume_points(flow, [lane], found.__setitem__)
            await store.catch_up()
            return found[lane], store.view.begun_lane(TOPIC, 0)
        finally:
            await store.close()


def _flow_entry() -> FlowEntry:
    return FlowEntry(
        flow=FLOW,
        producer_id=PRODUCER,
        producer_epoch=0,
        source_cluster_id="there",
        created_ms=1,
    )


@pytest.fixture
def behind_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that ends before what the map says has done so for long enough."""
    monkeypatch.setattr("heliograph.copy.resume.BEHIND_S_MAX", 0.0)


def _corrections(stage: Stage) -> list[RunsEntry]:
    """What the last resume wrote into the ledger."""

    async def read() -> list[RunsEntry]:
        found: list[RunsEntry] = []
        ledger = TopicPartition(topic=LEDGER, partition=0)
        end = stage.target.log(ledger).end
        async for _, batch in read_batches(stage.target, ledger, 0, end):
            for record in DefaultRecordBatch(bytes(batch)):
                entry = decode(record.key or b"", record.value)
                if isinstance(entry, RunsEntry):
                    found.append(entry)
        return found[1:]

    return asyncio.run(read())


def placed(found: Found) -> ResumePoint:
    assert isinstance(found, ResumePoint), found
    return found


def at(found: Found) -> tuple[int, int, int]:
    """Position, source offset and target offset a lane goes on at."""
    cursor = placed(found).cursor
    return cursor.position, cursor.next_offset, cursor.target_offset


def refused(found: Found) -> tuple[StallReason, int]:
    assert isinstance(found, Blocked), found
    return found.reason, found.position


# -- lanes without history


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


# -- lanes with history


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


def test_what_retention_deleted_of_a_forgotten_lane_was_its_own() -> None:
    stage = Stage()
    stage.own(0, 10)
    stage.own(10, 5)
    stage.written.expire_producers()
    stage.written.delete_before(15)

    found = stage.resume(start(), head(10, 10))

    assert at(found) == (15, 15, 15)


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


def test_a_correction_leaves_alone_what_was_written_behind_the_map_it_read() -> None:
    """It may be durable only after a successor resumed and wrote on."""
    stage = Stage()
    stage.own(0, 10)
    append_foreign(stage.written, 3)
    stage.own(10, 5)

    _, record = stage.resumed(start(), runs((12, 14, 12), end_position=14))

    assert record is not None
    (entry,) = _corrections(stage)
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


# -- whether the source still has what was mirrored


def mirrored_ten_of_epoch(stage: Stage, epoch: int) -> HeadEntry:
    """Ten records, of which the source's leader of that epoch wrote the last."""
    append_foreign(stage.read, 8)
    for _ in range(epoch):
        stage.read.elect()
    append_foreign(stage.read, 2)
    stage.own(0, 10)
    return replace(head(10, 10), source_leader_epoch=epoch)


@pytest.mark.parametrize("knows", ["the ledger", "the slot"])
def test_a_source_cut_off_and_grown_again_while_nobody_read_stalls_its_lane(knows: str) -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    stage.read.truncate(8)
    append_foreign(stage.read, 40)
    if knows == "the slot":
        known = replace(known, source_leader_epoch=None)
        stage.own_point = SourcePoint(position=10, next_offset=10, leader_epoch=3)

    found = stage.resume(start(), known)

    assert refused(found) == (StallReason.LOG_TRUNCATED, 10)
    assert isinstance(found, Blocked)
    assert "parts from what was mirrored at offset 8, before 10" in found.detail
    assert (found.source_next_offset, found.source_leader_epoch) == (10, 3)


def test_a_source_with_other_leaders_and_the_same_records_goes_on() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    append_foreign(stage.read, 1)
    stage.read.elect()
    append_foreign(stage.read, 5)

    found = stage.resume(start(), known)

    assert at(found) == (10, 10, 10)
    assert placed(found).cursor.leader_epoch == 3


def test_a_lane_that_came_further_than_its_head_by_another_leader_names_no_epoch() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    stage.read.elect()
    append_foreign(stage.read, 5)
    stage.own(10, 5)

    found = stage.resume(start(), known)

    assert at(found) == (15, 15, 15)
    assert placed(found).cursor.leader_epoch == -1


def test_a_source_that_cannot_tell_about_an_epoch_goes_on() -> None:
    stage = Stage()
    known = replace(mirrored_ten_of_epoch(stage, 3), source_leader_epoch=9)

    found = stage.resume(start(), known)

    assert at(found) == (10, 10, 10)
    assert placed(found).cursor.leader_epoch == -1


def test_a_lane_that_was_sent_elsewhere_since_is_not_held_to_what_it_read_before() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    stage.read.truncate(8)
    append_foreign(stage.read, 40)

    found = stage.resume(start(), known, start(position=10, source=8, target=10))

    assert at(found) == (10, 8, 10)


def test_a_source_that_does_not_answer_for_an_epoch_is_what_its_lane_waits_for() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)

    def unreachable(asked: Asked) -> None:
        if asked.name == "offset_for_leader_epoch":
            raise BrokerUnreachable("cluster A: gone")

    stage.source.before = unreachable

    assert isinstance(stage.resume(start(), known), SourceTrouble)


# -- flows that may not be carried, or not as before


def test_a_lane_of_a_fenced_flow_stalls_and_writes_nothing() -> None:
    stage = Stage()
    append_foreign(stage.read, 60)
    fence = fence_entry(Fence(at_ms=1, why="failed over to B"))
    before = stage.target.log(TopicPartition(topic=LEDGER, partition=0)).end

    found, record = stage.resumed(fence, spec=replace(SPEC, offsets=Offsets.PRESERVE))

    assert found == FlowFenced(why="failed over to B")
    assert record is None, "no start was written"
    assert stage.written.end == 0
    assert stage.target.log(TopicPartition(topic=LEDGER, partition=0)).end == before + 2


def test_clients_records_on_a_fenced_target_are_not_counted_and_the_map_is_not_corrected() -> None:
    stage = Stage()
    stage.own(0, 10)
    append_foreign(stage.written, 3)

    found, record = stage.resumed(start(), fence_entry(Fence(at_ms=1, why="failed over to B")))

    assert isinstance(found, FlowFenced)
    assert record is not None
    assert record.runs.target_offset_at(10) == 10


def test_a_fence_that_cannot_be_read_is_a_fence() -> None:
    found = Stage().resume(start(), MemoEntry(subject="fence", text="{}"))

    assert isinstance(found, FlowFenced)


def test_a_producer_that_was_renewed_counts_from_the_next_resume_on() -> None:
    """A failback replaces the flow's producer while a slot keeps what it knows of the flow."""
    stage = Stage()
    stage.own(0, 10)
    told: list[int] = []

    async def scenario() -> tuple[Found, Found]:
        store = LedgerStore(stage.target, LEDGER)
        try:
            await store.write([_flow_entry(), start()])
            flow = Flow(FLOW, stage.source, stage.target, store, FetchLimits())
            flow.on_new_producer = lambda: told.append(1)
            lane = ALane(SPEC, None)
            found: dict[ALane, Found] = {}
            await find_resume_points(flow, [lane], found.__setitem__)
            first = found[lane]
            append_own(stage.written, PRODUCER + 1, 10, 5)
            await store.write(
                [
                    Tombstone(key=FlowKey(producer_id=PRODUCER)),
                    replace(_flow_entry(), producer_id=PRODUCER + 1),
                ]
            )
            await find_resume_points(flow, [lane], found.__setitem__)
            second = found[lane]
            assert flow.stamp == Stamp(PRODUCER + 1, 0)
            return first, second
        finally:
            await store.close()

    first, second = asyncio.run(scenario())

    assert at(first) == (10, 10, 10)
    assert at(second) == (15, 15, 15)
    assert told == [1]
