"""Java's own MirrorClient and ours, asked the same about the same topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph import mirror_client
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.records import Record, RecordWriter
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.clock import now_ms
from heliograph.compat.mirror_client import GroupOffset, MirrorClient
from heliograph.compat.upstream import is_checkpoints
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig, NamingPolicyConfig
from heliograph.config.sections import DEFAULT_POLICY, IDENTITY_POLICY
from heliograph.errors import BrokerUnreachable, ConfigError, WireError
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.topics.naming import LEDGER_PREFIX, is_heartbeats, original_topic
from heliograph.wire.mirror_records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.java import Java, JavaMirrorClient, Offsets, Refused
from tests.kit.mirror import write_config

Pair = dict[str, LocalCluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to name topics, said to both sides."""

    separator: str = "."
    internal: bool = True
    class_path: str = DEFAULT_POLICY
    source: str | None = None

    @property
    def naming(self) -> NamingPolicyConfig:
        return NamingPolicyConfig(
            class_path=self.class_path,
            separator=self.separator,
            internal_separator_enabled=self.internal,
        )

    @property
    def properties(self) -> dict[str, str]:
        said = {
            "replication.policy.class": self.class_path,
            "replication.policy.separator": self.separator,
            "replication.policy.internal.topic.separator.enabled": str(self.internal).lower(),
        }
        return said if self.source is None else {**said, "source.cluster.alias": self.source}


POLICIES = {
    "default": Policy(),
    "underscore": Policy(separator="_"),
    "underscore, dots inside": Policy(separator="_", internal=False),
    "two characters": Policy(separator="--"),
    "identity": Policy(class_path=IDENTITY_POLICY, source="origin"),
    "identity of nobody": Policy(class_path=IDENTITY_POLICY),
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


def config_of(cluster: LocalCluster, alias: str = "here") -> ClusterConfig:
    return ClusterConfig(
        alias=ClusterAlias(alias), bootstrap_servers=tuple(cluster.bootstrap.split(","))
    )


@contextmanager
def both(
    java: Java, cluster: LocalCluster, policy: Policy = POLICIES["default"]
) -> Iterator[tuple[MirrorClient, JavaMirrorClient]]:
    properties = {"bootstrap.servers": cluster.bootstrap, **policy.properties}
    with (
        MirrorClient(config_of(cluster), policy.naming, source=policy.source) as ours,
        java.mirror_client(properties) as theirs,
    ):
        yield ours, theirs


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


def checkpoint(
    group: str, topic: str, offset: int, *, partition: int = 0, metadata: str = ""
) -> tuple[bytes, bytes]:
    return encode_checkpoint(
        Checkpoint(
            group=group,
            topic=TopicName(topic),
            partition=partition,
            upstream_offset=offset + 100,
            downstream_offset=offset,
            metadata=metadata,
        )
    )


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


GARBAGE: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"key", b"value"),
    (checkpoint("g", "t", 1)[0], b"\x00"),
    (checkpoint("g", "t", 1)[0], checkpoint("g", "t", 1)[1][:-1]),
    (checkpoint("g", "t", 1)[0][:-1], checkpoint("g", "t", 1)[1]),
    (b"\x7f\xff" + b"g", checkpoint("g", "t", 1)[1]),
    (b"\xff\xff" + b"g", checkpoint("g", "t", 1)[1]),
    (checkpoint("g", "t", 1)[0], checkpoint("g", "t", 1)[1][:-2] + b"\x7f\xff"),
]


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


