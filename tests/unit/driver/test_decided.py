"""What the driver makes of decisions: lanes, limits, places, and when it plans anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.config.schema import FlowConfig, FlowLimits
from heliograph.config.sections import LoadConfig
from heliograph.decisions.decision import Decision, Verb, scope_of
from heliograph.decisions.record import new_id
from heliograph.driver.decided import DecidedFlows, limit_name
from heliograph.model import (
    WRITTEN,
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    SlotId,
    TopicName,
    TopicPartition,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PLAIN = FlowConfig(id=FLOW, enabled=True)


def lane(topic: str, partition: int = 0) -> Lane:
    at = TopicPartition(topic=TopicName(topic), partition=partition)
    return Lane(id=LaneId(flow=FLOW, source=at), target=at, source_topic_id=None)


def made(verb: Verb, *topics: str, **more: Any) -> Decision:
    return Decision(id=new_id(), verb=verb, scope=scope_of(topics), who="ann", at_ms=1, **more)


def decided(*decisions: Decision, flow: FlowConfig = PLAIN) -> DecidedFlows:
    flows = DecidedFlows({FLOW: flow})
    flows.learn(FLOW, decisions)
    return flows


def test_lanes_are_paused_limited_and_left_out_as_decided() -> None:
    pause, limit = made(Verb.PAUSE, "orders"), made(Verb.THROTTLE, bytes_per_s=5)
    flows = decided(pause, limit, made(Verb.EXCLUDE, "logs"))

    (orders,) = flows.carried([lane("orders"), lane("logs")])

    name = limit_name(FLOW, limit)
    assert (orders.paused, orders.limits) == (True, (name,))
    assert flows.limits() == {name: 5}


def test_a_lane_to_be_rewound_is_in_no_slot_until_that_is_done() -> None:
    rewind = made(Verb.REWIND, "orders")

    flows = decided(rewind)

    assert flows.carried([lane("orders"), lane("logs")]) == [lane("logs")]
    assert flows.orders(FLOW).rewinds == (rewind,)


def test_pins_moves_and_drains_are_places() -> None:
    flows = decided(
        made(Verb.PIN, "orders", slots=(1,)),
        made(Verb.MOVE, "logs", slots=(2,)),
        made(Verb.DRAIN, slots=(0,)),
    )

    places = flows.places([lane("orders").id, lane("logs").id, lane("other").id])

    assert places.pinned == {lane("orders").id: {SlotId(1)}}
    assert places.moved == {lane("logs").id: {SlotId(2)}}
    assert places.drained == {FLOW: {SlotId(0)}}


def test_what_the_file_says_holds_until_a_decision_of_the_same_scope() -> None:
    load = LoadConfig(
        throttle_bytes_per_s=100,
        throttle_topics=("logs",),
        throttle_topics_bytes_per_s=10,
        critical_topics=("pay.*",),
    )
    flow = PLAIN.model_copy(update={"load": load})
    lanes = [lane("orders"), lane("logs"), lane("payments")]

    of_file = decided(flow=flow)
    lifted = decided(made(Verb.THROTTLE), made(Verb.PIN, "payments"), flow=flow)

    assert sorted(of_file.limits().values()) == [10, 100]
    assert [len(each.limits) for each in of_file.carried(lanes)] == [1, 2, 1]
    assert of_file.places([each.id for each in lanes]).pinned == {lane("payments").id: {SlotId(0)}}
    assert [len(each.limits) for each in lifted.carried(lanes)] == [0, 1, 0]
    assert not lifted.places([each.id for each in lanes]).pinned
    assert of_file.words() == {FLOW: ()}


@pytest.mark.parametrize(
    ("decision", "replans"),
    [
        (made(Verb.PAUSE), False),
        (made(Verb.THROTTLE, bytes_per_s=1), False),
        (made(Verb.EXCLUDE, "orders"), True),
        (made(Verb.STOP), True),
    ],
)
def test_only_what_changes_the_topics_plans_the_flow_anew(
    decision: Decision, replans: bool
) -> None:
    flows = decided()

    news = flows.learn(FLOW, [decision])
    again = flows.learn(FLOW, [decision])

    assert (news.changed, news.replans) == (True, replans)
    assert (again.changed, again.replans) == (False, False)


def test_a_pair_that_mirrors_nothing_is_never_stopped() -> None:
    back = FlowId(source=FLOW.target, target=FLOW.source)

    assert not decided().is_stopped(back)


def test_a_plan_by_older_decisions_does_not_hold_and_changes_nothing() -> None:
    stop = made(Verb.STOP)
    flows = decided(stop)

    holds = flows.planned(FLOW, (), is_first=False)

    assert not holds
    assert flows.is_stopped(FLOW)


def test_a_pair_that_only_has_heartbeats_is_not_stopped() -> None:
    back = FlowId(source=FLOW.target, target=FLOW.source)

    assert not decided(made(Verb.STOP)).is_stopped(back)


def test_flows_of_a_cluster_share_its_limits_and_the_least_that_was_said_counts() -> None:
    other = FlowId(source=ClusterAlias("C"), target=FLOW.target)
    of_file = FlowLimits(source_bytes_per_s=50, target_bytes_per_s=30)
    flows = DecidedFlows(
        {FLOW: PLAIN.model_copy(update={"limits": of_file}), other: FlowConfig(id=other)}
    )
    flows.learn(FLOW, ())
    flows.learn(other, [made(Verb.THROTTLE_TARGET, bytes_per_s=20)])
    there = replace(lane("orders"), id=LaneId(flow=other, source=lane("orders").id.source))

    carried = flows.carried([lane("orders"), there])

    assert flows.limits() == {"read from A": 50, f"{WRITTEN}B": 20}
    assert [each.limits for each in carried] == [("read from A", f"{WRITTEN}B"), (f"{WRITTEN}B",)]


def test_slots_set_apart_and_slots_drained_by_every_flow_are_known() -> None:
    other = FlowId(source=ClusterAlias("C"), target=FLOW.target)
    flows = DecidedFlows({FLOW: PLAIN, other: FlowConfig(id=other)})
    flows.learn(FLOW, [made(Verb.DRAIN, slots=(1, 2)), made(Verb.PIN, "orders", slots=(4,))])
    flows.learn(other, [made(Verb.DRAIN, slots=(2,)), made(Verb.MOVE, "orders", slots=(3,))])

    assert flows.set_apart() == {SlotId(4)}
    assert flows.drained([FLOW, other]) == {SlotId(2)}
    assert flows.drained([FLOW]) == {SlotId(1), SlotId(2)}
    assert flows.drained([]) == frozenset()
