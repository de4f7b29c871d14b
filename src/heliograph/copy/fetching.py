"""Fetch from one source broker for lanes of a flow (KIP-227 session). Runs on executors.

One request is under way at a time; what it brings is laid out and handed to the append streams
while the next one is on its way. In a session only what changed is said, so a thousand quiet lanes
cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.connection import Connection
from heliograph.clock import monotonic_s
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.pace import Departure
from heliograph.copy.phases import LANE_BYTES_MAX, Running
from heliograph.copy.room import Room
from heliograph.errors import (
    BrokerError,
    InvariantError,
    MirrorError,
    WireError,
)
from heliograph.model import ClusterAlias
from heliograph.wire.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchAnswer,
    FetchedPartition,
    FetchFrom,
    PartitionKey,
    fetch_request,
    parse_fetch_answer,
    topic_key,
)

WAIT_MS_BACKPRESSURED: Final = 10
"""While a lane waits for room, a long poll for the others would keep it waiting."""
WAIT_MS_THROTTLED: Final = 50
"""Less than a throttle lets its lanes save up, so that the wait costs nothing of the rate."""
_BACKOFF_S_MAX: Final = 5.0
_SESSION_NOT_FOUND: Final = 70
_SESSION_EPOCH_WRONG: Final = 71
_EPOCH_MAX: Final = 2**31 - 1


class FetchReports(Protocol):
    """Where a stream says what it heard of its lanes; `SourceSide` in a slot."""

    def fetched(self, lane: CarriedLane, running: Running, answer: FetchedPartition) -> None:
        """The records begin where the lane's cursor stands; the buffer is the receiver's."""

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        """The broker gave no good answer."""


class StreamGroup(Protocol):
    """The streams to one broker together; `FetchStreams` in a slot."""

    def departed(self) -> Departure:
        """A request leaves now."""

    def answer_bytes(self) -> int:
        """The most that one answer should bring."""

    def lane_bytes(self, stream: FetchStream, lane: CarriedLane) -> int:
        """The most of it that one lane should get."""

    def answered(
        self,
        stream: FetchStream,
        departure: Departure,
        connection: Connection,
        behind: Sequence[CarriedLane],
    ) -> None:
        """An answer was handed on; these lanes have more. Nothing of the stream is under way."""


class FetchStream:
    """Lanes of one flow, source broker and isolation level. Used by one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        broker: int,
        *,
        index: int,
        group: StreamGroup,
        target: ClusterAlias,
        read_committed: bool,
        limits: FetchLimits,
        reports: FetchReports,
        room: Room,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        # Streams wait on connections of their own: a broker answers a connection in order.
        self._purpose = f"{'fetch-committed' if read_committed else 'fetch'}-{target}-{index}"
        self._group = group
        self._read_committed = read_committed
        self._limits = limits
        self._reports = reports
        self._room = room
        self._lanes: dict[PartitionKey, CarriedLane] = {}
        self._leader_epochs: dict[PartitionKey, int] = {}
        """As the metadata had it that sent the lane here. Without one any replica answers a Fetch,
        and a follower that stopped following would pass for a quiet leader (KAFKA-14255)."""
        self._dirty: set[PartitionKey] = set()
        """Lanes of which the session may have heard something else."""
        self._unreviewed: set[PartitionKey] = set()
        self._wanted: set[PartitionKey] = set()
        self._backpressured: set[PartitionKey] = set()
        self._throttled: set[PartitionKey] = set()
        """All three as of the last review, so that a fetch costs what changed and not all lanes."""
        self._wake = asyncio.Event()
        self.asked_s: float | None = None
        """Since when a fetch is under way, the connection for it included."""
        self._in_session: dict[PartitionKey, FetchFrom] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._begins_session = False
        """Whether the next fetch says everything, so that every lane is answered."""

    def add(self, lane: CarriedLane, leader_epoch: int) -> None:
        key = _key(lane)
        before = self._lanes.get(key, lane)
        if before.spec.id != lane.spec.id:
            raise InvariantError(f"{lane.spec.id} would take the records of {before.spec.id}")
        if not self._lanes:
            self._room.streams += 1
        if key in self._in_session and lane.source_seen.end_offset < 0:
            # It was here before and is new again: the session would have no news of it.
            self._begins_session = True
        self._lanes[key] = lane
        self._leader_epochs[key] = leader_epoch
        self.changed(lane)

    def remove(self, lane: CarriedLane) -> None:
        if self._lanes.pop(_key(lane), None) is None:
            return
        if not self._lanes:
            self._room.streams -= 1
        self.changed(lane)

    def hand_over(self, lane: CarriedLane, other: FetchStream) -> None:
        """Let another stream fetch for the lane, for which no request is under way."""
        epoch = self._leader_epochs[_key(lane)]
        self.remove(lane)
        other.add(lane, epoch)

    def changed(self, lane: CarriedLane) -> None:
        """The lane's cursor, or whether it wants data, is not what the session last heard."""
        self._note(_key(lane))
        self._wake.set()

    def _note(self, key: PartitionKey) -> None:
        self._dirty.add(key)
        self._unreviewed.add(key)

    @property
    def lanes(self) -> tuple[CarriedLane, ...]:
        return tuple(self._lanes.values())

    async def run(self) -> None:
        failures = 0
        while True:
            await self._until_wanted()
            self.asked_s = monotonic_s()
            try:
                connection = await self._cluster.connection(self._broker, self._purpose)
                departure = self._group.departed()
                answer = await self._fetch(connection)
            except MirrorError as exc:
                self.asked_s = None
                self._reset_session()
                failures += 1
                for lane in self.lanes:
                    self._reports.failed(lane, exc)
                await asyncio.sleep(min(0.05 * (1 << min(failures, 10)), _BACKOFF_S_MAX))
                continue
            failures, self.asked_s = 0, None
            for fetched in answer.partitions:
                # What became of a lane before may have taken this one off the stream.
                fetching = self._lanes.get(fetched.key)
                if fetching is not None and fetching.running is not None:
                    self._reports.fetched(fetching, fetching.running, fetched)
                if self._session_id == 0 and len(fetched.records):
                    self._to_the_back(fetched.key)
            lanes = [self._lanes.get(fetched.key) for fetched in answer.partitions]
            behind = [lane for lane in lanes if lane is not None and _is_behind(lane)]
            self._group.answered(self, departure, connection, behind)
            # Acknowledgements and the link get their turn between two fetches even when the
            # source always has an answer ready.
            await asyncio.sleep(0)

    async def _until_wanted(self) -> None:
        while True:
            self._review()
            if self._wanted:
                return
            self._wake.clear()
            await self._wake.wait()

    def _review(self) -> None:
        """Sort in the lanes that changed."""
        for key in self._unreviewed:
            lane = self._lanes.get(key)
            running = None if lane is None else lane.running
            for kept, belongs in (
                (self._wanted, running is not None and _wants(running)),
                (self._backpressured, running is not None and running.backpressured),
                (self._throttled, running is not None and running.throttled),
            ):
                (kept.add if belongs else kept.discard)(key)
        self._unreviewed.clear()

    def _to_the_back(self, key: PartitionKey) -> None:
        """A broker fills its answer in the order it is asked in; a session turns that by itself."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            self._lanes[key] = lane

    async def _fetch(self, connection: Connection) -> FetchAnswer:
        wanted, forgotten = self._session_changes()
        wait_ms = self._wait_ms()
        body = fetch_request(
            wait_ms_max=wait_ms,
            bytes_max=self._room.fetch_bytes(self._group.answer_bytes()),
            bytes_min=self._limits.bytes_min,
            rack=self._limits.rack,
            read_committed=self._read_committed,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            wanted=wanted,
            forgotten=forgotten,
        )
        connection.version_of(FETCH_KEY, FETCH_VERSION, FETCH_VERSION)
        traffic = self._cluster.traffic
        traffic.departed()
        try:
            fetched = await connection.request(
                FETCH_KEY, FETCH_VERSION, [body], timeout_s=connection.answer_s_max + wait_ms / 1000
            )
            answer = parse_fetch_answer(fetched)
        except WireError:
            traffic.lost()
            connection.close()
            raise
        except BaseException:
            traffic.lost()
            raise
        traffic.answered(len(fetched), connection.answer_wait_s, answer.throttle_ms)
        for row in answer.partitions:
            if (lane := self._lanes.get(row.key)) is not None:
                lane.counted.received_bytes += len(row.records)
                lane.unreported = True
        awaited = [row for row in answer.partitions if self._is_awaited(row.key)]
        return replace(self._session_answer(answer), partitions=awaited)

    def _wait_ms(self) -> int:
        """How long the broker may keep the fetch waiting for news."""
        longest_ms = self._limits.wait_ms_max
        if self._backpressured:
            return min(WAIT_MS_BACKPRESSURED, longest_ms)
        return min(WAIT_MS_THROTTLED, longest_ms) if self._throttled else longest_ms

    def _is_awaited(self, key: PartitionKey) -> bool:
        """Whether the answer begins where its lane stands now.

        A lane that resumes while a request is under way goes back to what the target has. The
        answer then begins further on, and what lies between would pass for a gap: lost for ever.
        """
        lane, asked = self._lanes.get(key), self._in_session.get(key)
        if lane is None or asked is None or lane.running is None:
            return False
        self._note(key)
        return asked.next_offset == lane.running.cursor.next_offset

    def _session_changes(self) -> tuple[dict[PartitionKey, FetchFrom], list[PartitionKey]]:
        """What to tell the session; without one, everything wanted."""
        if self._begins_session:
            self._reset_session()
        keys: Iterable[PartitionKey] = self._dirty if self._session_epoch else self._lanes
        wanted: dict[PartitionKey, FetchFrom] = {}
        forgotten: list[PartitionKey] = []
        for key in keys:
            lane = self._lanes.get(key)
            if lane is not None and lane.running is not None and _wants(lane.running):
                cursor = lane.running.cursor
                lane_bytes = self._group.lane_bytes(self, lane)
                lane.running.bytes_max = max(LANE_BYTES_MAX, 2 * lane_bytes)
                start = FetchFrom(
                    next_offset=cursor.next_offset,
                    leader_epoch=self._leader_epochs[key],
                    last_epoch=cursor.leader_epoch,
                    bytes_max=lane_bytes,
                )
                if self._in_session.get(key) != start:
                    wanted[key] = self._in_session[key] = start
            elif key in self._in_session:
                del self._in_session[key]
                forgotten.append(key)
        self._dirty.clear()
        return wanted, forgotten

    def _session_answer(self, answer: FetchAnswer) -> FetchAnswer:
        if answer.error_code in (_SESSION_NOT_FOUND, _SESSION_EPOCH_WRONG):
            self._reset_session()
            return FetchAnswer(answer.throttle_ms, NONE, 0, [])
        if answer.error_code != NONE:
            where = f"cluster {self._cluster.alias}: fetch from broker {self._broker}"
            raise broker_error(where, answer.error_code)
        if answer.session_id == 0:
            # The broker has no room for another session: every request then says everything.
            self._reset_session()
        else:
            self._session_id = answer.session_id
            self._session_epoch = self._session_epoch % _EPOCH_MAX + 1
        return answer

    def _reset_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._begins_session = False
        self._in_session.clear()


def _key(lane: CarriedLane) -> PartitionKey:
    topic_id = lane.spec.source_topic_id
    if topic_id is None:
        raise BrokerError(
            f"{lane.spec.id}: the source does not tell its topic ids (Kafka 3.1 does)"
        )
    return topic_key(topic_id), lane.spec.id.source.partition


def _wants(running: Running) -> bool:
    return (
        running.share.is_open
        and not running.backpressured
        and not running.throttled
        and not running.writes_letters
    )


def _is_behind(lane: CarriedLane) -> bool:
    """Whether the source has more than the lane was given."""
    running = lane.running
    return running is not None and running.cursor.next_offset < lane.source_seen.end_offset
