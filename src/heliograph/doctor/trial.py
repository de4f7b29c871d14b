"""A scratch topic on the target: clocks of brokers, and how fast they take records. Does I/O;
driver only, and only with `--try`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from heliograph.broker.admin_errors import ErrorLog
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.clients import confluent_settings
from heliograph.config.schema import ClusterConfig
from heliograph.doctor.facts import ClusterFacts
from heliograph.errors import BrokerUnreachable

SCRATCH_PREFIX: Final = "heliograph-doctor-"
_WRITE_BYTES: Final = 16 * 2**20
_WRITE_S_MAX: Final = 3.0
_RECORD: Final = os.urandom(100 * 1024)
"""Of random bytes: compression must not make the link look faster."""
_QUIET: Final = 2
_CLOCK_TRIES: Final = 3
_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    clocks: Mapping[int, tuple[float, float]]
    """Of each broker that leads a partition: how far ahead of this machine, and how exactly."""
    bytes_per_s: float


def try_cluster(config: ClusterConfig, facts: ClusterFacts, *, answer_s_max: float) -> Trial:
    """Make a topic, write to it, delete it; raises `BrokerError`. Blocks."""
    errors = ErrorLog(alias=config.alias)
    quiet = {"log_level": _QUIET, "error_cb": errors.note}
    admin = errors.opened(AdminClient, {**confluent_settings(config, "admin"), **quiet})
    name = f"{SCRATCH_PREFIX}{os.urandom(4).hex()}"
    brokers = sorted(facts.brokers)
    settings = {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000"}
    new = NewTopic(
        name,
        num_partitions=len(brokers),
        replica_assignment=[[broker] for broker in brokers],
        config=settings,
    )
    try:
        admin.create_topics([new], request_timeout=answer_s_max)[name].result(2 * answer_s_max)
    except KafkaException as exc:
        raise errors.translated(exc, f"CREATE on topic {name}") from exc
    try:
        producer = errors.opened(
            Producer, {**confluent_settings(config, "producer"), **quiet, "linger.ms": 0}
        )
        writer = _Writer(producer, name, errors, config.alias, answer_s_max)
        clocks = {broker: writer.clock(number) for number, broker in enumerate(brokers)}
        return Trial(clocks=clocks, bytes_per_s=writer.rate(len(brokers)))
    finally:
        admin.delete_topics([name], request_timeout=answer_s_max)[name].exception(2 * answer_s_max)


class _Writer:
    def __init__(
        self, producer: Any, topic: str, errors: ErrorLog, alias: str, answer_s_max: float
    ) -> None:
        self._producer, self._topic, self._errors = producer, topic, errors
        self._alias, self._answer_s_max = alias, answer_s_max

    def clock(self, partition: int) -> tuple[float, float]:
        """The broker stamps records as they are appended, and says with which time."""
        found: list[tuple[float, float]] = []
        for _ in range(_CLOCK_TRIES):
            told: list[tuple[int, int]] = []
            before_ms, began_s = now_ms(), monotonic_s()
            self._send(partition, b"", told)
            while not told:
                self._producer.poll(_POLL_S)
                self._require_time(began_s)
            half_ms = 1000 * (monotonic_s() - began_s) / 2
            kind, stamped_ms = told[0]
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                found.append((stamped_ms - before_ms - half_ms, half_ms + 1))
        if not found:
            raise BrokerUnreachable(f"cluster {self._alias}: its brokers tell no append time")
        return min(found, key=lambda pair: pair[1])

    def rate(self, partitions: int) -> float:
        sent = acknowledged = 0
        told: list[tuple[int, int]] = []
        began_s = monotonic_s()
        while sent * len(_RECORD) < _WRITE_BYTES and monotonic_s() - began_s < _WRITE_S_MAX:
            self._send(sent % partitions, _RECORD, told)
            sent += 1
            self._producer.poll(0)
        while len(told) < sent:
            self._producer.poll(_POLL_S)
            self._require_time(began_s + _WRITE_S_MAX)
        acknowledged = len(told)
        return acknowledged * len(_RECORD) / max(1e-6, monotonic_s() - began_s)

    def _send(self, partition: int, value: bytes, told: list[tuple[int, int]]) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                raise self._errors.translated(KafkaException(error), f"WRITE on {self._topic}")
            told.append(message.timestamp())

        self._producer.produce(
            self._topic, value=value, partition=partition, on_delivery=on_delivery
        )

    def _require_time(self, began_s: float) -> None:
        if monotonic_s() - began_s > 2 * self._answer_s_max:
            raise BrokerUnreachable(
                f"cluster {self._alias}: a record was not acknowledged within "
                f"{2 * self._answer_s_max:g} s"
            )
