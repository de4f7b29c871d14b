"""Stretches of partitions, read as any application's consumer reads them. Runs on the driver.

Bounded in records, bytes and time, with small fetches: whoever reads here looks over the shoulder
of a flow that is busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.admin_errors import ErrorLog
from heliograph.broker.records import NO_GROUP_NEEDED, Headers, reader_settings
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerUnreachable
from heliograph.model import OffsetRange, TopicName, TopicPartition

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchRecord:
    offset: int
    timestamp_ms: int
    """-1 where the record has none."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a consumer gets of `[start, next_offset)`, all of it and in order."""

    start: int
    next_offset: int
    records: tuple[StretchRecord, ...] = ()


def read_as_group(
    cluster: ClusterConfig,
    group: str,
    ends: Mapping[TopicPartition, int],
    *,
    bytes_max: int,
    read_committed: bool,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> dict[TopicPartition, Stretch]:
    """From where the group stands, as `StretchReader`; partitions it has no place in are left out.

    It does not join the group, so nobody rebalances, and commits nothing. Raises `BrokerError`.
    """
    with StretchReader(
        cluster, group, read_committed=read_committed, timeout_s=timeout_s
    ) as reader:
        starts = reader.committed(ends)
        return reader.read(
            {
                at: OffsetRange(start=start, end=max(start, ends[at]))
                for at, start in starts.items()
            },
            bytes_max=bytes_max,
        )


@dataclass(slots=True, kw_only=True)
class _Under:
    """One stretch while it is read."""

    start: int
    end: int
    next_offset: int
    bytes_left: int
    records: list[StretchRecord] = field(default_factory=list)


class StretchReader:
    """One consumer for many stretches, one call after the other. Used by one thread.

    Without a group it never asks for one's offsets; with one it neither joins nor commits.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        group: str | None = None,
        *,
        read_committed: bool,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> None:
        self._alias, self._group, self._timeout_s = cluster.alias, group, timeout_s
        self._errors = ErrorLog(alias=cluster.alias)
        settings = _settings(cluster, group, self._errors, read_committed=read_committed)
        try:
            self._consumer: Any = Consumer(settings)
        except KafkaException as exc:
            raise self._errors.translated(exc, "client settings") from exc

    def __enter__(self) -> StretchReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands, as a consumer that starts finds it. Raises `BrokerError`."""
        asked = [ClientPartition(at.topic, at.partition) for at in partitions]
        if not asked:
            return {}
        answered = self._answered(asked)
        for place in answered:
            if place.error is not None:
                refused = KafkaException(place.error)
                raise self._errors.translated(refused, f"READ on topic {place.topic}")
        return {_partition(place): place.offset for place in answered if place.offset >= 0}

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
        """Each ends where it was asked to, at the end of the log, or after `bytes_max`.

        Raises `BrokerError`.
        """
        deadline_s = monotonic_s() + self._timeout_s
        stretches = {
            at: _Under(
                start=asked.start,
                end=asked.end,
                next_offset=asked.start,
                bytes_left=bytes_max,
            )
            for at, asked in wanted.items()
        }
        unfinished = {at for at, under in stretches.items() if under.start < under.end}
        assigned = [
            ClientPartition(at.topic, at.partition, stretches[at].start) for at in unfinished
        ]
        if assigned:
            self._consumer.assign(assigned)
        while unfinished:
            messages = self._consumer.consume(_CONSUMED_AT_ONCE, timeout=_POLL_S)
            done = {at for message in messages if (at := self._take(message, stretches))}
            finished = done & unfinished
            if finished:
                # Paused instead, they would have to be resumed; after that a client may sleep for
                # a second before it fetches.
                self._consumer.incremental_unassign(
                    [ClientPartition(at.topic, at.partition) for at in finished]
                )
            unfinished -= done
            if unfinished and monotonic_s() >= deadline_s:
                raise BrokerUnreachable(
                    f"cluster {self._alias}: {len(unfinished)} partitions were not read "
                    f"in {self._timeout_s:g} s"
                )
        return {
            at: Stretch(
                start=under.start,
                next_offset=max(under.start, under.next_offset),
                records=tuple(under.records),
            )
            for at, under in stretches.items()
        }

    def _take(
        self, message: Any, stretches: Mapping[TopicPartition, _Under]
    ) -> TopicPartition | None:
        """Add what arrived; the partition it is of where its stretch ends with it."""
        error: KafkaError | None = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._judge(message.topic(), error)
            return None
        at, offset = _partition(message), message.offset()
        under = stretches.get(at)
        if under is None or offset < under.next_offset:
            # Left over from what was read before.
            return None
        if error is not None:
            # Markers and compaction leave no record at the end to stop at.
            under.next_offset = max(under.next_offset, min(offset, under.end))
            return at
        if under.bytes_left < 0 or under.next_offset >= under.end:
            return at
        if offset >= under.end:
            under.next_offset = under.end
            return at
        record = _record(message)
        under.records.append(record)
        under.next_offset = offset + 1
        under.bytes_left -= record.size_bytes
        return at if under.bytes_left < 0 or under.next_offset >= under.end else None

    def _judge(self, topic: str | None, error: KafkaError) -> None:
        """Raises where waiting does not help."""
        if error.code() in NO_GROUP_NEEDED:
            return
        broken = self._errors.translated(KafkaException(error), f"READ on topic {topic}")
        if not broken.retriable:
            raise broken


def _settings(
    cluster: ClusterConfig, group: str | None, errors: ErrorLog, *, read_committed: bool
) -> dict[str, object]:
    settings = {
        **reader_settings(cluster, errors, read_committed=read_committed),
        **({} if group is None else {"group.id": group}),
        # Small steps: brokers answer the mirror's fetches and appends in between.
        "fetch.message.max.bytes": _FETCH_BYTES_MAX,
        "queued.max.messages.kbytes": _QUEUED_KB_MAX,
        "queued.min.messages": _QUEUED_RECORDS,
        "fetch.queue.backoff.ms": _QUEUE_FULL_WAIT_MS,
    }
    settings.pop("max.partition.fetch.bytes", None)
    return settings


def _partition(place: Any) -> TopicPartition:
    """Of a message, whose fields are methods, or of a client's partition, whose fields are not."""
    if isinstance(place, ClientPartition):
        return TopicPartition(topic=TopicName(place.topic), partition=place.partition)
    return TopicPartition(topic=TopicName(place.topic()), partition=place.partition())


def _record(message: Any) -> StretchRecord:
    headers = message.headers() or []
    return StretchRecord(
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value) for name, value in headers),
    )
