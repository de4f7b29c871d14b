"""What a flow, a cluster and a client end up with, as MirrorMaker 2 would have it."""

from __future__ import annotations

import pickle

import pytest

from heliograph.config.schema import ClusterConfig, EngineConfig, FlowConfig, MirrorConfig
from heliograph.config.sections import IDENTITY_POLICY, TOPICS_EXCLUDE
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Offsets,
    OnExisting,
    Start,
    StartAt,
    StartBack,
    StartTime,
)
from tests.unit.config.texts import TWO_CLUSTERS, config_of, with_lines

A, B = ClusterAlias("A"), ClusterAlias("B")
AB, BA = FlowId(source=A, target=B), FlowId(source=B, target=A)


def flow_of(lines: str) -> FlowConfig:
    return with_lines(lines).flow(AB)


def test_the_smallest_file_has_mirrormaker_2s_defaults() -> None:
    config = with_lines("")

    flow = config.flows[0]
    assert [one.id for one in config.flows] == [AB]
    assert [one.id for one in config.pairs] == [AB, BA]
    assert config.clusters[A].bootstrap_servers == ("a1:9092", "a2:9092")
    assert flow.topics == (".*",)
    assert flow.topics_exclude == TOPICS_EXCLUDE
    assert (flow.replication_factor, flow.refresh_interval_s) == (2, 600)
    assert flow.policy.class_path.endswith("DefaultReplicationPolicy")
    assert flow.start_at is StartAt.EARLIEST
    assert config.engine == EngineConfig()
    assert config.notes == ()


def test_heliograph_is_safer_than_mirrormaker_2_where_nothing_is_said() -> None:
    flow = flow_of("")

    assert flow.read_committed
    assert flow.tasks_max is None
    assert (flow.offsets, flow.on_existing) == (Offsets.MAPPED, OnExisting.APPEND)
    assert (flow.on_retention_overrun, flow.on_topic_recreated) == ("stall", "stall")


def test_a_flows_own_key_beats_the_same_key_at_the_top_wherever_they_stand() -> None:
    first = flow_of("A->B.topics = mine\ntopics = everyones\n")
    last = flow_of("topics = everyones\nA->B.topics = mine\n")

    assert first.topics == last.topics == ("mine",)


def test_a_key_at_the_top_is_the_default_of_every_flow() -> None:
    config = with_lines("B->A.enabled = true\ntopics = everyones\nB->A.topics = mine\n")

    assert config.flow(AB).topics == ("everyones",)
    assert config.flow(BA).topics == ("mine",)


def test_a_key_mirrormaker_2_drops_at_the_top_is_dropped_and_noted() -> None:
    config = with_lines("use.defaults.from = source\n")

    assert config.flow(AB).topic_configs.use_defaults_from == "target"
    assert config.notes == (
        "line 5  use.defaults.from: ignored here, as by MirrorMaker 2; "
        "write `A->B.use.defaults.from`",
    )


def test_the_clusters_consumer_beats_the_flows_consumer() -> None:
    lines = (
        "A.consumer.fetch.max.bytes = 1\n"
        "A->B.consumer.fetch.max.bytes = 2\n"
        "A->B.consumer.max.poll.records = 3\n"
    )

    flow = flow_of(lines)

    assert flow.clients.source_consumer == {"fetch.max.bytes": "1", "max.poll.records": "3"}


def test_the_flows_source_consumer_beats_the_clusters_consumer() -> None:
    lines = "A.consumer.fetch.max.bytes = 1\nA->B.source.consumer.fetch.max.bytes = 2\n"

    assert flow_of(lines).clients.source_consumer == {"fetch.max.bytes": "2"}


def test_records_are_written_with_the_targets_producer_and_the_flows_override() -> None:
    lines = (
        "B.producer.acks = all\n"
        "B.producer.max.request.size = 1\n"
        "A.producer.acks = 0\n"
        "A->B.producer.override.max.request.size = 2\n"
        "A->B.producer.retries = 4\n"
    )

    clients = flow_of(lines).clients

    assert clients.target_producer == {"acks": "all", "max.request.size": "2"}


