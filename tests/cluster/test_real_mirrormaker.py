"""A real MirrorMaker 2 writes; Java's client and ours read the same from what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from heliograph.broker.records import read_records
from heliograph.compat.mirror_client import MirrorClient
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.inspect.topology import read_topology
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.mirror_records import decode_offset_sync
from heliograph_tools.bench.mirror import running
from heliograph_tools.bench.rows import System
from heliograph_tools.bench.systems import Route, prepare
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.groups import commit
from tests.kit.java import Java
from tests.kit.records import end_offsets, numbered, produce
from tests.kit.topics import create_topic, wait_until

SOURCE, TARGET = "real-a", "real-b"
TOPIC, GROUP = "real-orders", "real-billing"
RECORDS = 1_000
START_S_MAX = 240.0
KEYS = {
    "emit.heartbeats.enabled": "true",
    "emit.heartbeats.interval.seconds": "1",
    "emit.checkpoints.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.enabled": "true",
    "refresh.groups.interval.seconds": "1",
    "refresh.topics.enabled": "true",
    "refresh.topics.interval.seconds": "1",
    "groups": GROUP,
}
LANES = [TopicPartition(topic=TopicName(f"{SOURCE}.{TOPIC}"), partition=n) for n in range(2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    config: MirrorConfig
    source: LocalCluster
    target: LocalCluster


@pytest.fixture(scope="module")
def mirrored(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirrored]:
    """Two partitions, one group in the middle and at the end, until MirrorMaker 2 has told of it;
    then it is stopped, so that nothing changes while questions are asked."""
    source, target = pair["A"], pair["B"]
    folder = tmp_path_factory.mktemp("mirrormaker")
    route = Route(
        source_alias=SOURCE,
        source_bootstrap=source.bootstrap,
        target_alias=TARGET,
        target_bootstrap=target.bootstrap,
        topic=TOPIC,
    )
    create_topic(source, TOPIC, partitions=2, config={"retention.ms": "-1"})
    produce(source, TOPIC, numbered(2 * RECORDS, partitions=2))
    launch = prepare(System.MM2_DEFAULT, route, folder, {}, KEYS)
    # It lives for seconds, most of which it would spend compiling itself.
    java, *words = launch.argv
    launch = replace(launch, argv=(java, "-XX:TieredStopAtLevel=1", *words))
    config = load_config(folder / "mm2.properties")
    commit(source, GROUP, TOPIC, {0: RECORDS // 2, 1: RECORDS})
    with (
        running(launch, folder / "mm2.log") as mirror,
        MirrorClient.of(config, TARGET) as client,
    ):

        def told() -> bool:
            mirror.ensure_alive()
            return (
                client.replication_hops(SOURCE) == 1
                and len(client.remote_consumer_offsets(GROUP, SOURCE)) == 2
                and bool(client.newest_heartbeats(f"{SOURCE}.heartbeats"))
            )

        wait_until(
            told, "heartbeats and checkpoints of MirrorMaker 2", timeout_s=START_S_MAX, poll_s=0.5
        )
    yield Mirrored(config=config, source=source, target=target)


def test_both_clients_agree_on_what_mirrormaker_wrote(mirrored: Mirrored, java: Java) -> None:
    properties = {"bootstrap.servers": mirrored.target.bootstrap}

    with (
        MirrorClient.of(mirrored.config, TARGET) as ours,
        java.mirror_client(properties) as theirs,
    ):
        assert ours.heartbeat_topics() == theirs.heartbeat_topics()
        assert ours.checkpoint_topics() == theirs.checkpoint_topics()
        assert ours.upstream_clusters() == theirs.upstream_clusters()
        assert ours.remote_topics(SOURCE) == theirs.remote_topics(SOURCE)
        assert ours.replication_hops(SOURCE) == theirs.replication_hops(SOURCE) == 1
        found = ours.remote_consumer_offsets(GROUP, SOURCE)
        assert theirs.remote_consumer_offsets(GROUP, SOURCE) == {
            (place.topic, place.partition): (at.offset, at.metadata) for place, at in found.items()
        }
        assert ours.skipped_records == 0
        assert ours.heartbeat_topics() >= {f"{SOURCE}.heartbeats", "heartbeats"}
        assert set(found) == set(LANES)


def test_translated_offsets_lie_within_what_was_mirrored(mirrored: Mirrored) -> None:
    ends = end_offsets(mirrored.target, f"{SOURCE}.{TOPIC}")

    with MirrorClient.of(mirrored.config, TARGET) as client:
        found = client.remote_consumer_offsets(GROUP, SOURCE)

    assert ends == {0: RECORDS, 1: RECORDS}
    assert 0 < found[LANES[0]].offset <= RECORDS // 2
    assert 0 < found[LANES[1]].offset <= RECORDS


def test_heartbeats_of_mirrormaker_name_their_flows(mirrored: Mirrored) -> None:
    with MirrorClient.of(mirrored.config, TARGET) as client:
        own = client.newest_heartbeats()
        mirrored_ones = client.newest_heartbeats(f"{SOURCE}.heartbeats")

    assert f"{SOURCE}->{TARGET}" in map(str, own)
    assert f"{TARGET}->{SOURCE}" in map(str, mirrored_ones)


def test_offset_syncs_of_mirrormaker_decode_record_by_record(mirrored: Mirrored) -> None:
    cluster = mirrored.config.clusters[ClusterAlias(SOURCE)]
    name = TopicName(f"mm2-offset-syncs.{TARGET}.internal")

    syncs = [decode_offset_sync(each.key, each.value) for each in read_records(cluster, name)]

    assert {(sync.topic, sync.partition) for sync in syncs} >= {(TOPIC, 0), (TOPIC, 1)}
    assert all(0 <= sync.downstream_offset <= RECORDS for sync in syncs if sync.topic == TOPIC)


def test_the_topology_of_a_mirrormaker_is_drawn_from_its_own_file(mirrored: Mirrored) -> None:
    found = read_topology(mirrored.config)

    (flow,) = [each for each in found.flows if each.in_file]
    assert str(flow.flow) == f"{SOURCE}->{TARGET}"
    assert flow.seen_on == TARGET
    assert flow.age_s is not None and flow.written_age_s is not None
    (seen,) = [each for each in found.clusters if each.alias == TARGET]
    assert seen.hops()[ClusterAlias(SOURCE)] == 1
