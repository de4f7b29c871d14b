"""A driver hands out only the lanes of flows it leads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from heliograph.broker.clients import Clients
from heliograph.broker.view import ClusterView
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.driver import reconcile
from heliograph.driver.assignment import assign
from heliograph.driver.reconcile import Reconciler
from heliograph.errors import BrokerUnreachable
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Fenced, Lapsed, Leadership, Leaderships, Leading, Standby
from heliograph.ledger.service import LedgerService
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    LaneLoad,
    LaneProgress,
    SlotId,
    TopicName,
    TopicPartition,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PARTITION = TopicPartition(topic=TopicName("orders"), partition=0)
LANE = Lane(id=LaneId(flow=FLOW, source=PARTITION), target=PARTITION, source_topic_id=None)
CONFIG = MirrorConfig(
    clusters={
        alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
        for alias in (FLOW.source, FLOW.target)
    },
    pairs=(FlowConfig(id=FLOW, enabled=True),),
)


class FakeSlots:
    def __init__(self) -> None:
        self.applied: list[Mapping[SlotId, tuple[Lane, ...]]] = []
        self.abandoned: frozenset[FlowId] = frozenset()

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId],
        stuck: frozenset[LaneId],
    ) -> None:
        self.applied.append(assignment)
        self.abandoned = abandoned

    def throttle(self, limits: Mapping[str, int]) -> None: ...

    def resume(self, ids: Iterable[LaneId]) -> None: ...

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        return {}

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    def current(self) -> Mapping[LaneId, SlotId]:
        return {}


def reconciler(leadership: Leadership) -> tuple[Reconciler, Leaderships]:
    """Of a driver whose clusters do not answer, with one lane planned."""
    leaderships = Leaderships([FLOW])
    leaderships[FLOW] = leadership
    made = Reconciler(CONFIG, LedgerService(CONFIG.clusters), Clients(CONFIG), 1, leaderships)
    made._flows[FLOW].lanes, made._flows[FLOW].ready = (LANE,), True
    return made, leaderships


def test_lanes_of_a_flow_that_another_driver_took_leave_the_slots() -> None:
    made, _ = reconciler(Standby())
    slots = FakeSlots()
    was_due = made.due_in_s == 0.0

    asyncio.run(made.reconcile(slots))

    assert was_due
    assert slots.applied == [{SlotId(0): ()}]
    assert not made.finished({})


def test_lanes_are_carried_again_after_a_lapse_though_a_cluster_does_not_answer() -> None:
    """They would look idle for as long as the source is gone."""
    made, leaderships = reconciler(Leading())
    made._flows[FLOW].known = (LANE,)
    slots = FakeSlots()

    async def scenario() -> None:
        leaderships[FLOW] = Lapsed("cluster B did not answer in time")
        await made.reconcile(slots)
        leaderships[FLOW] = Leading()
        await made.reconcile(slots)

    asyncio.run(scenario())

    assert slots.applied == [{SlotId(0): ()}, {SlotId(0): (LANE,)}]
    assert "unreachable" in made.problems[FLOW]


def test_a_driver_that_stands_by_has_nothing_to_do_and_is_not_finished() -> None:
    made, _ = reconciler(Standby())
    asyncio.run(made.reconcile(FakeSlots()))

    assert made.due_in_s == float("inf")
    assert not made.finished({})


def test_a_fenced_flow_leaves_the_slots_while_a_cluster_does_not_answer() -> None:
    made, leaderships = reconciler(Leading())
    slots = FakeSlots()
    free = threading.Event()
    made._admins = {alias: _Silent(alias, free) for alias in made._admins}  # type: ignore[misc]

    async def scenario() -> list[Mapping[SlotId, tuple[Lane, ...]]]:
        await made.rebalance(slots)
        waiting = asyncio.create_task(made.reconcile(slots))
        await asyncio.sleep(0.05)
        leaderships[FLOW] = Fenced(Fence(at_ms=1, why="failed over"))
        await made.drop_lost_flows(slots)
        applied = list(slots.applied)
        free.set()
        await waiting
        return applied

    assert asyncio.run(scenario()) == [{SlotId(0): (LANE,)}, {SlotId(0): ()}]
    assert made.fenced == {FLOW}
    assert made.problems == {FLOW: "failed over"}
    assert made.finished({})


def test_slots_hear_from_the_driver_while_it_assigns_lanes_and_a_flow_lost_meanwhile_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, leaderships = reconciler(Leading())
    slots = FakeSlots()
    assigning, free = threading.Event(), threading.Event()

    def assign_slowly(*arguments: Any, **options: Any) -> Mapping[LaneId, SlotId]:
        assigning.set()
        assert free.wait(30), "the loop stood still"
        return assign(*arguments, **options)

    monkeypatch.setattr(reconcile, "assign", assign_slowly)

    async def scenario() -> None:
        rebalancing = asyncio.create_task(made.rebalance(slots))
        while not assigning.is_set():
            await asyncio.sleep(0.01)
        leaderships[FLOW] = Standby()
        free.set()
        await rebalancing

    asyncio.run(scenario())

    assert slots.applied == [{SlotId(0): ()}]


class _Silent:
    """A cluster that does not answer until it is free."""

    def __init__(self, alias: ClusterAlias, free: threading.Event) -> None:
        self.alias, self._free = alias, free

    def describe(self) -> ClusterView:
        self._free.wait(30)
        raise BrokerUnreachable(f"cluster {self.alias}: no answer")