def test_offset_syncs_are_written_with_the_producer_of_the_cluster_that_holds_them() -> None:
    lines = (
        "A.producer.client.id = a\nB.producer.client.id = b\n"
        "A->B.producer.client.id = flow\nA->B.producer.retries = 4\n"
        "A->B.target.producer.retries = 5\n"
    )

    on_source = with_lines(lines)
    on_target = with_lines(lines + "offset-syncs.topic.location = target\n")

    held = on_source.offset_syncs_of(AB)
    assert (held.alias, held.producer) == ("A", {"client.id": "a", "retries": "4"})
    held = on_target.offset_syncs_of(AB)
    assert (held.alias, held.producer) == ("B", {"client.id": "b", "retries": "5"})


def test_keys_of_a_flow_that_begin_like_a_client_are_not_client_overrides() -> None:
    flow = flow_of("A->B.consumer.poll.timeout.ms = 5\nA->B.admin.timeout.ms = 6\n")

    assert flow.clients.source_consumer == {}
    assert flow.clients.source_admin == flow.clients.target_admin == {}
    assert flow.connector.admin_timeout_ms == 6


def test_a_flows_view_of_its_clusters_carries_its_overrides() -> None:
    config = with_lines(
        "A->B.consumer.fetch.max.bytes = 2\nA->B.admin.retries = 7\n"
        "A->B.producer.override.max.request.size = 3\n"
    )

    source, target = config.source_of(AB), config.target_of(AB)

    assert source.consumer == {"fetch.max.bytes": "2"}
    assert target.producer == {"max.request.size": "3"}
    assert source.admin == target.admin == {"retries": "7"}
    assert config.clusters[A].consumer == {}
    assert pickle.loads(pickle.dumps(source)) == source


def test_client_keys_nobody_knows_are_passed_along() -> None:
    config = with_lines("A.consumer.any.thing = x\n")

    assert config.clusters[A].consumer == {"any.thing": "x"}


@pytest.mark.parametrize(
    ("line", "start_at"),
    [
        ("A.consumer.auto.offset.reset = latest", StartAt.LATEST),
        ("A->B.consumer.auto.offset.reset = latest", StartAt.LATEST),
        ("B.consumer.auto.offset.reset = latest", StartAt.EARLIEST),
        ("consumer.auto.offset.reset = latest", StartAt.EARLIEST),
        ("A.consumer.auto.offset.reset = by_duration:PT1H", StartBack(3_600_000)),
        ("A.consumer.auto.offset.reset = BY_DURATION:p1dt2h3m4.5s", StartBack(93_784_500)),
        ("A.consumer.auto.offset.reset = by_duration:PT0S", StartBack(0)),
        ("A->B.start.at = latest", StartAt.LATEST),
        ("start.at = by_duration:P7D", StartBack(604_800_000)),
        ("start.at = 1970-01-01T01:00:00.25+01:00", StartTime(250)),
        ("start.at = latest\nA.consumer.auto.offset.reset = latest", StartAt.LATEST),
    ],
)
def test_a_lane_begins_where_the_flow_or_its_reading_consumer_says(
    line: str, start_at: Start
) -> None:
    assert flow_of(line).start_at == start_at


def test_where_a_lane_begins_is_shown_as_it_may_be_written() -> None:
    for text in ("earliest", "by_duration:PT90.500S", "2026-01-31T04:03:00+00:00"):
        assert str(flow_of(f"start.at = {text}").start_at) == text


@pytest.mark.parametrize(
    ("lines", "read_committed"),
    [
        ("A.consumer.isolation.level = read_uncommitted", False),
        ("A.consumer.isolation.level = read_committed", True),
        ("B.consumer.isolation.level = read_uncommitted", True),
        ("read.committed = false", False),
        ("A->B.read.committed = false\nA.consumer.isolation.level = read_uncommitted", False),
    ],
)
def test_aborted_records_are_mirrored_only_on_request(lines: str, read_committed: bool) -> None:
    assert flow_of(lines).read_committed is read_committed


