"""What the driver makes of decisions: lanes, limits, places, and when it plans anew."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.config.schema import FlowConfig
from heliograph.config.sections import LoadConfig
from heliograph.decisions.decision import Decision, Verb, scope_of
from heliograph.decisions.record import new_id
from heliograph.driver.decided import DecidedFlows, limit_name
from heliograph.model import ClusterAlias, FlowId, Lane, LaneId, SlotId, TopicName, TopicPartition

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
