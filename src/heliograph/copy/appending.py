"""Append to one target broker: packed across lanes, bytes in flight bounded. Runs on executors.

A lane keeps to one stream, so its batches stay in order. A broker works on one request of a
connection at a time, so a request takes one batch of every lane that has one, and several requests
wait in the socket.

Brokers that can are told the topic's id, not its name (Kafka 4.1). Under its name a topic that was
deleted and created again takes any sequence as its first: all that was mirrored before would be
missing in front of it, and nothing would say so where others had written as much meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, Protocol

from heliograph.broker.cluster import Cluster
from heliograph.broker.connection import Answer, Connection
from heliograph.clock import monotonic_s
from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.lane import CarriedLane
from heliograph.copy.pace import Departure, Pace
from heliograph.copy.phases import Running
from heliograph.errors import InvariantError, LeaderMoved, MirrorError, WireError
from heliograph.model import TopicPartition
from heliograph.probe import BATCHES_ANSWERED, BATCHES_SENT, probe
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_BY_ID,
    PRODUCE_VERSION_MIN,
    ProducedPartition,
    TopicKey,
    parse_produce,
    produce_request,
)

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024
IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
"""What keeps a near broker busy; a longer link needs more, a narrow one less (`pace`)."""
_IN_FLIGHT_BYTES_FIRST: Final = 1024 * 1024
_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
_REQUESTS_IN_FLIGHT_MIN: Final = 4
"""Requests are cut so that this many fit into what may be in flight."""

Sent = tuple[CarriedLane, Running, OutgoingBatch]
"""Lane, the phase in which the batch left, the batch."""


class AppendReports(Protocol):
    """Where a stream says what came of batches; `LaneMachine` in a slot.

    Each batch sent is reported once, when it is no longer in flight.
    """

    def answered(
        self,
        lane: CarriedLane,
        running: Running,
        batch: OutgoingBatch,
        row: ProducedPartition | None,
    ) -> None:
        """The broker's word on this batch; None where its answer leaves the batch out."""

    def unanswered(
        self, lane: CarriedLane, running: Running, batch: OutgoingBatch, error: MirrorError
    ) -> None:
        """The target closed the connection on the batch; unknown whether it has it."""

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        """Unknown whether the target has what the lane sent, if anything."""


