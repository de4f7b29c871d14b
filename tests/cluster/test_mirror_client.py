"""Java's own MirrorClient and ours, asked the same about the same topics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from heliograph import mirror_client
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.records import Record, RecordWriter
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.clock import now_ms
from heliograph.compat.mirror_client import GroupOffset, MirrorClient
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.errors import BrokerUnreachable, ConfigError
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.topics.naming import LEDGER_PREFIX
from heliograph.wire.mirror_records import (
    Heartbeat,
    encode_heartbeat,
)
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.both_clients import (
    EVERY_POLICY,
    GARBAGE,
    POLICIES,
    Pair,
    Policy,
    both,
    checkpoint,
    config_of,
)
from tests.kit.clusters import TopicNames
from tests.kit.java import Java, Offsets, Refused
from tests.kit.mirror import write_config


def create(cluster: LocalCluster, *topics: str, configs: Mapping[str, str] | None = None) -> None:
    admin = ClusterAdmin(config_of(cluster))
    names = [TopicName(topic) for topic in topics]
    wanted = [
        TopicToCreate(
            source=name, name=name, partitions=1, replication_factor=1, configs=configs or {}
        )
        for name in names
    ]
    assert all(isinstance(outcome, str) for outcome in admin.create_topics(wanted).values())
    admin.await_partitions(dict.fromkeys(names, 1))


def write(cluster: LocalCluster, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    writer = RecordWriter(config_of(cluster))
    writer.write(TopicName(topic), [Record(key=key, value=value) for key, value in records])
    writer.close()


def plain(found: Mapping[TopicPartition, GroupOffset]) -> Offsets:
    return {
        (place.topic, place.partition): (offset.offset, offset.metadata)
        for place, offset in found.items()
    }


def without_ledgers(topics: set[str]) -> set[str]:
    """Java takes `heliograph-ledger.A.internal` for a topic of some cluster `heliograph-ledger`."""
    return {topic for topic in topics if not topic.startswith(LEDGER_PREFIX)}


@EVERY_POLICY
def test_both_clients_read_the_same_from_the_names_of_all_topics(
    pair: Pair, java: Java, topic: TopicNames, policy: Policy
) -> None:
    near, middle, far = topic("near"), topic("middle"), topic("far")
    orders, sep = topic("orders"), policy.separator
    create(
        pair["B"],
        sep.join([near, "heartbeats"]),
        sep.join([near, middle, far, "heartbeats"]),
        sep.join([near, orders]),
        sep.join([near, middle, orders]),
        f"{near}.checkpoints.internal",
        f"{far}_checkpoints_internal",
        f"mm2-offset-syncs.{near}.internal",
        f"{near}-heartbeats",
        sep.join([near, f"{orders}-internal"]),
        f"{sep}{near}",
    )

    with both(java, pair["B"], policy) as (ours, theirs):
        assert ours.heartbeat_topics() == theirs.heartbeat_topics()
        assert ours.checkpoint_topics() == theirs.checkpoint_topics()
        assert ours.upstream_clusters() == theirs.upstream_clusters()
        assert ours.remote_topics() == without_ledgers(theirs.remote_topics())
        for alias in (near, middle, far, "origin", "nowhere", ""):
            assert ours.remote_topics(alias) == without_ledgers(theirs.remote_topics(alias))
            assert ours.replication_hops(alias) == theirs.replication_hops(alias)
        hops = [ours.replication_hops(alias) for alias in (near, middle, far, "nowhere")]
        assert hops == [1, 2, 3, -1]
        assert {near, middle, far} <= ours.upstream_clusters()


@pytest.mark.parametrize(
    "policy",
    [POLICIES[name] for name in ("default", "underscore", "underscore, dots inside", "identity")],
    ids=["default", "underscore", "underscore, dots inside", "identity"],
)
def test_both_clients_translate_offsets_of_the_checkpoints_we_wrote(
    pair: Pair, java: Java, topic: TopicNames, policy: Policy
) -> None:
    remote, orders, group = topic("remote"), topic("orders"), topic("billing")
    with both(java, pair["B"], policy) as (ours, theirs):
        name = ours.replication_policy.checkpoints_topic(ClusterAlias(remote))
        create(pair["B"], name, configs={"cleanup.policy": "compact"})
        write(
            pair["B"],
            name,
            checkpoint(group, orders, 10),
            checkpoint(group, orders, 7, partition=3, metadata="läuft – ok"),
            checkpoint("another", orders, 99),
            checkpoint(group, orders, 11),
            checkpoint(group, orders, 2**62, partition=2**31 - 1),
        )

        found = plain(ours.remote_consumer_offsets(group, remote))

        assert found == theirs.remote_consumer_offsets(group, remote)
        assert found == {
            (orders, 0): (11, ""),
            (orders, 3): (7, "läuft – ok"),
            (orders, 2**31 - 1): (2**62, ""),
        }
        assert plain(ours.remote_consumer_offsets("nobody", remote)) == {}
        assert theirs.remote_consumer_offsets("nobody", remote) == {}


def test_garbage_between_checkpoints_is_skipped_by_both_and_counted_by_ours(
    pair: Pair, java: Java, topic: TopicNames
) -> None:
    remote, group = topic("remote"), topic("billing")
    name = f"{remote}.checkpoints.internal"
    create(pair["B"], name)
    records = [
        each for n, dirt in enumerate(GARBAGE) for each in (dirt, checkpoint(group, "orders", n))
    ]
    write(pair["B"], name, *records, GARBAGE[0])

    with both(java, pair["B"]) as (ours, theirs):
        found = plain(ours.remote_consumer_offsets(group, remote))

        assert found == theirs.remote_consumer_offsets(group, remote)
        assert found == {("orders", 0): (len(GARBAGE) - 1, "")}
        assert ours.skipped_records == len(GARBAGE) + 1


def test_records_that_java_misreads_are_not_trusted(
    pair: Pair, java: Java, topic: TopicNames
) -> None:
    remote, group = topic("remote"), topic("billing")
    name = f"{remote}.checkpoints.internal"
    create(pair["B"], name)
    key, value = checkpoint(group, "orders", 5)
    other_version = b"\x00\x01" + value[2:]
    negative = value[:10] + b"\xff" * 8 + value[18:]
    write(pair["B"], name, (key, value), (key, other_version), (key, negative), (key, value + b"!"))

    with MirrorClient(config_of(pair["B"])) as ours:
        found = plain(ours.remote_consumer_offsets(group, remote))

    # Java takes the last of these for what they are not; without assertions it knows no versions.
    assert java.read_checkpoint(key, negative)[4] == -1
    assert java.read_checkpoint(key, other_version)[4] == 5
    assert found == {("orders", 0): (5, "")}
    assert ours.skipped_records == 3


def test_a_tombstone_takes_a_checkpoint_away_and_java_breaks_on_it(
    pair: Pair, java: Java, topic: TopicNames
) -> None:
    remote, group = topic("remote"), topic("billing")
    name = f"{remote}.checkpoints.internal"
    create(pair["B"], name)
    gone, kept = checkpoint(group, "orders", 5), checkpoint(group, "orders", 6, partition=1)
    write(pair["B"], name, gone, kept, (gone[0], None), (None, None), (None, kept[1]))

    with both(java, pair["B"]) as (ours, theirs):
        found = plain(ours.remote_consumer_offsets(group, remote))
        with pytest.raises(Refused, match="NullPointerException"):
            theirs.remote_consumer_offsets(group, remote)

    assert found == {("orders", 1): (6, "")}
    assert ours.skipped_records == 1


def test_the_functions_answer_as_javas_remote_cluster_utils(
    pair: Pair, java: Java, topic: TopicNames
) -> None:
    remote, group, cluster = topic("remote"), topic("billing"), config_of(pair["B"])
    create(pair["B"], f"{remote}.heartbeats", f"{remote}.checkpoints.internal")
    write(pair["B"], f"{remote}.checkpoints.internal", checkpoint(group, "orders", 3))
    write(pair["B"], f"{remote}.checkpoints.internal", checkpoint(f"{group}-2", "orders", 4))
    write(pair["B"], f"{remote}.checkpoints.internal", checkpoint("another", "orders", 5))
    utils = java.remote_cluster_utils()
    properties = java.hash_map({"bootstrap.servers": pair["B"].bootstrap})
    wait = java.duration(30)

    assert mirror_client.replication_hops(cluster, remote) == 1
    assert utils.replicationHops(properties, remote) == 1
    assert mirror_client.heartbeat_topics(cluster) == set(utils.heartbeatTopics(properties))
    assert mirror_client.checkpoint_topics(cluster) == set(utils.checkpointTopics(properties))
    assert mirror_client.upstream_clusters(cluster) == set(utils.upstreamClusters(properties))
    translated = plain(mirror_client.translate_offsets(cluster, remote, group))
    assert translated == {("orders", 0): (3, "")}
    assert translated == java.offsets(utils.translateOffsets(properties, remote, group, wait))
    pattern = f"{group}.*"
    of_groups = mirror_client.translate_group_offsets(cluster, remote, pattern)
    theirs = utils.translateOffsets(properties, remote, java.pattern(pattern), wait)
    assert {each: plain(found) for each, found in of_groups.items()} == {
        entry.getKey(): java.offsets(entry.getValue()) for entry in theirs.entrySet()
    }
    assert set(of_groups) == {group, f"{group}-2"}


def test_a_group_without_checkpoints_topic_has_no_offsets(pair: Pair, topic: TopicNames) -> None:
    remote = topic("remote")

    with MirrorClient(config_of(pair["B"])) as ours:
        assert ours.remote_consumer_offsets("billing", remote) == {}
        assert f"{remote}.checkpoints.internal" not in ours.checkpoint_topics()


def test_the_newest_heartbeat_of_each_flow_is_the_last_one_written(
    pair: Pair, topic: TopicNames
) -> None:
    name = f"{topic('source')}.heartbeats"
    create(pair["B"], name, configs={"cleanup.policy": "compact"})
    beats = [("x", "a", 1_000), ("y", "a", 2_000), ("x", "a", 9_000), ("x", "a", 3_000)]
    write(
        pair["B"],
        name,
        *[encode_heartbeat(Heartbeat(source=s, target=t, timestamp_ms=ms)) for s, t, ms in beats],
        (b"dirt", b"dirt"),
    )

    with MirrorClient(config_of(pair["B"])) as ours:
        found = ours.newest_heartbeats(name)

    assert {str(flow): beat.emitted_ms for flow, beat in found.items()} == {
        "x->a": 3_000,
        "y->a": 2_000,
    }
    assert {beat.latency_ms for beat in found.values()} == {None}
    assert ours.skipped_records == 1


def test_a_topic_stamped_by_the_broker_tells_how_late_a_heartbeat_came(
    pair: Pair, topic: TopicNames
) -> None:
    name = f"{topic('source')}.heartbeats"
    create(pair["B"], name, configs={"message.timestamp.type": "LogAppendTime"})
    emitted_ms = now_ms() - 5_000
    beat = Heartbeat(source="x", target="a", timestamp_ms=emitted_ms)
    write(pair["B"], name, encode_heartbeat(beat))

    with MirrorClient(config_of(pair["B"])) as ours:
        (found,) = ours.newest_heartbeats(name).values()

    assert found.emitted_ms == emitted_ms
    assert found.latency_ms is not None and 5_000 <= found.latency_ms < 60_000


def test_only_the_end_of_a_long_topic_is_read_where_that_is_asked_for(
    pair: Pair, topic: TopicNames
) -> None:
    name = f"{topic('source')}.heartbeats"
    create(pair["B"], name)
    beats = [Heartbeat(source=f"s{n}", target="a", timestamp_ms=1 + n) for n in range(50)]
    write(pair["B"], name, *map(encode_heartbeat, beats))

    with MirrorClient(config_of(pair["B"])) as ours:
        found = ours.newest_heartbeats(name, last_offsets=10)

    assert sorted(beat.emitted_ms for beat in found.values()) == list(range(41, 51))


def test_the_client_of_a_file_has_its_servers_and_its_policy(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    source = topic("a")
    create(pair["B"], f"{source}_heartbeats", f"{source}.heartbeats", f"{source}_orders")
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], "here": pair["B"]},
        {f"{source}->here": {"replication.policy.separator": "_"}},
    )

    with MirrorClient.of(load_config(file), "here") as client:
        assert client.replication_hops(source) == 1
        assert client.heartbeat_topics() & {f"{source}_heartbeats", f"{source}.heartbeats"} == {
            f"{source}_heartbeats"
        }
        assert client.remote_topics(source) >= {f"{source}_orders"}
        assert client.remote_topic_name(source, "orders") == f"{source}_orders"


def test_flows_that_name_topics_differently_need_a_source(pair: Pair, tmp_path: Path) -> None:
    file = write_config(
        tmp_path / "mm2.properties",
        {"a": pair["A"], "b": pair["B"], "here": pair["B"]},
        {
            "a->here": {"replication.policy.separator": "_"},
            "b->here": {"replication.policy.class": IDENTITY_POLICY},
        },
    )
    config = load_config(file)

    with pytest.raises(ConfigError, match=r"a->here, b->here name topics differently"):
        MirrorClient.of(config, "here")
    with pytest.raises(ConfigError, match=r"is none of the clusters"):
        MirrorClient.of(config, "elsewhere")
    with MirrorClient.of(config, "here", source="b") as client:
        assert client.replication_policy.topic_source(TopicName("orders")) == "b"


def test_a_cluster_that_does_not_answer_is_named() -> None:
    gone = ClusterConfig(alias=ClusterAlias("gone"), bootstrap_servers=("127.0.0.1:1",))

    with MirrorClient(gone, timeout_s=0.5) as client:
        with pytest.raises(BrokerUnreachable, match="cluster gone"):
            client.upstream_clusters()
        with pytest.raises(BrokerUnreachable, match="cluster gone"):
            client.remote_consumer_offsets("billing", "primary")


def test_a_closed_client_refuses_questions(pair: Pair) -> None:
    client = MirrorClient(config_of(pair["B"]))
    client.close()
    client.close()

    with pytest.raises(ValueError, match="closed"):
        client.heartbeat_topics()
    with pytest.raises(ValueError, match="closed"):
        client.remote_consumer_offsets("billing", "primary")
