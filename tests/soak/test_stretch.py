"""The doctor says what the loss of a site will do; then a rack is really stopped, and compared."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from heliograph.config.schema import ClusterConfig
from heliograph.doctor.asking import read_facts
from heliograph.doctor.facts import ClusterFacts, PartitionFacts
from heliograph.doctor.sites import SiteLoss, site_losses
from heliograph.model import ClusterAlias, TopicName
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.kit.clusters import ClusterFactory
from tests.kit.topics import admin_of, wait_until

RACKS: Final = ("north", "south", "south")
LEAST: Final = {"everywhere": 2, "north-only": 1, "two-of-two": 2, "south-only": 2}
PLACED: Final[Mapping[str, list[list[int]]]] = {
    "everywhere": [[0, 1, 2], [2, 1, 0]],
    "north-only": [[0]],
    "two-of-two": [[1, 0]],
    "south-only": [[1, 2]],
}


def look(cluster: LocalCluster) -> ClusterFacts:
    servers = tuple(cluster.bootstrap.split(","))
    config = ClusterConfig(alias=ClusterAlias("S"), bootstrap_servers=servers)
    return asyncio.run(read_facts(config, answer_s_max=10))


def partitions(facts: ClusterFacts) -> dict[str, PartitionFacts]:
    return {
        f"{name}-{number}": partition
        for name in PLACED
        for number, partition in facts.topics[TopicName(name)].partitions.items()
    }


def ours(found: tuple[Any, ...]) -> set[str]:
    """Without the brokers' own topics."""
    return {str(each) for each in found if each.topic in PLACED}


def loss_of(facts: ClusterFacts, site: str) -> SiteLoss:
    return next(each for each in site_losses(facts) if each.site == site)


def make_topics(cluster: LocalCluster) -> None:
    new = [
        NewTopic(
            name,
            num_partitions=len(placed),
            replica_assignment=placed,
            config={"min.insync.replicas": str(LEAST[name])},
        )
        for name, placed in PLACED.items()
    ]
    admin = admin_of(cluster)  # answers die with their client
    for answer in admin.create_topics(new).values():
        answer.result(60)


def takes_topics(cluster: LocalCluster, name: str) -> bool:
    """Whether a majority of controllers is there to write it down."""
    admin, new = admin_of(cluster), NewTopic(name, num_partitions=1, replication_factor=1)
    try:
        admin.create_topics([new], operation_timeout=3)[name].result(6)
    except (KafkaException, TimeoutError):
        return False
    return True


@pytest.mark.timeout(240)
def test_the_loss_of_a_rack_does_what_the_doctor_said(clusters: ClusterFactory) -> None:
    cluster = clusters(ClusterSpec(alias="S", brokers=3, racks=RACKS))["S"]
    make_topics(cluster)
    wait_until(
        lambda: all(len(p.in_sync) == len(p.replicas) for p in partitions(look(cluster)).values()),
        "replicas in sync",
    )
    before = look(cluster)
    north, south = loss_of(before, "north"), loss_of(before, "south")
    led_north = {name for name, p in partitions(before).items() if p.leader == 0}

    cluster.kill_broker(0, signal.SIGKILL)
    wait_until(
        lambda: all(
            0 not in p.in_sync or p.leader is None for p in partitions(look(cluster)).values()
        ),
        "the controller to notice",
        timeout_s=60,
    )
    after = partitions(look(cluster))

    assert north.quorum_survives is True
    assert takes_topics(cluster, "made-without-north")
    assert ours(north.offline) == {name for name, p in after.items() if p.leader is None}
    short = {
        name
        for name, p in after.items()
        if p.leader is not None and len(p.in_sync) < LEAST[name.rpartition("-")[0]]
    }
    assert ours(north.not_writable) == short == {"two-of-two-0"}
    moved = {name for name in led_north if after[name].leader not in (0, None)}
    assert moved == {"everywhere-0"}
    assert ours(north.offline) == {"north-only-0"}

    cluster.start_broker(0)
    for index in (1, 2):
        cluster.kill_broker(index, signal.SIGKILL)

    assert south.quorum_survives is False
    assert not takes_topics(cluster, "made-without-south")
    # Without a quorum nothing is noticed: what was led in the south still is, and by nobody there.
    assert ours(south.offline) == {"south-only-0"}
