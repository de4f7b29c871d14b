"""Who leads a partition, and another one made to."""

from __future__ import annotations

from confluent_kafka import ElectionType, TopicPartition

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.reassigning import reassign
from tests.kit.topics import admin_of


def leader_of(cluster: LocalCluster, topic: str) -> int:
    found = admin_of(cluster).list_topics(topic, timeout=30).topics[topic]
    return int(found.partitions[0].leader)


def prefer(cluster: LocalCluster, topic: str, replicas: tuple[int, ...]) -> None:
    """The first of the replicas is the one that a preferred election makes the leader."""
    assert reassign(cluster, {(topic, 0): replicas}) == [0]


def elect_preferred(cluster: LocalCluster, topic: str) -> None:
    partition, admin = TopicPartition(topic, 0), admin_of(cluster)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(30)
    assert elected[partition] is None, elected
