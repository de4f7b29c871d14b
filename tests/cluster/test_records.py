"""Writing and reading internal topics of real brokers: whole, bounded, and said when it fails."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (
    AdminClient,
)

from heliograph.broker.records import ReadRecord, Record, RecordWriter, read_records
from heliograph.config.schema import ClusterConfig, Secret, SecurityConfig
from heliograph.config.security import SaslConfig
from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError, NotAuthorised
from heliograph.model import ClusterAlias, TopicName
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.acls import grant, on
from tests.kit.clusters import TopicNames
from tests.kit.records import (
    NewRec,
    Transaction,
    numbered,
    open_transaction,
    produce,
    produce_transactions,
)
from tests.kit.topics import create_topic, delete_topic, force_compaction, wait_until

USER, PASSWORD = "mirror", "seen-by-nobody"
SOON_S = 2.0


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Asks who you are and allows nothing by itself."""
    spec = ClusterSpec(
        alias="S",
        heap_mb=256,
        sasl="PLAIN",
        authorizer=True,
        users={USER: PASSWORD},
        jvm_options=("-XX:TieredStopAtLevel=1",),
    )
    with local_clusters([spec], root=tmp_path_factory.mktemp("strict") / "run") as started:
        yield started["S"]


@pytest.fixture
def writer(pair: dict[str, LocalCluster]) -> Iterator[RecordWriter]:
    opened = RecordWriter(config_of(pair["A"]), timeout_s=20)
    yield opened
    opened.close()


def config_of(
    cluster: LocalCluster,
    *,
    producer: Mapping[str, str] | None = None,
    consumer: Mapping[str, str] | None = None,
) -> ClusterConfig:
    return ClusterConfig(
        alias=ClusterAlias(cluster.alias),
        bootstrap_servers=tuple(cluster.bootstrap.split(",")),
        producer=producer or {},
        consumer=consumer or {},
    )


def limited(cluster: LocalCluster, password: str = PASSWORD) -> ClusterConfig:
    """The cluster as a user that may do only what ACLs say."""
    sasl = SaslConfig(mechanism="PLAIN", username=USER, password=Secret(password))
    security = SecurityConfig(protocol="SASL_PLAINTEXT", sasl=sasl)
    return config_of(cluster).model_copy(update={"security": security})


def nowhere() -> ClusterConfig:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return ClusterConfig(alias=ClusterAlias("N"), bootstrap_servers=(f"127.0.0.1:{port}",))


def made(cluster: LocalCluster, name: str, *, partitions: int = 1, **config: str) -> TopicName:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return TopicName(create_topic(cluster, name, partitions=partitions, config=settings))


