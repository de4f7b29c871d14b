"""Consumer groups on real clusters: members that join and leave, offsets committed and read."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import admin_of, wait_until

Protocol = Literal["classic", "consumer"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("classic", "consumer")
_TIMEOUT_S: Final = 30.0
_COORDINATOR_MOVES: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


@contextlib.contextmanager
def member(
    cluster: LocalCluster, group: str, topic: str, protocol: Protocol = "classic"
) -> Iterator[Any]:
    """A consumer that has joined; it leaves when the block ends."""
    consumer = Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        wait_until(lambda: _joined(consumer), f"{group} joined on {cluster.alias}", poll_s=0)
        yield consumer
    finally:
        consumer.close()


def commit(cluster: LocalCluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """As `kafka-consumer-groups --reset-offsets` does, for a group without members."""
    wanted = [ClientPartition(topic, number, offset) for number, offset in offsets.items()]
    admin = admin_of(cluster)
    refused: set[int] = set()

    def done() -> bool:
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        answered = admin.alter_consumer_group_offsets(request)[group].result(_TIMEOUT_S)
        errors = [each.error for each in answered.topic_partitions if each.error is not None]
        refused.update(error.code() for error in errors)
        assert refused <= _COORDINATOR_MOVES, f"{group}: {errors}"
        return not errors

    wait_until(done, f"offsets of {group} on {cluster.alias}")


def commit_as_member(consumer: Any, topic: str, offset: int, *, metadata: str = "") -> None:
    at = ClientPartition(topic, 0, offset, metadata=metadata)
    consumer.commit(offsets=[at], asynchronous=False)


def committed(cluster: LocalCluster, group: str, topic: str) -> dict[int, int]:
    """What the broker has, -1 included."""
    admin = admin_of(cluster)
    request = [ConsumerGroupTopicPartitions(group)]
    answered = admin.list_consumer_group_offsets(request)[group].result(_TIMEOUT_S)
    return {
        partition.partition: partition.offset
        for partition in answered.topic_partitions
        if partition.topic == topic
    }


def commit_raw(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    """Any number as an offset: libraries refuse negative ones, brokers do not."""
    request = b"".join(
        [
            struct.pack(">hhih", 8, 2, 1, -1),  # OffsetCommit v2, correlation id 1, no client id
            _string(group) + struct.pack(">i", -1) + _string(""),  # no generation, no member
            struct.pack(">qi", -1, 1) + _string(topic),  # default retention, one topic
            struct.pack(">iiq", 1, 0, offset) + _string(""),  # partition 0, no metadata
        ]
    )
    address = ("127.0.0.1", cluster.broker(0).ports.client)
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size_bytes,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size_bytes)
    (error_code,) = struct.unpack(">h", answer[-2:])
    assert error_code == 0


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _joined(consumer: Any) -> bool:
    consumer.poll(0.02)
    return bool(consumer.assignment())
