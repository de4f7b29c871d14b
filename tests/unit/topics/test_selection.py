"""Which topics are mirrored: MirrorMaker 2's truth tables, and where naming a topic says more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.config.health import CanaryConfig
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import ConnectorConfig, HeartbeatsConfig
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.topics.selection import (
    Selection,
    TopicDecision,
    Verdict,
    select_between,
    select_topics,
    shared_targets,
    words_on_twins,
)
from tests.unit.topics.views import SOURCE, TARGET, cluster, flow_with, topic

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


@pytest.mark.parametrize("topic", ["__consumer_offsets", "mm2-plans.internal", ".hidden"])
def test_a_wildcard_does_not_ask_for_internal_topics(topic: str) -> None:
    flow = flow_with(topics=(".*",), topics_exclude=())

    assert decide(flow, topic).verdict is Verdict.INTERNAL


def test_a_topic_whose_name_says_it_came_from_its_own_cluster_is_no_cycle_as_in_kafka_4_3() -> None:
    assert decide(flow_with(topics=(".*",)), "source.orders").target == "source.source.orders"


@pytest.mark.parametrize("topic", ["orders.internal", "orders-internal"])
def test_a_wildcard_takes_users_topics_that_end_in_internal_as_in_kafka_4(topic: str) -> None:
    assert decide(flow_with(topics=(".*",)), topic).verdict is Verdict.MIRRORED


@pytest.mark.parametrize("spelling", ["mm2-plans.internal", r"mm2-plans\.internal"])
def test_an_internal_topic_named_in_full_is_mirrored(spelling: str) -> None:
    flow = flow_with(topics=(".*", spelling), topics_exclude=())

    decision = decide(flow, "mm2-plans.internal")

    assert decision.verdict is Verdict.MIRRORED
    assert decision.target == "source.mm2-plans.internal"


def test_an_internal_topic_named_in_full_is_still_excluded_by_the_default_exclusions() -> None:
    flow = flow_with(topics=("mm2-plans.internal",))

    assert decide(flow, "mm2-plans.internal").verdict is Verdict.EXCLUDED


@pytest.mark.parametrize(
    "topic",
    [
        "heliograph-ledger.A.internal",
        "mm2-offsets.A.internal",
        "mm2-offset-syncs.A.internal",
        "A.checkpoints.internal",
        "mm2-status-A-internal",
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


OWN = "tests.unit.topics.own_classes:"


def test_a_filter_of_ones_own_decides_and_is_named() -> None:
    flow = flow_with(topics=("-eu",), topic_filter_class=OWN + "EndsIn")

    wanted, other = decide(flow, "orders-eu"), decide(flow, "orders")

    assert (wanted.verdict, wanted.why) == (Verdict.MIRRORED, f"`{OWN}EndsIn` asks for it")
    assert (other.verdict, other.why) == (
        Verdict.NOT_MATCHED,
        f"`{OWN}EndsIn` does not ask for it",
    )


def test_a_filter_of_ones_own_cannot_ask_for_internal_topics_unless_topics_names_them() -> None:
    path = OWN + "Raising"
    asked = flow_with(topics=("mm2-plans.internal",), topic_filter_class=path)

    assert decide(asked, "mm2-plans.internal").verdict is Verdict.MIRRORED
    assert decide(asked, "mm2-others.internal").verdict is Verdict.INTERNAL
    assert decide(asked, "__consumer_offsets").verdict is Verdict.INTERNAL
    assert select_topics(asked, []).absent == ()


def test_heartbeats_are_mirrored_whatever_a_filter_of_ones_own_says() -> None:
    flow = flow_with(topics=("-eu",), topic_filter_class=OWN + "EndsIn")

    decision = decide(flow, "heartbeats")

    assert (decision.verdict, decision.why) == (Verdict.MIRRORED, "heartbeats")


def test_a_filter_that_raises_on_a_topic_fails_that_topic_alone() -> None:
    flow = flow_with(topic_filter_class=OWN + "Raising")

    selection = select_topics(flow, [TopicName("orders"), TopicName("raising")])

    orders, raising = selection.decisions
    assert (orders.verdict, orders.is_problem) == (Verdict.MIRRORED, False)
    assert (raising.verdict, raising.is_problem) == (Verdict.FAILED, True)
    assert raising.why == (
        f"`{OWN}Raising`: should_mirror('raising') raised RuntimeError: cannot say"
    )


@pytest.mark.parametrize(
    ("topic", "verdict", "why"),
    [
        (
            "raising",
            Verdict.FAILED,
            f"`{OWN}Faulty`: target_topic('raising') raised KeyError: 'no such name'",
        ),
        ("number", Verdict.FAILED, f"`{OWN}Faulty`: target_topic('number') gave 5, not a name"),
        (
            "vague",
            Verdict.FAILED,
            f"`{OWN}Faulty`: is_internal('vague') gave 'maybe', not a bool",
        ),
        (
            "blank",
            Verdict.FAILED,
            "its name on the target would be `a b`, which Kafka does not take",
        ),
        ("brokers", Verdict.INTERNAL, "brokers of the target write it themselves"),
        ("ledger", Verdict.INTERNAL, "a mirror's own bookkeeping"),
        ("orders", Verdict.MIRRORED, "matches topics `.*`"),
    ],
)
def test_a_policy_that_fails_on_a_topic_fails_that_topic_alone(
    topic: str, verdict: Verdict, why: str
) -> None:
    decision = decide(flow_with(OWN + "Faulty"), topic)

    assert (decision.verdict, decision.why) == (verdict, why)


def test_a_policy_may_fail_on_topics_nobody_asked_for() -> None:
    flow = flow_with(OWN + "Faulty", topics=("orders",))

    assert decide(flow, "raising").verdict is Verdict.NOT_MATCHED


def test_topics_that_would_share_a_name_are_not_mirrored_and_each_names_the_others() -> None:
    flow = flow_with(OWN + "Lowering")

    selection = select_topics(flow, [TopicName(name) for name in ("Orders", "orders", "pay")])

    upper, lower, pay = selection.decisions
    assert (upper.verdict, upper.is_problem) == (Verdict.CLASH, True)
    assert upper.why == "would be `source.orders` on the target, and so would orders"
    assert lower.why == "would be `source.orders` on the target, and so would Orders"
    assert pay.verdict is Verdict.MIRRORED
    assert selection.mirrored == (("pay", "source.pay"),)


def test_a_cycle_is_known_by_the_alias_the_target_was_given() -> None:
    flow = flow_with(
        topics=ANYTHING, topics_exclude=(), connector=ConnectorConfig(target_alias="us")
    )

    assert decide(flow, "us.orders").verdict is Verdict.CYCLE
    assert decide(flow, "target.orders").verdict is Verdict.MIRRORED


def test_a_policy_of_ones_own_takes_part_in_finding_cycles() -> None:
    flow = flow_with(OWN + "Suffixed", topics=ANYTHING, topics_exclude=())

    assert decide(flow, "orders-from-target-from-other").verdict is Verdict.CYCLE
    assert decide(flow, "orders-from-other").target == "orders-from-other-from-source"


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


def test_patterns_that_match_no_topic_are_named_apart_from_names() -> None:
    flow = flow_with(topics=("nosuch.*", "ord.*", "absent"))

    found = select_topics(flow, [TopicName("orders")])

    assert found.unmatched == ("nosuch.*",)
    assert found.absent == ("absent",)


@pytest.mark.parametrize(
    ("policy", "one_cluster", "verdict"),
    [
        ("IdentityReplicationPolicy", True, Verdict.ITSELF),
        ("IdentityReplicationPolicy", False, Verdict.MIRRORED),
        ("DefaultReplicationPolicy", True, Verdict.MIRRORED),
    ],
)
def test_a_topic_is_never_copied_onto_itself(
    policy: str, one_cluster: bool, verdict: Verdict
) -> None:
    source, target = cluster(SOURCE, topic("orders")), cluster(TARGET, topic("orders"))
    if one_cluster:
        target = replace(target, cluster_id=source.cluster_id)

    (decision,) = select_between(flow_with(policy), source, target).decisions

    assert decision.verdict is verdict
    assert decision.is_problem == (verdict is Verdict.ITSELF)


def test_aliases_of_one_cluster_are_named() -> None:
    views = [cluster(ClusterAlias(alias)) for alias in ("c", "a", "d", "b")]
    one = [replace(view, cluster_id="one") for view in views[:3]]

    (said,) = words_on_twins([*one, views[3]])

    assert said.startswith("a, c and d are aliases of one cluster, one: ")
    assert words_on_twins([replace(view, cluster_id=None) for view in views]) == ()


@pytest.mark.parametrize(
    ("topic", "verdict"),
    [
        ("heliograph-canary-source", Verdict.MIRRORED),
        ("heliograph-canary-target", Verdict.CYCLE),
        ("heliograph-canary-else", Verdict.MIRRORED),
        ("orders", Verdict.NOT_MATCHED),
    ],
)
@pytest.mark.parametrize("policy", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
def test_canaries_are_mirrored_whatever_topics_says_and_never_come_home(
    policy: str, topic: str, verdict: Verdict
) -> None:
    flow = flow_with(policy, topics=("none",), canary=CanaryConfig(enabled=True))

    assert decide(flow, topic).verdict is verdict


@pytest.mark.parametrize(
    ("topic", "verdict"),
    [
        ("up.heliograph-canary-up", Verdict.MIRRORED),
        ("target.heliograph-canary-target", Verdict.CYCLE),
        ("up.target.heliograph-canary-target", Verdict.CYCLE),
    ],
)
def test_in_a_chain_canaries_of_the_clusters_before_pass_by(topic: str, verdict: Verdict) -> None:
    flow = flow_with(topics=("none",), canary=CanaryConfig(enabled=True))

    assert decide(flow, topic).verdict is verdict


def test_without_a_canary_of_its_own_a_flow_mirrors_what_topics_asks_for() -> None:
    assert decide(flow_with(topics=("none",)), "heliograph-canary-source").verdict is (
        Verdict.NOT_MATCHED
    )
    assert decide(flow_with(topics=ANYTHING), "heliograph-canary-source").verdict is (
        Verdict.MIRRORED
    )
