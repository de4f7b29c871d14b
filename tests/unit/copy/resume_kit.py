"""One lane between two clusters in memory and its ledger: for the tests of `copy.resume`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.broker.log import read_batches
from heliograph.copy.chunk import SourcePoint
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Blocked, Found, ResumePoint
from heliograph.copy.resume import find_resume_points
from heliograph.errors import BrokerUnreachable
from heliograph.ledger.entries import Entry, FlowEntry, RunsEntry, ledger_topic
from heliograph.ledger.entry_codec import decode
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, FlowId, Lane, LaneId, StallReason, TopicPartition
from tests.kit.fake_cluster import Asked, FakeCluster
from tests.kit.fake_log import FakeLog
from tests.kit.fake_records import append_own
from tests.kit.lane_records import TOPIC

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PRODUCER = 4_711
ORDERS = TopicPartition(topic=TOPIC, partition=0)
LEDGER = ledger_topic(FLOW.source)
SPEC = Lane(id=LaneId(flow=FLOW, source=ORDERS), target=ORDERS, source_topic_id=None)


@dataclass(frozen=True, slots=True)
class ALane:
    spec: Lane
    source_point: SourcePoint | None = None
    sure_position: int | None = None


@dataclass(slots=True)
class Stage:
    """One lane between two clusters in memory, and its ledger."""

    source: FakeCluster = field(default_factory=lambda: FakeCluster("A"))
    target: FakeCluster = field(default_factory=lambda: FakeCluster("B"))
    has_producer: bool = True
    own_point: SourcePoint | None = None
    """What the lane's slot knows itself."""
    own_position: int | None = None
    """The same, of the target."""
    limits: FetchLimits = field(default_factory=FetchLimits)

    def __post_init__(self) -> None:
        self.source.create(TOPIC)
        self.target.create(TOPIC)
        self.target.create(LEDGER, is_compacted=True)

    @property
    def read(self) -> FakeLog:
        return self.source.log(ORDERS)

    @property
    def written(self) -> FakeLog:
        return self.target.log(ORDERS)

    def own(self, position: int, count: int) -> None:
        append_own(self.written, PRODUCER, position, count)

    def before_third_look(self, change: Callable[[], None]) -> None:
        """The log is asked for its start and its end; then the ledger is read."""
        looks = 0

        def count(asked: Asked) -> None:
            nonlocal looks
            looks += asked == Asked("list_offsets", frozenset({TOPIC}))
            if looks == 3:
                change()

        self.target.before = count

    def break_link(self, request_name: str) -> None:
        def unreachable(asked: Asked) -> None:
            if asked == Asked(request_name, frozenset({TOPIC})):
                raise BrokerUnreachable("cluster B: gone")

        self.target.before = unreachable

    def resume(self, *entries: Entry, spec: Lane = SPEC) -> Found:
        """Where the lane goes on once the ledger holds `entries`."""
        return self.resumed(*entries, spec=spec)[0]

    def resumed(self, *entries: Entry, spec: Lane = SPEC) -> tuple[Found, LaneRecord | None]:
        return asyncio.run(self._resumed(entries, spec))

    async def _resumed(
        self, entries: tuple[Entry, ...], spec: Lane
    ) -> tuple[Found, LaneRecord | None]:
        store = LedgerStore(self.target, LEDGER)
        try:
            if self.has_producer:
                await store.write([flow_entry(), *entries])
            flow = Flow(FLOW, self.source, self.target, store, self.limits)
            lane = ALane(spec, self.own_point, self.own_position)
            found: dict[ALane, Found] = {}
            await find_resume_points(flow, [lane], found.__setitem__)
            await store.catch_up()
            return found[lane], store.view.begun_lane(TOPIC, 0)
        finally:
            await store.close()


def flow_entry() -> FlowEntry:
    return FlowEntry(
        flow=FLOW,
        producer_id=PRODUCER,
        producer_epoch=0,
        source_cluster_id="there",
        created_ms=1,
    )


def corrections(stage: Stage, *, first: int = 1) -> list[RunsEntry]:
    """What the last resume wrote into the ledger."""

    async def read() -> list[RunsEntry]:
        found: list[RunsEntry] = []
        ledger = TopicPartition(topic=LEDGER, partition=0)
        end = stage.target.log(ledger).end
        async for _, batch in read_batches(stage.target, ledger, 0, end):
            for record in DefaultRecordBatch(bytes(batch)):
                entry = decode(record.key or b"", record.value)
                if isinstance(entry, RunsEntry):
                    found.append(entry)
        return found[first:]

    return asyncio.run(read())


def placed(found: Found) -> ResumePoint:
    assert isinstance(found, ResumePoint), found
    return found


def at(found: Found) -> tuple[int, int, int]:
    """Position, source offset and target offset a lane goes on at."""
    cursor = placed(found).cursor
    return cursor.position, cursor.next_offset, cursor.target_offset


def refused(found: Found) -> tuple[StallReason, int]:
    assert isinstance(found, Blocked), found
    return found.reason, found.position
