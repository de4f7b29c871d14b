"""Where a lane goes on whose flow may not be carried, or not as before."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import FlowFenced, Found, ResumePoint
from heliograph.copy.resume import find_resume_points
from heliograph.ledger.entries import FlowKey, MemoEntry, Tombstone
from heliograph.ledger.fence import Fence, fence_entry, topic_fence_entry
from heliograph.ledger.store import LedgerStore
from heliograph.model import Offsets, TopicName, TopicPartition
from heliograph.wire.batch import Stamp
from tests.kit.fake_records import append_foreign, append_own
from tests.kit.lane_records import start
from tests.unit.copy.resume_kit import FLOW, LEDGER, PRODUCER, SPEC, ALane, Stage, at, flow_entry


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


def test_a_lane_of_a_fenced_topic_stalls_and_those_of_other_topics_go_on() -> None:
    fenced, other = Stage(), Stage()
    append_foreign(fenced.read, 60)
    append_foreign(other.read, 60)
    fence = Fence(at_ms=1, why="failed over alone", id="f1")

    found, record = fenced.resumed(topic_fence_entry(SPEC.id.source.topic, fence))
    goes_on = other.resume(topic_fence_entry(TopicName("another"), fence))

    assert found == FlowFenced(why="failed over alone")
    assert record is None, "no start was written"
    assert fenced.written.end == 0
    assert isinstance(goes_on, ResumePoint)


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
            await store.write([flow_entry(), start()])
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
                    replace(flow_entry(), producer_id=PRODUCER + 1),
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
