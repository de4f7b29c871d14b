"""Which topics are mirrored: MirrorMaker 2's truth tables, and where naming a topic says more."""

from __future__ import annotations

import pytest

from heliograph.config.schema import FlowConfig
from heliograph.config.sections import HeartbeatsConfig
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.plan.topics import Selection, TopicDecision, Verdict, select_topics, shared_targets
from tests.unit.plan.views import flow_with

ANYTHING = (".*",)


def decide(flow: FlowConfig, topic: str) -> TopicDecision:
    (decision,) = select_topics(flow, [TopicName(topic)]).decisions
    return decision


@pytest.mark.parametrize(
    ("topic", "verdict"),
    [
        ("target.topic1", Verdict.CYCLE),
        ("target.source.topic1", Verdict.CYCLE),
        ("source.target.topic1", Verdict.CYCLE),
        ("target.source.target.topic1", Verdict.CYCLE),
        ("source.target.source.topic1", Verdict.CYCLE),
        ("topic1", Verdict.MIRRORED),
        ("source.topic1", Verdict.MIRRORED),
    ],
)
def test_the_default_policy_never_goes_round_in_a_circle(topic: str, verdict: Verdict) -> None:
    """MirrorSourceConnectorTest.testNoCycles."""
    flow = flow_with(topics=ANYTHING, topics_exclude=())

    assert decide(flow, topic).verdict is verdict


@pytest.mark.parametrize(
    ("topic", "verdict"),
    [
        ("target.topic1", Verdict.MIRRORED),
        ("target.source.topic1", Verdict.MIRRORED),
        ("source.target.topic1", Verdict.MIRRORED),
        ("target.source.target.topic1", Verdict.MIRRORED),
        ("source.target.source.topic1", Verdict.MIRRORED),
        ("topic1", Verdict.MIRRORED),
        ("othersource.topic1", Verdict.MIRRORED),
        ("target.heartbeats", Verdict.CYCLE),
        ("target.source.heartbeats", Verdict.CYCLE),
        ("source.target.heartbeats", Verdict.CYCLE),
        ("target.source.target.heartbeats", Verdict.CYCLE),
        ("source.target.source.heartbeats", Verdict.CYCLE),
        ("heartbeats", Verdict.MIRRORED),
        ("othersource.heartbeats", Verdict.MIRRORED),
    ],
)
def test_the_identity_policy_sees_cycles_of_heartbeats_only(topic: str, verdict: Verdict) -> None:
    """MirrorSourceConnectorTest.testIdentityReplication."""
    flow = flow_with("IdentityReplicationPolicy", topics=ANYTHING, topics_exclude=())

    assert decide(flow, topic).verdict is verdict


@pytest.mark.parametrize("topic", ["heartbeats", "us-west.heartbeats"])
def test_heartbeats_are_mirrored_whatever_the_patterns_say(topic: str) -> None:
    flow = flow_with(topics=(), topics_exclude=(".*heartbeats",))

    assert decide(flow, topic).verdict is Verdict.MIRRORED


def test_heartbeats_of_another_separator_are_ordinary_topics() -> None:
    flow = flow_with(topics=(), separator="_")

    assert decide(flow, "us-west_heartbeats").verdict is Verdict.MIRRORED
    assert decide(flow, "us-west.heartbeats").verdict is Verdict.NOT_MATCHED


def test_heartbeats_switched_off_follow_the_patterns_like_any_topic() -> None:
    off = HeartbeatsConfig(replicated=False)

    assert decide(flow_with(topics=(), heartbeats=off), "heartbeats").verdict is Verdict.NOT_MATCHED
    assert decide(flow_with(topics=ANYTHING, heartbeats=off), "heartbeats").verdict is (
        Verdict.MIRRORED
    )


def test_a_pattern_must_match_the_whole_name() -> None:
    flow = flow_with(topics=("orders", "pay.*"))

    assert decide(flow, "orders").verdict is Verdict.MIRRORED
    assert decide(flow, "orders-eu").verdict is Verdict.NOT_MATCHED
    assert decide(flow, "payments").verdict is Verdict.MIRRORED
    assert decide(flow, "my-payments").verdict is Verdict.NOT_MATCHED