def test_own_keys_are_read_at_the_top_and_per_flow() -> None:
    lines = (
        "offsets = preserve\non.existing = refuse\nA->B.on.retention.overrun = skip\n"
        "on.topic.recreated = restart\nmaster = local[2]\nslots = 4\nslots.cpus = 0.5\n"
        "slots.lease.ms.max = 9000\nslots.bytes.max = 1048576\nlink.host = 10.0.0.1\n"
        "spark.ui.enabled = false\nspark.executor.memory = 1g\n"
    )

    config = with_lines(lines)

    flow, engine = config.flow(AB), config.engine
    assert (flow.offsets, flow.on_existing) == (Offsets.PRESERVE, OnExisting.REFUSE)
    assert (flow.on_retention_overrun, flow.on_topic_recreated) == ("skip", "restart")
    assert (engine.master, engine.slots, engine.slot_cpus) == ("local[2]", 4, 0.5)
    assert (engine.lease_ms_max, engine.bytes_max) == (9_000, 1_048_576)
    assert engine.link_host == "10.0.0.1"
    assert engine.spark == {"spark.ui.enabled": "false", "spark.executor.memory": "1g"}


def test_worker_keys_come_from_the_cluster_then_from_the_top_where_it_is_passed_on() -> None:
    lines = (
        "offset.storage.replication.factor = 1\n"
        "B.offset.storage.replication.factor = 2\n"
        "offset.flush.interval.ms = 7\n"
        "B.offset.flush.interval.ms = 8\n"
    )

    clusters = with_lines(lines).clusters

    assert clusters[A].worker.offset_storage_replication_factor == 1
    assert clusters[B].worker.offset_storage_replication_factor == 2
    assert clusters[A].worker.offset_flush_interval_ms == 60_000
    assert clusters[B].worker.offset_flush_interval_ms == 8


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (
            "consumer.fetch.max.bytes = 1",
            "ignored here, as by MirrorMaker 2; write `A.consumer.fetch.max.bytes`",
        ),
        ("ssl.provider = x", "does nothing here: only Java clients have this setting"),
        ("A.admin.ssl.provider = x", "does nothing here: only Java clients have this setting"),
        ("A.sasl.login.class = x", "does nothing here: only Java clients have this setting"),
        ("status.storage.topic = x", "belongs to Kafka Connect and does nothing here"),
        ("topics.blacklist = x", "read as `topics.exclude`, its name since Kafka 2.7"),
        ("A->B.groups.blacklist = x", "read as `groups.exclude`, its name since Kafka 2.7"),
        (
            "use.incremental.alter.configs = never",
            "was removed in Kafka 4.0; incremental alter is always used",
        ),
        (
            "A->B.emit.heartbeats = false",
            "was in older manuals, without effect; write `emit.heartbeats.enabled`",
        ),
        (
            "A.readahead.queue.capacity = 5",
            "was in KIP-382 but never in MirrorMaker 2; does nothing",
        ),
        (
            "A.consumer.max.poll.records = 5",
            "does nothing here: no client of Heliograph has such a setting",
        ),
        (
            "A->B.source.admin.any.thing = 5",
            "does nothing here: no client of Heliograph has such a setting",
        ),
        (
            "A->B.source.consumer.client.id = x",
            "does nothing here: flows of one source share connections; "
            "write `A.consumer.client.id`",
        ),
        (
            "A->B.target.consumer.client.id = x",
            "does nothing here: no flow reads records of its target",
        ),
        (
            "B.producer.max.request.size = 5",
            "does nothing here: records are always appended exactly once, with acks=all",
        ),
        ("listeners = http://x:1", "belongs to Kafka Connect and does nothing here"),
        ("listeners.https.ssl.protocol = TLS", "belongs to Kafka Connect and does nothing here"),
        ("A.rebalance.timeout.ms = 1", "belongs to Kafka Connect and does nothing here"),
        ("A->B.key.converter.x = 1", "belongs to Kafka Connect and does nothing here"),
        (
            "B.producer.compression.type = lz4",
            "does nothing here: batches are copied as the source's producers made them",
        ),
        (
            "A->B.producer.override.linger.ms = 5",
            "does nothing here: batches are copied as the source's producers made them",
        ),
        (
            "A->B.producer.acks = 1",
            "applies to offset syncs only, as in MirrorMaker 2; "
            "for records write `A->B.producer.override.acks`",
        ),
    ],
)
def test_a_key_that_does_nothing_is_noted_with_the_reason(line: str, note: str) -> None:
    assert with_lines(line).notes == (f"line 5  {line.split(' ')[0]}: {note}",)


