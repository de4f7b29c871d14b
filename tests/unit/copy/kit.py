"""A lane and all that surrounds it, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any

from heliograph.broker.cluster import Leader, Topic
from heliograph.broker.round_trip import RoundTrip
from heliograph.broker.traffic import Traffic
from heliograph.clock import now_ms
from heliograph.copy.chunk import LaneCursor, OutgoingBatch, PreparedChunk
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running
from heliograph.copy.slot import Slot
from heliograph.copy.targets import TargetSide
from heliograph.errors import LeaderMoved, MirrorError
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.wire.batch import Stamp

TOPIC_ID = TopicId("0c12b63f-6f93-41ba-bebd-37dfba57c4d4")
BYTES_MAX = 1_000_000
RECORDS = 4
"""In each batch of `chunk`."""


class FakeLedger:
    """A ledger whose writes become durable when the test says so."""

    def __init__(self) -> None:
        self.tickets = self.durable = 0
        self.view = LedgerView()
        self.problem: MirrorError | None = None
        self.problem_since_ms = 0
        self.writing_since_s: float | None = None

    def write_soon(self, entries: list[Any]) -> int:
        self.tickets += len(entries)
        return self.tickets


class FakeCluster:
    """One broker leads everything; nothing is ever asked of it."""

    alias = ClusterAlias("A")
    has_leader = True

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic()

    @cached_property
    def far(self) -> RoundTrip:
        return RoundTrip()

    def round_trip(self, broker: int) -> RoundTrip:
        return self.far

    def topic(self, name: TopicName) -> Topic:
        return Topic(id=TOPIC_ID, leaders={}, partition_count=1)

    def leader(self, partition: TopicPartition) -> Leader | None:
        return Leader(broker=1, epoch=0) if self.has_leader else None

    def no_leader_error(self, partition: TopicPartition) -> LeaderMoved:
        return LeaderMoved(f"{partition} has no leader now")


class QuietSlot(Slot):
    """Runs no task, since there is no broker to talk to, and no clock but the test's."""

    def __init__(self) -> None:
        super().__init__(BYTES_MAX)
        self.spawned = 0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        self.timers.append((delay_s, act))

    def ring(self) -> None:
        """Let the time of all timers come."""
        timers, self.timers = self.timers, []
        for _, act in timers:
            act()

    @property
    def looked_up(self) -> list[CarriedLane]:
        return [lane for lanes in self.take_lookups().values() for lane in lanes]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.spawned += 1
        work.close()


class OfferedTargets(TargetSide):
    """Sends nothing; remembers the lanes that could."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot, None)  # type: ignore[arg-type]
        self.offered: list[CarriedLane] = []

    def offer(self, lane: CarriedLane, running: Running) -> None:
        if lane.sendable:
            self.offered.append(lane)


def carried_lane(
    limits: FetchLimits | None = None, target: str = "B", *, paused: bool = False
) -> CarriedLane:
    flow_id = FlowId(source=ClusterAlias("A"), target=ClusterAlias(target))
    clusters = FakeCluster(), FakeCluster()
    flow = Flow(flow_id, *clusters, FakeLedger(), limits or FetchLimits())  # type: ignore[arg-type]
    flow.stamp = Stamp(1, 0)
    partition = TopicPartition(topic=TopicName("orders"), partition=0)
    spec = Lane(
        id=LaneId(flow=flow_id, source=partition),
        target=partition,
        source_topic_id=TOPIC_ID,
        paused=paused,
    )
    return CarriedLane(spec, flow)


def running_at(lane: CarriedLane, offset: int = 0) -> Running:
    """A phase for the lane, as a resume would give it; the lane is not in it yet."""
    cursor = LaneCursor(next_offset=offset, position=0, target_offset=0, source_expected=offset)
    return lane.run_from(cursor, identical=False, target_topic_id=TOPIC_ID)


def chunk(
    running: Running,
    runs: list[Run] | None = None,
    *,
    size_bytes: int = 61,
    max_timestamp_ms: int | None = None,
) -> PreparedChunk:
    """One batch that follows the cursor, which moves on."""
    cursor = running.cursor
    batch = OutgoingBatch(
        position=cursor.position,
        record_count=RECORDS,
        view=memoryview(bytes(size_bytes)),
        source_offset=cursor.next_offset,
        source_next_offset=cursor.next_offset + RECORDS,
        max_timestamp_ms=now_ms() if max_timestamp_ms is None else max_timestamp_ms,
    )
    cursor.next_offset += RECORDS
    cursor.source_expected = cursor.next_offset
    cursor.position += RECORDS
    cursor.target_offset += RECORDS
    return PreparedChunk(batches=[batch], runs=runs or [], whole=True)


def send(lane: CarriedLane) -> OutgoingBatch:
    """What an append stream does when it sends the lane's next batch."""
    assert lane.running is not None
    return lane.take(lane.running)
