"""What a shuttle promises the driver, without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph.copy.shuttle import Shuttle
from tests.unit.copy.kit import FakeLedger, carried_lane, chunk, running_at, send


class SlowLedger(FakeLedger):
    """Says when somebody waits for what was queued."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = 0

    async def write(self, entries: list[Any]) -> None:
        self.waited_for = self.write_soon(entries)


def test_a_drain_waits_for_a_head_that_was_queued_a_moment_before() -> None:
    """The tick queues the last head; the drain finds none due; the ledger is closed under it."""
    lane, ledger = carried_lane(), SlowLedger()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    lane.enter(running_at(lane))

    async def tick_then_drain() -> None:
        shuttle = Shuttle({})
        shuttle._lanes[lane.spec.id] = lane
        shuttle._flows[lane.spec.id.flow] = lane.flow
        await shuttle._write_heads([lane], wait=False)
        await shuttle.drain()

    asyncio.run(tick_then_drain())

    assert ledger.tickets == 1
    assert ledger.waited_for == 1


def test_a_drain_waits_for_a_correction_of_the_map() -> None:
    """Written late it would meet what the lane's next slot has written."""
    lane, ledger = carried_lane(), SlowLedger()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    running = running_at(lane)
    lane.enter(running)
    lane.enqueue(running, chunk(running), [], 0)
    batch = send(lane)
    lane.in_flight -= 1

    async def settle_then_drain() -> int:
        shuttle = Shuttle({})
        shuttle._lanes[lane.spec.id] = lane
        shuttle._flows[lane.spec.id.flow] = lane.flow
        lane.settle(running, batch, 3)
        corrections = ledger.tickets
        await shuttle._write_heads([lane], wait=False)
        await shuttle.drain()
        return corrections

    corrections = asyncio.run(settle_then_drain())

    assert corrections == 1
    assert ledger.waited_for == ledger.tickets == 2