def test_no_pattern_at_all_matches_nothing() -> None:
    assert decide(flow_with(topics=()), "orders").verdict is Verdict.NOT_MATCHED


def test_an_exclusion_wins_and_is_named() -> None:
    decision = decide(flow_with(topics=("orders",), topics_exclude=("ord.*",)), "orders")

    assert decision.verdict is Verdict.EXCLUDED
    assert decision.why == "matches topics.exclude `ord.*`"
    assert decision.target is None


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "orders.internal", "orders-internal", ".hidden"]
)
def test_a_wildcard_does_not_ask_for_internal_topics(topic: str) -> None:
    flow = flow_with(topics=(".*",), topics_exclude=())

    assert decide(flow, topic).verdict is Verdict.INTERNAL


@pytest.mark.parametrize("spelling", ["orders.internal", r"orders\.internal"])
def test_an_internal_topic_named_in_full_is_mirrored(spelling: str) -> None:
    flow = flow_with(topics=(".*", spelling), topics_exclude=())

    decision = decide(flow, "orders.internal")

    assert decision.verdict is Verdict.MIRRORED
    assert decision.target == "source.orders.internal"


def test_an_internal_topic_named_in_full_is_still_excluded_by_the_default_exclusions() -> None:
    flow = flow_with(topics=("orders.internal",))

    assert decide(flow, "orders.internal").verdict is Verdict.EXCLUDED


@pytest.mark.parametrize(
    "topic",
    [
        "heliograph-ledger.A.internal",
        "mm2-offsets.A.internal",
        "mm2-offset-syncs.A.internal",
        "A.checkpoints.internal",
    ],
)
def test_bookkeeping_of_mirrors_is_not_mirrored_even_when_named(topic: str) -> None:
    flow = flow_with(topics=(topic,), topics_exclude=())

    assert decide(flow, topic).verdict is Verdict.INTERNAL


def test_topics_of_the_brokers_themselves_are_never_written_under_their_own_name() -> None:
    asked = ("__consumer_offsets",)
    renamed = flow_with(topics=asked, topics_exclude=())
    kept = flow_with("IdentityReplicationPolicy", topics=asked, topics_exclude=())

    assert decide(renamed, "__consumer_offsets").target == "source.__consumer_offsets"
    assert decide(kept, "__consumer_offsets").verdict is Verdict.INTERNAL


def test_a_topic_asked_for_by_name_and_not_seen_is_reported_absent() -> None:
    flow = flow_with(topics=("orders", r"pay\.ments", "log.*"))

    selection = select_topics(flow, [TopicName("orders")])

    assert selection.absent == ("pay.ments",)


def test_decisions_come_in_order_of_name_with_the_mirrored_ones_paired() -> None:
    flow = flow_with(topics=("b", "a"))

    selection = select_topics(flow, [TopicName(name) for name in ("c", "b", "a")])

    assert [decision.topic for decision in selection.decisions] == ["a", "b", "c"]
    assert selection.mirrored == (("a", "source.a"), ("b", "source.b"))


def test_a_target_topic_that_two_flows_write_to_is_found() -> None:
    def selected(source: str, target: str) -> Selection:
        flow = FlowId(source=ClusterAlias(source), target=ClusterAlias(target))
        orders = TopicName("orders")
        decision = TopicDecision(topic=orders, verdict=Verdict.MIRRORED, why="", target=orders)
        return Selection(flow=flow, decisions=(decision,), absent=())

    shared = shared_targets([selected("A", "C"), selected("B", "C"), selected("A", "B")])

    assert shared == {
        ("C", "orders"): (
            FlowId(source=ClusterAlias("A"), target=ClusterAlias("C")),
            FlowId(source=ClusterAlias("B"), target=ClusterAlias("C")),
        )
    }
