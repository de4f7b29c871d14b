"""What a driver decides in a ledger, and how long it waits for one."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from heliograph.errors import BrokerUnreachable
from heliograph.ledger.access import LedgerAccess, within
from heliograph.ledger.entries import Entry, FlowEntry, StartEntry, ledger_topic
from heliograph.ledger.new_starts import Overrun
from heliograph.ledger.view import LaneRecord
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Idle,
    Lane,
    LaneId,
    LaneProgress,
    OffsetRange,
    TopicPartition,
)
from tests.kit.fake_cluster import Asked, FakeCluster
from tests.kit.fake_records import append_own
from tests.kit.lane_records import TOPIC, start

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PRODUCER = 4_711
AT = TopicPartition(topic=TOPIC, partition=0)
LANE = Lane(id=LaneId(flow=FLOW, source=AT), target=AT, source_topic_id=None)
LOST = OffsetRange(start=10, end=30)


@dataclass(slots=True)
class Decision:
    """A lane of ten records that lost the next twenty, and a driver that gives those up."""

    target: FakeCluster = field(default_factory=FakeCluster)
    late_records: int = 0
    """Of what the lane had next, appended by a slot that was given up, once the start is there."""

    def decide(self, *entries: Entry) -> tuple[bool, LaneRecord]:
        self.target.create(TOPIC)
        self.target.create(ledger_topic(FLOW.source), is_compacted=True)
        append_own(self.target.log(AT), PRODUCER, 0, 10)
        return asyncio.run(self._decide(entries))

    async def _decide(self, entries: tuple[Entry, ...]) -> tuple[bool, LaneRecord]:
        access = LedgerAccess({})
        access._clusters._opened[FLOW.target, "producer"] = self.target
        try:
            await access.note(FLOW, [_flow_entry(), *entries])
            self.target.before = self._append_late
            (stands,) = await access.skip(FLOW, [Overrun(lane=LANE, at=_progress(), lost=LOST)])
            record = (await access.view(FLOW)).begun_lane(TOPIC, 0)
        finally:
            await access.close()
        assert record is not None
        assert isinstance(stands, bool)
        return stands, record

    def _append_late(self, asked: Asked) -> None:
        if asked.name == "describe_producers" and self.late_records:
            append_own(self.target.log(AT), PRODUCER, 10, self.late_records)


def _flow_entry() -> FlowEntry:
    return FlowEntry(
        flow=FLOW, producer_id=PRODUCER, producer_epoch=0, source_cluster_id="", created_ms=1
    )


def _progress() -> LaneProgress:
    return LaneProgress(
        lane=LANE.id,
        state=Idle(),
        position=10,
        source_next_offset=10,
        source_end_offset=50,
        source_start_offset=30,
        target_next_offset=10,
    )


def test_what_is_given_up_is_counted_and_the_lane_goes_on_behind_it() -> None:
    stands, record = Decision().decide(start())

    assert stands
    assert [loss.lost for loss in record.losses] == [LOST]
    assert record.runs.source_offset_at(10) == 30


@pytest.mark.parametrize("before", [start(), start(position=10, source=10, target=10)])
def test_a_start_is_taken_back_where_the_log_went_on_by_itself(before: StartEntry) -> None:
    """A slot that was given up had sent the next three records before they were deleted: the
    position behind them is not three records behind what was given up."""
    first = [start()] if before.position else []

    stands, record = Decision(late_records=3).decide(*first, before)

    assert not stands
    assert record.losses == ()
    assert record.runs.source_offset_at(13) == 13
    assert record.starts[-1] == before


def test_many_lanes_are_decided_on_with_as_many_requests_as_one() -> None:
    asked = [_asked_for(lanes) for lanes in (1, 50)]

    assert asked[0] == asked[1]
    assert asked[0]["produce"] == asked[0]["describe_producers"] == 1


def _asked_for(count: int) -> Counter[str]:
    """The requests that it takes to give up records of so many lanes."""
    target = FakeCluster()
    target.create(TOPIC, count)
    target.create(ledger_topic(FLOW.source), is_compacted=True)
    wanted = []
    for number in range(count):
        at = replace(AT, partition=number)
        lane = replace(LANE, id=replace(LANE.id, source=at), target=at)
        wanted.append(Overrun(lane=lane, at=replace(_progress(), lane=lane.id), lost=LOST))

    async def decide() -> Counter[str]:
        access = LedgerAccess({})
        access._clusters._opened[FLOW.target, "producer"] = target
        try:
            await access.note(FLOW, [_flow_entry()])
            await access.view(FLOW)
            target.asked.clear()
            assert await access.skip(FLOW, wanted) == [True] * count
            return Counter(asked.name for asked in target.asked)
        finally:
            await access.close()

    return asyncio.run(decide())


def test_an_answer_in_time_is_given() -> None:
    assert asyncio.run(within(asyncio.sleep(0, "answer"), 10.0, "cluster A")) == "answer"


def test_no_answer_in_time_is_a_cluster_that_cannot_be_reached() -> None:
    with pytest.raises(BrokerUnreachable) as refused:
        asyncio.run(within(asyncio.sleep(60), 0.05, "cluster A"))

    assert str(refused.value) == "cluster A: no answer in 0.05 s"
