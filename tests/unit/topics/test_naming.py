"""Names as MirrorMaker 2's policies give and read them (its ReplicationPolicyTest and more)."""

from __future__ import annotations

import pytest

from heliograph.config.schema import FlowConfig, NamingPolicyConfig
from heliograph.config.sections import ConnectorConfig
from heliograph.errors import ConfigError, PluginFailed
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    is_heartbeats,
    naming_policy,
    original_topic,
    source_alias,
    target_alias,
)
from tests.unit.topics.views import FLOW_ID, SOURCE, flow_with

DEFAULT = DefaultReplicationPolicy(source=SOURCE)
UNDERSCORES = DefaultReplicationPolicy(source=SOURCE, separator="__")
IDENTITY = IdentityReplicationPolicy(source=SOURCE)


def test_the_default_policy_puts_the_alias_before_the_name() -> None:
    assert DEFAULT.target_topic(TopicName("orders")) == "source.orders"
    assert UNDERSCORES.target_topic(TopicName("orders")) == "source__orders"


@pytest.mark.parametrize(
    ("topic", "source", "upstream"),
    [
        ("orders", None, None),
        ("a.orders", "a", "orders"),
        ("a.b.orders", "a", "b.orders"),
        # Java's split keeps empty strings at the front and drops them at the end.
        (".orders", "", "orders"),
        ("a.", None, None),
        ("a..", None, None),
        ("..", None, None),
        ("a..b", "a", ".b"),
    ],
)
def test_the_default_policy_reads_names_as_java_splits_them(
    topic: str, source: str | None, upstream: str | None
) -> None:
    name = TopicName(topic)

    assert DEFAULT.topic_source(name) == source
    assert DEFAULT.upstream_topic(name) == upstream


def test_a_separator_of_two_characters_is_one_separator() -> None:
    assert UNDERSCORES.topic_source(TopicName("a_b__orders")) == "a_b"
    assert UNDERSCORES.upstream_topic(TopicName("a_b__orders")) == "orders"
    assert UNDERSCORES.topic_source(TopicName("a.orders")) is None


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("__consumer_offsets", True),
        (".hiddentopic", True),
        ("mm2-offsets.CLUSTER.internal", True),
        ("mm2-offsets-CLUSTER-internal", False),
        ("CLUSTER.checkpoints.internal", True),
        ("mm2-offsets_CLUSTER_internal", False),
        ("heliograph-ledger.source.internal", True),
        ("orders.internal", False),
        ("internal", False),
        ("orders", False),
        ("heartbeats", False),
    ],
)
def test_internal_topics_are_known_by_their_names(topic: str, internal: bool) -> None:
    assert DEFAULT.is_internal(TopicName(topic)) is internal


def test_a_separator_of_ones_own_ends_internal_names_too_unless_switched_off() -> None:
    dotted = DefaultReplicationPolicy(
        source=SOURCE, separator="_", internal_separator_enabled=False
    )
    underscored = DefaultReplicationPolicy(source=SOURCE, separator="_")
    name = TopicName("mm2-offset-syncs_CLUSTER_internal")

    assert underscored.is_internal(name)
    assert not dotted.is_internal(name)


def test_names_of_offset_syncs_and_checkpoints_follow_the_internal_separator() -> None:
    dotted = DefaultReplicationPolicy(
        source=SOURCE, separator="__", internal_separator_enabled=False
    )
    alias = ClusterAlias("CLUSTER")

    assert dotted.offset_syncs_topic(alias) == "mm2-offset-syncs.CLUSTER.internal"
    assert dotted.checkpoints_topic(alias) == "CLUSTER.checkpoints.internal"
    assert UNDERSCORES.offset_syncs_topic(alias) == "mm2-offset-syncs__CLUSTER__internal"
    assert UNDERSCORES.checkpoints_topic(alias) == "CLUSTER__checkpoints__internal"


@pytest.mark.parametrize(
    ("topic", "bookkeeping"),
    [
        ("mm2-offsets.A.internal", True),
        ("mm2-configs.A.internal", True),
        ("mm2-status.A.internal", True),
        ("mm2-offset-syncs.A.internal", True),
        ("A.checkpoints.internal", True),
        ("heliograph-ledger.A.internal", True),
        ("orders.internal", False),
        ("__consumer_offsets", False),
        ("mm2-offsets", False),
    ],
)
def test_bookkeeping_of_mirrors_is_told_from_other_internal_topics(
    topic: str, bookkeeping: bool
) -> None:
    assert DEFAULT.is_mirror_bookkeeping(TopicName(topic)) is bookkeeping


def test_the_identity_policy_keeps_names_and_claims_every_topic_for_its_source() -> None:
    name = TopicName("target.orders")

    assert IDENTITY.target_topic(name) == name
    assert IDENTITY.topic_source(name) == SOURCE
    assert IDENTITY.upstream_topic(name) == name
    assert original_topic(IDENTITY, name) == name


