"""Read stretches of many partitions, keeping offset and fingerprint of each record. Driver only.

What a fingerprint covers is what a mirror must keep: key, value, headers and timestamp. It is
Python's own hash, 64 bits with a random seed, so it means something only within this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.admin_errors import ErrorLog
from heliograph.clock import monotonic_s
from heliograph.config.clients import confluent_settings
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.model import OffsetRange, TopicName, TopicPartition
from heliograph.takeover.alignment import Stretch

_SILENCE_S_MAX: Final = 30.0
_CONSUME_S: Final = 0.2
_MESSAGES_AT_ONCE: Final = 5_000
_LOG_LEVEL_CRITICAL: Final = 2
_COPIED_TIMES: Final = frozenset({TIMESTAMP_CREATE_TIME})
_GIVEN_TIMES: Final = frozenset({TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME})
_READER_GROUP: Final = "heliograph-reader"
# librdkafka looks for the coordinator of any group it is named, though it is never joined.
_NO_GROUP_NEEDED: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED,)


class FingerprintReader:
    """One consumer of one cluster; joins no group, commits nothing. Used by one thread."""

    def __init__(
        self, cluster: ClusterConfig, *, read_committed: bool, is_copy: bool = False
    ) -> None:
        self.alias: Final = cluster.alias
        # A copy of append times has them as its own; a copy with append times has lost its own.
        self._kept_times = _COPIED_TIMES if is_copy else _GIVEN_TIMES
        self._errors = ErrorLog(alias=cluster.alias)
        settings: dict[str, object] = {
            **confluent_settings(cluster, "consumer"),
            "group.id": _READER_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 1,
            "log_level": _LOG_LEVEL_CRITICAL,
            "error_cb": self._errors.note,
        }
        settings.pop("group.instance.id", None)
        try:
            self._consumer: Any = Consumer(settings)
        except KafkaException as exc:
            raise self._errors.translated(exc, "client settings") from exc

    def read(
        self,
        spans: Mapping[TopicPartition, OffsetRange],
        stretches: Mapping[TopicPartition, Stretch],
        *,
        with_timestamps: Mapping[TopicPartition, bool],
        on_records: Callable[[int], None] = lambda _: None,
    ) -> frozenset[TopicPartition]:
        """Add the records of each span to its stretch.

        The answer are the partitions with timestamps that differ between original and copy: where
        the source has none, or the copy has when it was appended. Raises `BrokerError`.
        """
        unfinished = {at: span.end for at, span in spans.items() if span.count}
        clocked: set[TopicPartition] = set()
        self._assign({at: spans[at].start for at in unfinished})
        heard_s = monotonic_s()
        while unfinished:
            messages = self._consume()
            if monotonic_s() - heard_s > _SILENCE_S_MAX:
                named = ", ".join(map(str, sorted(unfinished)[:3]))
                raise BrokerUnreachable(
                    f"cluster {self.alias}: {named}: nothing read in {_SILENCE_S_MAX:.0f} s"
                )
            count = 0
            for message in messages:
                at = TopicPartition(topic=TopicName(message.topic()), partition=message.partition())
                if message.error() is not None:
                    self._judge(message.error(), at, unfinished)
                elif at not in unfinished or message.offset() >= unfinished[at]:
                    self._finish(at, unfinished)
                else:
                    kind, _ = message.timestamp()
                    if kind not in self._kept_times:
                        clocked.add(at)
                    stretches[at].add(
                        message.offset(), _fingerprint(message, timestamp=with_timestamps[at])
                    )
                    count += 1
                    if message.offset() == unfinished[at] - 1:
                        self._finish(at, unfinished)
            if count:
                heard_s = monotonic_s()
                on_records(count)
        return frozenset(clocked)

    def close(self) -> None:
        self._consumer.close()

    def _assign(self, starts: Mapping[TopicPartition, int]) -> None:
        partitions = [ClientPartition(at.topic, at.partition, n) for at, n in starts.items()]
        self._consumer.assign(partitions)
        # One that was read before is still paused.
        self._consumer.resume(partitions)

    def _consume(self) -> list[Any]:
        try:
            found: list[Any] = self._consumer.consume(_MESSAGES_AT_ONCE, timeout=_CONSUME_S)
        except KafkaException as exc:
            raise self._errors.translated(exc, "READ on the topic") from exc
        return found

    def _finish(self, at: TopicPartition, unfinished: dict[TopicPartition, int]) -> None:
        if unfinished.pop(at, None) is not None:
            # What lies behind the span would only be fetched to be thrown away.
            self._consumer.pause([ClientPartition(at.topic, at.partition)])

    def _judge(
        self, error: KafkaError, at: TopicPartition, unfinished: dict[TopicPartition, int]
    ) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # Transaction markers and compaction leave no record at the end to stop at.
            unfinished.pop(at, None)
        elif error.code() not in _NO_GROUP_NEEDED:
            broken = self._errors.translated(KafkaException(error), f"READ on topic {at.topic}")
            if not broken.retriable:
                raise broken


def _fingerprint(message: Any, *, timestamp: bool) -> int:
    try:
        headers = message.headers()
    except UnicodeDecodeError as exc:
        where = f"{message.topic()}-{message.partition()}: offset {message.offset()}"
        raise BrokerError(f"{where}: a header's key is not UTF-8, it cannot be compared") from exc
    return hash(
        (
            message.key(),
            message.value(),
            tuple(map(tuple, headers)) if headers else (),
            message.timestamp()[1] if timestamp else None,
        )
    )
