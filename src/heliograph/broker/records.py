"""Write and read the records of small internal topics. Runs on the driver.

A typed layer over confluent_kafka's producer and consumer. Every call is bounded in time, and what
librdkafka raises leaves here as an error of ours that names the cluster and the topic.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.admin_errors import ErrorLog
from heliograph.broker.range_reader import Headers, PartitionReader, ReadRecord, read_record
from heliograph.clock import monotonic_s
from heliograph.config.clients import confluent_settings
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError
from heliograph.model import TopicName, TopicPartition

__all__ = ["ReadRecord", "Record", "RecordWriter", "read_records"]

TIMEOUT_S_DEFAULT: Final = 30.0
_SETTLE_GRACE_S: Final = 5.0
_CLOSE_S_MAX: Final = 5.0
_ABSENT_S_MAX: Final = 5.0
_POLL_S: Final = 0.05
_FIRST_TRY_S: Final = 1.0
_PAUSE_S: Final = 0.1
_LOG_LEVEL_CRITICAL: Final = 2
_GONE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to be written. A value of None is a tombstone; without a timestamp it is now."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    partition: int = 0
    headers: Headers = ()

    def __post_init__(self) -> None:
        # librdkafka takes 0 for "now".
        if self.timestamp_ms is not None and self.timestamp_ms <= 0:
            raise InvariantError(f"a record of time {self.timestamp_ms} cannot be written")


class RecordWriter:
    """Writes to topics of one cluster; safe to share between threads.

    Guarantee: what `write` returned from is on every in-sync replica, once. Where it raises, any
    part of the records may have been written, so only records that may be repeated belong here.
    """

    def __init__(self, cluster: ClusterConfig, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self.alias: Final = cluster.alias
        self._timeout_s = timeout_s
        self._errors = ErrorLog(alias=cluster.alias)
        self._settings = _writer_settings(cluster, self._errors, timeout_s)
        self._lock = threading.Lock()
        self._is_closed = False
        self._producer: Any = self._opened()

    def write(self, topic: TopicName, records: Sequence[Record]) -> None:
        """Returns when all are acknowledged. Raises `BrokerError`."""
        if not records:
            return
        producer, settled = self._current(), _Settled()
        deadline_s = monotonic_s() + self._timeout_s
        for record in records:
            self._hand_over(producer, topic, record, settled, deadline_s)
        # Each record fails by itself at the time-out, so this wait ends; the grace is for that.
        while settled.count < len(records) and monotonic_s() < deadline_s + _SETTLE_GRACE_S:
            self._poll(producer, topic)
        if settled.failure is not None:
            raise self._failed(producer, KafkaException(settled.failure), topic)
        if settled.count < len(records):
            raise BrokerUnreachable(
                f"cluster {self.alias}: topic {topic}: not acknowledged in {self._timeout_s:g} s"
            )
        self._errors.forget()

    def close(self) -> None:
        """Waits a moment for what is under way. May be repeated; `write` raises afterwards."""
        with self._lock:
            producer, self._producer, self._is_closed = self._producer, None, True
        if producer is not None:
            # A producer that failed for good raises it once more; `write` has told it already.
            with suppress(KafkaException):
                producer.flush(_CLOSE_S_MAX)

    def _opened(self) -> Any:
        return self._errors.opened(Producer, self._settings)

    def _current(self) -> Any:
        with self._lock:
            if self._is_closed:
                raise BrokerError(f"cluster {self.alias}: the writer is closed")
            if self._producer is None:
                self._producer = self._opened()
            return self._producer

    def _hand_over(
        self,
        producer: Any,
        topic: TopicName,
        record: Record,
        settled: _Settled,
        deadline_s: float,
    ) -> None:
        while True:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers) or None,
                    on_delivery=settled.note,
                )
            except BufferError as exc:
                if monotonic_s() >= deadline_s:
                    raise BrokerUnreachable(
                        f"cluster {self.alias}: topic {topic}: too much is waiting to be written"
                    ) from exc
                self._poll(producer, topic)
            except KafkaException as exc:
                raise self._failed(producer, exc, topic) from exc
            else:
                return

    def _poll(self, producer: Any, topic: TopicName) -> None:
        try:
            producer.poll(_POLL_S)
        except KafkaException as exc:
            # An error that ends the producer is raised here, not handed to `error_cb`.
            raise self._failed(producer, exc, topic) from exc

    def _failed(self, producer: Any, exc: KafkaException, topic: TopicName) -> BrokerError:
        error: KafkaError = exc.args[0]
        if error.code() == KafkaError._FATAL:
            # Says only that there was one before; which one is told at the next poll, once.
            try:
                producer.poll(0)
            except KafkaException as first:
                exc = first
        if error.fatal() or error.code() == KafkaError._FATAL:
            # An idempotent producer that lost count refuses everything from then on.
            with self._lock:
                if self._producer is producer:
                    self._producer = None
        return _naming(topic, self._errors.translated(exc, f"WRITE on topic {topic}"))


class _Settled:
    """How many of the records of one `write` have an outcome, and the first bad one.

    Any thread that polls the producer may be handed the outcomes of any other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.failure: KafkaError | None = None

    def note(self, error: KafkaError | None, _message: object) -> None:
        with self._lock:
            self.count += 1
            if error is not None and self.failure is None:
                self.failure = error


