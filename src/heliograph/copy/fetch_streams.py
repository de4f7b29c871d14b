"""The streams of a flow to one source broker: as many as keep the link full. Runs on executors.

A stream has one request under way, and the link idles for a round trip between two of its answers.
Near brokers answer at once, so one stream is best. To a far one, lanes that are behind are spread
over a few: while one waits, the answers of the others fill the link.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from heliograph.broker.connection import Connection
from heliograph.broker.round_trip import RoundTrip
from heliograph.copy.fetching import FetchStream
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.pace import Departure, Pace
from heliograph.model import LaneId

STREAMS_MAX: Final = 4
_STREAM_BYTES_MIN: Final = 128 * 1024
"""A broker cuts the last batch of an answer, which is then fetched again: answers must be large for
that to be little, so a narrow link is not shared by several."""
_FIRST_BYTES: Final = 256 * 1024
_NEAR_BYTES: Final = 16 * 1024 * 1024
_BYTES_MAX: Final = 64 * 1024 * 1024

MakeStream = Callable[[int, "FetchStreams"], FetchStream]
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class FetchStreams:
    """Used by one event loop. A lane is on one of the streams, and moves to another only while no
    request for it is under way: nothing is fetched twice."""

    def __init__(self, pace: Pace, limits: FetchLimits, make: MakeStream, spawn: Spawn) -> None:
        self._pace = pace
        self._limits = limits
        self._make = make
        self._spawn = spawn
        self._streams: list[FetchStream] = []
        self._behind: dict[FetchStream, int] = {}
        """How many lanes of each stream had more than its last answer brought."""
        self._stream_of: dict[LaneId, FetchStream] = {}

    def add(self, lane: CarriedLane, leader_epoch: int) -> None:
        stream = self._stream_of.get(lane.spec.id) or self._first()
        stream.add(lane, leader_epoch)
        self._stream_of[lane.spec.id] = stream

    def remove(self, lane: CarriedLane) -> None:
        stream = self._stream_of.pop(lane.spec.id, None)
        if stream is not None:
            stream.remove(lane)

    def changed(self, lane: CarriedLane) -> None:
        """The lane may be fetched again."""
        stream = self._stream_of.get(lane.spec.id)
        if stream is not None:
            stream.changed(lane)

    @property
    def lanes(self) -> tuple[CarriedLane, ...]:
        return tuple(lane for stream in self._streams for lane in stream.lanes)

    def overdue(self, at_s: float) -> Iterator[tuple[CarriedLane, float]]:
        """Lanes whose fetch should have been answered by now, and since when it is under way."""
        bound_s = self._limits.wait_ms_max / 1000 + self._pace.round_trip.overdue_s
        for stream in self._streams:
            if stream.asked_s is not None and at_s - stream.asked_s > bound_s:
                for lane in stream.lanes:
                    yield lane, stream.asked_s

    # -- what a stream asks

    def departed(self) -> Departure:
        return self._pace.departed()

    def answer_bytes(self) -> int:
        """The most that one answer should bring."""
        busy = sum(1 for count in self._behind.values() if count) or 1
        wanted = self._bytes_of(busy)
        return wanted if self._limits.bytes_max is None else min(wanted, self._limits.bytes_max)

    def _bytes_of(self, busy: int) -> int:
        """Of each stream where so many are busy."""
        return self._pace.bytes_under_way(pipelined=busy > 1) // busy

    def lane_bytes(self, stream: FetchStream, lane: CarriedLane) -> int:
        """The most of it that one lane should get."""
        learned = lane.learned.fetch_bytes
        # A lane that met a batch larger than that fetches on as it learned to.
        if lane.throttles and learned <= self._limits.partition_bytes:
            allowed = [some for at in lane.throttles if (some := at.fetch_bytes) is not None]
            if allowed:
                return min(learned, *allowed)
        if self._limits.partition_bytes_max is not None or not self._pace.round_trip.is_far:
            return learned
        share = self.answer_bytes() // max(1, self._behind.get(stream, 0))
        # Rounded, or a session would hear of another size with every fetch.
        return max(learned, 1 << share.bit_length() - 1)

    def answered(
        self,
        stream: FetchStream,
        departure: Departure,
        connection: Connection,
        behind: Sequence[CarriedLane],
    ) -> None:
        """An answer was handed on; these lanes have more. Nothing of the stream is under way."""
        self._pace.answered(departure, connection.answer_bytes, busy=bool(behind))
        if self._behind.get(stream):
            # There was something to answer with at once: a broker keeps a fetch waiting for news.
            self._pace.round_trip.heard(connection.answer_wait_s)
        self._behind[stream] = len(behind)
        if self._pace.round_trip.is_far:
            self._spread(stream, list(behind))

    def _spread(self, stream: FetchStream, behind: list[CarriedLane]) -> None:
        while len(behind) > 1 and (others := self._others(stream)):
            other = min(others, key=lambda each: self._behind.get(each, 0))
            if self._behind.get(other, 0) > self._behind[stream] - 2:
                return
            lane = behind.pop()
            self._stream_of[lane.spec.id] = other
            stream.hand_over(lane, other)
            self._behind[stream] -= 1
            self._behind[other] = self._behind.get(other, 0) + 1

    def _others(self, stream: FetchStream) -> list[FetchStream]:
        idle = any(not self._behind.get(each) for each in self._streams if each is not stream)
        count = len(self._streams)
        if not idle and count < STREAMS_MAX and self._bytes_of(count + 1) >= _STREAM_BYTES_MIN:
            self._open()
        return [each for each in self._streams if each is not stream]

    def _first(self) -> FetchStream:
        return self._streams[0] if self._streams else self._open()

    def _open(self) -> FetchStream:
        stream = self._make(len(self._streams), self)
        self._streams.append(stream)
        self._spawn(stream.run())
        return stream


def fetch_pace(round_trip: RoundTrip, limits: FetchLimits) -> Pace:
    """Of all streams to one broker together."""
    return Pace(
        round_trip,
        first_bytes=_FIRST_BYTES,
        near_bytes=limits.bytes_max or _NEAR_BYTES,
        bytes_max=_BYTES_MAX,
    )
