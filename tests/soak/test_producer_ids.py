"""What `loop.prevention` rests on, on a cluster of three brokers: who wrote a batch stays in it.

Producer ids come from blocks that each broker gets of its own, and are never given out twice; and a
batch keeps its producer through leaders that move and brokers that are killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from heliograph.broker.cluster import open_cluster
from heliograph.config.schema import ClusterConfig
from heliograph.ledger.mark import LOWEST_MARK
from heliograph.model import ClusterAlias
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.kit.clusters import ClusterFactory
from tests.kit.fake_records import records_batch
from tests.kit.headers import batch_headers
from tests.kit.topics import create_topic, produce_raw, wait_until

_IDS: Final = 3_600
"""More than the block of a thousand that a broker gets at once."""


def test_the_producer_of_a_batch_outlives_leaders_and_brokers(clusters: ClusterFactory) -> None:
    config = {"offsets.topic.replication.factor": "2", "default.replication.factor": "2"}
    cluster = clusters(ClusterSpec(alias="A", brokers=3, heap_mb=256, broker_config=config))["A"]
    create_topic(cluster, "orders", partitions=1, replicas=3)
    ids = asyncio.run(_allocated(cluster, 40))
    for number, producer_id in enumerate(ids[:10]):
        batch = records_batch(3, producer_id=producer_id, epoch=LOWEST_MARK + number, sequence=0)
        wait_until(lambda batch=batch: _is_taken(cluster, batch), "a leader")  # type: ignore[misc]
    before = [(each.producer_id, each.producer_epoch) for each in batch_headers(cluster, "orders")]

    for index in range(3):
        cluster.kill_broker(index)
        cluster.start_broker(index)
    after = batch_headers(cluster, "orders")

    assert {each for each, _ in before} == set(ids[:10])
    assert [(each.producer_id, each.producer_epoch) for each in after] == before


def test_no_two_producers_ever_get_one_id_whichever_broker_gave_it(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters(ClusterSpec(alias="A", brokers=3, heap_mb=256))["A"]
    create_topic(cluster, "orders", partitions=1, replicas=3)

    ids = asyncio.run(_allocated(cluster, _IDS))
    cluster.kill_broker(1)
    ids += asyncio.run(_allocated(cluster, 50, brokers=(0, 2)))
    cluster.start_broker(1)
    ids += asyncio.run(_allocated(cluster, 50))

    assert len(set(ids)) == len(ids)
    assert len({each // 1000 for each in ids}) > 2


def _is_taken(cluster: LocalCluster, batch: bytes) -> bool:
    """By whichever broker leads; one that has it already says so with its first offset."""
    return any(produce_raw(cluster, "orders", batch, broker=n).error_code == 0 for n in range(3))


async def _allocated(
    local: LocalCluster, count: int, brokers: Sequence[int] = (0, 1, 2)
) -> list[int]:
    """As a flow's, from each of these brokers in turn."""
    found: list[int] = []
    for number in brokers:
        address = f"127.0.0.1:{local.broker(number).ports.client}"
        config = ClusterConfig(alias=ClusterAlias("A"), bootstrap_servers=(address,))
        cluster = open_cluster(config, "producer")
        try:
            found += [(await cluster.new_producer_id())[0] for _ in range(count // len(brokers))]
        finally:
            cluster.close()
    return found
