"""The target side: what waits for the ledger leaves when the ledger has it."""

from __future__ import annotations

from typing import Any

from heliograph.copy.chunk import LaneCursor, OutgoingBatch, PreparedChunk
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.targets import TargetSide
from heliograph.ledger.runs import Run
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    TopicId,
    TopicName,
    TopicPartition,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ID = TopicId("0c12b63f-6f93-41ba-bebd-37dfba57c4d4")


class Ledger:
    """A ledger whose writes become durable when the test says so."""

    def __init__(self) -> None:
        self.tickets = self.durable = 0

    def write_soon(self, entries: list[Any]) -> int:
        self.tickets += len(entries)
        return self.tickets


class Offering(TargetSide):
    """Sends nothing; remembers the lanes that could."""

    def __init__(self) -> None:
        super().__init__(None, lambda _: None)  # type: ignore[arg-type]
        self.offered: list[CarriedLane] = []

    def _pump_soon(self, lane: CarriedLane) -> None:
        if lane.sendable:
            self.offered.append(lane)


def test_a_batch_without_runs_behind_one_that_waits_for_its_own_lets_it_go_all_the_same() -> None:
    """The last records of a source that fell silent stayed behind until it spoke again.

    A batch waits for its run; one without a run comes behind it. Another lane's write becomes
    durable, and the lane counts as one that waits for nothing, for its last batch does not. Then
    the run becomes durable and nobody sends the batch.
    """
    ledger, side = Ledger(), Offering()
    lane = _running_lane(ledger)
    ledger.write_soon(["another lane's"])
    side.take(lane, _layout(0, runs=[Run(position=0, source_offset=7, target_offset=0)]))
    side.take(lane, _layout(4))

    for ledger.durable in (1, 2):
        side.release(FLOW)

    assert [batch.ticket for batch in lane.outgoing] == [2, 2]
    assert side.offered == [lane]


def _layout(position: int, runs: list[Run] | None = None) -> PreparedChunk:
    batch = OutgoingBatch(
        position=position,
        record_count=4,
        view=memoryview(bytes(61)),
        source_offset=position + 7,
        source_next_offset=position + 11,
        max_timestamp_ms=-1,
    )
    return PreparedChunk(batches=[batch], runs=runs or [], whole=True)


def _running_lane(ledger: Ledger) -> CarriedLane:
    place = TopicPartition(topic=TopicName("orders"), partition=0)
    flow = Flow(FLOW, None, None, ledger, FetchLimits())  # type: ignore[arg-type]
    spec = Lane(id=LaneId(flow=FLOW, source=place), target=place, source_topic_id=ID)
    lane = CarriedLane(spec, flow)
    cursor = LaneCursor(next_offset=7, position=0, target_offset=0, source_expected=7)
    lane.begin(cursor, identical=False, target_topic_id=ID)
    return lane
