"""Whom a stream fetches for, and in which order, without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.broker.connection import Connection
from heliograph.broker.round_trip import RoundTrip
from heliograph.copy import fetching
from heliograph.copy.fetch_streams import FetchStreams, fetch_pace
from heliograph.copy.fetching import WAIT_MS_BACKPRESSURED, WAIT_MS_THROTTLED, FetchStream
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running
from heliograph.copy.room import Room
from heliograph.errors import MirrorError
from heliograph.wire.fetch import FetchAnswer, FetchedPartition
from tests.unit.copy.lanes import lanes_of

NO_SESSION = 0


class Reports:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def fetched(self, lane: CarriedLane, running: Running, answer: FetchedPartition) -> None:
        self.heard.append(lane.spec.id.source.partition)

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        raise error


def _never(*_: object) -> Any:
    raise AssertionError("one stream is enough here")


def stream_of(
    lanes: list[tuple[CarriedLane, Running]], room: Room, reports: Reports
) -> FetchStream:
    first = lanes[0][0]
    limits = FetchLimits()
    stream = FetchStream(
        first.flow.source,
        1,
        index=0,
        group=FetchStreams(fetch_pace(RoundTrip(), limits), limits, _never, _never),
        target=first.spec.id.flow.target,
        read_committed=True,
        limits=limits,
        reports=reports,
        room=room,
    )
    for lane, _ in lanes:
        stream.add(lane, 0)
    return stream


def wanted(stream: FetchStream) -> list[int]:
    """The partitions a full request names, in its order."""
    stream._reset_session()
    found, _ = stream._session_changes()
    return [partition for _, partition in found]


def test_lanes_of_a_share_without_room_are_left_out_and_the_others_fetched() -> None:
    room = Room(1_000)
    lanes = lanes_of(4)
    for number, (lane, running) in enumerate(lanes):
        running.share = room.share(lane.spec.id.flow, number % 2)
    stream = stream_of(lanes, room, Reports())

    room.kept(lanes[1][1].share, 600)

    assert wanted(stream) == [0, 2]


def test_a_stream_waits_while_none_of_its_lanes_may_be_fetched() -> None:
    room = Room(1_000)
    ((lane, running),) = lanes = lanes_of(1)
    running.share = room.share(lane.spec.id.flow, 1)
    stream = stream_of(lanes, room, Reports())
    room.on_change = lambda _: stream.changed(lane)
    room.kept(running.share, 600)

    async def wait() -> list[bool]:
        waiting = asyncio.create_task(stream._until_wanted())
        await asyncio.sleep(0.01)
        done = [waiting.done()]
        room.kept(running.share, -600)
        await asyncio.sleep(0.01)
        return [*done, waiting.done()]

    assert asyncio.run(wait()) == [False, True]


def test_a_lane_that_waits_is_not_kept_waiting_by_a_long_poll_for_the_others() -> None:
    lanes = lanes_of(2)
    stream = stream_of(lanes, Room(1 << 28), Reports())
    (lane, running), _ = lanes

    def wait_ms() -> int:
        stream.changed(lane)
        stream._review()
        return stream._wait_ms()

    waits = [wait_ms()]
    running.throttled = True
    waits.append(wait_ms())
    running.backpressured = True
    waits.append(wait_ms())

    assert waits == [FetchLimits().wait_ms_max, WAIT_MS_THROTTLED, WAIT_MS_BACKPRESSURED]


def test_without_a_session_whoever_got_records_goes_to_the_back() -> None:
    reports, room = Reports(), Room(1 << 28)
    lanes = lanes_of(3)
    stream = stream_of(lanes, room, reports)
    orders: list[list[int]] = []

    class Done(Exception):
        pass

    async def fetch(_: object) -> FetchAnswer:
        """A broker whose answer has room for the first that is asked for."""
        order = wanted(stream)
        orders.append(order)
        if len(orders) == 4:
            raise Done
        key = next(key for key in stream._lanes if key[1] == order[0])
        row = FetchedPartition(key, 0, 9, 9, 0, (), -1, memoryview(b"records"))
        return FetchAnswer(0, 0, NO_SESSION, [row])

    async def connection(*_: object) -> Connection:
        return Connection("broker 1", {})

    async def run() -> None:
        stream._fetch = fetch  # type: ignore[assignment]
        stream._cluster = _Connected(connection)  # type: ignore[assignment]
        try:
            await stream.run()
        except Done:
            return

    asyncio.run(run())

    assert orders == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    assert reports.heard == [0, 1, 2]


def test_a_stream_with_lanes_is_counted_in_the_room_of_its_slot() -> None:
    room = Room(1 << 28)
    lanes = lanes_of(2)
    stream = stream_of(lanes, room, Reports())
    stream.add(lanes[0][0], 0)
    counts = [room.streams]
    for lane, _ in lanes:
        stream.remove(lane)
        counts.append(room.streams)

    assert counts == [1, 1, 0]


def test_a_fetch_asks_for_no_more_than_the_slot_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def noted(**said: Any) -> bytes:
        asked.append(said["bytes_max"])
        raise MirrorError("enough")

    monkeypatch.setattr(fetching, "fetch_request", noted)
    for room in (Room(1 << 30), Room(1 << 20)):
        stream = stream_of(lanes_of(1), room, Reports())
        monkeypatch.setattr(stream._group, "answer_bytes", lambda: 1 << 24)
        with pytest.raises(MirrorError, match="enough"):
            asyncio.run(stream._fetch(_Connected(None)))  # type: ignore[arg-type]

    assert asked == [1 << 24, 1 << 20]


class _Connected:
    def __init__(self, connection: Any) -> None:
        self.connection = connection


def test_a_lane_that_comes_back_before_the_session_forgot_it_is_answered_anew() -> None:
    lanes = lanes_of(2)
    stream = stream_of(lanes, Room(1 << 28), Reports())
    (back, _), (stays, _) = lanes

    def told() -> list[int]:
        found, _ = stream._session_changes()
        stream._session_epoch += 1
        return sorted(partition for _, partition in found)

    def away_and_back(end_offset: int) -> list[int]:
        back.source_seen.end_offset = end_offset
        stream.remove(back)
        stream.add(back, 0)
        return told()

    first = told()
    stays.source_seen.end_offset = 9

    # A broker has no news of a log that did not move, so only a new session tells where it ends.
    assert (first, away_and_back(9), away_and_back(-1), told()) == ([0, 1], [], [0, 1], [])
