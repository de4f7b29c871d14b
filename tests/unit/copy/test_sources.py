"""One lane's trouble on the source side stays its own."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.broker.cluster import EARLIEST, Leader
from heliograph.config.registry import RegistryConfig
from heliograph.config.transforms import TransformConfig
from heliograph.copy import sources
from heliograph.copy.events import SourceBlocked, SourceEvent, SourceFailed, SourceRefreshed
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running, Stop
from heliograph.copy.sources import SourceSide
from heliograph.errors import LeaderMoved, WireError
from heliograph.model import OffsetRange, StallReason, TopicName, TopicPartition
from heliograph.wire.fetch import FetchedPartition
from tests.kit.batches import Record, batch_of
from tests.unit.copy.kit import OfferedTargets, QuietSlot, carried_lane, running_at
from tests.unit.copy.lanes import CountedCluster, lanes_of
from tests.unit.transform import functions


class Side(SourceSide):
    """Reports to a list."""

    def __init__(self) -> None:
        self.events: list[SourceEvent] = []
        self.slot = QuietSlot()
        self.targets = OfferedTargets(self.slot)
        super().__init__(self.slot, lambda _, event: self.events.append(event), self.targets)

    @property
    def stops(self) -> list[Stop]:
        return [event.stop for event in self.events if isinstance(event, SourceBlocked)]


class LogFromTenToTwenty:
    async def list_offsets(
        self, partitions: list[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10 if at == EARLIEST else 20)


def running_lane(offset: int = 0) -> tuple[CarriedLane, Running]:
    lane = carried_lane()
    running = running_at(lane, offset)
    lane.enter(running)
    return lane, running


def answer(records: bytes, *, diverging_end_offset: int = -1, code: int = 0) -> FetchedPartition:
    view = memoryview(bytearray(records))
    return FetchedPartition((b"", 0), code, 9, 9, 0, (), diverging_end_offset, view)


def test_a_bug_met_while_a_chunk_is_prepared_stalls_the_lane_and_not_the_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(sources, "prepare_chunk", broken)
    side, (lane, running) = Side(), running_lane()

    with caplog.at_level(logging.ERROR):
        side.fetched(lane, running, answer(b"x" * 80))

    assert [(stop.reason, stop.detail) for stop in side.stops] == [
        (StallReason.BUG, "ZeroDivisionError: a bug of ours")
    ]
    assert side.stops[0].retry_s is not None


def test_a_batch_that_is_corrupt_twice_stalls_its_lane_and_is_never_forwarded() -> None:
    bad = bytearray(batch_of(Record(offset=0), base_offset=0))
    bad[-1] ^= 1
    side, (lane, running) = Side(), running_lane()

    side.fetched(lane, running, answer(bytes(bad)))
    stops_after_once = list(side.stops)
    side.fetched(lane, running, answer(bytes(bad)))

    assert stops_after_once == []
    assert [stop.reason for stop in side.stops] == [StallReason.CORRUPT_BATCH]
    assert "offset 0" in side.stops[0].detail
    assert side.targets.offered == []
    assert not running.outgoing


def test_a_log_that_parts_from_what_was_mirrored_stalls_until_an_operator_decides() -> None:
    side, (lane, running) = Side(), running_lane(9)

    side.fetched(lane, running, answer(b"", diverging_end_offset=4))

    assert [(stop.reason, stop.retry_s) for stop in side.stops] == [
        (StallReason.LOG_TRUNCATED, None)
    ]


def test_a_leader_that_only_forgot_an_epoch_is_asked_again_without_it() -> None:
    side, (lane, running) = Side(), running_lane(9)
    running.cursor.leader_epoch = 5

    side.fetched(lane, running, answer(b"", diverging_end_offset=9))

    assert side.events == []
    assert running.cursor.leader_epoch == -1


def test_an_offset_out_of_range_inside_the_log_is_asked_for_again_without_its_epoch() -> None:
    side, (lane, running) = Side(), running_lane(15)
    running.cursor.leader_epoch = 5
    lane.flow.source = LogFromTenToTwenty()  # type: ignore[assignment]

    asyncio.run(side._look_out_of_range(lane, running))

    (event,) = side.events
    assert isinstance(event, SourceFailed)
    assert running.cursor.leader_epoch == -1


def test_a_source_that_answers_nonsense_about_an_offset_out_of_range_stalls_one_lane() -> None:
    class Odd(LogFromTenToTwenty):
        async def list_offsets(
            self, partitions: list[TopicPartition], at: int
        ) -> dict[TopicPartition, int]:
            raise WireError("its answer to request 2 cannot be read")

    side, (lane, running) = Side(), running_lane(15)
    lane.flow.source = Odd()  # type: ignore[assignment]

    asyncio.run(side._look_out_of_range(lane, running))

    assert [type(event) for event in side.events] == [SourceFailed]


def test_a_source_without_topic_ids_is_a_lanes_trouble_and_does_not_end_the_slot() -> None:
    side, (lane, running) = Side(), running_lane()
    lane.spec = replace(lane.spec, source_topic_id=None)
    lane.flow.source.topic = lambda name: None  # type: ignore[method-assign]

    side.attach(lane, running)

    (event,) = side.events
    assert isinstance(event, SourceFailed)
    assert "Kafka 3.1" in str(event.error)


def test_an_error_code_is_reported_and_nothing_is_learned_of_the_log() -> None:
    side, (lane, running) = Side(), running_lane()

    side.fetched(lane, running, answer(b"", code=6))

    (event,) = side.events
    assert isinstance(event, SourceFailed)
    assert isinstance(event.error, LeaderMoved)
    assert event.running is running
    assert lane.source_seen.end_offset == -1


def test_a_fetch_too_small_for_one_batch_is_followed_by_a_larger_one() -> None:
    side, (lane, running) = Side(), running_lane()
    whole = bytes(batch_of(Record(offset=0), base_offset=0))
    asked = lane.learned.fetch_bytes

    side.fetched(lane, running, answer(whole[:-1]))
    side.fetched(lane, running, answer(whole))

    assert lane.learned.fetch_bytes == 2 * asked
    assert len(running.outgoing) == 1


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [(3, StallReason.RETENTION_OVERRUN), (30, StallReason.LOG_TRUNCATED)],
)
def test_an_offset_out_of_range_is_told_apart_as_deleted_or_cut_off(
    wanted: int, reason: StallReason
) -> None:
    side, (lane, running) = Side(), running_lane(wanted)
    lane.flow.source = LogFromTenToTwenty()  # type: ignore[assignment]

    asyncio.run(side._out_of_range(lane, running))

    (stop,) = side.stops
    assert (stop.reason, stop.retry_s) == (reason, None)
    lost = OffsetRange(start=3, end=10) if reason is StallReason.RETENTION_OVERRUN else None
    assert stop.lost == lost


def test_flows_of_one_source_partition_fetch_it_each_with_their_own_sizes() -> None:
    small = FetchLimits(bytes_max=1000)
    lanes = [carried_lane(), carried_lane(small, target="C"), carried_lane(target="D")]
    side = Side()

    for lane in lanes:
        side.attach(lane, running_at(lane))

    streams = [side._attached[lane.spec.id].streams for lane in lanes]
    assert [stream.lanes for stream in streams] == [(lane,) for lane in lanes]
    assert [stream._limits for stream in streams] == [FetchLimits(), small, FetchLimits()]
    assert side.slot.spawned == 3


def test_a_lane_that_leaves_its_slot_is_not_fetched_again() -> None:
    side, (lane, running) = Side(), running_lane()
    lane.retiring = True

    side.attach(lane, running)

    assert side._attached == {}


def test_lanes_that_lost_their_broker_together_cost_two_looks_at_the_metadata() -> None:
    cluster = CountedCluster()
    lanes = lanes_of(2_000, cluster)

    async def lose_broker() -> list[SourceEvent]:
        side = Side()
        side.slot.spawn = lambda work: asyncio.ensure_future(work)  # type: ignore[assignment]
        side.reattach(*lanes[0])
        await asyncio.sleep(0)
        for each in lanes[1:]:
            side.reattach(*each)
        while len(side.events) < len(lanes):
            await asyncio.sleep(0)
        return side.events

    events = asyncio.run(lose_broker())

    assert {type(event) for event in events} == {SourceRefreshed}
    assert len(cluster.looks) == 2


@pytest.mark.parametrize("moved_to", [Leader(broker=2, epoch=1), Leader(broker=1, epoch=1)])
def test_a_lane_follows_its_leader_though_the_one_it_reads_from_still_answers(
    moved_to: Leader,
) -> None:
    cluster = CountedCluster()
    ((lane, running),) = lanes_of(1, cluster)

    async def move() -> list[Leader]:
        side = Side()
        side.attach(lane, running)
        cluster.at = moved_to
        following = asyncio.create_task(side.follow_leaders(lane.flow))
        while not cluster.looks:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        following.cancel()
        return [each.leader for each in side._attached.values()]

    assert asyncio.run(move()) == [moved_to]
    assert cluster.looks[0] == {TopicName("orders")}


def test_a_fetch_names_the_epoch_of_the_leader_it_is_meant_for() -> None:
    cluster = CountedCluster()
    cluster.at = Leader(broker=1, epoch=7)
    ((lane, running),) = lanes_of(1, cluster)
    side = Side()

    side.attach(lane, running)

    (stream,) = side._attached[lane.spec.id].streams._streams
    wanted, _ = stream._session_changes()
    assert [start.leader_epoch for start in wanted.values()] == [7]


def test_records_of_a_lane_that_lags_do_not_keep_the_whole_answer_in_memory() -> None:
    side, (lane, running) = Side(), running_lane()
    views = []
    for offset in range(2):
        batch = batch_of(Record(offset=offset), base_offset=offset)
        whole = bytearray(1_000_000)
        whole[100 : 100 + len(batch)] = batch
        part = memoryview(whole)[100 : 100 + len(batch)]
        side.fetched(lane, running, replace(answer(b""), records=part))
        views.append(running.outgoing[-1].view)

    kept = [len(view.obj) for view in views]  # type: ignore[arg-type]
    assert kept[0] == 1_000_000
    assert kept[1] == len(views[1])


def test_a_lane_goes_to_the_replica_its_leader_names_and_back_when_that_fails() -> None:
    cluster = CountedCluster()
    ((lane, running),) = lanes_of(1, cluster)
    lane.enter(running)
    side, read_from = Side(), list[int]()
    side.attach(lane, running)
    not_a_replica = answer(b"", code=6)

    for said in (replace(answer(b""), read_replica=3), not_a_replica):
        side.fetched(lane, running, said)
        key = next(key for key, at in side._streams.items() if lane in at.lanes)
        read_from.append(key[1])

    assert read_from == [3, 1]
    assert side.events == []  # none of it is the lane's trouble


def transforming_lane(function: str, **limits: Any) -> tuple[CarriedLane, Running]:
    lane, running = running_lane()
    path = f"tests.unit.transform.functions:{function}"
    config = TransformConfig(name="t", kind="columns", function=path)
    nowhere = SimpleNamespace(registry=RegistryConfig())
    lane.flow.source = lane.flow.target = nowhere  # type: ignore[assignment]
    lane.flow.carry_by(FetchLimits(transforms=(config,), **limits))
    return lane, running


@pytest.mark.parametrize("fate", ["stall", "skip", "dead-letter"])
def test_a_function_that_is_not_there_stalls_its_lane_whatever_the_policy(fate: str) -> None:
    """To skip everything is hardly ever meant."""
    side = Side()
    lane, running = transforming_lane("nowhere", on_transform_error=fate)

    side.fetched(lane, running, answer(bytes(batch_of(Record(offset=0), base_offset=0))))

    assert [stop.reason for stop in side.stops] == [StallReason.TRANSFORM_FAILED]
    assert "transform t: " in side.stops[0].detail and "nowhere" in side.stops[0].detail
    assert side.stops[0].retry_s is not None
    assert running.cursor.next_offset == 0 and not running.outgoing


def test_a_function_that_hangs_holds_up_nobody_and_its_lane_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = answer(bytes(batch_of(Record(offset=0, value=b"bad"), base_offset=0)))
    good = answer(bytes(batch_of(Record(offset=0), base_offset=0)))
    monkeypatch.setattr(sources, "WAIT_HIDDEN_S", 0.15)
    monkeypatch.setattr("heliograph.transform.at_work.GRACE_S", 0.02)
    functions.never.clear()
    side, (hung, hung_running) = Side(), transforming_lane("hangs_on_bad")
    fine, fine_running = running_lane()
    began_s = time.monotonic()

    try:
        side.fetched(hung, hung_running, bad)
        side.fetched(fine, fine_running, good)
        took_s, stops = time.monotonic() - began_s, list(side.stops)
        time.sleep(0.2)
        side.fetched(hung, hung_running, bad)
    finally:
        functions.never.set()

    assert took_s < 5
    assert (stops, hung_running.cursor.next_offset, fine_running.cursor.next_offset) == ([], 0, 1)
    assert [stop.reason for stop in side.stops] == [StallReason.TRANSFORM_FAILED]
    assert "offset 0: transform t has been at work for" in side.stops[0].detail
