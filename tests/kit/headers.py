"""The batch headers of a log as its leader has them."""

from __future__ import annotations

import asyncio

from heliograph.broker.cluster import EARLIEST, LATEST, open_cluster
from heliograph.broker.log import read_batches
from heliograph.config.schema import ClusterConfig
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader
from heliograph_tools.localkafka.cluster import LocalCluster


def batch_headers(cluster: LocalCluster, topic: str, partition: int = 0) -> list[BatchHeader]:
    return asyncio.run(_read(cluster, TopicPartition(topic=TopicName(topic), partition=partition)))


async def _read(local: LocalCluster, at: TopicPartition) -> list[BatchHeader]:
    config = ClusterConfig(
        alias=ClusterAlias(local.alias), bootstrap_servers=tuple(local.bootstrap.split(","))
    )
    cluster = open_cluster(config, "consumer", only_reads=True)
    try:
        await cluster.refresh([at.topic])
        start, end = [(await cluster.list_offsets([at], time))[at] for time in (EARLIEST, LATEST)]
        assert isinstance(start, int)
        assert isinstance(end, int)
        return [header async for header, _ in read_batches(cluster, at, start, end)]
    finally:
        cluster.close()
