"""Fill tests/golden with Fetch answers of real brokers: `.venv/bin/python -m tests.golden.capture`.

Run by a person, never by a test; takes a few minutes. Each scene leaves `NAME.bin`, the records
field of Fetch v11 answers as they came off the socket, and `NAME.json`, the records librdkafka's
consumer read from the same log: a decoder that shares no code with ours.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from heliograph_tools.localkafka.cluster import local_clusters
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.kafka import kafka_classpath
from heliograph_tools.localkafka.ports import LOOPBACK, accepts
from heliograph_tools.localkafka.spec import ClusterSpec

FOLDER: Final = Path(__file__).parent
OLD_VERSION: Final = "2.8.2"
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
START_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
CLEANING_S_MAX: Final = 120
FETCH_BYTES_MAX: Final = 1 << 20
FETCH_API: Final = 1
FETCH_VERSION: Final = 11  # the first ones refuse zstd, the later ones need topic ids

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]

# What a record may hold: no key, empty key, no value, empty value, repeated headers, a header
# without a value, a key that is no text, time running backwards.
RECORDS: Final[Sequence[Record]] = (
    (b"k1", b"first" * 20, START_MS, [("trace", b"1"), ("trace", b"2"), ("none", None)]),
    (None, b"no key" * 20, START_MS + 5, []),
    (b"", b"", START_MS - 1_000, [("", b"")]),
    (b"tombstone", None, START_MS + 70_000, []),
    (b"\xff\x00\xfe", bytes(range(256)), START_MS + 9, [("é", b"\x00")]),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    bootstrap: str
    records: Sequence[Record] = RECORDS

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def producer(self, **settings: str | int | bool) -> Producer:
        plain = {"bootstrap.servers": self.bootstrap, "linger.ms": 500}
        return Producer(plain | {name.replace("_", "."): value for name, value in settings.items()})


def main(wanted: Sequence[str]) -> None:
    if "current" in wanted:
        spec = ClusterSpec(alias="golden", broker_config={"log.cleaner.backoff.ms": "200"})
        with local_clusters([spec]) as clusters:
            capture_current(Broker(bootstrap=clusters["golden"].bootstrap))
    if "old" in wanted:
        with old_broker() as broker:
            capture_old(broker)


def capture_current(broker: Broker) -> None:
    capture(broker, "v2-none", {}, plainly)
    for codec in CODECS:
        # The broker compresses: what Java writes. The client compresses: what librdkafka writes.
        capture(broker, f"v2-{codec}-java", {"compression.type": codec}, plainly)
        capture(broker, f"v2-{codec}-librdkafka", {}, compressing(codec))
    capture(broker, "v2-one-record-batches", {}, one_by_one)
    capture(broker, "v2-transactions", {}, in_transactions)
    append_time = {"message.timestamp.type": "LogAppendTime"}
    capture(broker, "v2-append-time", append_time, plainly)
    capture(broker, "v2-append-time-lz4", append_time, compressing("lz4"))
    for codec in ("none", "lz4"):
        capture(broker, f"v2-compacted-{codec}", COMPACTED, compacting(codec), settle=cleaned)


def capture_old(broker: Broker) -> None:
    for magic, version in ((0, "0.9.0"), (1, "0.10.0")):
        old = {"message.format.version": version}
        capture(broker, f"v{magic}-none", old, plainly)
        for codec in ("gzip", "snappy", "lz4"):
            capture(broker, f"v{magic}-{codec}", old, compressing(codec))
        compacted = old | COMPACTED
        capture(broker, f"v{magic}-compacted-gzip", compacted, compacting("gzip"), settle=cleaned)
    capture(
        broker,
        "v1-append-time-gzip",
        {"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime"},
        compressing("gzip"),
    )
    capture(broker, "mixed-magics", {"message.format.version": "0.9.0"}, upgrading)


# Scenes: each writes to a topic.

COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "1000",
    "delete.retention.ms": str(24 * HOUR_MS),
}

COMPACTED_RECORDS: Final = 13  # of a to h, x, y, z, and both that roll

Scene = Callable[[Broker, str], None]


def plainly(broker: Broker, topic: str) -> None:
    send(broker.producer(), topic, broker.records)


def compressing(codec: str) -> Scene:
    def scene(broker: Broker, topic: str) -> None:
        send(broker.producer(compression_type=codec), topic, broker.records)
        send(broker.producer(compression_type=codec), topic, broker.records[:1])

    return scene


def one_by_one(broker: Broker, topic: str) -> None:
    producer = broker.producer()
    for record in broker.records:
        send(producer, topic, [record])


def in_transactions(broker: Broker, topic: str) -> None:
    producer = broker.producer(transactional_id="golden")
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        send(producer, topic, broker.records)
        end()
    send(broker.producer(), topic, broker.records[:1])


def compacting(codec: str) -> Scene:
    """Batches with holes at both ends and within; with v2 also one emptied and one with tombstones.

    An idempotent producer's last batch outlives its records, for its sequence number.
    """

    def scene(broker: Broker, topic: str) -> None:
        idempotent = codec != "gzip"  # the old formats, for which gzip is used here, know none
        for number, keys in enumerate(("ab", "abcdefgh", "aceg", "dxa", "yyzzy")):
            records: list[Record] = [
                (key.encode(), None if key == "x" else b"%d" % number * 30, START_MS + number, [])
                for key in keys
            ]
            producer = broker.producer(compression_type=codec, enable_idempotence=idempotent)
            send(producer, topic, records)
        # Only what is not the last segment is cleaned. Segments roll by the time of records, and
        # by the clock where records have none.
        for hours in (1, 2):
            time.sleep(2)
            send(broker.producer(), topic, [(b"roll", b"", START_MS + hours * HOUR_MS, [])])

    return scene


def upgrading(broker: Broker, topic: str) -> None:
    """What two upgrades of a cluster leave in one partition."""
    for version in ("0.10.0", "2.8", None):
        send(broker.producer(), topic, broker.records[:2])
        send(broker.producer(compression_type="gzip"), topic, broker.records[2:4])
        if version is None:
            break
        entry = ConfigEntry(
            "message.format.version", version, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = broker.admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        time.sleep(3)  # the broker hears of it through ZooKeeper and does not say when


def cleaned(broker: Broker, topic: str) -> None:
    """Wait until the cleaner has left one record of each key."""
    deadline_s = time.monotonic() + CLEANING_S_MAX
    while len(consume(broker, topic)) > COMPACTED_RECORDS:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{topic}: not compacted in {CLEANING_S_MAX} s")
        time.sleep(0.5)


def send(producer: Producer, topic: str, records: Sequence[Record]) -> None:
    failures: list[KafkaError] = []

    def delivered(failure: KafkaError | None, _: Message) -> None:
        if failure is not None:
            failures.append(failure)

    for key, value, timestamp_ms, headers in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=0,
            timestamp=timestamp_ms,
            headers=headers,
            on_delivery=delivered,
        )
    unsent = producer.flush(60)
    if failures or unsent:
        raise SystemExit(f"{topic}: {unsent} unsent, {failures}")


# Capture.


def capture(
    broker: Broker,
    name: str,
    config: dict[str, str],
    scene: Scene,
    settle: Scene | None = None,
) -> None:
    new = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
    admin = broker.admin()
    for future in admin.create_topics([new]).values():
        future.result(30)
    time.sleep(1)  # a leader is elected after the answer
    scene(broker, name)
    if settle is not None:
        settle(broker, name)
    (FOLDER / f"{name}.bin").write_bytes(fetch_all(broker, name))
    records = consume(broker, name)
    (FOLDER / f"{name}.json").write_text(json.dumps(records, indent=1) + "\n")
    sys.stdout.write(f"{name}: {len(records)} records\n")


def consume(broker: Broker, topic: str) -> list[dict[str, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "golden",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while True:
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"{topic}: no end after 30 s")
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                break
            raise SystemExit(f"{topic}: {error}")
        kind, timestamp_ms = message.timestamp()
        records.append(
            {
                "offset": message.offset(),
                "timestamp_ms": timestamp_ms if kind else -1,
                "key": hexed(message.key()),
                "value": hexed(message.value()),
                "headers": [[name, hexed(value)] for name, value in message.headers() or []],
            }
        )
    consumer.close()
    return records


def hexed(field: bytes | None) -> str | None:
    return None if field is None else field.hex()


def fetch_all(broker: Broker, topic: str) -> bytes:
    """Answers end where a segment does, so the whole log takes several."""
    fetched = b""
    next_offset = 0
    while answer := fetch(broker, topic, next_offset):
        at = 0
        while at < len(answer):
            offset, length, magic = struct.unpack_from(">qi4xb", answer, at)
            (last_delta,) = struct.unpack_from(">i", answer, at + 23) if magic == 2 else (0,)
            next_offset = offset + last_delta + 1
            at += 12 + length
        fetched += answer
    return fetched


def fetch(broker: Broker, topic: str, from_offset: int) -> bytes:
    """The records field of a Fetch v11 answer for partition 0."""
    name = topic.encode()
    request = b"".join(
        (
            struct.pack(">hhih6s", FETCH_API, FETCH_VERSION, 1, 6, b"golden"),
            struct.pack(">iiiibii", -1, 500, 1, FETCH_BYTES_MAX, 0, 0, -1),
            struct.pack(f">ih{len(name)}s", 1, len(name), name),
            struct.pack(">iiiqqi", 1, 0, -1, from_offset, -1, FETCH_BYTES_MAX),
            struct.pack(">ih", 0, 0),
        )
    )
    host, _, port = broker.bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as link:
        link.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", receive(link, 4))
        answer = receive(link, length)
    # correlation, throttle, error, session, topic count, topic, partition count, partition, error
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, at)
    if error:
        raise SystemExit(f"{topic}: fetch answered error {error}")
    at += 2 + 8 + 8 + 8
    (aborted_count,) = struct.unpack_from(">i", answer, at)
    at += 4 + 16 * max(0, aborted_count) + 4
    (size_bytes,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size_bytes]


def receive(link: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        part = link.recv(size_bytes - len(received))
        if not part:
            raise SystemExit("the broker closed the connection")
        received += part
    return received


# The last Kafka line that still writes the old formats, with its ZooKeeper.


@contextlib.contextmanager
def old_broker() -> Iterator[Broker]:
    classpath = ":".join(str(jar) for jar in kafka_classpath(OLD_VERSION))
    zookeeper_port, broker_port = free_ports(2)
    with (
        tempfile.TemporaryDirectory(prefix="golden-") as scratch,
        contextlib.ExitStack() as running,
    ):
        folder = Path(scratch)
        zookeeper = {
            "dataDir": folder / "zookeeper",
            "clientPort": zookeeper_port,
            "clientPortAddress": LOOPBACK,
            "admin.enableServer": "false",
        }
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        running.enter_context(jvm(classpath, main_class, zookeeper, folder / "zoo.cfg"))
        wait_for(zookeeper_port)
        kafka = {
            "broker.id": 0,
            "zookeeper.connect": f"{LOOPBACK}:{zookeeper_port}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{broker_port}",
            "log.dirs": folder / "logs",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "log.cleaner.backoff.ms": 200,
            "auto.create.topics.enable": "false",
        }
        running.enter_context(jvm(classpath, "kafka.Kafka", kafka, folder / "server.properties"))
        wait_for(broker_port)
        # The old formats have no headers, and the broker refuses to drop them.
        records: list[Record] = [(key, value, at_ms, []) for key, value, at_ms, _ in RECORDS]
        yield Broker(bootstrap=f"{LOOPBACK}:{broker_port}", records=records)


@contextlib.contextmanager
def jvm(
    classpath: str, main_class: str, settings: dict[str, Any], settings_path: Path
) -> Iterator[None]:
    settings_path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [str(java_executable()), "-Xmx256m", "-cp", classpath, main_class, str(settings_path)]
    with settings_path.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        child.terminate()
        child.wait(60)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for(port: int) -> None:
    for _ in itertools.takewhile(lambda _: not accepts(port), range(240)):
        time.sleep(0.25)
    if not accepts(port):
        raise SystemExit(f"nothing listens on port {port}")


if __name__ == "__main__":
    main(sys.argv[1:] or ("current", "old"))
