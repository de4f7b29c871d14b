"""Looking at real clusters and preparing them: what is made, what is left, what is said."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from heliograph.broker.admin import Change, ClusterAdmin
from heliograph.broker.topic_changes import PartitionsToGrow, TopicToCreate
from heliograph.broker.view import ConfigOrigin
from heliograph.config.schema import ClusterConfig, FlowConfig, Secret, SecurityConfig
from heliograph.config.security import SaslConfig
from heliograph.driver.prepare import prepare_target
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised
from heliograph.ledger.entries import ledger_topic
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.observe import held_records, observe, with_defaults, with_settings
from heliograph.topics.provisioning import Provisioning, Severity, plan_provisioning
from heliograph.topics.selection import select_topics
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.acls import grant, on
from tests.kit.clusters import FAST_START
from tests.kit.topics import delete_topic

MIRROR, MIRROR_PASSWORD = "mirror", "seen-by-nobody"
A, B = ClusterAlias("A"), ClusterAlias("B")
LEAST_TO_PREPARE = ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS")


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalCluster]]:
    """A is open; B asks who you are, allows nothing by itself, and stamps what is appended."""
    specs = [
        ClusterSpec(alias=A, heap_mb=256, jvm_options=FAST_START),
        ClusterSpec(
            alias=B,
            heap_mb=256,
            jvm_options=FAST_START,
            sasl="PLAIN",
            authorizer=True,
            users={MIRROR: MIRROR_PASSWORD},
            broker_config={"log.message.timestamp.type": "LogAppendTime"},
        ),
    ]
    root: Path = tmp_path_factory.mktemp("clusters")
    with local_clusters(specs, root=root / "run") as started:
        yield started


def config_of(
    cluster: LocalCluster, *, user: str | None = None, password: str = ""
) -> ClusterConfig:
    settings = cluster.librdkafka_config if user is None else {"sasl.username": user}
    security = SecurityConfig()
    if cluster.spec.sasl is not None:
        secret = settings.get("sasl.password", password)
        sasl = SaslConfig(
            mechanism="PLAIN", username=settings["sasl.username"], password=Secret(secret)
        )
        security = SecurityConfig(protocol="SASL_PLAINTEXT", sasl=sasl)
    return ClusterConfig(
        alias=ClusterAlias(cluster.alias),
        bootstrap_servers=tuple(cluster.bootstrap.split(",")),
        security=security,
    )


@pytest.fixture
def source(clusters: dict[str, LocalCluster]) -> ClusterAdmin:
    return ClusterAdmin(config_of(clusters[A]), timeout_s=20)


@pytest.fixture
def target(clusters: dict[str, LocalCluster]) -> ClusterAdmin:
    """B, as its super user."""
    return ClusterAdmin(config_of(clusters[B]), timeout_s=20)


@pytest.fixture
def limited(clusters: dict[str, LocalCluster]) -> ClusterAdmin:
    """B, as a user that may do only what ACLs say."""
    config = config_of(clusters[B], user=MIRROR, password=MIRROR_PASSWORD)
    return ClusterAdmin(config, timeout_s=20)


def flow_of(topics: str, **fields: Any) -> FlowConfig:
    flow = FlowId(source=A, target=B)
    return FlowConfig(id=flow, enabled=True, topics=(topics,), replication_factor=1, **fields)


def make(cluster: LocalCluster, name: str, partitions: int = 1, **config: str) -> TopicName:
    """Create a topic, and return when the cluster shows it."""
    topic = TopicName(name)
    new = TopicToCreate(
        source=topic,
        name=topic,
        partitions=partitions,
        replication_factor=1,
        configs={key.replace("_", "."): value for key, value in config.items()},
    )
    admin = ClusterAdmin(config_of(cluster), timeout_s=20)
    assert admin.create_topics([new]) == {topic: Change.DONE}
    assert admin.await_partitions({topic: partitions}) == {topic: Change.DONE}
    return topic


def plan(source: ClusterAdmin, target: ClusterAdmin, flow: FlowConfig) -> Provisioning:
    seen = asyncio.run(observe([source, target]))
    selection = select_topics(flow, seen.views[A].topics)
    names = [name for name, _ in selection.mirrored]
    source_view = with_settings(source, seen.views[A], names)
    target_view = with_defaults(target, seen.views[B])
    return plan_provisioning(flow, selection, source_view, target_view)


def test_a_missing_topic_is_created_like_its_source_and_a_second_call_does_nothing(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, target: ClusterAdmin
) -> None:
    make(clusters[A], "like", 3, cleanup_policy="compact", min_insync_replicas="1")
    name = TopicName("A.like")

    first = prepare_target(target, flow_of("like"), plan(source, target, flow_of("like")))
    second = prepare_target(target, flow_of("like"), plan(source, target, flow_of("like")))

    assert (first.created, first.grown, first.problems) == ((name,), (), {})
    assert (second.created, second.grown, second.problems) == ((), (), {})
    assert second.ledger is Change.ALREADY
    made = target.describe_topics([name])[name]
    settings = target.topic_configs([name])[name]
    assert made.partition_count == 3
    assert not isinstance(settings, NotAuthorised)
    assert settings["cleanup.policy"].value == "compact"
    assert settings["cleanup.policy"].origin is ConfigOrigin.TOPIC
    assert settings["min.insync.replicas"].origin is not ConfigOrigin.TOPIC


def test_the_ledger_is_there_and_compacted_before_any_topic(
    source: ClusterAdmin, target: ClusterAdmin
) -> None:
    prepare_target(target, flow_of("nothing"), plan(source, target, flow_of("nothing")))

    name = ledger_topic(A)
    settings = target.topic_configs([name])[name]
    assert not isinstance(settings, NotAuthorised)
    assert settings["cleanup.policy"].value == "compact"
    assert target.describe_topics([name])[name].partition_count == 1


def test_lanes_can_be_planned_as_soon_as_the_target_is_prepared(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, target: ClusterAdmin
) -> None:
    make(clusters[A], "soon", 12)
    flow = flow_of("soon")

    prepare_target(target, flow, plan(source, target, flow))
    seen = asyncio.run(observe([source, target]))
    selection = select_topics(flow, seen.views[A].topics)
    lanes = plan_lanes(flow, selection, seen.views[A], seen.views[B])

    assert [str(lane.target) for lane in lanes] == [f"A.soon-{n}" for n in range(12)]
    assert {lane.source_topic_id for lane in lanes} == {seen.views[A].topics[TopicName("soon")].id}


def test_a_topic_that_grew_on_the_source_grows_on_the_target(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, target: ClusterAdmin
) -> None:
    make(clusters[A], "grows", 2)
    flow = flow_of("grows")
    prepare_target(target, flow, plan(source, target, flow))
    grown = PartitionsToGrow(name=TopicName("grows"), partitions_before=2, partitions=5)
    source.grow_partitions([grown])
    source.await_partitions({grown.name: 5})

    prepared = prepare_target(target, flow, plan(source, target, flow))

    name = TopicName("A.grows")
    assert (prepared.created, prepared.grown, prepared.problems) == ((), (name,), {})
    assert target.describe_topics([name])[name].partition_count == 5
    again = PartitionsToGrow(name=name, partitions_before=2, partitions=5)
    assert target.grow_partitions([again]) == {name: Change.ALREADY}


def test_a_topic_somebody_else_created_meanwhile_is_taken_as_it_is_and_grown(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, target: ClusterAdmin
) -> None:
    make(clusters[A], "raced", 4)
    flow = flow_of("raced")
    planned = plan(source, target, flow)
    name = make(clusters[B], "A.raced", 1)

    prepared = prepare_target(target, flow, planned)

    assert (prepared.created, prepared.grown, prepared.problems) == ((), (name,), {})
    assert target.describe_topics([name])[name].partition_count == 4


def test_two_drivers_that_prepare_at_once_create_each_topic_once(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, target: ClusterAdmin
) -> None:
    names = [make(clusters[A], f"both-{n}", 2) for n in range(8)]
    flow = flow_of("both-.*")
    planned = plan(source, target, flow)
    drivers = [target, ClusterAdmin(config_of(clusters[B]), timeout_s=20)]
    assert len(planned.to_create) == len(names)

    with ThreadPoolExecutor(2) as pool:
        prepared = list(pool.map(lambda admin: prepare_target(admin, flow, planned), drivers))

    assert [driver.problems for driver in prepared] == [{}, {}]
    created = sorted(name for driver in prepared for name in driver.created)
    assert created == [f"A.{name}" for name in names]


def test_a_missing_permission_names_itself_and_keeps_no_other_topic_waiting(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, limited: ClusterAdmin
) -> None:
    for topic in ("allowed", "forbidden", "invisible"):
        make(clusters[A], topic)
    for topic in ("A.allowed", ledger_topic(A)):
        for operation in LEAST_TO_PREPARE:
            grant(clusters[B], on(MIRROR, "topic", topic, operation))
    grant(clusters[B], on(MIRROR, "topic", "A.invisible", "CREATE"))
    flow = flow_of("allowed|forbidden|invisible")

    prepared = prepare_target(limited, flow, plan(source, limited, flow))

    assert prepared.created == ("A.allowed", "A.invisible")
    assert {name: str(error) for name, error in prepared.problems.items()} == {
        "A.forbidden": "cluster B: missing permission CREATE on topic A.forbidden",
        "A.invisible": "cluster B: missing permission DESCRIBE on topic A.invisible",
    }


def test_settings_that_are_not_shown_become_the_sentence_that_says_so(
    clusters: dict[str, LocalCluster], limited: ClusterAdmin
) -> None:
    name = make(clusters[B], "hidden-settings")
    grant(clusters[B], on(MIRROR, "topic", name, "DESCRIBE"))
    view = asyncio.run(observe([limited])).views[B]

    filled = with_settings(limited, view, [name]).topics[name]

    sentence = "cluster B: missing permission DESCRIBE_CONFIGS on topic hidden-settings"
    assert (filled.settings, filled.settings_refused) == (None, sentence)
    assert with_defaults(limited, view).topic_defaults is None


def test_growing_without_permission_says_which(
    clusters: dict[str, LocalCluster], limited: ClusterAdmin
) -> None:
    name = make(clusters[B], "fixed-size")
    grant(clusters[B], on(MIRROR, "topic", name, "DESCRIBE"))

    outcome = limited.grow_partitions(
        [PartitionsToGrow(name=name, partitions_before=1, partitions=2)]
    )

    assert str(outcome[name]) == "cluster B: missing permission ALTER on topic fixed-size"


def test_a_wrong_password_is_told_from_a_dead_cluster_before_the_deadline(
    clusters: dict[str, LocalCluster],
) -> None:
    wrong = ClusterAdmin(config_of(clusters[B], user=MIRROR, password="wrong"), timeout_s=60)
    began = time.monotonic()

    with pytest.raises(NotAuthorised) as caught:
        wrong.describe()

    assert time.monotonic() - began < 30
    assert str(caught.value).startswith("cluster B: credentials refused: ")
    assert "wrong" not in str(caught.value)


def test_an_unreachable_cluster_is_named_in_time_and_the_others_are_seen(
    source: ClusterAdmin,
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # held and not listening: connections are refused
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        gone = ClusterConfig(alias=ClusterAlias("C"), bootstrap_servers=(address,))
        admin = ClusterAdmin(gone, timeout_s=3)
        began = time.monotonic()

        seen = asyncio.run(observe([admin, source]))

        assert time.monotonic() - began < 8
        assert set(seen.views) == {A}
        error = seen.unseen[ClusterAlias("C")]
        assert isinstance(error, BrokerUnreachable)
        assert str(error).startswith("cluster C: unreachable: ")
        assert "Connection refused" in str(error)
        with pytest.raises(BrokerUnreachable, match="cluster C: unreachable"):
            admin.create_topics([_anything()])


def _anything() -> TopicToCreate:
    name = TopicName("anything")
    return TopicToCreate(source=name, name=name, partitions=1, replication_factor=1, configs={})


def test_a_topic_deleted_and_created_again_has_another_id(
    clusters: dict[str, LocalCluster], source: ClusterAdmin
) -> None:
    name = make(clusters[A], "reborn")
    before = source.describe_topics([name])[name].id
    delete_topic(clusters[A], name)
    assert name not in source.describe_topics([name])

    make(clusters[A], "reborn")
    after = source.describe_topics([name])[name].id

    assert before is not None
    assert after is not None
    assert before != after


def test_the_view_tells_the_cluster_id_its_brokers_and_its_leaders(
    clusters: dict[str, LocalCluster], source: ClusterAdmin
) -> None:
    name = make(clusters[A], "seen", 2)

    view = source.describe()

    assert view.alias == A
    assert view.cluster_id == clusters[A].cluster_id
    assert view.broker_count == 1
    leaders = [(p.partition, p.leader) for p in view.topics[name].partitions]
    assert leaders == [(0, 0), (1, 0)]


def test_append_time_by_default_on_the_target_is_in_the_plan(
    clusters: dict[str, LocalCluster], source: ClusterAdmin, target: ClusterAdmin
) -> None:
    make(clusters[A], "stamped")

    planned = plan(source, target, flow_of("stamped"))

    problems = [note.text for note in planned.notes if note.weight is Severity.PROBLEM]
    assert len(problems) == 1
    assert problems[0].startswith("message.timestamp.type is LogAppendTime on the target")


def test_more_replicas_than_brokers_is_refused_for_that_topic_with_the_brokers_words(
    target: ClusterAdmin,
) -> None:
    name = TopicName("replicated")
    new = TopicToCreate(source=name, name=name, partitions=1, replication_factor=3, configs={})

    outcome = target.create_topics([new])[name]

    assert isinstance(outcome, BrokerError)
    assert str(outcome).startswith("cluster B: ")
    assert "eplication factor" in str(outcome)


def test_a_ledger_topic_that_expires_its_entries_is_refused(
    clusters: dict[str, LocalCluster], source: ClusterAdmin
) -> None:
    name = make(clusters[A], "heliograph-ledger.X.internal", cleanup_policy="delete")

    with pytest.raises(BrokerError, match=r"has cleanup\.policy=delete, it must be compact"):
        source.ensure_compacted_topic(name, partitions=1, replication_factor=1)


def test_offsets_are_told_with_and_without_what_is_not_committed(
    clusters: dict[str, LocalCluster], source: ClusterAdmin
) -> None:
    name = make(clusters[A], "offsets", 2)
    written, empty = (TopicPartition(topic=name, partition=n) for n in (0, 1))
    producer = Producer({**clusters[A].librdkafka_config, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(name, b"value", partition=0)
    producer.flush(20)

    latest = source.list_offsets([written, empty], "latest")
    stable = source.list_offsets([written, empty], "latest", read_committed=True)
    producer.abort_transaction(30)

    assert latest == {written: 5, empty: 0}
    assert stable == {written: 0, empty: 0}


def test_records_are_deleted_up_to_an_offset_and_what_is_held_is_counted(
    clusters: dict[str, LocalCluster], source: ClusterAdmin
) -> None:
    name = make(clusters[A], "deleted")
    partition = TopicPartition(topic=name, partition=0)
    producer = Producer(clusters[A].librdkafka_config)
    for _ in range(10):
        producer.produce(name, b"value", partition=0)
    producer.flush(20)

    low = source.delete_records({partition: 4})

    assert low == {partition: 4}
    assert source.list_offsets([partition], "earliest") == {partition: 4}
    absent = TopicName("absent")
    assert held_records(source, source.describe(), [name, absent]) == {name: 6}


def test_topics_that_are_not_there_are_left_out_and_not_an_error(
    clusters: dict[str, LocalCluster], source: ClusterAdmin
) -> None:
    absent, present = TopicName("absent"), make(clusters[A], "present")
    gone, there = (TopicPartition(topic=name, partition=0) for name in (absent, present))

    assert set(source.describe_topics([absent, present])) == {present}
    assert set(source.topic_configs([absent, present])) == {present}
    assert source.list_offsets([gone], "latest") == {}
    assert source.list_offsets([gone, there], "latest") == {there: 0}
