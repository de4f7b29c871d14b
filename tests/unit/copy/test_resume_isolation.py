"""What one lane meets when it resumes neither fails nor delays the lanes resumed with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from heliograph.broker.log import read_batches
from heliograph.broker.seed import seed
from heliograph.copy import newborn, resume
from heliograph.copy.chunk import SourcePoint
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Found, ResumePoint
from heliograph.copy.resume import find_resume_points
from heliograph.errors import CorruptBatch, InvariantError
from heliograph.ledger.entries import FlowEntry, ledger_topic
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClusterAlias, FlowId, Lane, LaneId, Offsets, TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader
from tests.kit.entries import head_entry, start_entry
from tests.kit.fake_cluster import FakeCluster
from tests.kit.fake_records import append_foreign, append_own, records_batch

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ORDERS = TopicName("orders")
LEDGER = ledger_topic(FLOW.source)
PRODUCER = 4_711
BAD, GOOD = 0, 1


@dataclass(frozen=True, slots=True)
class ALane:
    spec: Lane
    source_point: SourcePoint | None = None
    sure_position: int | None = None


def place(number: int) -> TopicPartition:
    return TopicPartition(topic=ORDERS, partition=number)


def a_lane(number: int, **changed: object) -> ALane:
    spec = Lane(
        id=LaneId(flow=FLOW, source=place(number)), target=place(number), source_topic_id=None
    )
    return ALane(replace(spec, **changed))  # type: ignore[arg-type]


class Stage:
    """Lanes between two clusters in memory; the target of `BAD` must be read to resume it."""

    def __init__(self) -> None:
        self.source, self.target = FakeCluster("A"), FakeCluster("B")
        for cluster in (self.source, self.target):
            cluster.create(ORDERS, partitions=2)
        self.target.create(LEDGER, is_compacted=True)
        self.begun: tuple[int, ...] = (BAD, GOOD)

    def own_records(self) -> None:
        """Ten records in each, of a producer that the broker has forgotten; the head is at five."""
        for number in self.begun:
            log = self.target.log(place(number))
            append_own(log, PRODUCER, 0, 5)
            append_own(log, PRODUCER, 5, 5)
        self.target.log(place(BAD)).expire_producers()

    async def resume(
        self,
        lanes: list[ALane],
        while_waiting: Callable[[dict[int, Found]], Awaitable[None]] | None = None,
    ) -> dict[int, Found]:
        """By partition; `while_waiting` runs beside it and sees what was reported so far."""
        store = LedgerStore(self.target, LEDGER)
        found: dict[int, Found] = {}

        def report(lane: ALane, place: Found) -> None:
            found[lane.spec.target.partition] = place

        entry = FlowEntry(
            flow=FLOW, producer_id=PRODUCER, producer_epoch=0, source_cluster_id="A", created_ms=1
        )
        heads = [head_entry(ORDERS, number, records=5) for number in self.begun]
        starts = [start_entry(ORDERS, number) for number in self.begun]
        try:
            await store.write([entry, *starts, *heads])
            flow = Flow(FLOW, self.source, self.target, store, FetchLimits())
            working = asyncio.create_task(find_resume_points(flow, lanes, report))
            if while_waiting is not None:
                await while_waiting(found)
            await working
            return found
        finally:
            await store.close()


def test_a_target_log_that_cannot_be_read_stalls_its_own_lane_only() -> None:
    stage = Stage()
    stage.own_records()
    rotten = bytearray(records_batch(10))
    rotten[-1] ^= 1
    stage.target.log(place(BAD)).hold([bytes(rotten)])

    found = asyncio.run(stage.resume([a_lane(BAD), a_lane(GOOD)]))

    assert isinstance(found[BAD], CorruptBatch)
    assert "orders-0, which is the target" in str(found[BAD])
    assert isinstance(found[GOOD], ResumePoint)


def test_a_bug_met_by_one_lane_is_that_lanes_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    stage = Stage()
    stage.own_records()
    monkeypatch.setattr(resume, "_scan_log", broken)

    found = asyncio.run(stage.resume([a_lane(BAD), a_lane(GOOD)]))

    assert isinstance(found[BAD], InvariantError)
    assert isinstance(found[GOOD], ResumePoint)
    assert "a bug of ours" in caplog.text


def test_a_long_scan_keeps_no_other_lane_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    done = asyncio.Event()

    async def slowly(*args: Any) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        await done.wait()
        async for each in read_batches(*args):
            yield each

    async def until_the_other_is_there(found: dict[int, Found]) -> None:
        while GOOD not in found:
            await asyncio.sleep(0)
        assert BAD not in found
        done.set()

    stage = Stage()
    stage.own_records()
    monkeypatch.setattr(resume, "read_batches", slowly)

    async def both() -> dict[int, Found]:
        async with asyncio.timeout(10):
            return await stage.resume([a_lane(BAD), a_lane(GOOD)], until_the_other_is_there)

    found = asyncio.run(both())

    assert isinstance(found[BAD], ResumePoint)
    assert isinstance(found[GOOD], ResumePoint)


def test_a_lane_that_is_seeded_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    done = asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> int:
        await done.wait()
        return await seed(*args, **options)

    async def until_the_other_is_there(found: dict[int, Found]) -> None:
        while GOOD not in found:
            await asyncio.sleep(0)
        assert BAD not in found
        done.set()

    stage = Stage()
    stage.begun = ()
    for number in (BAD, GOOD):
        append_foreign(stage.source.log(place(number)), 60)
        stage.source.log(place(number)).delete_before(57)
    monkeypatch.setattr(newborn, "seed", slowly)

    async def both() -> dict[int, Found]:
        lanes = [a_lane(BAD, offsets=Offsets.PRESERVE), a_lane(GOOD)]
        async with asyncio.timeout(10):
            return await stage.resume(lanes, until_the_other_is_there)

    found = asyncio.run(both())

    offsets = {n: place.cursor.target_offset for n, place in found.items()}  # type: ignore[union-attr]
    assert offsets == {BAD: 57, GOOD: 0}
