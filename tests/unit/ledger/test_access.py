"""What a driver decides in a ledger, and how long it waits for one."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.ledger.access import LedgerAccess, within
from heliograph.ledger.entries import FlowEntry, ledger_topic
from heliograph.ledger.new_starts import Overrun, decided_start
from heliograph.ledger.view import LedgerView
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
from tests.kit.fake_cluster import FakeCluster
from tests.kit.lane_records import TOPIC, start

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PRODUCER = 4_711
AT = TopicPartition(topic=TOPIC, partition=0)
LANE = Lane(id=LaneId(flow=FLOW, source=AT), target=AT, source_topic_id=None)
LOST = OffsetRange(start=10, end=30)


def _flow_entry() -> FlowEntry:
    return FlowEntry(
        flow=FLOW, producer_id=PRODUCER, producer_epoch=0, source_cluster_id="", created_ms=1
    )


def _target(partitions: int) -> FakeCluster:
    target = FakeCluster()
    target.create(TOPIC, partitions)
    target.create(ledger_topic(FLOW.source), is_compacted=True)
    return target


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


def test_what_is_given_up_is_noted_for_the_slots_and_changes_nothing_by_itself() -> None:
    """They have seen where the lane stands when they begin it; the driver has not."""
    target = _target(1)

    async def decide() -> tuple[list[BrokerError | None], LedgerView]:
        access = LedgerAccess({})
        access._clusters._opened[FLOW.target, "producer"] = target
        try:
            await access.note(FLOW, [_flow_entry(), start()])
            answers = await access.skip(FLOW, [Overrun(lane=LANE, at=_progress(), lost=LOST)])
            return answers, await access.view(FLOW)
        finally:
            await access.close()

    answers, view = asyncio.run(decide())

    record = view.begun_lane(TOPIC, 0)
    assert answers == [None]
    assert record is not None
    assert (len(record.starts), record.losses) == (1, ())
    found = decided_start(view, LANE, record, 10)
    assert found is not None
    assert (found.source_offset, found.lost) == (30, LOST)
    assert decided_start(view, LANE, record, 11) is None


def test_a_lane_that_the_ledger_does_not_know_is_not_decided_on_and_the_others_are() -> None:
    unknown = replace(LANE, id=replace(LANE.id, source=replace(AT, partition=7)))
    target = _target(1)

    async def decide() -> list[BrokerError | None]:
        access = LedgerAccess({})
        access._clusters._opened[FLOW.target, "producer"] = target
        try:
            await access.note(FLOW, [_flow_entry(), start()])
            wanted = [Overrun(lane=each, at=_progress(), lost=LOST) for each in (unknown, LANE)]
            return await access.skip(FLOW, wanted)
        finally:
            await access.close()

    refused, decided = asyncio.run(decide())

    assert str(refused) == "A->B/orders-7: the ledger has no start of it"
    assert decided is None


def test_many_lanes_are_decided_on_with_as_many_requests_as_one() -> None:
    asked = [_asked_for(lanes) for lanes in (1, 50)]

    assert asked[0] == asked[1]
    assert asked[0]["produce"] == 1


def _asked_for(count: int) -> Counter[str]:
    """The requests that it takes to give up records of so many lanes."""
    target, wanted, starts = _target(count), [], []
    for number in range(count):
        at = replace(AT, partition=number)
        lane = replace(LANE, id=replace(LANE.id, source=at), target=at)
        wanted.append(Overrun(lane=lane, at=replace(_progress(), lane=lane.id), lost=LOST))
        starts.append(replace(start(), partition=number))

    async def decide() -> Counter[str]:
        access = LedgerAccess({})
        access._clusters._opened[FLOW.target, "producer"] = target
        try:
            await access.note(FLOW, [_flow_entry(), *starts])
            await access.view(FLOW)
            target.asked.clear()
            assert await access.skip(FLOW, wanted) == [None] * count
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
