"""What one connection to a target does with the lanes it carries, without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.broker.connection import OnAnswer
from heliograph.copy.appending import AppendStream
from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running
from heliograph.errors import MirrorError, WireError
from heliograph.wire.produce import PRODUCE_VERSION_MIN, ProducedPartition
from tests.unit.copy.kit import carried_lane, chunk, running_at


class FakeConnection:
    """Keeps what is sent; a test answers it."""

    closed = False
    is_due = False

    def close(self) -> None:
        self.closed = True

    def __init__(self, error: Exception | None = None) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self.sent: list[OnAnswer] = []
        self._error = error

    def version_of(self, api_key: int, lowest: int, highest: int) -> int:
        if self._error is not None:
            raise self._error
        return PRODUCE_VERSION_MIN

    async def until_drained(self) -> None:
        await asyncio.Event().wait()

    def send(self, api_key: int, version: int, parts: Any, on_answer: OnAnswer) -> None:
        self.sent.append(on_answer)


class FakeCluster:
    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection

    async def connection(self, broker: int, purpose: str) -> FakeConnection:
        return self._connection


class Reports:
    def __init__(self) -> None:
        self.failures: list[tuple[CarriedLane, MirrorError]] = []
        self.lost: list[tuple[CarriedLane, MirrorError]] = []

    def answered(
        self,
        lane: CarriedLane,
        running: Running,
        batch: OutgoingBatch,
        row: ProducedPartition | None,
    ) -> None:
        raise AssertionError("nothing is answered here")

    def unanswered(
        self, lane: CarriedLane, running: Running, batch: OutgoingBatch, error: MirrorError
    ) -> None:
        self.lost.append((lane, error))

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        self.failures.append((lane, error))


def waiting_lane() -> CarriedLane:
    lane = carried_lane()
    running = running_at(lane)
    lane.enter(running)
    lane.enqueue(running, chunk(running), [], 0)
    return lane


async def _pumped(connection: FakeConnection, lane: CarriedLane) -> Reports:
    reports = Reports()
    stream = AppendStream(FakeCluster(connection), 1, 0, reports)  # type: ignore[arg-type]
    stream.offer(lane)
    stream.pump()
    for _ in range(3):
        await asyncio.sleep(0)
    return reports


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(WireError("too old"), "too old", id="a broker that is too old"),
        pytest.param(KeyError("x"), "KeyError: 'x'", id="a bug"),
    ],
)
def test_a_connection_that_cannot_be_used_leaves_nothing_in_flight(
    error: Exception, told: str
) -> None:
    lane = waiting_lane()

    reports = asyncio.run(_pumped(FakeConnection(error), lane))

    assert [(of, str(why)) for of, why in reports.failures] == [(lane, told)]
    assert lane.in_flight == 0
    assert not lane.queued


@pytest.mark.parametrize(("one_at_a_time", "batches"), [(True, [1]), (False, [2])])
def test_suspected_lanes_are_sent_one_at_a_time(one_at_a_time: bool, batches: list[int]) -> None:
    lanes, connection = [waiting_lane(), waiting_lane()], FakeConnection()

    async def pump() -> list[int]:
        stream = AppendStream(
            FakeCluster(connection),  # type: ignore[arg-type]
            1,
            0,
            Reports(),
            one_at_a_time=one_at_a_time,
        )
        for lane in lanes:
            stream.offer(lane)
        stream.pump()
        for _ in range(3):
            await asyncio.sleep(0)
        return [sum(lane.in_flight for lane in lanes)] * len(connection.sent)

    assert asyncio.run(pump()) == batches


def test_a_lane_that_lost_its_connection_is_told_once() -> None:
    lane, connection = waiting_lane(), FakeConnection()

    async def lose() -> Reports:
        reports = await _pumped(connection, lane)
        (answer,) = connection.sent
        answer(ConnectionResetError("gone"))
        return reports

    reports = asyncio.run(lose())

    assert [(of, str(why)) for of, why in reports.lost] == [(lane, "gone")]
    assert reports.failures == []
    assert lane.in_flight == 0


def test_a_connection_that_is_due_is_left_once_nothing_is_on_its_way() -> None:
    lane, first, second = waiting_lane(), FakeConnection(), FakeConnection()
    later = waiting_lane()

    async def outlast() -> list[tuple[bool, int]]:
        cluster = FakeCluster(first)
        stream = AppendStream(cluster, 1, 0, Reports())  # type: ignore[arg-type]
        stream.offer(lane)
        stream.pump()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.is_due, cluster._connection = True, second
        stream.offer(later)
        stream.pump()
        seen = [(first.closed, len(first.sent))]
        first.sent[0](ConnectionResetError("answered, in a way"))
        stream.pump()
        for _ in range(3):
            await asyncio.sleep(0)
        return [*seen, (first.closed, len(second.sent))]

    assert asyncio.run(outlast()) == [(False, 1), (True, 1)]
