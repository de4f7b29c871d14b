"""Replicas of partitions moved from broker to broker, as `kafka-reassign-partitions` does."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.alter_partition_reassignments.v0 import request, response

from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.model import ClusterAlias
from heliograph_tools.localkafka.cluster import LocalCluster


def reassign(cluster: LocalCluster, wanted: Mapping[tuple[str, int], Sequence[int]]) -> list[int]:
    """Ask for these replicas, the preferred leader first; error codes in the order of `wanted`.

    By the brokers' own listener, which asks nobody who they are unless there is an authorizer.
    """
    places: Any = [
        request.ReassignableTopic(
            name=topic,  # type: ignore[arg-type]
            partitions=(
                request.ReassignablePartition(
                    partition_index=number,  # type: ignore[arg-type]
                    replicas=tuple(replicas),  # type: ignore[arg-type]
                ),
            ),
        )
        for (topic, number), replicas in wanted.items()
    ]
    message = request.AlterPartitionReassignmentsRequest(
        timeout=datetime.timedelta(seconds=30),  # type: ignore[arg-type]
        topics=tuple(places),
    )
    return asyncio.run(_ask(cluster, message))


async def _ask(
    cluster: LocalCluster, message: request.AlterPartitionReassignmentsRequest
) -> list[int]:
    alias = ClusterAlias(cluster.alias)
    servers = tuple(f"127.0.0.1:{broker.ports.internal}" for broker in cluster.brokers)
    config = ClusterConfig(alias=alias, bootstrap_servers=servers)
    reached = Cluster(alias, servers, aiokafka_settings(config))
    try:
        answer = await reached.ask_any(message, response.AlterPartitionReassignmentsResponse)
        return [int(each.error_code) for topic in answer.responses for each in topic.partitions]
    finally:
        reached.close()
