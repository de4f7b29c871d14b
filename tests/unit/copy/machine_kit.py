"""One lane, its machine, and hands that do nothing: for the tests of `copy.machine`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.events import LaneEvent, LookedUp
from heliograph.copy.found import ResumePoint
from heliograph.copy.lane import CarriedLane
from heliograph.copy.machine import LaneMachine
from heliograph.copy.phases import RETRY_S, Resuming, Running, Stop
from heliograph.errors import BrokerError, LeaderMoved
from heliograph.model import StallReason
from heliograph.wire.produce import ProducedPartition
from tests.unit.copy.kit import (
    TOPIC_ID,
    OfferedTargets,
    QuietSlot,
    carried_lane,
    chunk,
    running_at,
    send,
)

MOVED = LeaderMoved("moved")
REFUSED = BrokerError("refused")
STOP = Stop(reason=StallReason.CORRUPT_BATCH, detail="bad", retry_s=RETRY_S)
FINAL_STOP = Stop(reason=StallReason.LOG_TRUNCATED, detail="cut off", retry_s=None)


class FakeSources:
    """Remembers whether the lane is fetched."""

    def __init__(self) -> None:
        self.attached = False
        self.calls: list[str] = []

    def attach(self, lane: CarriedLane, running: Running) -> None:
        assert running is lane.running
        self.attached = True
        self.calls.append("attach")

    def detach(self, lane: CarriedLane) -> None:
        self.attached = False

    def changed(self, lane: CarriedLane) -> None:
        self.calls.append("changed")

    def reattach(self, lane: CarriedLane, running: Running) -> None:
        self.calls.append("reattach")


class Scene:
    """One lane, its machine, and hands that do nothing."""

    def __init__(self, *, paused: bool = False) -> None:
        self.slot, self.sources = QuietSlot(), FakeSources()
        self.machine = LaneMachine(self.slot, self.sources)  # type: ignore[arg-type]
        self.machine.targets = OfferedTargets(self.slot)
        self.lane = carried_lane(paused=paused)
        self.machine.add(self.lane)

    def on(self, event: LaneEvent) -> None:
        self.machine.on(self.lane, event)

    def run(self) -> Running:
        """Through a look-up."""
        self.look_up(resume_point(self.lane))
        assert isinstance(self.lane.phase, Running)
        return self.lane.phase

    def look_up(self, found: Any) -> None:
        assert self.slot.looked_up == [self.lane]
        assert isinstance(self.lane.phase, Resuming)
        self.on(LookedUp(asked=self.lane.phase, found=found))

    def queue(
        self, batches: int = 1, *, size_bytes: int = 61, max_timestamp_ms: int | None = None
    ) -> None:
        running = self.lane.running
        assert running is not None
        for _ in range(batches):
            prepared = chunk(running, size_bytes=size_bytes, max_timestamp_ms=max_timestamp_ms)
            self.slot.room.kept(running.share, self.lane.enqueue(running, prepared, [], 0))

    def send(self) -> Callable[..., None]:
        """Returns how the target's answer to the batch is reported."""
        running, lane = self.lane.running, self.lane
        assert running is not None
        batch = send(lane)

        def answer(code: int = 0, base_offset: int | None = None) -> None:
            lane.in_flight -= 1
            row = row_of(batch, code, base_offset)
            self.machine.answered(lane, running, batch, row)

        return answer


def row_of(batch: OutgoingBatch, code: int, base_offset: int | None) -> ProducedPartition:
    at = batch.position if base_offset is None else base_offset
    return ProducedPartition(
        topic="orders", partition=0, error_code=code, base_offset=at, log_start_offset=0, message=""
    )


def resume_point(lane: CarriedLane) -> ResumePoint:
    return ResumePoint(cursor=running_at(lane).cursor, target_topic_id=TOPIC_ID, identical=True)
