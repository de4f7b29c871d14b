"""Open v2 batches and make dense ones of their records: reencode, coalesce. Runs anywhere.

Work per record, done only where a batch cannot travel unopened: holes, LogAppendTime, a resume in
its middle, and backlogs of tiny batches. The caller has verified each CRC, or bad bytes would look
good.

Two ways lead to the same bytes. With aiokafka's compiled codec 780,000 one-record batches of 100 B
a second are decoded and encoded, checks included; copying their bodies unread, in Python, does
200,000 (500,000 when tuned to that one shape), but takes what the codec cannot hold: a header key
that is not UTF-8, and a first record without a timestamp (to its builder -1 means "not set yet",
and the record would get the timestamp of the next).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
)
from heliograph.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from heliograph.wire.dense import (
    BATCH_BYTES_MAX,
    NO_TIMESTAMP_MS,
    DenseBatch,
    ReencodedBatch,
    Stretch,
    VarintError,
    as_int64,
    read_varint,
    seal,
    stretches_of,
)

__all__ = [
    "CoalescedWindow",
    "ReencodedBatch",
    "Stretch",
    "coalesce_records",
    "coalesce_window",
    "reencode_records",
    "sealed",
]

_PEEK: Final = struct.Struct(">qiibIhi30xi")
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
_TIMES: Final = struct.Struct(">qq")
_TIMES_AT: Final = 27
_COUNT: Final = struct.Struct(">i")
_COUNT_AT: Final = 57
_MAGIC: Final = 2
_DELETE_HORIZON_BIT: Final = 0x40


_Opened = tuple[int, int, memoryview]
"""Base offset, end offset and bytes of a batch that is not, or no longer, compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalescedWindow:
    batch: ReencodedBatch | None
    """None when every record is before the wanted offset."""
    size_bytes: int
    """How much of the window it stands for."""
    batch_count: int
    next_offset: int
    """Of the source, after the last of them."""
    leader_epoch: int
    """Of the last of them."""


class _CodecLimitError(Exception):
    """The compiled codec cannot hold these records."""


