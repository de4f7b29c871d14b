"""Names that Kafka allows, through the naming policies and back."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    is_cycle,
    is_heartbeats,
    original_topic,
)

TOPICS = st.from_regex(re.compile(r"[a-zA-Z0-9._-]{1,60}", re.ASCII), fullmatch=True).map(TopicName)
ALIASES = st.from_regex(re.compile(r"[a-zA-Z0-9-]{1,12}", re.ASCII), fullmatch=True).map(
    ClusterAlias
)
SEPARATORS = st.sampled_from([".", "_", "__", "._", "-->"])


@given(alias=ALIASES, separator=SEPARATORS, topic=TOPICS)
def test_a_mirrored_name_gives_back_its_source_and_topic(
    alias: ClusterAlias, separator: str, topic: TopicName
) -> None:
    assume(topic.replace(separator, ""))  # Java's split drops separators at the end
    policy = DefaultReplicationPolicy(source=alias, separator=separator)

    mirrored = policy.target_topic(topic)

    assert policy.topic_source(mirrored) == alias
    assert policy.upstream_topic(mirrored) == topic


@given(alias=ALIASES, separator=SEPARATORS, topic=TOPICS)
def test_walking_upstream_always_ends(
    alias: ClusterAlias, separator: str, topic: TopicName
) -> None:
    for kind in (DefaultReplicationPolicy, IdentityReplicationPolicy):
        policy = kind(source=alias, separator=separator)

        origin = original_topic(policy, topic)

        assert topic.endswith(origin)
        assert original_topic(policy, origin) == origin


@given(source=ALIASES, target=ALIASES, topic=TOPICS)
def test_what_came_from_the_target_never_goes_back(
    source: ClusterAlias, target: ClusterAlias, topic: TopicName
) -> None:
    assume(topic.strip("."))  # `B.` and `B..` do not look mirrored to Java either
    there = DefaultReplicationPolicy(source=target)
    back = DefaultReplicationPolicy(source=source)

    mirrored = there.target_topic(topic)

    assert is_cycle(back, mirrored, target)


@given(alias=ALIASES, topic=TOPICS)
def test_the_identity_policy_renames_heartbeats_and_nothing_else(
    alias: ClusterAlias, topic: TopicName
) -> None:
    policy = IdentityReplicationPolicy(source=alias)

    renamed = policy.target_topic(topic) != topic

    assert renamed is topic.endswith("heartbeats")
    assert renamed or not is_heartbeats(policy, topic)


@given(first=TOPICS, second=TOPICS, alias=ALIASES)
def test_no_two_topics_share_a_name_on_the_target(
    first: TopicName, second: TopicName, alias: ClusterAlias
) -> None:
    policy = DefaultReplicationPolicy(source=alias)

    same = policy.target_topic(first) == policy.target_topic(second)

    assert same is (first == second)
