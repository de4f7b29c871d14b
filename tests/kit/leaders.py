"""Who leads a partition, and another one made to."""

from __future__ import annotations

import asyncio
import datetime

from confluent_kafka import ElectionType, TopicPartition
from kio.schema.alter_partition_reassignments.v0 import request, response

from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.model import ClusterAlias
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import admin_of


def leader_of(cluster: LocalCluster, topic: str) -> int:
    found = admin_of(cluster).list_topics(topic, timeout=30).topics[topic]
    return int(found.partitions[0].leader)


def prefer(cluster: LocalCluster, topic: str, replicas: tuple[int, ...]) -> None:
    """The first of the replicas is the one that a preferred election makes the leader."""
    message = request.AlterPartitionReassignmentsRequest(
        timeout=datetime.timedelta(seconds=30),  # type: ignore[arg-type]
        topics=(
            request.ReassignableTopic(
                name=topic,  # type: ignore[arg-type]
                partitions=(
                    request.ReassignablePartition(
                        partition_index=0,  # type: ignore[arg-type]
                        replicas=replicas,  # type: ignore[arg-type]
                    ),
                ),
            ),
        ),
    )

    async def ask() -> int:
        alias = ClusterAlias("two")
        config = ClusterConfig(alias=alias, bootstrap_servers=tuple(cluster.bootstrap.split(",")))
        reached = Cluster(alias, config.bootstrap_servers, aiokafka_settings(config))
        try:
            answer = await reached.ask_any(message, response.AlterPartitionReassignmentsResponse)
            return int(answer.responses[0].partitions[0].error_code)
        finally:
            reached.close()

    assert asyncio.run(ask()) == 0


def elect_preferred(cluster: LocalCluster, topic: str) -> None:
    partition, admin = TopicPartition(topic, 0), admin_of(cluster)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(30)
    assert elected[partition] is None, elected
