"""One lane's trouble on the source side stays its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from heliograph.broker.cluster import EARLIEST, Leader, Topic
from heliograph.copy import sources
from heliograph.copy.chunk import PreparedChunk
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.sources import SourceSide
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    OffsetRange,
    StallReason,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.wire.batch import Stamp
from heliograph.wire.fetch import FetchedPartition
from tests.kit.batches import Record, batch_of

TOPIC_ID = TopicId("0c12b63f-6f93-41ba-bebd-37dfba57c4d4")


class Recorded:
    """Stands in for the shuttle: a broker cannot be made to trigger our own bug."""

    def __init__(self) -> None:
        self.stalls: list[tuple[StallReason, str, float | None]] = []

    def stall(
        self,
        lane: CarriedLane,
        reason: StallReason,
        detail: str,
        *,
        retry_s: float | None,
        lost: OffsetRange | None = None,
    ) -> None:
        self.stalls.append((reason, detail, retry_s))

    def kept(self, more_bytes: int) -> None:
        """Nothing is bounded here."""


class Swallowed:
    """Stands in for the target side; what reaches it would have been forwarded."""

    def __init__(self) -> None:
        self.batches = 0

    def take(self, lane: CarriedLane, layout: PreparedChunk) -> int:
        self.batches += len(layout.batches)
        return 0


def test_a_bug_met_while_laying_out_stalls_the_lane_and_not_the_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(sources, "prepare_chunk", broken)
    fates = Recorded()
    lane = carried_lane()
    side = SourceSide(fates, None, asyncio.Event())  # type: ignore[arg-type]

    with caplog.at_level(logging.ERROR):
        side._fetched(lane, FetchedPartition((b"", 0), 0, 9, 9, 0, (), -1, memoryview(b"x" * 80)))

    assert [(reason, detail) for reason, detail, _ in fates.stalls] == [
        (StallReason.BUG, "ZeroDivisionError: a bug of ours")
    ]
    assert fates.stalls[0][2] is not None


def answer(records: bytes, *, diverging_end_offset: int = -1) -> FetchedPartition:
    view = memoryview(bytearray(records))
    return FetchedPartition((b"", 0), 0, 9, 9, 0, (), diverging_end_offset, view)


def test_a_batch_that_is_corrupt_twice_stalls_its_lane_and_is_never_forwarded() -> None:
    bad = bytearray(batch_of(Record(offset=0), base_offset=0))
    bad[-1] ^= 1
    fates, target, lane = Recorded(), Swallowed(), carried_lane()
    side = SourceSide(fates, target, asyncio.Event())  # type: ignore[arg-type]

    side._fetched(lane, answer(bytes(bad)))
    stalls_after_once = list(fates.stalls)
    side._fetched(lane, answer(bytes(bad)))

    assert stalls_after_once == []
    assert [reason for reason, _, _ in fates.stalls] == [StallReason.CORRUPT_BATCH]
    assert "offset 0" in fates.stalls[0][1]
    assert target.batches == 0


def test_a_log_that_parts_from_what_was_mirrored_stalls_until_somebody_decides() -> None:
    fates, target, lane = Recorded(), Swallowed(), carried_lane()
    side = SourceSide(fates, target, asyncio.Event())  # type: ignore[arg-type]

    side._fetched(lane, answer(b"", diverging_end_offset=4))

    assert [(reason, retry_s) for reason, _, retry_s in fates.stalls] == [
        (StallReason.LOG_TRUNCATED, None)
    ]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [(3, StallReason.RETENTION_OVERRUN), (30, StallReason.LOG_TRUNCATED)],
)
def test_an_offset_out_of_range_is_told_apart_as_deleted_or_cut_off(
    wanted: int, reason: StallReason
) -> None:
    class Source:
        """A log from 10 to 20."""

        async def list_offsets(
            self, partitions: list[TopicPartition], at: int
        ) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 10 if at == EARLIEST else 20)

    fates, lane = Recorded(), carried_lane()
    lane.flow.source = Source()  # type: ignore[assignment]
    lane.cursor.next_offset = wanted
    side = SourceSide(fates, Swallowed(), asyncio.Event())  # type: ignore[arg-type]

    asyncio.run(side._out_of_range(lane))

    assert [(found, retry_s) for found, _, retry_s in fates.stalls] == [(reason, None)]


def test_flows_of_one_source_partition_fetch_it_each_with_their_own_sizes() -> None:
    class Source:
        alias = ClusterAlias("A")

        def topic(self, name: TopicName) -> Topic:
            return Topic(id=TOPIC_ID, leaders={}, partition_count=1)

        def leader(self, partition: TopicPartition) -> Leader:
            return Leader(broker=1, epoch=0)

    class Spawning(Recorded):
        def spawn(self, work: Coroutine[Any, Any, None]) -> None:
            work.close()

    small = FetchLimits(bytes_max=1000)
    lanes = [carried_lane(), carried_lane(small, target="C"), carried_lane(target="D")]
    for lane in lanes:
        lane.flow.source = Source()  # type: ignore[assignment]
    side = SourceSide(Spawning(), None, asyncio.Event())  # type: ignore[arg-type]

    for lane in lanes:
        side.attach(lane)

    streams = [side._stream_of[lane.spec.id] for lane in lanes]
    assert [stream.lanes for stream in streams] == [(lane,) for lane in lanes]
    assert [stream._limits for stream in streams] == [FetchLimits(), small, FetchLimits()]


def carried_lane(limits: FetchLimits | None = None, target: str = "B") -> CarriedLane:
    flow_id = FlowId(source=ClusterAlias("A"), target=ClusterAlias(target))
    flow = Flow(flow_id, None, None, None, limits or FetchLimits())  # type: ignore[arg-type]
    flow.stamp = Stamp(1, 0)
    partition = TopicPartition(topic=TopicName("orders"), partition=0)
    spec = Lane(
        id=LaneId(flow=flow_id, source=partition),
        target=partition,
        source_topic_id=TOPIC_ID,
    )
    return CarriedLane(spec, flow)
