"""A driver hands out only the lanes of flows it leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    LaneProgress,
    SlotId,
    TopicName,
    TopicPartition,
)
from heliograph.plan.assignment import LaneLoad
from heliograph.services.clients import Clients
from heliograph.services.desk import LedgerDesk
from heliograph.services.steer import Mirror

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
    desk, slots = LedgerDesk(CONFIG.clusters), FakeSlots()
    try:
        mirror = Mirror(CONFIG, desk, Clients(CONFIG), 1, leads=lambda _: False)
        mirror._flows[FLOW].lanes, mirror._flows[FLOW].ready = (LANE,), True
        was_due = mirror.due

        mirror.steer(slots)

        assert was_due
        assert slots.applied == [{SlotId(0): ()}]
        assert not mirror.ready
    finally:
        desk.close()


def test_a_driver_that_stands_by_has_nothing_to_do_and_is_not_finished() -> None:
    desk = LedgerDesk(CONFIG.clusters)
    try:
        mirror = Mirror(CONFIG, desk, Clients(CONFIG), 1, leads=lambda _: False)

        assert not mirror.due
        assert not mirror.finished({})
    finally:
        desk.close()
