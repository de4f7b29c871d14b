"""Write the demo's topics with ordinary clients: plain, transactional, compacted. Runs on the
driver."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import LocalClusterError
from heliograph_tools.demo.reading import client_settings, overwritten_records
from heliograph_tools.demo.topics import TOPICS, DemoTopic, NewRecord, records_of
from heliograph_tools.localkafka.cluster import LocalCluster

_ANSWER_S_MAX: Final = 60.0
_OLDEST_MS: Final = 600_000
_TRANSACTION_RECORDS: Final = 250
_ABORTED_EVERY: Final = 4
_SLICES: Final = 20
_SEGMENT_MS: Final = 100
_CLEANED_S_MAX: Final = 20.0
_COMPACT_NOW: Final = {
    "segment.ms": str(_SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.0001",
    "min.compaction.lag.ms": "0",
}


def create_topics(cluster: LocalCluster) -> None:
    admin = AdminClient(client_settings(cluster))
    wanted = [
        NewTopic(topic.name, topic.partitions, 1, config=dict(topic.configs)) for topic in TOPICS
    ]
    for answer in admin.create_topics(wanted).values():
        answer.result(_ANSWER_S_MAX)


class Writer:
    """One producer of one topic; numbers its records on from call to call."""

    def __init__(self, cluster: LocalCluster, topic: DemoTopic) -> None:
        self.topic = topic
        self.aborted_records = 0
        self._failures: list[KafkaError] = []
        self._next = 0
        # Not long ago: what is older than the retention time would be gone within a minute.
        self._first_ms = now_ms() - _OLDEST_MS
        self._transactions = 0
        settings: dict[str, object] = {
            **client_settings(cluster),
            "acks": "all",
            "compression.type": topic.codec,
            "batch.num.messages": topic.batch_records_max,
            "linger.ms": 1 if topic.batch_records_max == 1 else 20,
            "on_delivery": self._delivered,
        }
        if topic.transactional:
            settings["transactional.id"] = f"demo-{topic.name}"
        self._producer = Producer(settings)
        if topic.transactional:
            self._producer.init_transactions(_ANSWER_S_MAX)

    def write(self, count: int) -> None:
        """Write the next `count` records; returns when the cluster has them all."""
        records = records_of(self.topic, self._next, self._next + count, self._first_ms)
        self._next += count
        if not self.topic.transactional:
            self._send(records)
            self._flush()
            return
        while some := list(itertools.islice(records, _TRANSACTION_RECORDS)):
            self._transact(some)

    def write_slowly(self, count: int, seconds: float, stop: threading.Event) -> None:
        """The same, spread over the time given; ends early when told to."""
        began_s = monotonic_s()
        for part in range(_SLICES):
            self.write(count * (part + 1) // _SLICES - count * part // _SLICES)
            if stop.wait(max(0.0, began_s + seconds * (part + 1) / _SLICES - monotonic_s())):
                return

    def _transact(self, records: list[NewRecord]) -> None:
        self._producer.begin_transaction()
        self._send(records)
        self._flush()
        self._transactions += 1
        if self._transactions % _ABORTED_EVERY == 0:
            self._producer.abort_transaction(_ANSWER_S_MAX)
            self.aborted_records += len(records)
        else:
            self._producer.commit_transaction(_ANSWER_S_MAX)

    def _send(self, records: Iterable[NewRecord]) -> None:
        for record in records:
            while True:
                try:
                    self._producer.produce(
                        self.topic.name,
                        record.value,
                        record.key,
                        partition=record.partition,
                        timestamp=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)

    def _flush(self) -> None:
        unsent = self._producer.flush(_ANSWER_S_MAX)
        if self._failures:
            raise KafkaException(self._failures[0])
        if unsent:
            raise LocalClusterError(f"{self.topic.name}: {unsent} records were not acknowledged")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)


def compact(cluster: LocalCluster, writer: Writer) -> bool:
    """Have the brokers remove overwritten records; whether they got to it in time.

    Afterwards nothing more is compacted: the segment in use never is, and it no longer ends.
    """
    _set(cluster, writer.topic.name, _COMPACT_NOW)
    time.sleep(2 * _SEGMENT_MS / 1000)
    # A log starts a new segment only when it grows, and only old ones are cleaned.
    rolling = writer.topic.partitions * 2
    writer.write(rolling)
    deadline_s = monotonic_s() + _CLEANED_S_MAX
    cleaned = False
    while not cleaned and monotonic_s() < deadline_s:
        time.sleep(0.2)
        cleaned = overwritten_records(cluster, writer.topic.name) <= rolling
    _set(cluster, writer.topic.name, dict.fromkeys(_COMPACT_NOW))
    return cleaned


def _set(cluster: LocalCluster, topic: str, configs: Mapping[str, str | None]) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC, topic, incremental_configs=list(_entries(configs))
    )
    admin = AdminClient(client_settings(cluster))
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(_ANSWER_S_MAX)


def _entries(configs: Mapping[str, str | None]) -> Iterator[ConfigEntry]:
    for name, value in configs.items():
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        yield ConfigEntry(name, value or "", incremental_operation=operation)
