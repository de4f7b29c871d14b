"""Why a topic is mirrored or not, from every place that may decide it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.broker.view import PartitionView
from heliograph.clock import now_ms
from heliograph.config.explain import DEFAULT, TOP_LEVEL, Effective
from heliograph.decisions.decision import Decision, Scope, Verb
from heliograph.decisions.orders import FlowOrders, orders_of
from heliograph.errors import BrokerUnreachable
from heliograph.inspect.flow_status import FENCED, FlowStatus, LaneStatus
from heliograph.inspect.status import held_by
from heliograph.inspect.waiting import FOR_ADOPT, FOR_DRIVER, FOR_TOPIC, NOT_EMPTY, WaitingLane
from heliograph.inspect.why import FlowFacts, FlowWhy, Reason, Standing, why_of
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.model import LaneId, TopicName, TopicPartition
from heliograph.topics.naming import DefaultReplicationPolicy
from tests.unit.topics.views import FLOW_ID, SOURCE, TARGET, cluster, flow_with, topic

ORDERS = TopicName("orders")
HOLDER = LeaseEntry(author="a", host="h", pid=1, at_ms=0, lease_ms=1, slot_count=1)
VALUES = {
    "topics": Effective(name="topics", value="orders", source="source->target.topics", line=4),
    "topics.exclude": Effective(name="topics.exclude", value="", source=DEFAULT, line=None),
    "enabled": Effective(name="enabled", value="false", source=TOP_LEVEL, line=2),
}


def lane(partition: int = 0, state: str = "idle", detail: str = "", **fields: Any) -> LaneStatus:
    place = TopicPartition(topic=ORDERS, partition=partition)
    known: dict[str, Any] = {"lag_records": 0, **fields}
    return LaneStatus(
        lane=LaneId(flow=FLOW_ID, source=place),
        target=TopicPartition(topic=TopicName("source.orders"), partition=partition),
        state=state,
        detail=detail,
        position=9,
        position_is_exact=True,
        source_start_offset=0,
        source_next_offset=9,
        source_end_offset=9,
        target_next_offset=9,
        lag_s=0.0,
        mapped_because="",
        lost_records=0,
        foreign_records=0,
        noted_ms=1,
        **known,
    )


def waiting(state: str) -> WaitingLane:
    place = TopicPartition(topic=ORDERS, partition=0)
    return WaitingLane(
        lane=LaneId(flow=FLOW_ID, source=place),
        target=place,
        state=state,
        detail="why",
        lag_records=3,
    )


def status(*lanes: LaneStatus | WaitingLane, **fields: Any) -> FlowStatus:
    known: dict[str, Any] = {"holder": HOLDER, **fields}
    return FlowStatus(
        flow=FLOW_ID,
        producer=None,
        lanes=tuple(each for each in lanes if isinstance(each, LaneStatus)),
        waiting=tuple(each for each in lanes if isinstance(each, WaitingLane)),
        **known,
    )


def facts(
    seen: FlowStatus | None = None, names: tuple[str, ...] = ("orders",), **fields: Any
) -> FlowFacts:
    known: dict[str, Any] = {
        "flow": flow_with(topics=("orders",), topics_exclude=()),
        "source": cluster(SOURCE, *(topic(name) for name in names)),
        "target": cluster(TARGET),
        "status": seen or status(lane()),
        "values": VALUES,
        **fields,
    }
    return FlowFacts(**known)


def ask(of: FlowFacts, name: str = "orders") -> FlowWhy:
    return why_of(of, TopicName(name))


def decided(verb: Verb, scope: Scope | None = None) -> FlowOrders:
    made = Decision(
        id="0123456789", verb=verb, scope=scope or Scope(), who="ann", at_ms=1, why="upgrade"
    )
    return orders_of((made,), now_ms())


def test_a_topic_that_is_mirrored_says_by_which_line_and_since_when() -> None:
    seen = ask(facts(since_ms=7))

    assert (seen.standing, seen.target, seen.since_ms) == (Standing.MIRRORED, "source.orders", 7)
    assert seen.states == {"idle": 1}
    assert list(map(str, seen.reasons)) == [
        "matches topics `orders` (line 4: source->target.topics)"
    ]


def test_a_flow_that_is_not_enabled_names_the_line() -> None:
    flow = flow_with().model_copy(update={"enabled": False})

    seen = ask(facts(flow=flow, status=None))

    assert seen.standing is Standing.DISABLED
    assert str(seen.reasons[0]) == "source->target mirrors nothing (line 2: enabled)"


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        (
            "payments",
            {},
            "no pattern of topics matches it: `orders` (line 4: source->target.topics)",
        ),
        (
            "orders.internal",
            {"topics": (".*",), "topics_exclude": (r".*[\-\.]internal",)},
            r"matches topics.exclude `.*[\-\.]internal` (default of topics.exclude)",
        ),
        (
            "target.orders",
            {"topics": (".*",)},
            "its name says it came from target: mirrored back it would go round endlessly",
        ),
        (
            "__consumer_offsets",
            {"topics": (".*",)},
            "internal by its name; mirrored only if topics names it in full",
        ),
    ],
)
def test_a_topic_that_the_rules_leave_out_names_the_rule(
    name: str, fields: dict[str, Any], said: str
) -> None:
    flow = flow_with(**{"topics": ("orders",), "topics_exclude": (), **fields})

    seen = ask(facts(names=(name,), flow=flow), name)

    assert seen.standing is Standing.NOT_MIRRORED
    assert seen.target is None
    assert str(seen.reasons[0]) == said


def test_a_pattern_that_nearly_matches_is_suggested() -> None:
    seen = ask(facts(names=("eu.orders",)), "eu.orders")

    assert "`.*orders` would" in str(seen.reasons[1])


def test_a_topic_that_was_excluded_says_by_whom() -> None:
    orders = decided(Verb.EXCLUDE, Scope(topics=("orders",)))

    seen = ask(facts(status(orders=orders)))

    assert seen.standing is Standing.NOT_MIRRORED
    assert str(seen.reasons[0]) == "excluded by ann: upgrade"
    assert "heliograph include FILE" in seen.reasons[0].fix


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"names": ("Orders",)}, "it is not on cluster source (did you mean `Orders`?)"),
        ({"names": (), "hidden": "missing permission DESCRIBE"}, "missing permission DESCRIBE"),
        (
            {"names": (), "since_ms": 5},
            "it was mirrored, and is no longer on cluster source; its copy is kept",
        ),
    ],
)
def test_a_topic_that_is_not_on_the_source_says_what_is_known_of_it(
    fields: dict[str, Any], first: str
) -> None:
    seen = ask(facts(status(), **fields))

    assert seen.standing is Standing.NOT_MIRRORED
    assert [reason.text for reason in seen.reasons] == [
        first,
        "once it is there: matches topics `orders`",
    ]


def test_a_topic_that_is_neither_there_nor_wanted_says_both() -> None:
    seen = ask(facts(status(), names=()), "payments")

    assert seen.reasons[1].text.startswith("even if it were there: no pattern of topics")
    assert seen.reasons[1].line == 4


def paused_lane() -> LaneStatus:
    orders = decided(Verb.PAUSE).lane(TopicPartition(topic=ORDERS, partition=0))
    held = held_by(orders)
    assert held is not None
    return lane(state=held[0], detail=held[1], decided=orders)


@pytest.mark.parametrize(
    ("seen", "standing", "said"),
    [
        (
            status(lane(state=FENCED), fence=Fence(at_ms=1, why="failed over to target")),
            Standing.HELD,
            "source->target is fenced: failed over to target",
        ),
        (
            status(lane(state="stopped"), orders=decided(Verb.STOP)),
            Standing.HELD,
            "source->target is stopped by ann: upgrade",
        ),
        (status(paused_lane()), Standing.HELD, "1 lane paused by ann: upgrade"),
        (status(lane(state="released")), Standing.HELD, "1 lane handed to MirrorMaker 2"),
        (
            status(lane(state="stalled: corrupt batch", detail="orders-0: bad CRC"), lane(1)),
            Standing.STALLED,
            "1 lane stalled: corrupt batch: orders-0: bad CRC",
        ),
        (
            status(waiting(NOT_EMPTY)),
            Standing.STALLED,
            "1 lane stalled: target not empty: why",
        ),
        (
            status(waiting(FOR_ADOPT)),
            Standing.WAITING,
            "1 lane mirrored by MirrorMaker 2 until now",
        ),
        (
            status(waiting(FOR_TOPIC)),
            Standing.WAITING,
            "1 lane the target topic is not there yet; the driver looks for new topics every 600 s",
        ),
        (status(waiting(FOR_DRIVER), holder=None), Standing.WAITING, "1 lane not begun"),
        (
            status(lane(state="stopped"), holder=None),
            Standing.WAITING,
            "no driver mirrors source->target",
        ),
    ],
)
def test_a_topic_that_should_be_mirrored_says_what_keeps_it(
    seen: FlowStatus, standing: Standing, said: str
) -> None:
    found = ask(facts(seen))

    assert (found.standing, found.reasons[0].text) == (standing, said)
    assert found.reasons[-1].text == "matches topics `orders`"


def test_a_lane_that_waits_for_a_driver_says_that_there_is_none() -> None:
    found = ask(facts(status(waiting(FOR_DRIVER), holder=None)))

    assert "no driver mirrors source->target" in [reason.text for reason in found.reasons]


def test_a_partition_without_a_leader_is_told() -> None:
    led, dead = PartitionView(partition=0, leader=1), PartitionView(partition=1, leader=None)
    source = cluster(SOURCE, replace(topic("orders"), partitions=(led, dead)))

    found = ask(facts(source=source))

    assert (found.standing, found.reasons[0].text) == (
        Standing.STALLED,
        "1 partition without a leader on cluster source",
    )


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_cluster_that_does_not_answer_is_no_answer(side: str) -> None:
    silent = BrokerUnreachable(f"cluster {side}: unreachable")

    found = ask(facts(source=silent) if side == "source" else facts(target=silent))

    assert found.standing is Standing.UNKNOWN
    assert found.reasons[0].text == f"cluster {side}: unreachable"


def test_a_flow_whose_ledger_was_not_read_is_no_answer() -> None:
    found = ask(facts(status(is_known=False, problem="missing permission READ")))

    assert (found.standing, found.reasons[0].text) == (
        Standing.UNKNOWN,
        "missing permission READ",
    )


def test_two_topics_that_want_one_name_are_told() -> None:
    flow = flow_with("tests.unit.inspect.test_why:Same", topics=("a", "b"), topics_exclude=())

    found = ask(facts(names=("a", "b"), flow=flow), "a")

    assert found.standing is Standing.NOT_MIRRORED
    assert found.reasons[0].text == "would be `same` on the target, and so would b"


class Same(DefaultReplicationPolicy):
    """A policy that gives every topic one name."""

    def target_topic(self, topic: TopicName) -> TopicName:
        return TopicName("same")


def test_a_reason_without_a_file_at_hand_has_no_place() -> None:
    assert str(Reason(text="matches topics `x`", key="topics")) == "matches topics `x`"
