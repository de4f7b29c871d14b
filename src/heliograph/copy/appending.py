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
from heliograph.copy.phases import Running
from heliograph.errors import InvariantError, LeaderMoved, MirrorError, WireError
from heliograph.probe import BATCHES_ANSWERED, BATCHES_SENT, probe
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_BY_ID,
    PRODUCE_VERSION_MIN,
    ProducedPartition,
    TopicKey,
    parse_produce_answer,
    produce_request,
)

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024
IN_FLIGHT_BYTES_MAX: Final = 8 * 1024 * 1024
TIMEOUT_MS: Final = 30_000

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
        self._request_bytes_max = 1 if one_at_a_time else REQUEST_BYTES_MAX
        self._in_flight_bytes_max = 1 if one_at_a_time else IN_FLIGHT_BYTES_MAX
        self._ready: deque[CarriedLane] = deque()
        self._connection: Connection | None = None
        self._version = PRODUCE_VERSION_MIN
        self._opening: asyncio.Task[None] | None = None
        self._in_flight_bytes = 0
        self._sent_at_s: deque[float] = deque()
        self._is_given_up = False
        """Whether the connection was closed by ourselves."""

    def offer(self, lane: CarriedLane) -> None:
        """Put the lane into the round if it has something to send."""
        if not lane.queued and lane.sendable:
            lane.queued = True
            self._ready.append(lane)

    def pump(self) -> None:
        """Send what may be sent now; never waits."""
        connection = self._connection
        if connection is not None and connection.is_due:
            if self._sent_at_s:
                # On another connection a batch could overtake those that are on their way here.
                return
            connection.close()
        if connection is None or connection.closed:
            if self._ready and self._opening is None:
                self._opening = asyncio.create_task(self._open())
            return
        while (
            self._ready
            and self._in_flight_bytes < self._in_flight_bytes_max
            and connection.writable.is_set()
        ):
            self._send(connection)

    def check_timeout(self) -> None:
        """A broker that does not answer in time is as good as gone; lanes then ask the log what
        arrived."""
        if self._connection is None or not self._sent_at_s:
            return
        if monotonic_s() - self._sent_at_s[0] > 1.5 * TIMEOUT_MS / 1000:
            self._is_given_up = True
            self._connection.close(TimeoutError(f"no answer in {TIMEOUT_MS} ms"))

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

    def _send(self, connection: Connection) -> None:
        taken: list[Sent] = []
        request_bytes = 0
        for _ in range(len(self._ready)):
            if request_bytes >= self._request_bytes_max:
                break
            lane = self._ready.popleft()
            lane.queued = False
            running = lane.running
            if running is None or not lane.sendable:
                continue
            batch = lane.take(running)
            request_bytes += len(batch.view)
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
            timeout_ms=TIMEOUT_MS,
        )
        self._in_flight_bytes += request_bytes
        self._sent_at_s.append(monotonic_s())
        connection.send(
            PRODUCE_KEY,
            self._version,
            parts,
            lambda answer: self._answered(taken, request_bytes, answer, by_id),
        )
        probe(BATCHES_SENT)

    def _answered(self, taken: list[Sent], request_bytes: int, answer: Answer, by_id: bool) -> None:
        probe(BATCHES_ANSWERED)
        self._in_flight_bytes -= request_bytes
        self._sent_at_s.popleft()
        for lane, _, _ in taken:
            lane.in_flight -= 1
        if isinstance(answer, BaseException):
            self._lost(taken, answer)
            return
        try:
            answered = parse_produce_answer(answer, by_id=by_id)
        except WireError as exc:
            for lane, _, _ in taken:
                self._reports.failed(lane, exc)
            return
        rows = {(row.topic, row.partition): row for row in answered}
        for lane, running, batch in taken:
            row = rows.get((_topic_key(lane, by_id), lane.spec.target.partition))
            self._reports.answered(lane, running, batch, row)
        self.pump()

    def _lost(self, taken: list[Sent], error: BaseException) -> None:
        trouble = error if isinstance(error, MirrorError) else LeaderMoved(str(error))
        for lane, running, batch in taken:
            if self._is_given_up:
                self._reports.failed(lane, trouble)
            else:
                self._reports.unanswered(lane, running, batch, trouble)


def _topic_key(lane: CarriedLane, by_id: bool) -> TopicKey:
    return lane.reached.target_key if by_id else lane.spec.target.topic