class AppendStream:
    """One connection to one target broker. Used by one event loop; `pump` whenever there may be
    work."""

    def __init__(
        self,
        cluster: Cluster,
        broker: int,
        index: int,
        reports: AppendReports,
        *,
        one_at_a_time: bool = False,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._purpose = f"append-{index}"
        self._reports = reports
        self._one_at_a_time = one_at_a_time
        self._ready: deque[CarriedLane] = deque()
        self._connection: Connection | None = None
        self._version = PRODUCE_VERSION_MIN
        self._opening: asyncio.Task[None] | None = None
        self._opening_s = 0.0
        self._in_flight_bytes = 0
        self._in_flight: deque[Departure] = deque()
        self._pace = Pace(
            cluster.round_trip(broker),
            first_bytes=_IN_FLIGHT_BYTES_FIRST,
            near_bytes=IN_FLIGHT_BYTES,
            bytes_max=_IN_FLIGHT_BYTES_MAX,
        )
        self._moved = (0, 0.0)
        """How many bytes had moved at the last look, and when they were fewer."""
        self._is_given_up = False
        """Whether the connection was closed by ourselves."""

    @property
    def _in_flight_bytes_max(self) -> int:
        return 1 if self._one_at_a_time else self._pace.bytes_under_way()

    def offer(self, lane: CarriedLane) -> None:
        """Put the lane into the round if it has something to send."""
        if not lane.queued and lane.sendable:
            lane.queued = True
            self._ready.append(lane)

    def pump(self) -> None:
        """Send what may be sent now; never waits."""
        connection = self._connection
        if connection is not None and connection.is_due:
            if self._in_flight:
                # On another connection a batch could overtake those that are on their way here.
                return
            connection.close()
        if connection is None or connection.closed:
            if self._ready and self._opening is None:
                self._opening, self._opening_s = asyncio.create_task(self._open()), monotonic_s()
            return
        bytes_max = self._in_flight_bytes_max
        while self._ready and self._in_flight_bytes < bytes_max and connection.writable.is_set():
            self._send(connection, bytes_max)

    def check_timeout(self) -> None:
        """A broker that neither takes nor answers anything in time is as good as gone; lanes then
        ask the log what arrived. A link that is only slow goes on moving bytes."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        moved_bytes, at_s = connection.moved_bytes(), monotonic_s()
        if not self._in_flight or moved_bytes != self._moved[0]:
            self._moved = (moved_bytes, at_s)
        # The broker counts its own time-out from when it has the whole request.
        elif at_s - max(self._moved[1], self._in_flight[0].at_s) > 1.5 * connection.answer_s_max:
            self._is_given_up = True
            silent = TimeoutError(f"no answer in {connection.answer_s_max * 1000:.0f} ms")
            connection.close(silent)

    def overdue_since_s(self, at_s: float) -> float | None:
        """Since when an answer, or the connection, is waited for that should be there by now."""
        since_s = self._opening_s if self._opening is not None else None
        if self._in_flight:
            since_s = self._in_flight[0].at_s
        if since_s is None or at_s - since_s <= self._pace.round_trip.overdue_s:
            return None
        return since_s

    def reset(self) -> None:
        """Drop what is in flight, as far as it has not left this machine."""
        if self._connection is not None:
            self._connection.close(TimeoutError("given up, the lane may append no more"))

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _open(self) -> None:
        try:
            connection = await self._cluster.connection(self._broker, self._purpose)
            self._version = connection.version_of(
                PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_BY_ID
            )
            self._connection, self._is_given_up = connection, False
            asyncio.create_task(self._pump_when_writable(connection))  # noqa: RUF006  ends with it
        except MirrorError as exc:
            self._cannot_open(exc)
        except Exception as exc:  # our own bug must show, not leave the lanes waiting
            log.exception("%s of broker %d: a bug", self._purpose, self._broker)
            self._cannot_open(InvariantError(f"{type(exc).__name__}: {exc}"))
        finally:
            self._opening = None
        self.pump()

    def _cannot_open(self, error: MirrorError) -> None:
        waiting, self._ready = self._ready, deque()
        for lane in waiting:
            lane.queued = False
            self._reports.failed(lane, error)

    async def _pump_when_writable(self, connection: Connection) -> None:
        while not connection.closed:
            await connection.until_drained()
            self.pump()

    def _send(self, connection: Connection, bytes_max: int) -> None:
        taken: list[Sent] = []
        partitions: set[TopicPartition] = set()
        request_bytes = largest_bytes = 0
        request_bytes_max = min(REQUEST_BYTES_MAX, max(1, bytes_max // _REQUESTS_IN_FLIGHT_MIN))
        for _ in range(len(self._ready)):
            if request_bytes >= request_bytes_max:
                break
            lane = self._ready.popleft()
            lane.queued = False
            running = lane.running
            if running is None or not lane.sendable:
                continue
            if lane.spec.target in partitions:
                # Two flows write there. Of two batches for one partition a broker keeps one, and
                # its answer would pass for both: the other would be lost without a word.
                self.offer(lane)
                continue
            partitions.add(lane.spec.target)
            batch = lane.take(running)
            request_bytes += len(batch.view)
            lane.counted.sent_bytes += len(batch.view)
            largest_bytes = max(largest_bytes, len(batch.view))
            taken.append((lane, running, batch))
        if not taken:
            return
        for lane, _, _ in taken:
            self.offer(lane)
        by_id = self._version == PRODUCE_VERSION_BY_ID
        parts = produce_request(
            [
                (_topic_key(lane, by_id), lane.spec.target.partition, batch.view)
                for lane, _, batch in taken
            ],
            timeout_ms=int(connection.answer_s_max * 1000),
        )
        self._in_flight_bytes += request_bytes
        departure = self._pace.departed()
        self._in_flight.append(departure)
        traffic = self._cluster.traffic
        traffic.departed()
        traffic.batches += len(taken)
        traffic.batch_bytes_max = max(traffic.batch_bytes_max, largest_bytes)
        connection.send(
            PRODUCE_KEY,
            self._version,
            parts,
            lambda answer: self._answered(taken, request_bytes, answer, by_id, connection),
        )
        probe(BATCHES_SENT)

    def _answered(
        self,
        taken: list[Sent],
        request_bytes: int,
        answer: Answer,
        by_id: bool,
        connection: Connection,
    ) -> None:
        probe(BATCHES_ANSWERED)
        # Whether as much was in flight as may be: a link that had little to carry was not slow.
        busy = 2 * self._in_flight_bytes >= self._in_flight_bytes_max
        self._in_flight_bytes -= request_bytes
        departure = self._in_flight.popleft()
        for lane, _, _ in taken:
            lane.in_flight -= 1
        traffic = self._cluster.traffic
        if isinstance(answer, BaseException):
            traffic.lost()
            self._lost(taken, answer)
            return
        try:
            throttle_ms, answered = parse_produce(answer, by_id=by_id)
        except WireError as exc:
            traffic.lost()
            traffic.retried_batches += len(taken)
            for lane, _, _ in taken:
                self._reports.failed(lane, exc)
            return
        traffic.answered(request_bytes, connection.answer_wait_s, throttle_ms)
        self._pace.round_trip.heard(connection.answer_wait_s)
        self._pace.answered(departure, request_bytes, busy=busy)
        rows = {(row.topic, row.partition): row for row in answered}
        for lane, running, batch in taken:
            row = rows.get((_topic_key(lane, by_id), lane.spec.target.partition))
            self._reports.answered(lane, running, batch, row)
        self.pump()

    def _lost(self, taken: list[Sent], error: BaseException) -> None:
        self._cluster.traffic.retried_batches += len(taken)
        trouble = error if isinstance(error, MirrorError) else LeaderMoved(str(error))
        for lane, running, batch in taken:
            if self._is_given_up:
                self._reports.failed(lane, trouble)
            else:
                self._reports.unanswered(lane, running, batch, trouble)


def _topic_key(lane: CarriedLane, by_id: bool) -> TopicKey:
    return lane.reached.target_key if by_id else lane.spec.target.topic
