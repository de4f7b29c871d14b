"""What one connection to a target does with the lanes it carries, without a broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from heliograph.broker.connection import OnAnswer
from heliograph.broker.round_trip import RoundTrip
from heliograph.broker.traffic import Traffic
from heliograph.copy import appending, pace
from heliograph.copy.appending import AppendStream
from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running
from heliograph.errors import MirrorError, WireError
from heliograph.model import TopicName, TopicPartition
from heliograph.wire.produce import PRODUCE_VERSION_MIN, ProducedPartition
from tests.unit.copy.kit import carried_lane, chunk, running_at


class FakeConnection:
    """Keeps what is sent; a test answers it."""

    closed = False
    is_due = False
    answer_s_max = 30.0
    answer_wait_s = 0.001
    moved = 0
    why: BaseException | None = None

    def moved_bytes(self) -> int:
        return self.moved

    def close(self, error: BaseException | None = None) -> None:
        self.closed, self.why = True, error

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
    def round_trip(self, broker: int) -> RoundTrip:
        return RoundTrip()

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection
        self.traffic = Traffic()

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


def waiting_lane(target: str = "orders") -> CarriedLane:
    lane = carried_lane()
    at = TopicPartition(topic=TopicName(target), partition=0)
    lane.spec = replace(lane.spec, target=at)
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
    lanes, connection = [waiting_lane(), waiting_lane("returns")], FakeConnection()

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


def test_an_answer_is_overdue_after_five_seconds_or_three_round_trips(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    for module in (appending, pace):
        monkeypatch.setattr(module, "monotonic_s", lambda: now_s)
    connection, seen = FakeConnection(), list[float | None]()

    async def look() -> None:
        stream = AppendStream(FakeCluster(connection), 1, 0, Reports())  # type: ignore[arg-type]
        seen.append(stream.overdue_since_s(200.0))
        stream.offer(waiting_lane())
        stream.pump()
        # The connection is not open yet.
        seen.extend(stream.overdue_since_s(at_s) for at_s in (104.0, 106.0))
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(connection.sent) == 1
        seen.extend(stream.overdue_since_s(at_s) for at_s in (104.0, 106.0))
        stream._pace.round_trip.heard(10.0)
        seen.extend(stream.overdue_since_s(at_s) for at_s in (129.0, 131.0))

    asyncio.run(look())

    assert seen == [None, None, 100.0, None, 100.0, None, 100.0]


def test_a_target_is_given_up_for_its_silence_and_not_for_a_slow_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 MB in flight at 0.1 MB/s take longer than any time-out, and would be sent for ever."""
    now_s = 0.0
    for module in (appending, pace):
        monkeypatch.setattr(module, "monotonic_s", lambda: now_s)
    connection = FakeConnection()
    seen: list[bool] = []

    async def look() -> None:
        nonlocal now_s
        stream = AppendStream(FakeCluster(connection), 1, 0, Reports())  # type: ignore[arg-type]
        stream.offer(waiting_lane())
        stream.pump()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(connection.sent) == 1
        for moves in (True, False):
            for _ in range(10):
                now_s += 5.0
                connection.moved += moves
                stream.check_timeout()
            seen.append(connection.why is not None)

    asyncio.run(look())

    assert seen == [False, True]
    assert str(connection.why) == "no answer in 30000 ms"


def test_two_flows_that_write_one_partition_never_share_a_request() -> None:
    """A broker keeps one batch of a partition, and its answer would pass for both."""
    connection, lanes = FakeConnection(), [waiting_lane(), waiting_lane()]

    async def pumped() -> None:
        stream = AppendStream(FakeCluster(connection), 1, 0, Reports())  # type: ignore[arg-type]
        for lane in lanes:
            stream.offer(lane)
        stream.pump()
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(pumped())

    assert [lane.in_flight for lane in lanes] == [1, 1]
    assert len(connection.sent) == 2
