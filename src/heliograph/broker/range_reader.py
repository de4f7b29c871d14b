"""Consumers that join no group and commit nothing: settings, polling, errors. Runs on the driver.

One base for all who read ranges of partitions through librdkafka, as an application's consumer
would: `records.read_records`, the fingerprints of an adoption, and `read_as_group`, with which a
drill reads what a group that was moved gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.admin_errors import ErrorLog
from heliograph.clock import monotonic_s
from heliograph.config.clients import confluent_settings
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.model import OffsetRange, TopicName, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]

TIMEOUT_S_DEFAULT: Final = 20.0
_FETCH_BYTES_MAX: Final = 64 * 1024
_QUEUED_KB_MAX: Final = 2_048
_QUEUED_RECORDS: Final = 500
"""Of a partition; a client fetches a hundred thousand ahead otherwise, and nobody reads those."""
_QUEUE_FULL_WAIT_MS: Final = 10
"""Before it looks again whether it may fetch; a second otherwise."""
_CONSUMED_AT_ONCE: Final = 500
_POLL_S: Final = 0.05
_ASKING_S: Final = 2.0
_LOG_LEVEL_CRITICAL: Final = 2
_READER_GROUP: Final = "heliograph-reader"
# librdkafka looks for the coordinator of any group it is named, though it is never joined.
_NO_GROUP_NEEDED: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED,)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message of librdkafka, or the end of a partition."""

    at: TopicPartition
    message: Any
    is_end: bool
    """Whether it is no record: transaction markers and compaction leave none at a log's end."""

    @property
    def offset(self) -> int:
        """Of the record, or where the log ends."""
        return int(self.message.offset())


