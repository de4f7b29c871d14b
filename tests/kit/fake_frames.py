"""Fetch and Produce as a broker reads and writes them: the two that are frequent, by hand.

The rest of the protocol goes through kio, which takes a fifth of a millisecond for a message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.wire.fetch import FetchFrom, PartitionKey
from heliograph.wire.fields import Fields, compact_string, uvarint
from heliograph.wire.produce import PRODUCE_VERSION_BY_ID, TopicKey

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_PRODUCED: Final = struct.Struct(">ihqqq")
_FETCH_HEAD: Final = struct.Struct(">iiiibii")
_FETCH_PARTITION: Final = struct.Struct(">iiqiqib")
_FETCHED_HEAD: Final = struct.Struct(">ihi")
_FETCHED: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_DIVERGING: Final = struct.Struct(">iq")
_INT32: Final = struct.Struct(">i")
_NO_REPLICA: Final = _INT32.pack(-1)
_ID_BYTES: Final = 16

ProduceRow = tuple[TopicKey, int, bytes]
"""Topic, partition and the one batch."""


@dataclass(slots=True)
class Produced:
    """What became of one partition's batch."""

    topic: TopicKey
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchAsked:
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    read_committed: bool
    session_id: int
    session_epoch: int
    wanted: dict[PartitionKey, FetchFrom]
    forgotten: list[PartitionKey]


@dataclass(slots=True)
class Fetched:
    """What one partition answers to a Fetch."""

    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] = field(default_factory=list)
    diverging: tuple[int, int] | None = None
    records: bytes = b""

    @property
    def is_news(self) -> bool:
        return bool(self.records) or self.error_code != 0 or self.diverging is not None


def parse_produce_request(body: bytes, version: int) -> list[ProduceRow]:
    fields = Fields(memoryview(body))
    fields.compact_bytes()  # a transactional id, of which there is none
    fields.unpack(_ACKS_AND_TIMEOUT)
    rows: list[ProduceRow] = []
    for _ in range(fields.count(3)):
        by_id = version >= PRODUCE_VERSION_BY_ID
        topic: TopicKey = bytes(fields.take(_ID_BYTES)) if by_id else fields.compact_string() or ""
        for _ in range(fields.count(6)):
            partition = fields.int32()
            rows.append((topic, partition, bytes(fields.compact_bytes() or b"")))
            fields.tags()
        fields.tags()
    return rows


def produce_answer(rows: Iterable[Produced]) -> bytes:
    topics: dict[TopicKey, list[Produced]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    out = [uvarint(len(topics) + 1)]
    for topic, some in topics.items():
        out.append(topic if isinstance(topic, bytes) else compact_string(topic))
        out.append(uvarint(len(some) + 1))
        for row in some:
            numbers = (row.partition, row.error_code, row.base_offset, -1, row.log_start_offset)
            out.append(_PRODUCED.pack(*numbers) + b"\x01\0\0")
        out.append(b"\0")
    out.append(_INT32.pack(0) + b"\0")
    return b"".join(out)


def parse_fetch_request(body: bytes) -> FetchAsked:
    fields = Fields(memoryview(body))
    _, wait_ms, bytes_min, bytes_max, committed, session, epoch = fields.unpack(_FETCH_HEAD)
    wanted: dict[PartitionKey, FetchFrom] = {}
    for _ in range(fields.count(18)):
        topic = bytes(fields.take(_ID_BYTES))
        for _ in range(fields.count(_FETCH_PARTITION.size)):
            partition, current, offset, last, _, limit, _ = fields.unpack(_FETCH_PARTITION)
            wanted[topic, partition] = FetchFrom(offset, current, last, limit)
        fields.tags()
    forgotten: list[PartitionKey] = []
    for _ in range(fields.count(18)):
        topic = bytes(fields.take(_ID_BYTES))
        forgotten += [(topic, fields.int32()) for _ in range(fields.count(4))]
        fields.tags()
    return FetchAsked(
        wait_ms, bytes_min, bytes_max, bool(committed), session, epoch, wanted, forgotten
    )


def fetch_answer(
    rows: Mapping[PartitionKey, Fetched], *, session_id: int = 0, error_code: int = 0
) -> bytes:
    out = [_FETCHED_HEAD.pack(0, error_code, session_id), uvarint(len(rows) + 1)]
    for (topic, partition), row in rows.items():
        ends = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        out += [topic, b"\x02", _FETCHED.pack(partition, row.error_code, *ends)]
        out.append(uvarint(len(row.aborted) + 1))
        out += [_ABORTED.pack(*each) + b"\0" for each in row.aborted]
        out += [_NO_REPLICA, uvarint(len(row.records) + 1), row.records]
        if row.diverging is None:
            out.append(b"\0")
        else:
            # One tagged field: its number, its size, the epoch, the offset, no fields of its own.
            tag = _DIVERGING.pack(*row.diverging) + b"\0"
            out.append(b"\x01\0" + uvarint(len(tag)) + tag)
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)