def contents(records: Iterator[ReadRecord]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_what_was_written_is_read_with_key_value_time_and_partition(
    pair: dict[str, LocalCluster], topic: TopicNames, writer: RecordWriter
) -> None:
    name = made(pair["A"], topic("written"), partitions=3)
    before_ms = time.time_ns() // 1_000_000

    writer.write(
        name,
        [
            Record(key=b"k", value=b"v", timestamp_ms=1_700_000_000_000, partition=2),
            Record(key=b"k", value=None, timestamp_ms=1_700_000_000_001, partition=2),
            Record(key=None, value=b"", partition=0),
        ],
    )

    found = sorted(read_records(config_of(pair["A"]), name), key=lambda r: (r.partition, r.offset))
    assert [(r.partition, r.offset, r.key, r.value) for r in found] == [
        (0, 0, None, b""),
        (2, 0, b"k", b"v"),
        (2, 1, b"k", None),
    ]
    assert [r.timestamp_ms for r in found[1:]] == [1_700_000_000_000, 1_700_000_000_001]
    assert found[0].timestamp_ms >= before_ms


def test_a_record_of_no_time_at_all_is_refused_before_it_would_become_now() -> None:
    with pytest.raises(InvariantError):
        Record(key=None, value=None, timestamp_ms=0)


def test_many_threads_write_through_one_writer_and_each_record_is_there_once(
    pair: dict[str, LocalCluster], topic: TopicNames, writer: RecordWriter
) -> None:
    name = made(pair["A"], topic("shared"))

    def write(thread: int) -> None:
        for number in range(20):
            writer.write(name, [Record(key=b"%d" % thread, value=b"%d" % number)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))

    found = contents(read_records(config_of(pair["A"]), name))
    assert len(found) == 160
    for thread in range(8):
        own = [value for key, value in found if key == b"%d" % thread]
        assert own == [b"%d" % number for number in range(20)]


def test_overrides_of_a_data_producer_do_not_weaken_the_writer(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = made(pair["A"], topic("overridden"))
    careless = {
        "acks": "0",
        "enable.idempotence": "false",
        "retries": "0",
        "max.in.flight.requests.per.connection": "100",
        "linger.ms": "600000",
        "delivery.timeout.ms": "2147483647",
        "transactional.id": "not-ours",
        "compression.type": "lz4",
    }

    writer = RecordWriter(config_of(pair["A"], producer=careless), timeout_s=20)
    writer.write(name, [Record(key=b"k", value=b"v")])
    writer.close()

    assert contents(read_records(config_of(pair["A"]), name)) == [(b"k", b"v")]


def test_a_closed_writer_says_so(pair: dict[str, LocalCluster], topic: TopicNames) -> None:
    name = made(pair["A"], topic("closed"))
    writer = RecordWriter(config_of(pair["A"]))

    writer.close()
    writer.close()

    with pytest.raises(BrokerError, match="cluster A: the writer is closed"):
        writer.write(name, [Record(key=None, value=b"v")])


def test_a_record_larger_than_the_broker_takes_is_an_error_with_the_topic(
    pair: dict[str, LocalCluster], topic: TopicNames, writer: RecordWriter
) -> None:
    name = made(pair["A"], topic("small"), max_message_bytes="1000")

    with pytest.raises(BrokerError, match=rf"cluster A: .*{name}"):
        writer.write(name, [Record(key=None, value=b"x" * 5_000)])
    writer.write(name, [Record(key=None, value=b"fits")])

    assert contents(read_records(config_of(pair["A"]), name)) == [(None, b"fits")]


def test_a_topic_that_is_not_there_is_an_error_to_write_and_nothing_to_read(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = TopicName(topic("absent"))
    writer = RecordWriter(config_of(pair["A"]), timeout_s=SOON_S)

    with pytest.raises(BrokerError, match=rf"cluster A: .*{name}"):
        writer.write(name, [Record(key=None, value=b"v")])
    writer.close()

    assert list(read_records(config_of(pair["A"]), name)) == []


def test_a_topic_made_again_is_written_by_the_same_writer(
    pair: dict[str, LocalCluster], topic: TopicNames, writer: RecordWriter
) -> None:
    name = made(pair["A"], topic("again"))
    writer.write(name, [Record(key=None, value=b"%d" % number) for number in range(3)])

    delete_topic(pair["A"], name)
    made(pair["A"], name)
    wait_until(lambda: _takes(writer, name), f"{name} takes records again")

    found = contents(read_records(config_of(pair["A"]), name))
    assert found[-1] == (None, b"after")


def _takes(writer: RecordWriter, name: TopicName) -> bool:
    try:
        writer.write(name, [Record(key=None, value=b"after")])
    except BrokerError:
        return False
    return True


def test_reading_ends_where_the_topic_ended_when_it_began(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = made(pair["A"], topic("growing"))
    produce(pair["A"], name, numbered(10))

    reading = read_records(config_of(pair["A"]), name)
    produce(pair["A"], name, numbered(10, start=10))

    assert [record.offset for record in reading] == list(range(10))


def test_only_the_partitions_asked_for_are_read(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = made(pair["A"], topic("some"), partitions=4)
    produce(pair["A"], name, numbered(40, partitions=4))

    found = list(read_records(config_of(pair["A"]), name, partitions=[1, 3, 9]))

    assert sorted({record.partition for record in found}) == [1, 3]
    assert len(found) == 20


def test_an_empty_topic_is_read_at_once(pair: dict[str, LocalCluster], topic: TopicNames) -> None:
    name = made(pair["A"], topic("empty"), partitions=2)

    assert list(read_records(config_of(pair["A"]), name, timeout_s=10)) == []


def test_aborted_records_and_the_markers_at_the_end_are_passed_over(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = made(pair["A"], topic("transactions"))
    batches = [
        Transaction(records=[NewRec(value=b"kept")]),
        Transaction(records=[NewRec(value=b"aborted")], commit=False),
    ]
    produce_transactions(pair["A"], name, batches, transactional_id=name)

    committed = contents(read_records(config_of(pair["A"]), name, timeout_s=10))
    everything = contents(read_records(config_of(pair["A"]), name, read_committed=False))

    assert committed == [(None, b"kept")]
    assert everything == [(None, b"kept"), (None, b"aborted")]


def test_an_open_transaction_holds_nobody_up(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = made(pair["A"], topic("open"))
    produce(pair["A"], name, [NewRec(value=b"before")])

    with open_transaction(pair["A"], name, [NewRec(value=b"waits")], transactional_id=name):
        found = contents(read_records(config_of(pair["A"]), name, timeout_s=10))

    assert found == [(None, b"before")]


def test_a_compacted_topic_is_read_to_its_end(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = made(pair["A"], topic("compacted"), cleanup_policy="compact")
    produce(pair["A"], name, numbered(200, keys=5))
    force_compaction(pair["A"], name)

    found = contents(read_records(config_of(pair["A"]), name, timeout_s=10))

    assert len({key for key, _ in found}) == len(found) == 6


def test_reading_leaves_no_group_behind(pair: dict[str, LocalCluster], topic: TopicNames) -> None:
    name = made(pair["A"], topic("groupless"))
    produce(pair["A"], name, numbered(10))
    greedy = {"group.id": "theirs", "enable.auto.commit": "true", "auto.offset.reset": "latest"}

    found = list(read_records(config_of(pair["A"], consumer=greedy), name))

    client = AdminClient(pair["A"].librdkafka_config)
    groups = {group.group_id for group in client.list_consumer_groups().result(20).valid}
    offsets = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("theirs")])
    assert len(found) == 10
    assert not groups & {"theirs", "heliograph-reader"}
    assert offsets["theirs"].result(20).topic_partitions == []


def test_a_cluster_that_is_not_there_is_unreachable_within_the_time_given() -> None:
    cluster, name = nowhere(), TopicName("anything")
    began_s = time.monotonic()
    writer = RecordWriter(cluster, timeout_s=1)

    with pytest.raises(BrokerUnreachable, match=r"cluster N: .*anything"):
        writer.write(name, [Record(key=None, value=b"v")])
    with pytest.raises(BrokerUnreachable, match=r"cluster N: .*anything"):
        list(read_records(cluster, name, timeout_s=1))
    writer.close()

    assert time.monotonic() - began_s < 15


def test_a_missing_permission_is_named(strict: LocalCluster) -> None:
    name = made(strict, "forbidden")
    writer = RecordWriter(limited(strict), timeout_s=10)

    with pytest.raises(NotAuthorised, match="cluster S: missing permission WRITE on topic forb"):
        writer.write(name, [Record(key=None, value=b"v")])
    with pytest.raises(NotAuthorised, match="cluster S: missing permission READ on topic forb"):
        list(read_records(limited(strict), name, timeout_s=10))
    writer.close()


def test_a_topic_that_may_be_described_but_neither_read_nor_written_names_what_is_missing(
    strict: LocalCluster,
) -> None:
    name = made(strict, "described")
    produce(strict, name, [NewRec(value=b"v")])
    grant(strict, on(USER, "topic", name, "DESCRIBE"))
    writer = RecordWriter(limited(strict), timeout_s=10)

    with pytest.raises(NotAuthorised, match="missing permission READ on topic described"):
        list(read_records(limited(strict), name, timeout_s=10))
    # No producer id is given to a user that may write nowhere, which ends librdkafka's producer.
    with pytest.raises(NotAuthorised, match="missing permission WRITE on topic described"):
        writer.write(name, [Record(key=None, value=b"v")])
    writer.close()


def test_no_permission_but_that_of_the_topic_is_needed(strict: LocalCluster) -> None:
    name = made(strict, "permitted")
    grant(strict, on(USER, "topic", name, "WRITE"))
    grant(strict, on(USER, "topic", name, "READ"))
    writer = RecordWriter(limited(strict), timeout_s=10)

    writer.write(name, [Record(key=b"k", value=b"v")])
    found = contents(read_records(limited(strict), name, timeout_s=10))
    writer.close()

    assert found == [(b"k", b"v")]


def test_a_wrong_password_is_said_and_not_shown(strict: LocalCluster) -> None:
    wrong = limited(strict, password="not-the-password")
    writer = RecordWriter(wrong, timeout_s=2)

    with pytest.raises(NotAuthorised, match="cluster S: credentials refused") as writing:
        writer.write(TopicName("any"), [Record(key=None, value=b"v")])
    with pytest.raises(NotAuthorised, match="cluster S: credentials refused") as reading:
        list(read_records(wrong, TopicName("any"), timeout_s=5))
    writer.close()

    assert "not-the-password" not in f"{writing.value}{reading.value}"


def test_a_writer_goes_on_when_its_broker_is_back(strict: LocalCluster) -> None:
    name = made(strict, "returning")
    grant(strict, on(USER, "topic", name, "WRITE"))
    grant(strict, on(USER, "topic", name, "READ"))
    writer = RecordWriter(limited(strict), timeout_s=SOON_S)
    writer.write(name, [Record(key=None, value=b"before")])

    strict.kill_broker(0)
    with pytest.raises(BrokerUnreachable, match=r"cluster S: .*returning"):
        writer.write(name, [Record(key=None, value=b"meanwhile")])
    strict.start_broker(0)
    wait_until(lambda: _takes(writer, name), "the writer writes again")
    writer.close()

    values = [value for _, value in contents(read_records(limited(strict), name))]
    assert values[0] == b"before"
    assert values[-1] == b"after"
