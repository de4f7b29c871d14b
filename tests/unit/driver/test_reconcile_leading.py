"""A driver hands out only the lanes of flows it leads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from heliograph.broker.clients import Clients
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.driver.reconcile import Reconciler
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

    def apply(self, assignment: Mapping[SlotId, tuple[Lane, ...]]) -> None:
        self.applied.append(assignment)

    def resume(self, ids: Iterable[LaneId]) -> None: ...

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        return {}

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    def current(self) -> Mapping[LaneId, SlotId]:
        return {}


def test_lanes_of_a_flow_that_somebody_else_took_leave_the_slots() -> None:
    ledgers, slots = LedgerService(CONFIG.clusters), FakeSlots()
    try:
        mirror = Reconciler(CONFIG, ledgers, Clients(CONFIG), 1, leads=lambda _: False)
        mirror._flows[FLOW].lanes, mirror._flows[FLOW].ready = (LANE,), True
        was_due = mirror.due

        mirror.reconcile(slots)

        assert was_due
        assert slots.applied == [{SlotId(0): ()}]
        assert not mirror.ready
    finally:
        ledgers.close()


def test_a_driver_that_stands_by_has_nothing_to_do_and_is_not_finished() -> None:
    ledgers = LedgerService(CONFIG.clusters)
    try:
        mirror = Reconciler(CONFIG, ledgers, Clients(CONFIG), 1, leads=lambda _: False)

        assert not mirror.due
        assert not mirror.finished({})
    finally:
        ledgers.close()


def test_a_fenced_flow_leaves_the_slots_from_any_thread_and_holds_up_no_end() -> None:
    ledgers, slots, fenced = LedgerService(CONFIG.clusters), FakeSlots(), threading.Event()
    try:
        mirror = Reconciler(
            CONFIG,
            ledgers,
            Clients(CONFIG),
            1,
            leads=lambda _: not fenced.is_set(),
            why_fenced=lambda _: "failed over" if fenced.is_set() else "",
        )
        mirror._flows[FLOW].lanes, mirror._flows[FLOW].ready = (LANE,), True
        mirror.rebalance(slots)
        fenced.set()

        giver = threading.Thread(target=mirror.drop_lost_flows, args=(slots,))
        giver.start()
        giver.join()

        assert slots.applied == [{SlotId(0): (LANE,)}, {SlotId(0): ()}]
        assert mirror.fenced == {FLOW}
        assert mirror.problems == {FLOW: "failed over"}
        assert mirror.finished({})
    finally:
        ledgers.close()
