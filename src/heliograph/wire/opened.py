"""The records of a v2 batch as values that can be compared. No I/O; runs
anywhere.

Work per record, for whoever must look into batches. The caller has verified each CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import COMPRESSION_MASK, HEADER_BYTES, BatchHeader
from heliograph.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from heliograph.wire.dense import VarintError, as_int64, read_varint

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp in ms, key, value, headers: all that a copy must keep, and nothing else."""
OpenedStretch = tuple[int, list[Content]]
"""Offset of the first record, and records whose offsets follow one another."""


class OpenedColumns(NamedTuple):
    """The records of a batch field by field."""

    times_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None
    """None where no record has any."""


_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21


def open_records(
    batch: memoryview,
    header: BatchHeader,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[OpenedStretch]:
    """Every record, in order; a hole begins another stretch. Records of a LogAppendTime batch have
    its append time, as a copy has it.

    Raises `CorruptBatch` for bytes that contradict themselves.
    """
    if not header.record_count:
        return []
    plain = decompressed(batch, header, decompressed_bytes_max)
    try:
        return _stretches(_decoded(plain), header)
    except UnicodeDecodeError:
        # The compiled codec cannot hold a header whose key is not UTF-8.
        return _stretches(_walked(plain, header), header)
    except (CorruptRecordException, OverflowError, MemoryError) as exc:
        raise CorruptBatch(header.base_offset, f"record: {exc}") from exc


def open_columns(
    batch: memoryview,
    header: BatchHeader,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> OpenedColumns:
    """The records of a dense batch with its producer's times, in a quarter of `open_records`' time.

    Raises `CorruptBatch` for bytes that contradict themselves.
    """
    plain = decompressed(batch, header, decompressed_bytes_max)
    times, offsets = list[int](), list[int]()
    keys, values, headers = list[bytes | None](), list[bytes | None](), list[Any]()
    try:
        # One at a time: thousands of records at once would keep Python's collector busy.
        for record in DefaultRecordBatch(plain):
            times.append(record.timestamp)
            keys.append(record.key)
            values.append(record.value)
            headers.append(record.headers)
            offsets.append(record.offset)
    except UnicodeDecodeError:
        found = _walked(plain, header)
        return OpenedColumns(*zip(*_stretches(found, header)[0][1], strict=True))
    except (CorruptRecordException, OverflowError, MemoryError) as exc:
        raise CorruptBatch(header.base_offset, f"record: {exc}") from exc
    if offsets != list(range(header.base_offset, header.next_offset)):
        raise CorruptBatch(header.base_offset, "has other records than its header says")
    return OpenedColumns(times, keys, values, headers if any(headers) else None)


def decompressed(batch: memoryview, header: BatchHeader, bytes_max: int) -> memoryview:
    if header.compression == Codec.NONE:
        return batch
    records = decompress(
        header.compression, batch[HEADER_BYTES:], offset=header.base_offset, bytes_max=bytes_max
    )
    plain = bytearray(batch[:HEADER_BYTES])
    _ATTRIBUTES.pack_into(plain, _ATTRIBUTES_AT, header.attributes & ~COMPRESSION_MASK)
    plain += records
    return memoryview(plain)


def _decoded(plain: memoryview) -> list[tuple[int, Content]]:
    return [
        (
            record.offset,
            (
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers) if record.headers else (),
            ),
        )
        for record in DefaultRecordBatch(plain)
    ]


def _stretches(records: list[tuple[int, Content]], header: BatchHeader) -> list[OpenedStretch]:
    first, last = records[0][0], records[-1][0]
    if len(records) != header.record_count:
        raise CorruptBatch(
            header.base_offset, f"{len(records)} records where {header.record_count} were said"
        )
    if first < header.base_offset or last >= header.next_offset:
        raise CorruptBatch(header.base_offset, "has records outside of its offsets")
    if last - first + 1 == len(records):
        return [(first, [content for _, content in records])]
    stretches: list[OpenedStretch] = []
    expected = -1
    for offset, content in records:
        if offset == expected:
            stretches[-1][1].append(content)
        elif offset > expected:
            stretches.append((offset, [content]))
        else:
            raise CorruptBatch(header.base_offset, f"has offset {offset} out of order")
        expected = offset + 1
    return stretches


def _walked(plain: memoryview, header: BatchHeader) -> list[tuple[int, Content]]:
    """As `_decoded`, in Python; header keys that are not UTF-8 keep their bytes as surrogates."""
    found: list[tuple[int, Content]] = []
    end = HEADER_BYTES
    try:
        for _ in range(header.record_count):
            length, start = read_varint(plain, end)
            end = start + length
            if length < 0 or end > len(plain):
                raise CorruptBatch(
                    header.base_offset, f"record of {length} in {len(plain) - start} bytes"
                )
            timestamp_delta, at = read_varint(plain, start + 1)
            offset_delta, at = read_varint(plain, at)
            key, at = _nullable(plain, at, end, header)
            value, at = _nullable(plain, at, end, header)
            count, at = read_varint(plain, at)
            headers: list[tuple[str, bytes | None]] = []
            for _ in range(count):
                name, at = _nullable(plain, at, end, header)
                content, at = _nullable(plain, at, end, header)
                headers.append(((name or b"").decode("utf-8", "surrogateescape"), content))
            timestamp_ms = (
                header.max_timestamp_ms
                if header.is_log_append_time
                else as_int64(header.base_timestamp_ms + timestamp_delta)
            )
            found.append(
                (header.base_offset + offset_delta, (timestamp_ms, key, value, tuple(headers)))
            )
    except (IndexError, VarintError) as exc:
        raise CorruptBatch(header.base_offset, f"record: {exc}") from exc
    return found


def _nullable(
    plain: memoryview, at: int, end: int, header: BatchHeader
) -> tuple[bytes | None, int]:
    length, at = read_varint(plain, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise CorruptBatch(header.base_offset, f"{length} bytes where {end - at} remain")
    return bytes(plain[at : at + length]), at + length
