"""Hops and upstream clusters from names alone (MirrorMaker 2's MirrorClientTest, and more)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from heliograph.compat.upstream import (
    checkpoint_topics,
    heartbeat_topics,
    hops_of,
    is_checkpoints,
    path_of,
    remote_topics,
    shortest_hops,
    upstream_clusters,
)
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    is_heartbeats,
)

SOURCE = ClusterAlias("source")
DEFAULT = DefaultReplicationPolicy(source=SOURCE)
IDENTITY = IdentityReplicationPolicy(source=SOURCE)


def topics(*names: str) -> Iterable[TopicName]:
    return [TopicName(name) for name in names]


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("heartbeats", True),
        ("source1.heartbeats", True),
        ("source2.source1.heartbeats", True),
        ("heartbeats!", False),
        ("!heartbeats", False),
        ("source1heartbeats", False),
        ("source1-heartbeats", False),
    ],
)
def test_heartbeats_are_known_by_their_last_word(topic: str, expected: bool) -> None:
    assert is_heartbeats(DEFAULT, TopicName(topic)) is expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("source1.checkpoints.internal", True),
        ("source2.source1.checkpoints.internal", True),
        (".checkpoints.internal", True),
        ("checkpoints.internal", False),
        ("checkpoints-internal", False),
        ("checkpoints.internal!", False),
        ("!checkpoints.internal", False),
        ("source1checkpointsinternal", False),
    ],
)
def test_checkpoints_are_known_by_their_last_two_words(topic: str, expected: bool) -> None:
    assert is_checkpoints(DEFAULT, TopicName(topic)) is expected


@pytest.mark.parametrize(
    ("enabled", "topic"), [(True, "a_checkpoints_internal"), (False, "a.checkpoints.internal")]
)
def test_checkpoints_follow_the_switch_of_the_internal_separator(enabled: bool, topic: str) -> None:
    policy = DefaultReplicationPolicy(
        source=SOURCE, separator="_", internal_separator_enabled=enabled
    )
    both = topics("a_checkpoints_internal", "a.checkpoints.internal")

    assert checkpoint_topics(policy, both) == {topic}


class PrefixedCheckpoints(DefaultReplicationPolicy):
    """A policy of an operator's own, with the alias in the middle."""

    def checkpoints_topic(self, source: ClusterAlias) -> TopicName:
        return TopicName(f"checkpoints-of-{source}-internal")


def test_checkpoints_of_an_own_policy_are_known_by_what_surrounds_the_alias() -> None:
    policy = PrefixedCheckpoints(source=SOURCE)

    found = checkpoint_topics(
        policy,
        topics("checkpoints-of-a-internal", "checkpoints-of--internal", "checkpoints-of-internal"),
    )

    assert found == {"checkpoints-of-a-internal", "checkpoints-of--internal"}


@pytest.mark.parametrize(
    ("topic", "upstream", "hops"),
    [
        ("topic", "source", -1),
        ("source", "source", -1),
        ("sourcetopic", "source", -1),
        ("source1.topic", "source2", -1),
        ("source1.topic", "source1", 1),
        ("source2.source1.topic", "source2", 1),
        ("source2.source1.topic", "source1", 2),
        ("source3.source2.source1.topic", "source1", 3),
        ("source3.source2.source1.topic", "source4", -1),
    ],
)
def test_hops_are_the_aliases_before_a_name(topic: str, upstream: str, hops: int) -> None:
    assert hops_of(DEFAULT, TopicName(topic), ClusterAlias(upstream)) == hops


def test_a_path_ends_where_a_cluster_comes_again() -> None:
    assert path_of(DEFAULT, TopicName("b.a.b.a.heartbeats")) == ("b", "a")
    assert path_of(IDENTITY, TopicName("orders")) == ("source",)


def test_own_and_mirrored_heartbeats_are_found() -> None:
    mine = ["heartbeats", "source1.heartbeats", "source2.source1.heartbeats", "source3.heartbeats"]

    assert heartbeat_topics(DEFAULT, topics("topic1", "topic2", *mine)) == set(mine)


def test_checkpoints_need_an_alias() -> None:
    named = [f"{alias}.checkpoints.internal" for alias in ("source1", "source2.source1", "source3")]

    found = checkpoint_topics(DEFAULT, topics("topic1", "checkpoints.internal", *named))

    assert found == set(named)


@pytest.mark.parametrize(
    ("upstream", "hops"), [("source1", 1), ("source2", 2), ("source3", 1), ("source4", -1)]
)
def test_the_shortest_way_counts(upstream: str, hops: int) -> None:
    present = topics(
        "topic1",
        "heartbeats",
        "source1.heartbeats",
        "source1.source2.heartbeats",
        "source4.orders",  # what is not heartbeats does not count
        "source5.source3.heartbeats",
        "source3.heartbeats",
    )

    assert shortest_hops(DEFAULT, present, ClusterAlias(upstream)) == hops


@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])
def test_every_cluster_on_a_way_is_upstream(policy: DefaultReplicationPolicy) -> None:
    present = topics(
        "topic1",
        "heartbeats",
        "source1.heartbeats",
        "source1.source2.heartbeats",
        "source3.source4.source5.heartbeats",
    )

    assert upstream_clusters(policy, present) == {f"source{n}" for n in range(1, 6)}


def test_topics_with_an_alias_are_remote() -> None:
    remote = ["source1.topic4", "source1.source2.topic5", "source3.source4.source5.topic6"]

    assert remote_topics(DEFAULT, topics("topic1", "topic2", *remote)) == set(remote)
    assert remote_topics(DEFAULT, topics(*remote), ClusterAlias("source1")) == set(remote[:2])


def test_internal_topics_are_never_remote() -> None:
    internal = topics(
        "a.checkpoints.internal",
        "mm2-offset-syncs.a.internal",
        "mm2-offsets.a.internal",
        "heliograph-ledger.a.internal",
        "__a.b",
        ".a.b",
    )

    assert remote_topics(DEFAULT, internal) == set()


def test_a_user_topic_may_end_in_internal_and_still_be_remote() -> None:
    present = topics("a.orders-internal", "a.orders.internal")

    assert remote_topics(DEFAULT, present) == set(present)


def test_another_separator_makes_other_topics_remote() -> None:
    policy = DefaultReplicationPolicy(source=SOURCE, separator="__")
    remote = ["source1__topic4", "source1__source2__topic5", "source3__source4__source5__topic6"]

    assert remote_topics(policy, topics("topic1", "a.b", "a_b", *remote)) == set(remote)


def test_with_the_identity_policy_every_topic_is_remote_but_own_heartbeats() -> None:
    present = topics("topic1", "topic2", "topic3", "heartbeats", "backup.heartbeats")

    assert remote_topics(IDENTITY, present) == {"topic1", "topic2", "topic3", "backup.heartbeats"}
    assert remote_topics(IDENTITY, present, ClusterAlias("backup")) == {"backup.heartbeats"}


def test_the_identity_policy_renames_heartbeats_alone() -> None:
    primary = IdentityReplicationPolicy(source=ClusterAlias("primary"))

    assert primary.target_topic(TopicName("topic1")) == "topic1"
    assert primary.topic_source(TopicName("topic1")) == "primary"
    assert primary.target_topic(TopicName("heartbeats")) == "primary.heartbeats"
    assert primary.topic_source(TopicName("backup.heartbeats")) == "backup"