TEXTS = ["", "A", "us-west.orders", "läuft – 日本語", "x" * 32_767]
NUMBERS = [0, 1, 101, 2**31, 2**63 - 1]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_heartbeats_have_javas_bytes_both_ways(java: Java, text: str, number: int) -> None:
    mine = Heartbeat(source=text, target="B", timestamp_ms=number)

    theirs = java.heartbeat_bytes(text, "B", number)

    assert encode_heartbeat(mine) == theirs
    assert decode_heartbeat(*theirs) == mine
    assert java.read_heartbeat(*encode_heartbeat(mine)) == (text, "B", number)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_checkpoints_have_javas_bytes_both_ways(java: Java, text: str, number: int) -> None:
    mine = Checkpoint(
        group=text,
        topic=TopicName(f"A.{text[:200]}"),
        partition=min(number, 2**31 - 1),
        upstream_offset=number,
        downstream_offset=number // 2,
        metadata=text,
    )
    fields = (
        mine.group,
        mine.topic,
        mine.partition,
        mine.upstream_offset,
        mine.downstream_offset,
        mine.metadata,
    )

    theirs = java.checkpoint_bytes(*fields)

    assert encode_checkpoint(mine) == theirs
    assert decode_checkpoint(*theirs) == mine
    assert java.read_checkpoint(*encode_checkpoint(mine)) == fields


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_offset_syncs_have_javas_bytes_both_ways(java: Java, text: str, number: int) -> None:
    partition = min(number, 2**31 - 1)
    mine = OffsetSync(
        topic=TopicName(text),
        partition=partition,
        upstream_offset=number,
        downstream_offset=number // 3,
    )

    theirs = java.offset_sync_bytes(text, partition, number, number // 3)

    assert encode_offset_sync(mine) == theirs
    assert decode_offset_sync(*theirs) == mine
    assert java.read_offset_sync(*encode_offset_sync(mine)) == (
        text,
        partition,
        number,
        number // 3,
    )


def test_what_java_refuses_to_read_is_refused_here_too(java: Java) -> None:
    for key, value in GARBAGE:
        with pytest.raises(Refused, match="SchemaException"):
            java.read_checkpoint(key, value)
        with pytest.raises(WireError):
            decode_checkpoint(key, value)


NAMES = [
    *("orders", "a.orders", "b.a.orders", "a_orders", "b_a_orders", "a--b--orders", "a_b.c--d"),
    *("heartbeats", "a.heartbeats", "b.a.heartbeats", "a_heartbeats", "a--heartbeats"),
    *("device-heartbeats", "a.device-heartbeats", "heartbeats.a", "heartbeatss", "xheartbeats"),
    *("a.checkpoints.internal", "a_checkpoints_internal", "a--checkpoints--internal"),
    *("checkpoints.internal", "x.internal", "x-internal", "x_internal", "internal", "--internal"),
    *("mm2-offset-syncs.a.internal", "mm2-offset-syncs_a_internal", "mm2-status.a.internal"),
    *("__consumer_offsets", "__a.b", ".a", "..a", "a.", "a..", "a..b", "_a", "a_", "__", ".", "-"),
]


@EVERY_POLICY
def test_policies_read_every_name_as_javas_do(pair: Pair, java: Java, policy: Policy) -> None:
    with both(java, pair["B"], policy) as (client, theirs):
        ours = client.replication_policy

        for name in map(TopicName, NAMES):
            mine = (
                ours.topic_source(name),
                ours.upstream_topic(name),
                original_topic(ours, name),
                ours.is_internal(name),
                is_heartbeats(ours, name),
                is_checkpoints(ours, name),
                client.remote_topic_name("src", name),
                ours.checkpoints_topic(ClusterAlias(name)),
                ours.offset_syncs_topic(ClusterAlias(name)),
            )
            assert mine == (
                theirs.policy.topicSource(name),
                theirs.policy.upstreamTopic(name),
                theirs.policy.originalTopic(name),
                theirs.policy.isInternalTopic(name),
                theirs.policy.isHeartbeatsTopic(name),
                theirs.policy.isCheckpointsTopic(name),
                theirs.policy.formatRemoteTopic("src", name),
                theirs.policy.checkpointsTopic(name),
                theirs.policy.offsetSyncsTopic(name),
            ), name
