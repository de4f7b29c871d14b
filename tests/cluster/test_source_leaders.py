"""A lane reads from the leader of its partition, also after leadership moved while no broker ended.

A follower answers a Fetch that names no leader epoch, so nothing would fail and nothing would say
that the lane reads from the wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType, TopicPartition

from heliograph.config.load import load_config
from heliograph.inspect.dry_run import plan_flows
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import RECORDS_ONLY, Route, route, write_config
from tests.kit.reassigning import reassign
from tests.kit.records import numbered, produce
from tests.kit.topics import admin_of, create_topic, wait_until

_MOVED: Final = "moved"
_RACKS: Final = ("north", "south")
_BY_RACK: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_FAST_START: Final = ("-XX:TieredStopAtLevel=1",)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    spec = ClusterSpec(
        alias="two",
        brokers=2,
        jvm_options=_FAST_START,
        racks=_RACKS,
        broker_config={"replica.selector.class": _BY_RACK},
    )
    with local_clusters([spec], root=tmp_path_factory.mktemp("two")) as made:
        yield made["two"]


@pytest.fixture
def way(
    two: LocalCluster, pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Route:
    config = write_config(
        tmp_path_factory.mktemp("leaders") / "mm2.properties",
        {"two": two, "to": pair["B"]},
        {"two->to": {"topics": _MOVED}},
    )
    return route(config, ("two", two), ("to", pair["B"]))


def test_a_lane_reads_from_the_new_leader_after_leadership_moved_to_it(way: Route) -> None:
    create_topic(way.source, _MOVED, replicas=2, config={"retention.ms": "-1"})
    produce(way.source, _MOVED, numbered(20))
    with running_inside(way.config) as mirror:
        assert way.assert_arrives(_MOVED) == 20
        (before,) = _read_from(mirror)

        _prefer(way.source, _MOVED, (1 - before, before))
        _elect_preferred(way.source, _MOVED)
        produce(way.source, _MOVED, numbered(20, start=100))

        assert way.assert_arrives(_MOVED) == 40
        wait_until(lambda: _read_from(mirror) == [1 - before], "the lane reads from its leader")


def test_a_lane_reads_from_the_replica_in_its_own_rack(
    two: LocalCluster, pair: dict[str, LocalCluster], tmp_path: Path
) -> None:
    name = create_topic(two, "near-replica", replicas=2, config={"retention.ms": "-1"})
    produce(two, name, numbered(20))
    leader = _leader_of(two, name)
    config = write_config(
        tmp_path / "mm2.properties",
        {"racks": two, "to": pair["B"]},
        {"racks->to": {"topics": name}},
        top={**RECORDS_ONLY, "racks.consumer.client.rack": _RACKS[1 - leader]},
    )
    way = route(config, ("racks", two), ("to", pair["B"]))
    with running_inside(config) as mirror:
        assert way.assert_arrives(name) == 20
        sources = mirror.slots._shuttle._machine.sources

        assert list(sources._nearer.values()) == [1 - leader]

        produce(two, name, numbered(20, start=100))
        assert way.assert_arrives(name) == 40
    way.assert_exact_map(name)


def test_a_rack_that_no_broker_is_in_is_said_and_changes_nothing(
    two: LocalCluster,
    pair: dict[str, LocalCluster],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = create_topic(two, "no-rack", replicas=2, config={"retention.ms": "-1"})
    produce(two, name, numbered(20))
    config = write_config(
        tmp_path / "mm2.properties",
        {"lost": two, "to": pair["B"]},
        {"lost->to": {"topics": name}},
        top={**RECORDS_ONLY, "lost.consumer.client.rack": "east"},
    )
    way = route(config, ("lost", two), ("to", pair["B"]))
    said = (
        "no broker of lost is in the rack east (they are in north, south): client.rack changes "
        "nothing, lanes are read from their leaders"
    )

    with caplog.at_level(logging.INFO), running_inside(config) as mirror:
        assert way.assert_arrives(name) == 20
        assert _read_from(mirror) == [_leader_of(two, name)]
        assert not mirror.slots._shuttle._machine.sources._nearer
    (planned,) = plan_flows(load_config(config))

    logged = [record.getMessage() for record in caplog.records]
    assert logged.count(f"lost->to: {said}") == 1
    assert [note.text for note in planned.notes if note.topic == "client.rack"] == [said]


def _leader_of(cluster: LocalCluster, topic: str) -> int:
    found = admin_of(cluster).list_topics(topic, timeout=30).topics[topic]
    return int(found.partitions[0].leader)


def _read_from(mirror: InsideMirror) -> list[int]:
    attached = mirror.slots._shuttle._machine.sources._attached
    return [each.leader.broker for each in attached.values()]


def _prefer(cluster: LocalCluster, topic: str, replicas: tuple[int, ...]) -> None:
    """The first of the replicas is the one that a preferred election makes the leader."""
    assert reassign(cluster, {(topic, 0): replicas}) == [0]


def _elect_preferred(cluster: LocalCluster, topic: str) -> None:
    partition, admin = TopicPartition(topic, 0), admin_of(cluster)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(30)
    assert elected[partition] is None, elected
