"""The target side: what waits for the ledger leaves when the ledger has it."""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph.broker.cluster import Leader
from heliograph.clock import now_ms
from heliograph.copy.phases import StreamKey
from heliograph.copy.targets import TargetSide
from heliograph.errors import BrokerUnreachable, NotAuthorised
from heliograph.ledger.runs import Run
from heliograph.model import Copying, Stalled, StallReason
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