@pytest.mark.parametrize(
    "line",
    [
        "emit.heartbeats.enabled = true",
        "sync.topic.acls.interval.seconds = 5",
        "A->B.use.defaults.from = source",
        "offset.lag.max = 0",
        "B.offset.flush.interval.ms = 5",
        "B.offset.storage.topic = mine",
        "B.group.id = mine",
        "admin.timeout.ms = 5",
        "A->B.source.cluster.alias = eu",
        "A->B.consumer.fetch.max.bytes = 5",
        "on.topic.deleted = delete",
        "on.group.rewind = keep",
        "sync.topic.acls.mode = mirrormaker2",
    ],
)
def test_a_key_that_acts_is_not_noted(line: str) -> None:
    assert with_lines(line).notes == ()


def test_what_becomes_of_deletions_rewinds_and_revocations_is_read() -> None:
    default = flow_of("")
    other = flow_of(
        "on.topic.deleted = delete\nA->B.on.group.rewind = keep\n"
        "sync.topic.acls.mode = mirrormaker2\n"
    )

    said = [(f.on_topic_deleted, f.groups.on_rewind, f.acls.mode) for f in (default, other)]

    assert said == [("keep", "follow", "follow"), ("delete", "keep", "mirrormaker2")]


def test_an_old_spelling_stands_for_the_new_one_in_its_own_scope() -> None:
    flow = flow_of("topics.exclude = a\nA->B.topics.blacklist = b\n")

    assert flow.topics_exclude == ("b",)


def test_an_old_spelling_beside_the_new_one_is_ignored_and_noted() -> None:
    config = with_lines("topics.blacklist = a\ntopics.exclude = b\n")

    assert config.flow(AB).topics_exclude == ("b",)
    assert config.notes == ("line 5  topics.blacklist: ignored: `topics.exclude` on line 6 wins",)


def test_checkpoints_and_group_offsets_need_no_offset_syncs_here_and_it_is_said() -> None:
    config = with_lines(
        "emit.offset-syncs.enabled = false\nB->A.emit.checkpoints.enabled = false\n"
        "A->B.emit.checkpoints.enabled = false\nsync.group.offsets.enabled = true\n"
    )

    flow = config.flow(AB)
    assert not flow.offset_syncs.enabled
    assert not flow.checkpoints.enabled
    assert flow.groups.sync_offsets_enabled
    assert config.notes == (
        "line 7  A->B.emit.checkpoints.enabled: `sync.group.offsets.enabled` still acts: "
        "group offsets come from the ledger (MirrorMaker 2 syncs no group without checkpoints)",
    )


def test_checkpoints_without_offset_syncs_are_written_and_it_is_said() -> None:
    (note,) = with_lines("emit.offset-syncs.enabled = false\n").notes

    assert note == (
        "line 5  emit.offset-syncs.enabled: checkpoints are still written: they come from "
        "the ledger (MirrorMaker 2 writes none without offset syncs)"
    )


