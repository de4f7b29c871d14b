"""What a driver is to a flow is a value; tasks read it and wait for it to change."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import (
    Fenced,
    Lapsed,
    Leadership,
    Leaderships,
    Leading,
    Standby,
)
from heliograph.model import ClusterAlias, FlowId, TopicName

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
OTHER = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))
UNPLANNED = Fence(at_ms=1, why="failed over")
PLANNED = Fence(at_ms=1, why="failed over", planned=True)


def test_a_flow_is_not_led_before_its_ledger_was_read() -> None:
    leaderships = Leaderships([FLOW])

    assert leaderships[FLOW] == Standby(None)
    assert not leaderships.leads(FLOW)


def test_a_pair_without_a_lease_is_every_drivers_to_look_after() -> None:
    assert Leaderships([FLOW]).leads(OTHER)


def test_a_fence_says_why_nothing_is_mirrored() -> None:
    leaderships = Leaderships([FLOW])

    leaderships[FLOW] = Fenced(UNPLANNED)

    assert not leaderships.leads(FLOW)
    assert leaderships.why_fenced(FLOW) == leaderships.why_not(FLOW) == "failed over"
    assert leaderships.why_fenced(OTHER) == ""


def test_a_lease_that_lapsed_says_why_and_is_no_fence() -> None:
    leaderships = Leaderships([FLOW])

    leaderships[FLOW] = Lapsed("no answer")

    assert not leaderships.leads(FLOW)
    assert leaderships.why_not(FLOW) == "no answer"
    assert leaderships.why_fenced(FLOW) == ""


@pytest.mark.parametrize(
    ("value", "abandons"),
    [
        (Leading(), False),
        (Standby(), True),
        (Lapsed("no answer"), True),
        (Fenced(UNPLANNED), True),
        (Fenced(PLANNED), False),
    ],
)
def test_only_a_leader_and_a_planned_failover_append_what_was_fetched(
    value: Leadership, abandons: bool
) -> None:
    leaderships = Leaderships([FLOW])

    leaderships[FLOW] = value

    assert leaderships.abandons(FLOW) is abandons


def test_a_task_that_waits_to_lead_is_woken_by_nothing_else() -> None:
    async def scenario() -> list[bool]:
        leaderships = Leaderships([FLOW])
        waiting = asyncio.create_task(leaderships.wait_leading(FLOW))
        seen = []
        for value in (Fenced(UNPLANNED), Standby(), Leading()):
            leaderships[FLOW] = value
            await asyncio.sleep(0.01)
            seen.append(waiting.done())
        return seen

    assert asyncio.run(scenario()) == [False, False, True]


def test_a_leader_knows_topics_that_were_failed_over_alone_and_nobody_else_needs_to() -> None:
    leaderships, alone = Leaderships([FLOW]), {TopicName("orders"): UNPLANNED}
    before = leaderships.fenced_topics(FLOW)

    leaderships[FLOW] = Leading(alone)

    assert before == {}
    assert leaderships.leads(FLOW)
    assert not leaderships.abandons(FLOW)
    assert leaderships.why_not(FLOW) == ""
    assert leaderships.fenced_topics(FLOW) == alone
