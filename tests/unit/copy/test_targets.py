"""The target side: what waits for the ledger leaves when the ledger has it."""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph.broker.cluster import Leader
from heliograph.clock import now_ms
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import StreamKey
from heliograph.copy.slot import Slot
from heliograph.copy.targets import TargetSide
from heliograph.errors import BrokerError, BrokerUnreachable, MirrorError, NotAuthorised
from heliograph.ledger.runs import Run
from heliograph.letters.letter import Letter
from heliograph.model import Copying, Stalled, StallReason, TopicName
from heliograph.transform.record import Failure
from tests.unit.copy.kit import (
    OfferedTargets,
    QuietSlot,
    carried_lane,
    chunk,
    running_at,
    send,
)


class Quiet:
    """Hears reports and does nothing."""

    def answered(self, *_: Any) -> None: ...

    def unanswered(self, *_: Any) -> None: ...

    def failed(self, *_: Any) -> None: ...

    def lettered(self, *_: Any) -> None: ...


def test_a_batch_without_runs_behind_one_that_waits_for_its_own_lets_it_go_all_the_same() -> None:
    """The last records of a source that fell silent stayed behind until it spoke again.

    A batch waits for its run; one without a run comes behind it. Another lane's write becomes
    durable, and the lane counts as one that waits for nothing, for its last batch does not. Then
    the run becomes durable and nobody sends the batch.
    """
    side, lane = OfferedTargets(QuietSlot()), carried_lane()
    ledger = lane.flow.ledger
    running = running_at(lane, 7)
    lane.enter(running)
    ledger.write_soon(["another lane's"])  # type: ignore[list-item]
    side.enqueue(lane, running, chunk(running, [Run(position=0, source_offset=7, target_offset=0)]))
    side.enqueue(lane, running, chunk(running))

    for ledger.durable in (1, 2):  # type: ignore[misc]
        side.release(lane.spec.id.flow)

    assert [batch.ticket for batch in running.outgoing] == [2, 2]
    assert side.offered == [lane]


def test_runs_are_written_once_and_the_chunk_keeps_its_own() -> None:
    side, lane = OfferedTargets(QuietSlot()), carried_lane()
    running = running_at(lane)
    lane.enter(running)
    prepared = chunk(running, [Run(position=0, source_offset=9, target_offset=0)])
    before = list(prepared.runs)

    side.enqueue(lane, running, prepared)

    assert prepared.runs == before
    assert list(running.unacked_runs) == before
    assert lane.flow.ledger.write_soon([]) == 1


def test_a_lane_that_let_go_of_its_batches_waits_for_no_ledger() -> None:
    side, lane = OfferedTargets(QuietSlot()), carried_lane()
    running = running_at(lane)
    lane.enter(running)
    side.enqueue(lane, running, chunk(running, [Run(position=0, source_offset=9, target_offset=0)]))
    lane.enter(running_at(lane))
    lane.flow.ledger.durable = 1  # type: ignore[misc]

    side.release(lane.spec.id.flow)

    assert side.offered == []


def test_a_lane_changes_its_connection_only_while_nothing_is_in_flight() -> None:
    """On another one a batch could be answered before the one in front of it."""
    lane = carried_lane()
    running = running_at(lane)
    lane.enter(running)
    for _ in range(2):
        lane.enqueue(running, chunk(running), [], 0)
    leaders = iter((1, 2, 2))
    target: Any = lane.flow.target
    target.leader = lambda _: Leader(broker=next(leaders), epoch=0)
    side = TargetSide(QuietSlot(), Quiet())

    async def offer() -> list[StreamKey | None]:
        side.offer(lane, running)
        keys = [running.append_stream]
        send(lane)
        side.offer(lane, running)
        keys.append(running.append_stream)
        lane.in_flight -= 1
        lane.queued = False
        side.offer(lane, running)
        return [*keys, running.append_stream]

    keys = asyncio.run(offer())

    assert [None if key is None else key[1] for key in keys] == [1, 1, 2]


def test_a_lane_whose_runs_cannot_be_written_shows_why_and_goes_on_when_they_can() -> None:
    side, lane = OfferedTargets(QuietSlot()), carried_lane()
    running = running_at(lane)
    lane.enter(running)
    lane.source_seen.end_offset = 100
    side.enqueue(lane, running, chunk(running, [Run(position=0, source_offset=9, target_offset=0)]))
    ledger = lane.flow.ledger

    ledger.problem = NotAuthorised("no WRITE")  # type: ignore[misc]
    stalled = lane.state()
    ledger.problem = BrokerUnreachable("for a moment")  # type: ignore[misc]
    ledger.problem_since_ms = now_ms()  # type: ignore[misc]
    brief = lane.state()
    ledger.problem, ledger.durable = None, 1  # type: ignore[misc]

    assert isinstance(stalled, Stalled)
    assert (stalled.reason, stalled.retrying) == (StallReason.NOT_AUTHORISED, True)
    assert stalled.detail == "the ledger cannot be written: no WRITE"
    assert isinstance(brief, Copying)
    assert isinstance(lane.state(), Copying)


class Heard:
    """Remembers what failed."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.lettered_lanes = 0

    def answered(self, *_: Any) -> None: ...

    def unanswered(self, *_: Any) -> None: ...

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        self.failures.append(str(error))

    def lettered(self, lane: CarriedLane) -> None:
        self.lettered_lanes += 1


def test_letters_that_cannot_be_written_hold_their_lane_with_the_reason_and_send_nothing() -> None:
    limits = FetchLimits(on_transform_error="dead-letter", letters_topic=TopicName("letters"))
    lane, heard = carried_lane(limits), Heard()
    running = running_at(lane)
    lane.enter(running)
    prepared = chunk(running)
    failure = Failure("t", "ValueError", "no")
    prepared.letters.append(Letter(0, 0, (1, None, b"v", ()), failure))

    async def refuse(*_: Any) -> None:
        raise BrokerError("its disk is full")

    target: Any = lane.flow.target
    target.new_producer_id = refuse
    seen: list[tuple[bool, bool]] = []

    async def enqueue() -> None:
        slot = Slot(1_000_000)
        TargetSide(slot, heard).enqueue(lane, running, prepared)
        seen.append((lane.is_drained, running.writes_letters))
        await asyncio.gather(*slot.tasks)
        assert slot.bug is None

    asyncio.run(enqueue())

    assert seen == [(False, True)]
    assert heard.failures == ["the dead-letter topic letters cannot be written: its disk is full"]
    assert heard.lettered_lanes == 1
    assert lane.is_drained and not running.writes_letters
    assert lane.reached.source_next_offset == 0 and not running.outgoing
