"""How many bytes a partition has on its leader's disk. Runs on the driver."""

from __future__ import annotations

from kio.schema.describe_log_dirs.v2 import request as dirs_request
from kio.schema.describe_log_dirs.v2 import response as dirs_response

from heliograph.broker.cluster import Cluster
from heliograph.model import TopicPartition


async def partition_bytes(cluster: Cluster, partition: TopicPartition) -> int | None:
    """None where the leader does not tell us: it needs DESCRIBE on the cluster. Raises
    `BrokerError`. The topic's metadata must have been read."""
    leader = cluster.leader(partition)
    if leader is None:
        raise cluster.no_leader_error(partition)
    message = dirs_request.DescribeLogDirsRequest(
        topics=(
            dirs_request.DescribableLogDirTopic(
                topic=partition.topic,  # type: ignore[arg-type]
                partitions=(partition.partition,),  # type: ignore[arg-type]
            ),
        )
    )
    connection = await cluster.connection(leader.broker, "control")
    answer = await connection.call(message, dirs_response.DescribeLogDirsResponse)
    sizes = [
        int(row.partition_size)
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
        if not row.is_future_key
    ]
    return sum(sizes) if sizes else None