def reencode_records(
    batch: memoryview,
    *,
    from_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> ReencodedBatch | None:
    """The records of `batch` at or after `from_offset`, dense, same codec, CreateTime.

    Records of a LogAppendTime batch get its append time. None when no record is left, as in a
    batch that compaction emptied, and for control batches, which clients may not write.
    """
    return coalesce_records(
        (batch,), from_offset=from_offset, decompressed_bytes_max=decompressed_bytes_max
    )


def coalesce_records(
    batches: Sequence[memoryview],
    *,
    from_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> ReencodedBatch | None:
    """One batch with the records of all, in order, compressed as the first; None without records.

    The caller bounds how many; `decompressed_bytes_max` bounds what they unfold to, together.
    Raises `CorruptBatch` for bytes that contradict themselves, whatever they are.
    """
    opened = list(_opened(batches, decompressed_bytes_max))
    return _coalesced(opened, from_offset, _codec(batches[0])) if opened else None


def coalesce_window(
    window: memoryview,
    *,
    from_offset: int = 0,
    tiny_bytes_max: int,
    bytes_max: int,
    batches_min: int = 2,
) -> CoalescedWindow | None:
    """Walk, check and coalesce the tiny batches `window` starts with; None if fewer than the min.

    Parsing each header into a `BatchHeader` would take longer than all of this. Takes plain v2
    batches of at most `tiny_bytes_max` and, together, `bytes_max`, and stops at the first it would
    not take: compressed, transactional, control, LogAppendTime, without records, cut short, or
    with a wrong CRC. What that one is, the caller finds out as for any other batch.
    """
    opened: list[_Opened] = []
    at = 0
    next_offset = leader_epoch = -1
    room_bytes = min(bytes_max, len(window))
    while at + HEADER_BYTES <= room_bytes:
        base_offset, length, epoch, magic, crc, attributes, last_delta, count = _PEEK.unpack_from(
            window, at
        )
        end = at + LENGTH_END + length
        if (
            attributes & ~_DELETE_HORIZON_BIT
            or magic != _MAGIC
            or not HEADER_BYTES - LENGTH_END < length <= tiny_bytes_max - LENGTH_END
            or end > room_bytes
            or not 0 < count <= last_delta + 1
            or base_offset < next_offset
            or base_offset < 0
            or crc32c(window[at + _ATTRIBUTES_AT : end]) != crc
        ):
            break
        next_offset = base_offset + last_delta + 1
        leader_epoch = epoch
        opened.append((base_offset, next_offset, window[at:end]))
        at = end
    if len(opened) < max(1, batches_min):
        return None
    return CoalescedWindow(
        batch=_coalesced(opened, from_offset, Codec.NONE),
        size_bytes=at,
        batch_count=len(opened),
        next_offset=next_offset,
        leader_epoch=leader_epoch,
    )


def _coalesced(opened: Sequence[_Opened], from_offset: int, codec: int) -> ReencodedBatch | None:
    try:
        return _transcode(opened, from_offset, codec)
    except _CodecLimitError:
        return _splice(opened, from_offset, codec)


def _opened(batches: Sequence[memoryview], bytes_max: int) -> Iterator[_Opened]:
    """Check each header against its bytes and decompress; skips control and empty batches."""
    budget_bytes = bytes_max
    for batch in batches:
        if len(batch) < HEADER_BYTES:
            raise CorruptBatch(-1, f"{len(batch)} bytes are less than a header")
        base_offset, length, _, magic, _, attributes, last_delta, count = _PEEK.unpack_from(batch)
        end_offset = base_offset + last_delta + 1
        if (
            magic != _MAGIC
            or length + LENGTH_END != len(batch)
            or base_offset < 0
            or not 0 <= count <= last_delta + 1
        ):
            raise CorruptBatch(base_offset, "header contradicts itself or the bytes it came with")
        if attributes & CONTROL_BIT or not count:
            continue
        codec = attributes & COMPRESSION_MASK
        if codec == Codec.NONE:
            yield base_offset, end_offset, batch
            continue
        records = decompress(
            codec, batch[HEADER_BYTES:], offset=base_offset, bytes_max=budget_bytes
        )
        budget_bytes -= len(records)
        plain = bytearray(batch[:HEADER_BYTES])
        _ATTRIBUTES.pack_into(plain, _ATTRIBUTES_AT, attributes & ~COMPRESSION_MASK)
        plain += records
        yield base_offset, end_offset, memoryview(plain)


def _transcode(opened: Sequence[_Opened], from_offset: int, codec: int) -> ReencodedBatch | None:
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, False, -1, -1, -1, BATCH_BYTES_MAX)
    append = builder.append
    starts: list[tuple[int, int]] = []
    count = base_offset = 0
    next_offset = -1
    try:
        for base_offset, end_offset, batch in opened:
            if base_offset != next_offset:
                if base_offset < next_offset:
                    raise CorruptBatch(base_offset, f"comes after offset {next_offset - 1}")
                next_offset = -1
            for record in DefaultRecordBatch(batch):
                offset = record.offset
                if offset != next_offset:
                    if offset < max(next_offset, base_offset):
                        raise CorruptBatch(base_offset, f"has offset {offset} out of order")
                    if offset < from_offset:
                        continue
                    if count == 0 and record.timestamp == NO_TIMESTAMP_MS:
                        raise _CodecLimitError
                    starts.append((count, offset))
                if not append(count, record.timestamp, record.key, record.value, record.headers):
                    raise CorruptBatch(offset, "records unfold to more than a batch can hold")
                count += 1
                next_offset = offset + 1
            if next_offset > end_offset:
                raise CorruptBatch(base_offset, f"has offset {next_offset - 1} past its last")
    except UnicodeDecodeError as exc:
        raise _CodecLimitError from exc
    except (CorruptRecordException, OverflowError, MemoryError) as exc:
        # A length near 2^63 overflows the decoder's own check and meets the allocator instead.
        raise CorruptBatch(base_offset, f"record: {exc}") from exc
    return sealed(builder.build(), starts, codec) if count else None


def sealed(plain: bytearray, starts: list[tuple[int, int]], codec: int) -> ReencodedBatch:
    """What the compiled builder made, compressed; `starts`: as of `seal`."""
    base_timestamp_ms, max_timestamp_ms = _TIMES.unpack_from(plain, _TIMES_AT)
    (record_count,) = _COUNT.unpack_from(plain, _COUNT_AT)
    if codec != Codec.NONE:
        return seal(
            memoryview(plain)[HEADER_BYTES:],
            codec=codec,
            record_count=record_count,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
            starts=starts,
        )
    return ReencodedBatch(
        batch=plain,
        record_count=record_count,
        max_timestamp_ms=max_timestamp_ms,
        stretches=stretches_of(starts, record_count),
    )


def _codec(batch: memoryview) -> int:
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    return int(attributes) & COMPRESSION_MASK


def _splice(opened: Sequence[_Opened], from_offset: int, codec: int) -> ReencodedBatch | None:
    dense = DenseBatch()
    for base_offset, end_offset, batch in opened:
        try:
            _splice_batch(dense, batch, base_offset, end_offset, from_offset)
        except (IndexError, VarintError) as exc:
            raise CorruptBatch(base_offset, f"record: {exc}") from exc
    return dense.seal(codec)


def _splice_batch(
    dense: DenseBatch, batch: memoryview, base_offset: int, end_offset: int, from_offset: int
) -> None:
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    base_timestamp_ms, max_timestamp_ms = _TIMES.unpack_from(batch, _TIMES_AT)
    (count,) = _COUNT.unpack_from(batch, _COUNT_AT)
    next_offset = base_offset
    end = HEADER_BYTES
    for _ in range(count):
        length, start = read_varint(batch, end)
        end = start + length
        if length < 0 or end > len(batch):
            raise CorruptBatch(base_offset, f"record of {length} in {len(batch) - start} bytes")
        timestamp_delta, at = read_varint(batch, start + 1)
        offset_delta, at = read_varint(batch, at)
        _walk_body(batch, at, end, base_offset)
        offset = base_offset + offset_delta
        if not next_offset <= offset < end_offset:
            raise CorruptBatch(base_offset, f"has offset {offset} out of order or past its last")
        next_offset = offset + 1
        if offset < from_offset:
            continue
        if attributes & LOG_APPEND_TIME_BIT:
            timestamp_ms = max_timestamp_ms
        else:
            timestamp_ms = as_int64(base_timestamp_ms + timestamp_delta)
        dense.add(source_offset=offset, timestamp_ms=timestamp_ms, body=batch[at:end])
    if end != len(batch):
        raise CorruptBatch(base_offset, f"{len(batch) - end} bytes follow its last record")


def _walk_body(batch: memoryview, at: int, end: int, base_offset: int) -> None:
    """Raise unless key, value and headers take exactly the bytes up to `end`."""
    at = _after_bytes(batch, at, end, base_offset)  # key
    at = _after_bytes(batch, at, end, base_offset)  # value
    header_count, at = read_varint(batch, at)
    if header_count < 0:
        raise CorruptBatch(base_offset, f"record with {header_count} headers")
    for _ in range(header_count):
        if batch[at] & 1:  # zigzag: a negative length
            raise CorruptBatch(base_offset, "header without a key")
        at = _after_bytes(batch, at, end, base_offset)
        at = _after_bytes(batch, at, end, base_offset)
    if at != end:
        raise CorruptBatch(base_offset, f"record ends {end - at} bytes after its last header")


def _after_bytes(batch: memoryview, at: int, end: int, base_offset: int) -> int:
    length, at = read_varint(batch, at)
    at += max(0, length)  # -1 stands for null
    if at > end:
        raise CorruptBatch(base_offset, f"{length} bytes where {end - at + length} remain")
    return at
