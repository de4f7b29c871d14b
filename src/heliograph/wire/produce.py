"""Produce, version 9 to 13: one batch for each partition, many partitions. No I/O; runs anywhere.

Up to version 12 a topic goes by its name, in version 13 by its id (KIP-516).

Written by hand because it is hot: batches go out as views of the buffer they came in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from heliograph.wire.fields import Fields, compact_string, uvarint

PRODUCE_KEY: Final = 0
PRODUCE_VERSION_MIN: Final = 9
PRODUCE_VERSION_MAX: Final = 12
PRODUCE_VERSION_BY_ID: Final = 13

_HEAD: Final = struct.Struct(">bhi")
_INDEX: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">ihqqq")
# The same with what follows it when all went well: no record errors, no message, no tagged fields.
_PARTITION_PLAIN: Final = struct.Struct(">ihqqq3s")
_NOTHING_MORE: Final = b"\x01\x00\x00"
ACKS_ALL: Final = -1
_ID_BYTES: Final = 16

TopicKey = str | bytes
"""A topic's name, or the 16 bytes of its id."""


class ProducedPartition(NamedTuple):
    """A tuple because one is made for each batch."""

    topic: TopicKey
    partition: int
    error_code: int
    base_offset: int
    log_start_offset: int
    message: str | None


class ProduceAnswer(NamedTuple):
    throttle_ms: int
    partitions: list[ProducedPartition]


def produce_request(
    batches: Iterable[tuple[TopicKey, int, memoryview | bytes]], *, timeout_ms: int
) -> list[bytes | memoryview]:
    """The body of a Produce as parts to write in order; at most one batch a partition."""
    topics: dict[TopicKey, list[tuple[int, memoryview | bytes]]] = {}
    for topic, partition, batch in batches:
        topics.setdefault(topic, []).append((partition, batch))
    parts: list[bytes | memoryview] = [
        _HEAD.pack(0, ACKS_ALL, timeout_ms) + uvarint(len(topics) + 1)
    ]
    for topic, rows in topics.items():
        lead = topic if isinstance(topic, bytes) else compact_string(topic)
        lead += uvarint(len(rows) + 1)
        for partition, batch in rows:
            parts.append(lead + _INDEX.pack(partition) + uvarint(len(batch) + 1))
            parts.append(batch)
            lead = b"\0"  # the tagged fields that end this partition
        parts.append(b"\0\0")  # they end the last partition, then the topic
    parts.append(b"\0")
    return parts


def parse_produce_answer(body: memoryview, *, by_id: bool = False) -> list[ProducedPartition]:
    return parse_produce(body, by_id=by_id).partitions


def parse_produce(body: memoryview, *, by_id: bool = False) -> ProduceAnswer:
    fields = Fields(body)
    found: list[ProducedPartition] = []
    for _ in range(fields.count(3)):
        topic = bytes(fields.take(_ID_BYTES)) if by_id else fields.compact_string() or ""
        rows = range(fields.count(_PARTITION_PLAIN.size))
        found.extend(_parse_partition(fields, topic) for _ in rows)
        fields.tags()
    throttle_ms = fields.int32()  # the broker mutes the connection by itself (KIP-219)
    fields.tags()
    return ProduceAnswer(throttle_ms, found)


def _parse_partition(fields: Fields, topic: TopicKey) -> ProducedPartition:
    at = fields.at
    partition, error_code, base_offset, _, log_start, more = fields.unpack(_PARTITION_PLAIN)
    message = None
    if more != _NOTHING_MORE:
        fields.at = at + _PARTITION.size
        for _ in range(fields.count(6)):
            fields.int32()
            message = fields.compact_string() or message
            fields.tags()
        message = fields.compact_string() or message
        fields.tags()
    return ProducedPartition(topic, partition, error_code, base_offset, log_start, message)
