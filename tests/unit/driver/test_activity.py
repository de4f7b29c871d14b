"""What a driver does for a flow at the moment, as leases ask for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from heliograph.broker.blocking import Changed
from heliograph.driver import activity as activity_module
from heliograph.driver.activity import FlowActivity
from heliograph.model import ClusterAlias, FlowId, LaneId, SlotId, TopicName, TopicPartition

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
BACK = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))
ORDERS, BILLS = TopicName("orders"), TopicName("bills")


class Slots:
    count = 1

    def __init__(self, *lanes: tuple[FlowId, TopicName]) -> None:
        self.lanes = {
            LaneId(flow=flow, source=TopicPartition(topic=topic, partition=0)): SlotId(0)
            for flow, topic in lanes
        }

    def current(self) -> Mapping[LaneId, SlotId]:
        return self.lanes


def test_a_topic_is_left_when_no_slot_has_a_lane_of_it_whatever_others_have() -> None:
    async_changed = Changed()
    carried = FlowActivity(Slots((FLOW, ORDERS), (FLOW, BILLS)), async_changed)
    left = FlowActivity(Slots((FLOW, BILLS), (BACK, ORDERS)), async_changed)

    assert not carried.has_left(FLOW, [ORDERS])
    assert left.has_left(FLOW, [ORDERS])
    assert not left.has_left(FLOW, [ORDERS, BILLS])


def test_a_job_of_the_flow_that_is_at_work_is_waited_for_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(activity_module, "monotonic_s", lambda: now_s)
    activity = FlowActivity(Slots(), Changed())

    with activity.job(FLOW):
        at_once = activity.has_left(FLOW, [ORDERS])
        now_s += 0.9
        soon = activity.has_left(FLOW, [ORDERS])
        now_s += 0.2
        later = activity.has_left(FLOW, [ORDERS])
    with activity.job(BACK):
        others = activity.has_left(FLOW, [ORDERS])

    assert (at_once, soon, later, others) == (False, False, True, True)
