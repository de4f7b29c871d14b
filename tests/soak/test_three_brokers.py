"""A cluster of three local brokers; `make test` kills one of three in `crash/test_kills.py`."""

from __future__ import annotations

from heliograph_tools.localkafka.cluster import ClusterSpec
from tests.kit.clusters import ClusterFactory
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import create_topic


def test_three_brokers_go_on_without_one_of_them(clusters: ClusterFactory) -> None:
    cluster = clusters(ClusterSpec(alias="A", brokers=3, heap_mb=256))["A"]
    create_topic(cluster, "orders", partitions=3, replicas=3)

    cluster.kill_broker(0)
    produce(cluster, "orders", numbered(30, partitions=3))

    found = read_all(cluster, "orders")
    assert [len(found[partition]) for partition in range(3)] == [10, 10, 10]
