"""Lanes of one source broker on as many streams as its link needs."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.copy.fetch_streams import STREAMS_MAX, FetchStreams, fetch_pace
from heliograph.copy.fetching import FetchStream
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.room import Room
from heliograph.copy.throttle import Throttle
from heliograph.model import TopicPartition
from tests.unit.copy.kit import FakeCluster, carried_lane, running_at

FAR_S = 0.1


class Scene:
    def __init__(self, lanes: int, *, far: bool, limits: FetchLimits | None = None) -> None:
        self.cluster = FakeCluster()
        self.spawned = 0
        limits = limits or FetchLimits()
        if far:
            self.cluster.far.heard(FAR_S)
        self.streams = FetchStreams(
            fetch_pace(self.cluster.far, limits), limits, self._make, self._spawn
        )
        self.lanes = [self._lane(number, limits) for number in range(lanes)]
        for lane in self.lanes:
            self.streams.add(lane, 7)

    def _lane(self, number: int, limits: FetchLimits) -> CarriedLane:
        first = carried_lane(limits)
        source = TopicPartition(topic=first.spec.id.source.topic, partition=number)
        spec = replace(first.spec, id=replace(first.spec.id, source=source))
        lane = CarriedLane(spec, first.flow)
        lane.enter(running_at(lane))
        return lane

    def _make(self, index: int, group: FetchStreams) -> FetchStream:
        return FetchStream(
            self.cluster,  # type: ignore[arg-type]
            1,
            index=index,
            group=group,
            target=self.lane_target,
            read_committed=True,
            limits=FetchLimits(),
            reports=None,  # type: ignore[arg-type]
            room=Room(1 << 28),
        )

    @property
    def lane_target(self) -> Any:
        return carried_lane().spec.id.flow.target

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.spawned += 1
        work.close()

    def answer(self, index: int, behind: int, answer_bytes: int = 1_000_000) -> None:
        """An answer after which so many of the stream's lanes have more."""
        stream = self.streams._streams[index]
        connection: Any = SimpleNamespace(answer_bytes=answer_bytes, answer_wait_s=FAR_S)
        lanes = stream.lanes[:behind]
        self.streams.answered(stream, self.streams.departed(), connection, lanes)

    @property
    def spread(self) -> list[int]:
        return [len(stream.lanes) for stream in self.streams._streams]


def test_a_near_broker_is_read_over_one_stream() -> None:
    scene = Scene(8, far=False)

    scene.answer(0, behind=8)

    assert scene.spread == [8]


@pytest.mark.parametrize(
    ("lanes", "behind", "spread"),
    [(8, 8, [2, 2, 2, 2]), (2, 2, [1, 1]), (5, 1, [5]), (5, 0, [5]), (6, 3, [4, 1, 1])],
)
def test_lanes_of_a_far_broker_that_are_behind_are_spread(
    lanes: int, behind: int, spread: list[int]
) -> None:
    scene = Scene(lanes, far=True)

    scene.answer(0, behind=behind)

    assert scene.spread == spread
    assert scene.spawned == len(spread) <= STREAMS_MAX
    assert sorted(scene.streams.lanes, key=str) == sorted(scene.lanes, key=str)
    epochs = [
        epoch for stream in scene.streams._streams for epoch in stream._leader_epochs.values()
    ]
    assert set(epochs) == {7}


def test_a_lane_that_was_spread_is_found_again() -> None:
    scene = Scene(2, far=True)
    scene.answer(0, behind=2)

    for lane in scene.lanes:
        scene.streams.changed(lane)
        scene.streams.remove(lane)

    assert scene.streams.lanes == ()


def test_fewer_lanes_of_a_far_broker_get_more_each() -> None:
    one, many = Scene(1, far=True), Scene(100, far=True)
    for scene in (one, many):
        scene.answer(0, behind=len(scene.lanes), answer_bytes=60_000_000)

    (few,) = (one.streams.lane_bytes(one.streams._streams[0], one.lanes[0]),)
    shared = many.streams.lane_bytes(many.streams._streams[0], many.lanes[0])

    assert few > 8 * 1024 * 1024 > shared == 1024 * 1024


def test_what_the_operator_set_is_the_most_that_is_asked_for() -> None:
    limits = FetchLimits(bytes_max=1_000, partition_bytes_max=500)
    scene = Scene(1, far=True, limits=limits)

    scene.answer(0, behind=1)

    assert scene.streams.answer_bytes() <= 1_000
    assert scene.streams.lane_bytes(scene.streams._streams[0], scene.lanes[0]) == 500


def test_a_limit_without_a_rate_makes_no_fetch_of_a_far_lane_smaller() -> None:
    scene = Scene(1, far=True)
    scene.lanes[0].throttles = (Throttle(),)

    scene.answer(0, behind=1, answer_bytes=60_000_000)

    lane_bytes = scene.streams.lane_bytes(scene.streams._streams[0], scene.lanes[0])
    assert lane_bytes > 8 * 1024 * 1024