class PartitionReader:
    """One consumer of one cluster. Used by one thread; `close` when done with it."""

    def __init__(
        self,
        cluster: ClusterConfig,
        *,
        read_committed: bool,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.alias: Final = cluster.alias
        self._errors = ErrorLog(alias=cluster.alias)
        whole: dict[str, object] = {
            **confluent_settings(cluster, "consumer"),
            "group.id": _READER_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "enable.partition.eof": True,
            # An empty fetch tells the end of a partition, so it should not wait for records.
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 1,
            "log_level": _LOG_LEVEL_CRITICAL,
            "error_cb": self._errors.note,
            **(settings or {}),
        }
        whole.pop("group.instance.id", None)
        if "fetch.message.max.bytes" in (settings or {}):
            # Another name of the same setting.
            whole.pop("max.partition.fetch.bytes", None)
        self._consumer: Any = self._errors.opened(Consumer, whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        partitions = [ClientPartition(at.topic, at.partition, n) for at, n in starts.items()]
        self._consumer.assign(partitions)

    def arrived(self, at_once: int, wait_s: float) -> Iterator[Arrived]:
        """What came in this time, possibly nothing. Raises `BrokerError` where waiting is vain."""
        try:
            messages = self._consumer.consume(at_once, timeout=wait_s)
        except KafkaException as exc:
            raise self._errors.translated(exc, "READ on the topic") from exc
        for message in messages:
            error: KafkaError | None = message.error()
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is not None and not is_end:
                self._judge(message.topic(), error)
                continue
            at = TopicPartition(topic=TopicName(message.topic()), partition=message.partition())
            yield Arrived(at, message, is_end)

    def refusal(self, topic: str | None, exc: KafkaException) -> BrokerError:
        """What librdkafka said, as an error of ours."""
        return self._errors.translated(exc, f"READ on topic {topic}")

    def _judge(self, topic: str | None, error: KafkaError) -> None:
        if error.code() in _NO_GROUP_NEEDED:
            return
        broken = self.refusal(topic, KafkaException(error))
        if not broken.retriable:
            raise broken


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    partition: int
    offset: int
    timestamp_ms: int
    """-1 where the record has none."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    is_append_time: bool = False
    """Whether the broker set the timestamp, and not the producer."""

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def read_record(message: Any) -> ReadRecord:
    """A message of librdkafka that is a record."""
    kind, timestamp_ms = message.timestamp()
    return ReadRecord(
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        key=message.key(),
        value=message.value(),
        headers=headers_of(message),
        is_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
    )


def headers_of(message: Any) -> Headers:
    """Raises `BrokerError` for a key that librdkafka's Python client cannot give."""
    try:
        found = message.headers()
    except UnicodeDecodeError as exc:
        where = f"{message.topic()}-{message.partition()}: offset {message.offset()}"
        raise BrokerError(f"{where}: a header's key is not UTF-8, it cannot be compared") from exc
    return tuple((name, value) for name, value in found or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a consumer gets of `[start, next_offset)`, all of it and in order."""

    start: int
    next_offset: int
    records: tuple[ReadRecord, ...] = ()


def read_as_group(
    cluster: ClusterConfig,
    group: str,
    ends: Mapping[TopicPartition, int],
    *,
    bytes_max: int,
    read_committed: bool,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> dict[TopicPartition, Stretch]:
    """From where the group stands; partitions where it has committed nothing are left out.

    Each stretch ends where it was asked to, at the end of the log, or after `bytes_max`. It does
    not join the group, so nobody rebalances, and commits nothing. Raises `BrokerError`.
    """
    with GroupReader(cluster, group, read_committed=read_committed, timeout_s=timeout_s) as reader:
        starts = reader.committed(ends)
        return reader.read(
            {
                at: OffsetRange(start=start, end=max(start, ends[at]))
                for at, start in starts.items()
            },
            bytes_max=bytes_max,
        )


@dataclass(slots=True, kw_only=True)
class _Unfinished:
    """One stretch while it is read."""

    start: int
    end: int
    next_offset: int
    bytes_left: int
    records: list[ReadRecord] = field(default_factory=list)


class GroupReader(PartitionReader):
    """A group's committed offsets, and ranges of partitions, as a member of it would read them.

    With small fetches: the mirror's fetches and appends are answered in between.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        group: str,
        *,
        read_committed: bool,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> None:
        super().__init__(
            cluster,
            read_committed=read_committed,
            settings={
                "group.id": group,
                "fetch.message.max.bytes": _FETCH_BYTES_MAX,
                "queued.max.messages.kbytes": _QUEUED_KB_MAX,
                "queued.min.messages": _QUEUED_RECORDS,
                "fetch.queue.backoff.ms": _QUEUE_FULL_WAIT_MS,
            },
        )
        self._group, self._timeout_s = group, timeout_s

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands, as a consumer that starts finds it. Raises `BrokerError`."""
        asked = [ClientPartition(at.topic, at.partition) for at in partitions]
        answered = self._answered(asked) if asked else []
        for each in answered:
            if each.error is not None:
                raise self.refusal(each.topic, KafkaException(each.error))
        return {
            TopicPartition(topic=TopicName(each.topic), partition=each.partition): each.offset
            for each in answered
            if each.offset >= 0
        }

    def _answered(self, asked: list[ClientPartition]) -> list[Any]:
        """Asked in steps: a client that may not find its group says so only to whoever polls."""
        deadline_s = monotonic_s() + self._timeout_s
        while True:
            step_s = min(_ASKING_S, max(0.0, deadline_s - monotonic_s()))
            try:
                found: list[Any] = self._consumer.committed(asked, timeout=step_s)
            except KafkaException as exc:
                message = self._consumer.poll(0)
                said = None if message is None else message.error()
                refused = exc if said is None else KafkaException(said)
                broken = self._errors.translated(refused, f"READ on group {self._group}")
                if not broken.retriable or monotonic_s() >= deadline_s:
                    raise broken from exc
            else:
                return found

    def read(
        self, wanted: Mapping[TopicPartition, OffsetRange], *, bytes_max: int
    ) -> dict[TopicPartition, Stretch]:
        """Raises `BrokerError`."""
        deadline_s = monotonic_s() + self._timeout_s
        stretches = {
            at: _Unfinished(
                start=asked.start, end=asked.end, next_offset=asked.start, bytes_left=bytes_max
            )
            for at, asked in wanted.items()
        }
        unfinished = {at for at, asked in wanted.items() if asked.count}
        if unfinished:
            self.assign({at: stretches[at].start for at in unfinished})
        while unfinished:
            done = {
                arrived.at
                for arrived in self.arrived(_CONSUMED_AT_ONCE, _POLL_S)
                if _take(stretches[arrived.at], arrived)
            }
            if finished := done & unfinished:
                # What lies behind would only be fetched to be thrown away. They are not paused: a
                # client that resumes may sleep for a second before it fetches.
                self._consumer.incremental_unassign(
                    [ClientPartition(at.topic, at.partition) for at in finished]
                )
            unfinished -= done
            if unfinished and monotonic_s() >= deadline_s:
                raise BrokerUnreachable(
                    f"cluster {self.alias}: {len(unfinished)} partitions were not read "
                    f"in {self._timeout_s:g} s"
                )
        return {
            at: Stretch(start=each.start, next_offset=each.next_offset, records=tuple(each.records))
            for at, each in stretches.items()
        }


def _take(stretch: _Unfinished, arrived: Arrived) -> bool:
    """Add what arrived; whether the stretch ends with it."""
    if arrived.is_end:
        stretch.next_offset = max(stretch.next_offset, min(arrived.offset, stretch.end))
        return True
    if stretch.bytes_left < 0 or stretch.next_offset >= stretch.end:
        return True
    if arrived.offset >= stretch.end:
        stretch.next_offset = stretch.end
        return True
    record = read_record(arrived.message)
    stretch.records.append(record)
    stretch.next_offset = record.offset + 1
    stretch.bytes_left -= record.size_bytes
    return stretch.bytes_left < 0 or stretch.next_offset >= stretch.end
