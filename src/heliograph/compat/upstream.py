"""What topic names tell about the clusters above one: hops, checkpoints. No I/O; runs anywhere.

A mirrored topic is named for the cluster it came from, so `B.A.heartbeats` on C says that A is
mirrored to B and B to C. The answers are those of MirrorMaker 2's `MirrorClient`, to the letter,
as Kafka 4 has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import (
    NamingPolicy,
    is_heartbeats,
)

UNREACHABLE: Final = -1
"""As MirrorMaker 2 says that no heartbeats come from a cluster."""
_ANY_ALIAS: Final = ClusterAlias("heliograph-any-alias")


def path_of(policy: NamingPolicy, topic: TopicName) -> tuple[ClusterAlias, ...]:
    """The clusters a topic came through, nearest first; none where the name is not mirrored."""
    path: list[ClusterAlias] = []
    at: TopicName | None = topic
    while at is not None:
        source = policy.topic_source(at)
        # A cluster met twice is where a policy without loop protection would turn for ever.
        if source is None or source in path:
            break
        path.append(source)
        at = policy.upstream_topic(at)
    return tuple(path)


def hops_of(policy: NamingPolicy, topic: TopicName, upstream: ClusterAlias) -> int:
    """How many mirrors a topic passed since it was on `upstream`; -1 if it never was."""
    path = path_of(policy, topic)
    return path.index(upstream) + 1 if upstream in path else UNREACHABLE


def shortest_hops(policy: NamingPolicy, topics: Iterable[TopicName], upstream: ClusterAlias) -> int:
    """Mirrors between `upstream` and the cluster with these topics; -1 if there is no way."""
    hops = [hops_of(policy, topic, upstream) for topic in heartbeat_topics(policy, topics)]
    return min((found for found in hops if found != UNREACHABLE), default=UNREACHABLE)


def heartbeat_topics(policy: NamingPolicy, topics: Iterable[TopicName]) -> frozenset[TopicName]:
    return frozenset(topic for topic in topics if is_heartbeats(policy, topic))


def checkpoint_topics(policy: NamingPolicy, topics: Iterable[TopicName]) -> frozenset[TopicName]:
    return frozenset(topic for topic in topics if is_checkpoints(policy, topic))


def upstream_clusters(policy: NamingPolicy, topics: Iterable[TopicName]) -> frozenset[ClusterAlias]:
    """Every cluster whose heartbeats arrive, however many hops away."""
    return frozenset(
        source for topic in heartbeat_topics(policy, topics) for source in path_of(policy, topic)
    )


def remote_topics(
    policy: NamingPolicy, topics: Iterable[TopicName], source: ClusterAlias | None = None
) -> frozenset[TopicName]:
    """Mirrored topics as far as names can tell; with `source`, those mirrored directly from it."""
    found = {topic: policy.topic_source(topic) for topic in topics if not policy.is_internal(topic)}
    return frozenset(
        topic
        for topic, alias in found.items()
        if alias is not None and (source is None or alias == source)
    )


def is_checkpoints(policy: NamingPolicy, topic: TopicName) -> bool:
    """Whether it has the name that checkpoints have, whatever cluster they are of."""
    before, _, after = policy.checkpoints_topic(_ANY_ALIAS).partition(_ANY_ALIAS)
    around_length = len(before) + len(after)
    return topic.startswith(before) and topic.endswith(after) and len(topic) >= around_length