def test_the_identity_policy_renames_whatever_ends_in_heartbeats() -> None:
    assert IDENTITY.target_topic(TopicName("heartbeats")) == "source.heartbeats"
    assert IDENTITY.target_topic(TopicName("device-heartbeats")) == "source.device-heartbeats"
    assert IDENTITY.topic_source(TopicName("us-west.heartbeats")) == "us-west"
    assert IDENTITY.topic_source(TopicName("heartbeats")) is None


def test_heartbeats_are_recognised_over_any_number_of_hops() -> None:
    assert is_heartbeats(DEFAULT, TopicName("heartbeats"))
    assert is_heartbeats(DEFAULT, TopicName("us-west.us-east.heartbeats"))
    assert not is_heartbeats(DEFAULT, TopicName("device-heartbeats"))
    assert not is_heartbeats(UNDERSCORES, TopicName("us-west.heartbeats"))
    assert is_heartbeats(IDENTITY, TopicName("us-west.heartbeats"))


@pytest.mark.parametrize("package", ["", "org.apache.kafka.connect.mirror."])
def test_a_policy_is_chosen_by_its_java_class_with_or_without_package(package: str) -> None:
    default = naming_policy(flow_with(f"{package}DefaultReplicationPolicy", separator="_"))
    identity = naming_policy(flow_with(f"{package}IdentityReplicationPolicy"))

    assert default == DefaultReplicationPolicy(source=SOURCE, separator="_")
    assert identity == IdentityReplicationPolicy(source=SOURCE)


def test_an_unknown_policy_is_a_sentence_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        naming_policy(flow_with("com.acme.MyPolicy", separator=""))

    assert caught.value.problems == (
        "replication.policy.class: com.acme.MyPolicy is not a known policy; "
        "use DefaultReplicationPolicy or IdentityReplicationPolicy, "
        "or a Python class written `module:Class`",
        "replication.policy.separator: is empty, so no name could be read back",
    )


def test_the_alias_in_names_may_be_configured_apart_from_the_clusters() -> None:
    flow = FlowConfig(
        id=FLOW_ID, policy=NamingPolicyConfig(), connector=ConnectorConfig(source_alias="eu")
    )

    assert naming_policy(flow).target_topic(TopicName("orders")) == "eu.orders"


OWN = "tests.unit.topics.own_classes:"


def test_a_policy_of_ones_own_names_topics_and_reads_names_back() -> None:
    policy = naming_policy(flow_with(OWN + "Suffixed"))

    name = TopicName("orders-from-source")
    assert policy.target_topic(TopicName("orders")) == name
    assert (policy.topic_source(name), policy.upstream_topic(name)) == ("source", "orders")
    assert policy.topic_source(TopicName("orders")) is None
    assert original_topic(policy, TopicName("orders-from-a-from-b")) == "orders"
    assert policy.checkpoints_topic(SOURCE) == "source.checkpoints.internal"
    assert policy.offset_syncs_topic(SOURCE) == "mm2-offset-syncs.source.internal"


def test_a_policy_of_ones_own_may_be_told_apart_by_the_configured_alias_and_separator() -> None:
    flow = FlowConfig(
        id=FLOW_ID,
        policy=NamingPolicyConfig(
            class_path=OWN + "Suffixed", separator="_", internal_separator_enabled=False
        ),
        connector=ConnectorConfig(source_alias="eu", target_alias="us"),
    )

    policy = naming_policy(flow)

    assert policy.target_topic(TopicName("orders")) == "orders-from-eu"
    assert policy.checkpoints_topic(source_alias(flow)) == "eu.checkpoints.internal"
    assert (source_alias(flow), target_alias(flow)) == ("eu", "us")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("NoArguments", "which cannot be constructed: TypeError: "),
        (
            "HalfAPolicy",
            "a class without `topic_source`, `upstream_topic`, `is_internal`, "
            "`is_mirror_bookkeeping`, `offset_syncs_topic`, `checkpoints_topic`",
        ),
        ("Nobody", "but `tests.unit.topics.own_classes` has no `Nobody`"),
    ],
)
def test_a_policy_that_cannot_be_used_is_a_problem_of_its_key(path: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        naming_policy(flow_with(OWN + path))

    (problem,) = caught.value.problems
    assert problem.startswith(f"replication.policy.class: is `{OWN}{path}`, {why}")


def test_a_policy_that_leads_upstream_for_ever_is_stopped() -> None:
    policy = naming_policy(flow_with(OWN + "Growing"))

    with pytest.raises(PluginFailed, match=r"gave `a\.bx`, which is no shorter"):
        original_topic(policy, TopicName("a.b"))


def test_a_policy_cannot_give_away_heliographs_own_bookkeeping() -> None:
    policy = naming_policy(flow_with(OWN + "Suffixed"))

    assert policy.is_mirror_bookkeeping(TopicName("heliograph-ledger.a.internal"))
