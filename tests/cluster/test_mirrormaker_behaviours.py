"""What MirrorMaker 2's own integration tests ask for, of `heliograph run`, in four variants.

The rows are those of the reference: I1 is `testReplication` and so on; each test names its row. One
process mirrors all variants, so that Spark starts once: plain, a TLS target, transactional
producers whose markers make gaps, and names that stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from heliograph.compat.mirror_client import MirrorClient
from heliograph.config.load import load_config
from heliograph.model import ClusterAlias
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.behaving import (
    EXCLUDED,
    IDENTITY,
    INCLUDED,
    PARTITIONS,
    SECONDS,
    TOP,
    Stage,
    commit,
    committed,
    consume_all,
    first_offset,
    flows,
    on_each_variant,
)
from tests.kit.clusters import FAST_START
from tests.kit.inside import running_inside
from tests.kit.java import Java
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import (
    NewRec,
    assert_same_records,
    end_offsets,
    numbered,
    produce,
    read_all,
)
from tests.kit.runs import WITHOUT_SPARK, running_mirror
from tests.kit.topics import (
    admin_of,
    delete_topic,
    set_topic_config,
    topic_config,
    wait_until,
)


@pytest.fixture(scope="module")
def stages(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Stage]]:
    root = tmp_path_factory.mktemp("behaviours")
    spec = ClusterSpec(alias="S", tls=True, jvm_options=FAST_START)
    with local_clusters([spec], root=root / "clusters") as secured:
        a, b, s = pair["A"], pair["B"], secured["S"]
        aliases = {
            "plain": ("primary", a, "backup", b),
            "tls": ("sprimary", a, "sbackup", s),
            "txn": ("tprimary", a, "tbackup", b),
            "identity": ("iprimary", a, "ibackup", b),
        }
        for variant in aliases:
            lasting_topic(
                a,
                f"{variant}-topic-1",
                partitions=PARTITIONS,
                config={
                    "cleanup.policy": "compact",
                    EXCLUDED: "1000",
                    INCLUDED: "1000000",
                },
            )
            lasting_topic(a, f"{variant}-no-records", partitions=PARTITIONS)
        config = write_config(
            root / "mm2.properties",
            {
                name: cluster
                for p, c, q, d in aliases.values()
                for name, cluster in ((p, c), (q, d))
            },
            flows(),
            top=TOP,
        )
        with running_mirror(config, program=WITHOUT_SPARK) as run:
            yield {
                variant: Stage(
                    name=variant,
                    primary=one,
                    backup=other,
                    primary_alias=primary,
                    backup_alias=backup,
                    identity=variant == "identity",
                    transactional=variant == "txn",
                    config=config,
                    run=run,
                )
                for variant, (primary, one, backup, other) in aliases.items()
            }


@on_each_variant
def test_every_record_is_mirrored_and_topics_made_later_too(stage: Stage) -> None:
    """I1, I15."""
    stage.write(stage.topic("topic-1"))
    late = lasting_topic(stage.primary, stage.topic("late"), partitions=2)

    produce(stage.primary, late, numbered(10))

    for topic in (stage.topic("topic-1"), late):
        stage.await_mirrored(topic)
        assert_same_records(
            stage.primary, stage.backup, topic, stage.remote(topic), read_committed=True
        )


def test_the_other_direction_mirrors_too(stages: Mapping[str, Stage]) -> None:
    """I1."""
    for stage in (stages["plain"], stages["tls"]):
        topic = lasting_topic(stage.backup, f"back-{stage.name}", partitions=2)
        remote = f"{stage.backup_alias}.{topic}"

        produce(stage.backup, topic, numbered(20, partitions=2))

        wait_until(
            lambda stage=stage, remote=remote: (  # type: ignore[misc]
                remote in admin_of(stage.primary).list_topics(timeout=10).topics
                and sum(map(len, read_all(stage.primary, remote).values())) == 20
            ),
            f"20 records in {remote}",
            timeout_s=SECONDS,
        )
        assert_same_records(stage.backup, stage.primary, topic, remote)


@on_each_variant
def test_the_remote_topic_has_the_sources_settings_but_not_the_excluded(stage: Stage) -> None:
    """I1."""
    topic = stage.topic("topic-1")

    stage.await_mirrored(topic)

    settings = topic_config(stage.backup, stage.remote(topic))
    assert settings["cleanup.policy"] == "compact"
    assert settings[INCLUDED] == "1000000"
    assert settings[EXCLUDED] != "1000"


@pytest.mark.parametrize("variant", ["plain", "tls"])
def test_heartbeats_show_upstream_clusters_one_hop_away(
    stages: Mapping[str, Stage], variant: str
) -> None:
    """I1."""
    stage = stages[variant]
    config = load_config(stage.config)
    here = MirrorClient.of(config, ClusterAlias(stage.primary_alias))
    there = MirrorClient.of(config, ClusterAlias(stage.backup_alias))

    wait_until(
        lambda: stage.primary_alias in there.upstream_clusters(), "heartbeats", timeout_s=SECONDS
    )
    wait_until(
        lambda: stage.backup_alias in here.upstream_clusters(), "heartbeats", timeout_s=SECONDS
    )

    assert {"heartbeats", f"{stage.primary_alias}.heartbeats"} <= set(there.heartbeat_topics())
    assert there.replication_hops(ClusterAlias(stage.primary_alias)) == 1
    assert here.replication_hops(ClusterAlias(stage.backup_alias)) == 1


@on_each_variant
def test_a_group_finds_its_exact_place_on_the_backup(stage: Stage) -> None:
    """I1, I3, I4: checkpoints for every partition, and the group itself stands there."""
    topic, group = stage.topic("topic-1"), stage.group("follows")
    stage.await_mirrored(topic)
    source = read_all(stage.primary, topic, read_committed=True)
    half = {number: records[len(records) // 2].offset for number, records in source.items()}

    commit(stage.primary, group, topic, half)

    remote = stage.remote(topic)
    wait_until(
        lambda: len(committed(stage.backup, group, remote)) == PARTITIONS,
        f"offsets of {group}",
        timeout_s=SECONDS,
    )
    locations = committed(stage.backup, group, remote)
    told = {(remote, number): at for number, at in locations.items()}
    wait_until(lambda: stage.checkpoints(group) == told, "checkpoints", timeout_s=SECONDS)
    target = read_all(stage.backup, remote, read_committed=True)
    for number, records in source.items():
        left = [record.content for record in records if record.offset >= half[number]]
        assert [r.content for r in target[number] if r.offset >= locations[number]] == left


def test_javas_own_client_reads_what_the_running_mirror_wrote(
    stages: Mapping[str, Stage], java: Java
) -> None:
    """Checkpoints under every variant; hops and heartbeats where there are any."""

    @on_each_variant
    def read(stage: Stage) -> None:
        _read_with_java(stage, java)

    read(stages)


def _read_with_java(stage: Stage, java: Java) -> None:
    topic = lasting_topic(stage.primary, stage.topic("java"), partitions=PARTITIONS)
    group, alias = stage.group("java"), stage.primary_alias
    stage.write(topic)
    stage.await_mirrored(topic)
    fifth = read_all(stage.primary, topic, read_committed=True)[3][4]
    commit(stage.primary, group, topic, {3: fifth.offset})
    remote, has_heartbeats = stage.remote(topic), stage.name in ("plain", "tls")
    properties = {"bootstrap.servers": stage.backup.bootstrap, **stage.backup.client_config}
    if stage.identity:
        properties |= {"replication.policy.class": IDENTITY, "source.cluster.alias": alias}

    with java.mirror_client(properties) as theirs:
        wait_until(
            lambda: bool(theirs.remote_consumer_offsets(group, alias)),
            "Java's checkpoint",
            timeout_s=SECONDS,
        )
        if has_heartbeats:
            wait_until(
                lambda: alias in theirs.upstream_clusters(), "Java's heartbeats", timeout_s=SECONDS
            )

        told = theirs.remote_consumer_offsets(group, alias)
        assert {at: offset for at, (offset, _) in told.items()} == stage.checkpoints(group)
        assert told == {(remote, 3): (4, "")}
        assert remote in theirs.remote_topics(alias)
        assert f"{alias}.checkpoints.internal" in theirs.checkpoint_topics()
        if has_heartbeats:
            assert f"{alias}.heartbeats" in theirs.heartbeat_topics()
            assert theirs.replication_hops(alias) == 1


@on_each_variant
def test_a_partition_without_records_keeps_a_group_at_its_start(stage: Stage) -> None:
    """I2: after consuming on the backup the group stands at exactly 0 there."""
    topic = lasting_topic(stage.primary, stage.topic("one-empty"), partitions=2)
    group = stage.group("empty-partition")
    produce(stage.primary, topic, [NewRec(key=b"k", value=b"v", partition=1)])
    commit(stage.primary, group, topic, {0: 0, 1: 1})
    stage.await_mirrored(topic)

    consume_all(stage.backup, group, stage.remote(topic))

    assert committed(stage.backup, group, stage.remote(topic)) == {0: 0, 1: 1}


@on_each_variant
def test_a_topic_made_later_joins_the_group(stage: Stage) -> None:
    """I3."""
    group = stage.group("joins")
    first = stage.topic("topic-1")
    commit(stage.primary, group, first, {0: first_offset(stage, first)})
    later = lasting_topic(stage.primary, stage.topic("joins-later"), partitions=1)
    produce(stage.primary, later, numbered(10))

    commit(stage.primary, group, later, {0: 7})

    wait_until(
        lambda: committed(stage.backup, group, stage.remote(later)) == {0: 7},
        "the new topic's offset",
        timeout_s=SECONDS,
    )


def test_without_offset_syncs_their_topic_is_never_made(stages: Mapping[str, Stage]) -> None:
    """I5, I16."""
    stage = stages["identity"]

    stage.await_mirrored(stage.topic("topic-1"))

    for cluster in (stage.primary, stage.backup):
        names = admin_of(cluster).list_topics(timeout=10).topics
        assert not [n for n in names if "offset-syncs" in n and ("iprimary" in n or "ibackup" in n)]


def test_offset_syncs_may_live_on_the_target(stages: Mapping[str, Stage]) -> None:
    """I6: and checkpoints are written all the same."""
    stage = stages["txn"]

    def topics(cluster: LocalCluster) -> set[str]:
        return set(admin_of(cluster).list_topics(timeout=10).topics)

    wait_until(
        lambda: "mm2-offset-syncs.tprimary.internal" in topics(stage.backup),
        "offset syncs on the target",
        timeout_s=SECONDS,
    )
    assert "mm2-offset-syncs.tbackup.internal" not in topics(stage.primary)
    assert "mm2-offset-syncs.backup.internal" in topics(stages["plain"].primary)
    assert "tprimary.checkpoints.internal" in topics(stage.backup)


@on_each_variant
def test_no_checkpoint_before_the_first_record_is_mirrored(stage: Stage) -> None:
    """I7."""
    topic, group = stage.topic("no-records"), stage.group("waits")
    seen = stage.group("waits-beside")
    remote = stage.remote(topic)
    commit(stage.primary, group, topic, {0: 0})
    first = stage.topic("topic-1")
    commit(stage.primary, seen, first, {0: first_offset(stage, first)})
    wait_until(lambda: bool(stage.checkpoints(seen)), "another checkpoint", timeout_s=SECONDS)
    before = stage.checkpoints(group)

    produce(stage.primary, topic, [NewRec(key=b"k", value=b"v")])

    assert before == {}
    wait_until(
        lambda: stage.checkpoints(group) == {(remote, 0): 0}, "its checkpoint", timeout_s=SECONDS
    )


@on_each_variant
def test_checkpoints_follow_a_group_that_lags_and_one_that_goes_back(stage: Stage) -> None:
    """I9."""
    topic = lasting_topic(stage.primary, stage.topic("lags"), partitions=1)
    produce(stage.primary, topic, numbered(1_000))
    group, at = stage.group("lags"), (stage.remote(topic), 0)
    seen: list[int] = []

    for offset in (100, 900, 50):
        commit(stage.primary, group, topic, {0: offset})
        wait_until(
            lambda offset=offset: stage.checkpoints(group).get(at) == offset,  # type: ignore[misc]
            f"checkpoint {offset}",
            timeout_s=SECONDS,
        )
        seen.append(stage.checkpoints(group)[at])

    assert seen == [100, 900, 50]


@on_each_variant
def test_edits_on_the_target_are_taken_back_unless_excluded(stage: Stage) -> None:
    """I10."""
    topic = stage.topic("topic-1")
    stage.await_mirrored(topic)

    set_topic_config(stage.backup, stage.remote(topic), {EXCLUDED: "5555", INCLUDED: "7777777"})

    wait_until(
        lambda: topic_config(stage.backup, stage.remote(topic))[INCLUDED] == "1000000",
        "the source's setting",
        timeout_s=SECONDS,
    )
    assert topic_config(stage.backup, stage.remote(topic))[EXCLUDED] == "5555"


@on_each_variant
def test_a_setting_taken_back_on_the_source_goes_back_to_its_default(stage: Stage) -> None:
    """I11 where defaults come from the source (TLS variant), I12 where from the target."""
    topic = lasting_topic(
        stage.primary, stage.topic("defaults"), config={"segment.bytes": "1048576"}
    )
    remote = stage.remote(topic)
    stage.await_mirrored(topic)
    assert topic_config(stage.backup, remote)["segment.bytes"] == "1048576"

    set_topic_config(stage.primary, topic, {"segment.bytes": None})

    wanted = topic_config(stage.primary, topic)["segment.bytes"]
    wait_until(
        lambda: topic_config(stage.backup, remote)["segment.bytes"] == wanted,
        "the default",
        timeout_s=SECONDS,
    )


def test_a_topic_deleted_on_the_source_is_deleted_only_where_asked_for(
    stages: Mapping[str, Stage],
) -> None:
    """MirrorMaker 2 never deletes; here a flow may ask for it."""
    kept, mirrored = stages["plain"], stages["txn"]
    for stage in (kept, mirrored):
        topic = lasting_topic(stage.primary, stage.topic("short-lived"))
        produce(stage.primary, topic, numbered(3))
        stage.await_mirrored(topic)

    for stage in (kept, mirrored):
        delete_topic(stage.primary, stage.topic("short-lived"))

    gone = mirrored.remote(mirrored.topic("short-lived"))
    wait_until(
        lambda: gone not in admin_of(mirrored.backup).list_topics(timeout=10).topics,
        f"deletion of {gone}",
        timeout_s=SECONDS,
    )
    left = admin_of(kept.backup).list_topics(timeout=10).topics
    assert kept.remote(kept.topic("short-lived")) in left
    assert mirrored.remote(mirrored.topic("topic-1")) in left


def test_after_a_restart_checkpoints_go_on_and_never_back(stages: Mapping[str, Stage]) -> None:
    """I8: and everything written meanwhile arrives once."""
    stage = stages["plain"]
    topic = lasting_topic(stage.primary, stage.topic("restarted"), partitions=1)
    produce(stage.primary, topic, numbered(100))
    group, at = stage.group("restarted"), (stage.remote(topic), 0)
    commit(stage.primary, group, topic, {0: 60})
    wait_until(lambda: stage.checkpoints(group).get(at) == 60, "checkpoint", timeout_s=SECONDS)
    assert stage.run.stop() == 0

    produce(stage.primary, topic, numbered(100, start=100))
    with running_inside(stage.config, periodic=True):
        assert stage.checkpoints(group)[at] == 60
        commit(stage.primary, group, topic, {0: 160})
        wait_until(lambda: stage.checkpoints(group)[at] == 160, "checkpoint", timeout_s=SECONDS)
        stage.await_mirrored(topic)

    assert_same_records(stage.primary, stage.backup, topic, stage.remote(topic))
    assert end_offsets(stage.backup, stage.remote(topic)) == {0: 200}