@pytest.mark.parametrize(
    ("aliases", "lines", "pairs"),
    [
        ("a, b, c", "a->b.enabled = true", 6),
        ("a, b, c", "emit.heartbeats.enabled = false\na->b.enabled = true", 1),
        (
            "a, b, c",
            "a->b.emit.heartbeats.enabled = false\na->c.emit.heartbeats.enabled = false\n"
            "b->a.enabled = true",
            4,
        ),
        (
            "a, b, c, d, e, f",
            "emit.heartbeats.enabled = false\na->b.enabled = true\na->c.enabled = true\n"
            "a->d.enabled = true\na->e.enabled = false\na->f.enabled = false",
            3,
        ),
        (
            "central, local_one, local_two, beats_emitter",
            "emit.heartbeats.enabled = false\ncentral->local_one.enabled = true\n"
            "central->local_two.enabled = true\n"
            "beats_emitter->central.emit.heartbeats.enabled = true",
            3,
        ),
    ],
)
def test_a_pair_does_something_if_it_is_enabled_or_has_heartbeats(
    aliases: str, lines: str, pairs: int
) -> None:
    """MirrorMakerConfigTest.testClusterPairs…"""
    brokers = "".join(f"{alias}.bootstrap.servers = {alias}:1\n" for alias in aliases.split(", "))

    config = config_of(f"clusters = {aliases}\n{brokers}{lines}\n")

    assert sum(pair.enabled or pair.heartbeats.enabled for pair in config.pairs) == pairs


def test_a_security_protocol_may_be_written_in_any_case() -> None:
    """MirrorConnectorConfigTest.testCaseInsensitiveSecurityProtocol."""
    config = with_lines("A.security.protocol = ssl\n")

    assert config.clusters[A].security.protocol == "SSL"


def test_an_alias_may_hold_dots_and_begin_like_another() -> None:
    text = (
        "clusters = eu, eu.west\neu.bootstrap.servers = a:1\neu.west.bootstrap.servers = b:1\n"
        "eu.west->eu.enabled = true\neu->eu.west.topics = mine\n"
    )

    config = config_of(text)

    west = ClusterAlias("eu.west")
    assert config.clusters[west].bootstrap_servers == ("b:1",)
    assert [flow.id for flow in config.flows] == [FlowId(source=west, target=ClusterAlias("eu"))]
    assert config.flow(FlowId(source=ClusterAlias("eu"), target=west)).topics == ("mine",)


def test_regexes_arrive_respelled_for_python() -> None:
    assert flow_of("topics = \\\\Qa.b\\\\E, orders.*\n").topics == (r"a\.b", "orders.*")


def test_an_empty_list_is_empty() -> None:
    assert flow_of("topics.exclude =\n").topics_exclude == ()


def test_the_model_pickles_whole() -> None:
    config = config_of(TWO_CLUSTERS)

    back = pickle.loads(pickle.dumps(config))

    assert isinstance(back, MirrorConfig)
    assert back == config
    assert isinstance(back.clusters[A], ClusterConfig)


def test_two_flows_that_keep_names_in_both_directions_are_remarked_once() -> None:
    lines = (
        f"B->A.enabled = true\nreplication.policy.class = {IDENTITY_POLICY}\n"
        "loop.prevention = none\n"
    )

    (note,) = with_lines(lines).notes

    assert note.startswith("A->B, B->A: both flows keep topic names")


@pytest.mark.parametrize(
    "lines",
    [
        f"replication.policy.class = {IDENTITY_POLICY}\n",
        "B->A.enabled = true\n",
        f"B->A.enabled = true\nB->A.replication.policy.class = {IDENTITY_POLICY}\n",
        f"B->A.enabled = true\nreplication.policy.class = {IDENTITY_POLICY}\n",
    ],
    ids=["one way", "renamed", "renamed one way", "left out by who wrote it"],
)
def test_flows_whose_topics_cannot_come_back_under_the_same_name_are_not(lines: str) -> None:
    assert with_lines(lines).notes == ()
