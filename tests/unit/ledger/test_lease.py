"""What a driver is to a flow is a value; tasks read it and wait for it to change."""

from __future__ import annotations

import asyncio

from heliograph.ledger.fence import Fence
from heliograph.ledger.lease import Fenced, Leaderships, Leading, Standby
from heliograph.model import ClusterAlias, FlowId

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
OTHER = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))


def test_a_flow_is_not_led_before_its_ledger_was_read() -> None:
    leaderships = Leaderships([FLOW])

    assert leaderships[FLOW] == Standby(None)
    assert not leaderships.leads(FLOW)


def test_a_pair_without_a_lease_is_every_drivers_to_look_after() -> None:
    assert Leaderships([FLOW]).leads(OTHER)


def test_a_fence_says_why_nothing_is_mirrored() -> None:
    leaderships = Leaderships([FLOW])

    leaderships[FLOW] = Fenced(Fence(at_ms=1, why="failed over"))

    assert not leaderships.leads(FLOW)
    assert leaderships.why_fenced(FLOW) == "failed over"
    assert leaderships.why_fenced(OTHER) == ""


def test_a_task_that_waits_to_lead_is_woken_by_nothing_else() -> None:
    async def scenario() -> list[bool]:
        leaderships = Leaderships([FLOW])
        waiting = asyncio.create_task(leaderships.wait_leading(FLOW))
        seen = []
        for value in (Fenced(Fence(at_ms=1, why="failed over")), Standby(), Leading()):
            leaderships[FLOW] = value
            await asyncio.sleep(0.01)
            seen.append(waiting.done())
        return seen

    assert asyncio.run(scenario()) == [False, False, True]
