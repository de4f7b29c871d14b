"""A dense v2 batch in the making: records of any origin, numbered from 0. Runs anywhere.

A record on the wire (zigzag varints):

    length  attributes(1)  timestamp_delta  offset_delta  |  key value headers

Only what stands left of the bar depends on the batch around it; the right side, the *body*, is
copied.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import HEADER_BYTES, LENGTH_END
from heliograph.wire.compression import compress

BATCH_BYTES_MAX: Final = (1 << 31) - 1
NO_TIMESTAMP_MS: Final = -1

_LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_MAGIC: Final = 2
_UNSET: Final = -1
_NO_ATTRIBUTES: Final = b"\0"  # no bit of a record's attributes has a meaning yet
_TWO_BYTE_VARINTS: Final = 8192


class Stretch(NamedTuple):
    """Records of the new batch whose source offsets follow one another; a hole starts the next."""

    first_record: int
    """Counted from 0 in the new batch."""
    source_offset: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReencodedBatch:
    """A v2 batch at offset 0, CreateTime, without a producer: `batch.restamp` gives it one."""

    batch: bytearray
    """The caller owns it."""
    record_count: int
    max_timestamp_ms: int
    stretches: tuple[Stretch, ...]
    """In order, together every record of the batch."""

    @property
    def source_next_offset(self) -> int:
        """After the last record kept; the batches it came from may end later."""
        last = self.stretches[-1]
        return last.source_offset + last.record_count


class VarintError(ValueError):
    """More than the ten bytes that 64 bits need."""


class DenseBatch:
    """Collects records one by one; for whatever no compiled codec can encode."""

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray | memoryview] = []
        self._starts: list[tuple[int, int]] = []
        self._record_count = 0
        self._next_offset = _UNSET
        self._base_timestamp_ms = NO_TIMESTAMP_MS
        self._max_timestamp_ms = NO_TIMESTAMP_MS

    def add(
        self,
        *,
        source_offset: int,
        timestamp_ms: int,
        body: bytes | memoryview,
    ) -> None:
        """Append one record; `body` is key, value and headers as they are on the wire."""
        index = self._record_count
        if source_offset != self._next_offset:
            if source_offset < self._next_offset:
                raise CorruptBatch(source_offset, f"comes after offset {self._next_offset - 1}")
            self._starts.append((index, source_offset))
        if index == 0:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        delta = varint(as_int64(timestamp_ms - self._base_timestamp_ms))
        number = varint(index)
        length = varint(1 + len(delta) + len(number) + len(body))
        self._parts += (length, _NO_ATTRIBUTES, delta, number, body)
        self._record_count = index + 1
        self._next_offset = source_offset + 1

    def seal(self, codec: int) -> ReencodedBatch | None:
        """The finished batch; None when nothing was added."""
        if not self._record_count:
            return None
        return seal(
            b"".join(self._parts),
            codec=codec,
            record_count=self._record_count,
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms,
            starts=self._starts,
        )


def seal(
    records: bytes | bytearray | memoryview,
    *,
    codec: int,
    record_count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    starts: list[tuple[int, int]],
) -> ReencodedBatch:
    """Put a header before encoded records; `starts`: first record and offset of each stretch."""
    packed = compress(codec, records)
    if HEADER_BYTES + len(packed) > BATCH_BYTES_MAX:
        raise CorruptBatch(starts[0][1], f"{len(packed)} bytes of records fit no batch")
    batch = bytearray(HEADER_BYTES + len(packed))
    _LAYOUT.pack_into(
        batch,
        0,
        0,  # base_offset: brokers refuse another one from a client
        len(batch) - LENGTH_END,
        _UNSET,  # partition_leader_epoch
        _MAGIC,
        0,  # crc, below
        codec,
        record_count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        _UNSET,  # producer_id
        _UNSET,  # producer_epoch
        _UNSET,  # base_sequence
        record_count,
    )
    batch[HEADER_BYTES:] = packed
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
    return ReencodedBatch(
        batch=batch,
        record_count=record_count,
        max_timestamp_ms=max_timestamp_ms,
        stretches=stretches_of(starts, record_count),
    )


def stretches_of(starts: list[tuple[int, int]], record_count: int) -> tuple[Stretch, ...]:
    ends = [first for first, _ in starts[1:]] + [record_count]
    return tuple(
        Stretch(first, offset, end - first)
        for (first, offset), end in zip(starts, ends, strict=True)
    )


def as_int64(number: int) -> int:
    """Wrap as Java's long does, so that base plus delta gives back any timestamp."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def varint(number: int) -> bytes:
    """Zigzag varint of an int64."""
    if 0 <= number < _TWO_BYTE_VARINTS:
        return _SMALL_VARINTS[number]
    return _encode_varint(number)


def _encode_varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_SMALL_VARINTS: Final = [_encode_varint(number) for number in range(_TWO_BYTE_VARINTS)]


def read_varint(window: bytes | memoryview, at: int) -> tuple[int, int]:
    """The zigzag varint at `at` and where it ends; else IndexError or VarintError."""
    byte = window[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    encoded = byte & 0x7F
    shift = 7
    while True:
        byte = window[at]
        at += 1
        encoded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise VarintError("varint of more than ten bytes")
    encoded &= (1 << 64) - 1
    return (encoded >> 1) ^ -(encoded & 1), at
