"""Fetch, version 13 (topic ids, KIP-516), with incremental sessions (KIP-227). No I/O; anywhere.

Written by hand because it is hot: the records of an answer stay where the socket put them.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.wire.fields import Fields, uvarint

FETCH_KEY: Final = 1
FETCH_VERSION: Final = 13

_HEAD: Final = struct.Struct(">iiiibii")
_PARTITION: Final = struct.Struct(">iiqiqib")
_ANSWER_HEAD: Final = struct.Struct(">ihi")
_ANSWER_PARTITION: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_DIVERGING: Final = struct.Struct(">iq")
_DIVERGING_TAG: Final = 0

PartitionKey = tuple[bytes, int]
"""Topic id (16 bytes) and partition number."""


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Where one partition is read from; compared with what the session last heard."""

    next_offset: int
    leader_epoch: int
    last_epoch: int
    """Epoch of the last batch read; lets the broker say that what we read was cut off (KIP-595)."""
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    key: PartitionKey
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction in reach."""
    diverging_end_offset: int
    """Where the broker's log parts from what was read; -1 when it does not."""
    records: memoryview
    read_replica: int = -1
    """Whom the leader sends a reader of this rack to (KIP-392); -1 when to nobody."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    throttle_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def topic_key(topic_id: str) -> bytes:
    return uuid.UUID(topic_id).bytes


def fetch_request(
    *,
    wait_ms_max: int,
    bytes_max: int,
    bytes_min: int = 1,
    rack: str = "",
    read_committed: bool,
    session_id: int,
    session_epoch: int,
    wanted: Mapping[PartitionKey, FetchFrom],
    forgotten: Iterable[PartitionKey] = (),
) -> bytes:
    """The body of a Fetch; `wanted` holds only what changed when a session goes on."""
    committed = int(read_committed)
    out = [_HEAD.pack(-1, wait_ms_max, bytes_min, bytes_max, committed, session_id, session_epoch)]
    topics: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for (topic, partition), start in wanted.items():
        topics[topic].append(
            _PARTITION.pack(
                partition,
                start.leader_epoch,
                start.next_offset,
                start.last_epoch,
                -1,
                start.bytes_max,
                0,
            )
        )
    out.append(uvarint(len(topics) + 1))
    for topic, rows in topics.items():
        out += [topic, uvarint(len(rows) + 1), *rows, b"\0"]
    dropped: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for topic, partition in forgotten:
        dropped[topic].append(struct.pack(">i", partition))
    out.append(uvarint(len(dropped) + 1))
    for topic, rows in dropped.items():
        out += [topic, uvarint(len(rows) + 1), *rows, b"\0"]
    named = rack.encode()
    out += [uvarint(len(named) + 1), named, b"\0"]
    return b"".join(out)


def parse_fetch_answer(body: memoryview) -> FetchAnswer:
    fields = Fields(body)
    throttle_ms, error_code, session_id = fields.unpack(_ANSWER_HEAD)
    partitions: list[FetchedPartition] = []
    for _ in range(fields.count(18)):
        topic = bytes(fields.take(16))
        partitions.extend(_parse_partition(fields, topic) for _ in range(fields.count(37)))
        fields.tags()
    fields.tags()
    return FetchAnswer(throttle_ms, error_code, session_id, partitions)


def _parse_partition(fields: Fields, topic: bytes) -> FetchedPartition:
    index, error_code, high_watermark, last_stable, log_start = fields.unpack(_ANSWER_PARTITION)
    aborted: list[tuple[int, int]] = []
    for _ in range(fields.count(17)):
        producer_id, first_offset = fields.unpack(_ABORTED)
        aborted.append((producer_id, first_offset))
        fields.tags()
    read_replica = fields.int32()
    records = fields.compact_bytes()
    tags = fields.tags()
    diverging_end = -1
    if _DIVERGING_TAG in tags and len(tags[_DIVERGING_TAG]) >= _DIVERGING.size:
        _, diverging_end = _DIVERGING.unpack_from(tags[_DIVERGING_TAG])
    return FetchedPartition(
        (topic, index),
        error_code,
        high_watermark,
        last_stable,
        log_start,
        tuple(aborted),
        diverging_end,
        records if records is not None else memoryview(b""),
        read_replica,
    )
