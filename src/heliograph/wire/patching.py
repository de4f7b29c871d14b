"""The first bytes of keys and values exchanged in place, lengths unchanged. Runs on executors.

A batch is opened, but no record is made anew: each field is found from the end of its record, which
the record's own length tells, and from the sizes of what stands behind it.

    length  attributes  timestamp_delta  offset_delta  key_length  key  value_length  value  headers
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import HEADER_BYTES, LENGTH_END, BatchHeader
from heliograph.wire.compression import DECOMPRESSED_BYTES_MAX, compress
from heliograph.wire.dense import read_varint, varint
from heliograph.wire.opened import decompressed

Heads = Mapping[bytes, bytes | None]
"""What heads become; None for one that stays."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_ONE_BYTE: Final = 0x80


def patch_heads(
    batch: memoryview,
    header: BatchHeader,
    heads: Heads,
    *,
    head_bytes: int,
    parts: Sequence[str],
    marks: frozenset[str],
) -> memoryview | None:
    """The batch with all heads of `parts` exchanged, itself where none changes.

    None where the answer is not among `heads` for each record: a head it lacks, a field that is
    shorter, a header of `marks`. The caller has verified the batch's CRC and seals the new one;
    plain batches are changed in place.
    """
    plain = decompressed(batch, header, DECOMPRESSED_BYTES_MAX)
    try:
        changes = _changes(plain, header, heads, head_bytes, parts, marks)
    except UnicodeDecodeError:
        return None
    except (CorruptRecordException, OverflowError, MemoryError, IndexError) as exc:
        raise CorruptBatch(header.base_offset, f"record: {exc}") from exc
    if changes is None:
        return None
    if not changes:
        return batch
    for at, head in changes:
        plain[at : at + head_bytes] = head
    if not header.compression:
        return plain
    packed = compress(header.compression, plain[HEADER_BYTES:])
    made = bytearray(batch[:HEADER_BYTES])
    made += packed
    _LENGTH.pack_into(made, _LENGTH_AT, len(made) - LENGTH_END)
    return memoryview(made)


def _changes(
    plain: memoryview,
    header: BatchHeader,
    heads: Heads,
    head_bytes: int,
    parts: Sequence[str],
    marks: frozenset[str],
) -> list[tuple[int, bytes]] | None:
    """Where in `plain` which bytes are to stand."""
    of_key, of_value = "key" in parts, "value" in parts
    changes: list[tuple[int, bytes]] = []
    at = HEADER_BYTES
    missing: bytes = b""
    count = 0
    for record in DefaultRecordBatch(plain):
        count += 1
        size = plain[at]
        if size < _ONE_BYTE:
            end = at + 1 + (size >> 1)
        else:
            length, start = read_varint(plain, at)
            end = start + length
        at = end
        value, headers = record.value, record.headers
        if headers:
            if not marks.isdisjoint([name for name, _ in headers]):
                return None
            end -= _size_of(headers)
        else:
            end -= 1
        if value is not None:
            end -= len(value)
            if of_value:
                head = heads.get(value[:head_bytes], missing)
                if head is not None:
                    if head is missing:
                        return None
                    changes.append((end, head))
        if of_key and (key := record.key) is not None:
            head = heads.get(key[:head_bytes], missing)
            if head is not None:
                if head is missing:
                    return None
                value_bytes = -1 if value is None else len(value)
                changes.append((end - len(varint(value_bytes)) - len(key), head))
    if count != header.record_count or at != len(plain):
        raise CorruptBatch(header.base_offset, "its records do not fill it")
    return changes


def _size_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    size = len(varint(len(headers)))
    for name, value in headers:
        named = name.encode()
        size += len(varint(len(named))) + len(named)
        size += 1 if value is None else len(varint(len(value))) + len(value)
    return size
