"""Create topics, make the cleaner compact them, hand brokers raw batches, wait for things."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.records import NewRec, produce, read_all

ROLL_KEY: Final = b"roll"
_SEGMENT_MS: Final = 100
_TIMEOUT_S: Final = 60.0
_SLOWER, _PAUSE_S_MAX = 1.2, 0.3
_COMPACTION: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(_SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.0001",
    "min.compaction.lag.ms": "0",
}


def wait_until(
    true: Callable[[], bool], what: str, *, timeout_s: float = 30.0, poll_s: float = 0.05
) -> None:
    """Ask until `true()`; fails with `what` as the sentence of what was awaited.

    Ever less often, down to three times a second: many ask with a client made for the question.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = poll_s
    while not true():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not after {timeout_s:.0f} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * _SLOWER, max(poll_s, _PAUSE_S_MAX))


def admin_of(cluster: LocalCluster) -> AdminClient:
    return AdminClient(cluster.librdkafka_config)


def create_topic(
    cluster: LocalCluster,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Returns the name when every partition has a leader."""
    admin = admin_of(cluster)
    wanted = NewTopic(topic, partitions, replicas, config=dict(config or {}))
    admin.create_topics([wanted])[topic].result(_TIMEOUT_S)
    wait_until(lambda: _led_partitions(admin, topic) == partitions, f"leaders of {topic}")
    return topic


def delete_topic(cluster: LocalCluster, topic: str) -> None:
    admin = admin_of(cluster)
    admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
    wait_until(
        lambda: topic not in admin.list_topics(timeout=_TIMEOUT_S).topics, f"deletion of {topic}"
    )


def delete_records_before(cluster: LocalCluster, topic: str, offsets: Mapping[int, int]) -> None:
    """What retention does, at once and to the offset: each log then starts there."""
    admin = admin_of(cluster)
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    for answer in admin.delete_records(wanted).values():
        answer.result(30)


def set_topic_config(cluster: LocalCluster, topic: str, config: Mapping[str, str | None]) -> None:
    """None takes a setting back to the broker's default. Returns when the broker goes by it."""
    entries = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    # Answers die with their client, so it needs a name of its own.
    admin = admin_of(cluster)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(_TIMEOUT_S)

    def is_in_force() -> bool:
        # The controller says yes first; a broker learns of it a moment later.
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        shown = answer.result(_TIMEOUT_S)
        return all(
            _is_same(shown[name].value, value)
            if value is not None
            else shown[name].source != ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            for name, value in config.items()
        )

    wait_until(is_in_force, f"settings of {topic}", poll_s=0.02)


def topic_config(cluster: LocalCluster, topic: str) -> dict[str, str]:
    """Every setting as the broker shows it, defaults included."""
    admin = admin_of(cluster)
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in answer.result(_TIMEOUT_S).items()}


def _is_same(shown: str, wanted: str) -> bool:
    """Brokers show 0.0001 as 1.0E-4."""
    try:
        return float(shown) == float(wanted)
    except ValueError:
        return shown == wanted


def force_compaction(cluster: LocalCluster, topic: str) -> None:
    """Compact all that is in the topic; returns when only the newest record of each key is left.

    Appends one record with `ROLL_KEY` to each partition: a log starts a new segment only when it
    grows, and the newest segment is never compacted.
    """
    partitions = len(read_all(cluster, topic))
    set_topic_config(cluster, topic, _COMPACTION)
    time.sleep(2 * _SEGMENT_MS / 1000)
    produce(cluster, topic, [NewRec(key=ROLL_KEY, partition=n) for n in range(partitions)])
    wait_until(
        lambda: not _has_old_records(cluster, topic),
        f"compaction of {topic}",
        timeout_s=_TIMEOUT_S,
        poll_s=0.2,
    )
    set_topic_config(cluster, topic, {"segment.ms": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    error_code: int
    base_offset: int


def produce_raw(
    cluster: LocalCluster, topic: str, batch: bytes, *, partition: int = 0, broker: int = 0
) -> RawAnswer:
    """Hand bytes to the broker as the record set of a Produce request; plaintext clusters only."""
    request = b"".join(
        [
            struct.pack(">hhih", 0, 7, 1, -1),  # Produce v7, correlation id 1, no client id
            struct.pack(">hhi", -1, -1, 30_000),  # no transactional id, acks all, timeout
            struct.pack(">ih", 1, len(topic)) + topic.encode(),
            struct.pack(">iii", 1, partition, len(batch)) + batch,
        ]
    )
    address = ("127.0.0.1", cluster.broker(broker).ports.client)
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size_bytes,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size_bytes)
    place = 4 + 4 + 2 + len(topic) + 4  # correlation id, one topic, its name, one partition
    _, error_code, base_offset = struct.unpack_from(">ihq", answer, place)
    return RawAnswer(error_code=error_code, base_offset=base_offset)


def _led_partitions(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    return sum(1 for partition in found.partitions.values() if partition.leader >= 0)


def _has_old_records(cluster: LocalCluster, topic: str) -> bool:
    for records in read_all(cluster, topic).values():
        counts = Counter(rec.key for rec in records if rec.key != ROLL_KEY)
        if counts and max(counts.values()) > 1:
            return True
    return False