def _writer_settings(
    cluster: ClusterConfig, errors: ErrorLog, timeout_s: float
) -> dict[str, object]:
    settings: dict[str, object] = {
        **confluent_settings(cluster, "producer"),
        # Ours whatever the producer was told: the guarantee above, and an end to every wait.
        "acks": "all",
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 5,
        "retries": 2_147_483_647,
        "delivery.timeout.ms": int(timeout_s * 1000),
        # Whoever writes waits for the acknowledgement, so nothing more will join the batch.
        "linger.ms": 5,
        # A topic that is not there is told soon; the default waits as long as a write may take.
        "topic.metadata.propagation.max.ms": int(min(timeout_s / 3, _ABSENT_S_MAX) * 1000),
        "log_level": _LOG_LEVEL_CRITICAL,
        "error_cb": errors.note,
    }
    settings.pop("transactional.id", None)
    return settings


def read_records(
    cluster: ClusterConfig,
    topic: TopicName,
    *,
    partitions: Sequence[int] | None = None,
    last_offsets: int | None = None,
    between: Mapping[int, tuple[int, int]] | None = None,
    read_committed: bool = True,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Iterator[ReadRecord]:
    """From the first offset to the end as it is at this call; nothing where there is no topic.

    With `last_offsets`, no more than so many at the end of each partition; with `between`, only
    these partitions, each from the first of its two offsets to before the second.

    Partitions come interleaved, each in its order. Raises `BrokerError` at the call or while
    reading, `BrokerUnreachable` where it still waits for the cluster after `timeout_s`. No group is
    joined and nothing is committed.
    """
    reading = _Reading(cluster, topic, read_committed=read_committed, timeout_s=timeout_s)
    try:
        bounds = reading.bounds(partitions if between is None else list(between), last_offsets)
    except BaseException:
        reading.close()
        raise
    return reading.records(bounds if between is None else _clipped(bounds, between))


Bounds = Mapping[int, tuple[int, int]]
"""First offset and end of partitions that are not empty."""


def _clipped(bounds: Bounds, between: Bounds) -> Bounds:
    clipped = {
        partition: (max(start, between[partition][0]), min(end, between[partition][1]))
        for partition, (start, end) in bounds.items()
    }
    return {partition: (start, end) for partition, (start, end) in clipped.items() if start < end}


class _Reading(PartitionReader):
    def __init__(
        self, cluster: ClusterConfig, topic: TopicName, *, read_committed: bool, timeout_s: float
    ) -> None:
        super().__init__(cluster, read_committed=read_committed)
        self._topic, self._timeout_s = topic, timeout_s
        self._deadline_s = monotonic_s() + timeout_s

    def bounds(self, wanted: Sequence[int] | None, last_offsets: int | None) -> Bounds:
        found: dict[int, tuple[int, int]] = {}
        for partition in sorted(self._partitions()):
            if wanted is not None and partition not in wanted:
                continue
            start, end = self._watermarks(partition)
            if last_offsets is not None:
                start = max(start, end - last_offsets)
            if start < end:
                found[partition] = (start, end)
        return found

    def records(self, bounds: Bounds) -> Iterator[ReadRecord]:
        unfinished = {partition: end for partition, (_, end) in bounds.items()}
        try:
            self.assign(
                {
                    TopicPartition(topic=self._topic, partition=partition): start
                    for partition, (start, _) in bounds.items()
                }
            )
            while unfinished:
                is_silent = True
                for arrived in self.arrived(1, _POLL_S):
                    partition, offset = arrived.at.partition, arrived.offset
                    end = unfinished.get(partition, 0)
                    if arrived.is_end or offset >= end - 1:
                        unfinished.pop(partition, None)
                    if not arrived.is_end and offset < end:
                        is_silent = False
                        yield read_record(arrived.message)
                if is_silent and monotonic_s() >= self._deadline_s:
                    raise self._too_late()
        finally:
            self.close()

    def _partitions(self) -> Sequence[int]:
        """Asked in growing steps, so that refused credentials are told before the deadline."""
        step_s = _FIRST_TRY_S
        while True:
            try:
                metadata = self._consumer.list_topics(self._topic, timeout=self._left_s(step_s))
                described = metadata.topics[self._topic]
                if described.error is not None:
                    raise KafkaException(described.error)
            except KafkaException as exc:
                if exc.args[0].code() in _GONE:
                    return []
                self._pause_or_raise(exc)
                step_s *= 2
            else:
                return list(described.partitions)

    def _watermarks(self, partition: int) -> tuple[int, int]:
        wanted = ClientPartition(self._topic, partition)
        while True:
            left_s = self._left_s(self._timeout_s)
            try:
                found = self._consumer.get_watermark_offsets(wanted, timeout=left_s)
            except KafkaException as exc:
                self._pause_or_raise(exc)
            else:
                if found is not None:
                    start, end = found
                    return start, end
                raise self._too_late()

    def _pause_or_raise(self, exc: KafkaException) -> None:
        # What `error_cb` is to be told waits until somebody polls.
        self._consumer.poll(_PAUSE_S)
        error = self.refusal(self._topic, exc)
        if not error.retriable:
            raise error from exc
        if monotonic_s() >= self._deadline_s:
            raise self._too_late(f": {error}") from exc

    def _left_s(self, step_s: float) -> float:
        return max(0.1, min(step_s, self._deadline_s - monotonic_s()))

    def refusal(self, topic: str | None, exc: KafkaException) -> BrokerError:
        return _naming(self._topic, super().refusal(self._topic, exc))

    def _too_late(self, why: str = "") -> BrokerUnreachable:
        return BrokerUnreachable(
            f"cluster {self.alias}: topic {self._topic}: "
            f"not read to its end in {self._timeout_s:g} s{why}"
        )


def _naming(topic: TopicName, error: BrokerError) -> BrokerError:
    text = str(error)
    return error if topic in text else type(error)(f"{text} (topic {topic})")
