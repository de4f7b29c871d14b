"""Write exactly specified records, read everything back, say how two topics differ."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from heliograph_tools.localkafka.cluster import LocalCluster

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = tuple[tuple[str, bytes | None], ...]
_READ_TIMEOUT_S: Final = 60.0
_CONSUME_WAIT_S: Final = 0.05
_FLUSH_TIMEOUT_S: Final = 120.0
_NOT_YET_LED: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
)
_SHOWN_BYTES_MAX: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Rec:
    """A record as it was read."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    offset: int

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers, int]:
        """All that a mirror must keep; offsets may differ."""
        return (self.key, self.value, self.headers, self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRec:
    """A record to be written. A value of None is a tombstone; without a timestamp it is now."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


def numbered(
    count: int, *, partitions: int = 1, start: int = 0, value_bytes: int = 20, keys: int = 0
) -> list[NewRec]:
    """Records that differ, spread round robin; `keys` limits how many different keys there are."""
    return [
        NewRec(
            key=b"k%d" % (number % keys if keys else number),
            value=b"v%d" % number + b"." * max(0, value_bytes - len(str(number)) - 1),
            timestamp_ms=1_700_000_000_000 + number,
            partition=number % partitions,
        )
        for number in range(start, start + count)
    ]


def produce(
    cluster: LocalCluster,
    topic: str,
    records: Iterable[NewRec],
    *,
    codec: Codec = "none",
    linger_ms: int = 20,
    batch_records_max: int = 10_000,
    batch_bytes_max: int = 1_000_000,
    settings: Mapping[str, str | int] | None = None,
) -> None:
    """Write in order, wait for all acknowledgements; `batch_records_max=1` makes batches of one."""
    with _producer(
        cluster,
        {
            "compression.type": codec,
            "linger.ms": linger_ms,
            "batch.num.messages": batch_records_max,
            "batch.size": batch_bytes_max,
            **(settings or {}),
        },
    ) as (producer, failures):
        _send(producer, topic, records, failures)
        _flush(producer, failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    records: Sequence[NewRec]
    commit: bool = True


def produce_transactions(
    cluster: LocalCluster,
    topic: str,
    transactions: Iterable[Transaction],
    *,
    transactional_id: str,
    codec: Codec = "none",
) -> None:
    """One transaction after the other; records of aborted ones reach the log before the abort."""
    settings: dict[str, str | int] = {
        "transactional.id": transactional_id,
        "compression.type": codec,
        "linger.ms": 5,
    }
    with _producer(cluster, settings) as (producer, failures):
        producer.init_transactions(_FLUSH_TIMEOUT_S)
        for transaction in transactions:
            producer.begin_transaction()
            _send(producer, topic, transaction.records, failures)
            _flush(producer, failures)
            if transaction.commit:
                producer.commit_transaction(_FLUSH_TIMEOUT_S)
            else:
                producer.abort_transaction(_FLUSH_TIMEOUT_S)


@contextlib.contextmanager
def open_transaction(
    cluster: LocalCluster, topic: str, records: Iterable[NewRec], *, transactional_id: str
) -> Iterator[None]:
    """Records that wait for their commit, which comes when the block ends."""
    settings: dict[str, str | int] = {"transactional.id": transactional_id, "linger.ms": 5}
    with _producer(cluster, settings) as (producer, failures):
        producer.init_transactions(_FLUSH_TIMEOUT_S)
        producer.begin_transaction()
        _send(producer, topic, records, failures)
        _flush(producer, failures)
        yield
        producer.commit_transaction(_FLUSH_TIMEOUT_S)


def read_all(
    cluster: LocalCluster, topic: str, *, read_committed: bool = True
) -> dict[int, list[Rec]]:
    """Every record a consumer gets now, by partition and in order; {} when there is no topic."""
    consumer = _consumer(cluster, read_committed)
    try:
        partitions = sorted(
            consumer.list_topics(topic, timeout=_READ_TIMEOUT_S).topics[topic].partitions
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: dict[int, list[Rec]] = {number: [] for number in partitions}
        unfinished = set(partitions)
        deadline_s = time.monotonic() + _READ_TIMEOUT_S
        while unfinished:
            # Fewer than asked for arrive once the timeout is over, so a short one is a fast one.
            messages = consumer.consume(10_000, timeout=_CONSUME_WAIT_S)
            if messages:
                deadline_s = time.monotonic() + _READ_TIMEOUT_S
            elif time.monotonic() > deadline_s:
                raise TimeoutError(f"{topic}: no answer from {cluster.alias} while reading")
            for message in messages:
                error = message.error()
                if error is None:
                    found[message.partition()].append(_rec(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def end_offsets(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """The next offset of every partition (high watermark), also of a topic made this moment."""
    consumer = _consumer(cluster, read_committed=False)
    try:
        partitions = consumer.list_topics(topic, timeout=_READ_TIMEOUT_S).topics[topic].partitions
        return {number: _end_offset(consumer, topic, number) for number in sorted(partitions)}
    finally:
        consumer.close()


def _end_offset(consumer: Consumer, topic: str, number: int) -> int:
    deadline_s = time.monotonic() + _READ_TIMEOUT_S
    while True:
        try:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=_READ_TIMEOUT_S
            )
        except KafkaException as exc:
            # A broker lists a partition a moment before it leads it.
            if exc.args[0].code() not in _NOT_YET_LED or time.monotonic() > deadline_s:
                raise
            time.sleep(_CONSUME_WAIT_S)
        else:
            return int(end)


def assert_same_records(
    source: LocalCluster,
    target: LocalCluster,
    topic: str,
    target_topic: str | None = None,
    *,
    read_committed: bool = True,
) -> int:
    """Key, value, headers, timestamp, partition and order are equal; returns how many records."""
    wanted = read_all(source, topic, read_committed=read_committed)
    mirrored = read_all(target, target_topic or topic, read_committed=read_committed)
    problems = [
        f"{topic}-{number}: {problem}"
        for number in sorted(wanted.keys() | mirrored.keys())
        if (problem := difference(wanted.get(number, []), mirrored.get(number, []))) is not None
    ]
    if problems:
        raise AssertionError("\n".join(problems))
    return sum(map(len, wanted.values()))


def difference(source: Sequence[Rec], target: Sequence[Rec]) -> str | None:
    """How `target` differs from `source`, in two lines; None when it does not."""
    first = next(
        (
            place
            for place, (left, right) in enumerate(zip(source, target, strict=False))
            if left.content != right.content
        ),
        min(len(source), len(target)),
    )
    if first == len(source) == len(target):
        return None
    wanted = Counter(rec.content for rec in source)
    mirrored = Counter(rec.content for rec in target)
    lost = (wanted - mirrored).total()
    repeated = sum(n for content, n in (mirrored - wanted).items() if content in wanted)
    foreign = sum(n for content, n in (mirrored - wanted).items() if content not in wanted)
    return (
        f"{len(source)} records at the source, {len(target)} at the target:"
        f" {lost} lost, {repeated} repeated, {foreign} never at the source"
        f"\n  first difference at record {first}:"
        f" source {_shown(source, first)}, target {_shown(target, first)}"
    )


def _shown(records: Sequence[Rec], place: int) -> str:
    if place >= len(records):
        return "has no more"
    rec = records[place]
    return (
        f"offset {rec.offset} key {_short(rec.key)} value {_short(rec.value)}"
        f" headers {len(rec.headers)} timestamp {rec.timestamp_ms}"
    )


def _short(content: bytes | None) -> str:
    if content is None or len(content) <= _SHOWN_BYTES_MAX:
        return repr(content)
    return f"{content[:_SHOWN_BYTES_MAX]!r}… ({len(content)} bytes)"


def _rec(message: Message) -> Rec:
    headers = message.headers()
    return Rec(
        key=message.key(),
        value=message.value(),
        headers=tuple(headers) if headers else (),
        timestamp_ms=message.timestamp()[1],
        offset=message.offset(),
    )


def _consumer(cluster: LocalCluster, read_committed: bool) -> Consumer:
    return Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": "tests-kit",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "check.crcs": True,
            # An empty fetch tells the end of a partition, so it should not wait for records.
            "fetch.wait.max.ms": 10,
        }
    )


@contextlib.contextmanager
def _producer(
    cluster: LocalCluster, settings: Mapping[str, str | int]
) -> Iterator[tuple[Producer, list[KafkaError]]]:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            **cluster.librdkafka_config,
            "acks": "all",
            "message.max.bytes": 100_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "on_delivery": on_delivery,
            **settings,
        }
    )
    yield producer, failures


def _send(
    producer: Producer, topic: str, records: Iterable[NewRec], failures: list[KafkaError]
) -> None:
    for rec in records:
        arguments: dict[str, Any] = {"partition": rec.partition}
        if rec.timestamp_ms is not None:
            arguments["timestamp"] = rec.timestamp_ms
        if rec.headers:
            arguments["headers"] = list(rec.headers)
        while True:
            try:
                producer.produce(topic, rec.value, rec.key, **arguments)
                break
            except BufferError:
                producer.poll(0.1)
        if failures:
            raise KafkaException(failures[0])


def _flush(producer: Producer, failures: list[KafkaError]) -> None:
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if failures:
        raise KafkaException(failures[0])
    if unsent:
        raise TimeoutError(f"{unsent} records were not acknowledged in {_FLUSH_TIMEOUT_S:.0f} s")
