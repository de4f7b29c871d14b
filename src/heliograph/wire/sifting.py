"""Records kept or dropped for one header's name, the others not opened. No I/O; runs anywhere.

A name that stands nowhere in the bytes is in no header. Where it stands the record around it is
looked at, and no other: where one record in ten is kept, that costs a fifth of opening all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import HEADER_BYTES, BatchHeader
from heliograph.wire.compression import DECOMPRESSED_BYTES_MAX
from heliograph.wire.dense import (
    DenseBatch,
    ReencodedBatch,
    VarintError,
    as_int64,
    read_varint,
    varint,
)
from heliograph.wire.opened import decompressed

_WORTH_ONE_IN: Final = 4
"""Of more than that, opening all with the compiled codec is faster."""
_ONE_BYTE: Final = 0x80
_LOW_BITS: Final = 0x7F


class Sieve(NamedTuple):
    """Which records stay: those with the header, or those without."""

    name: str
    keeps_named: bool


class Sifted(NamedTuple):
    """What stays of some batches."""

    is_all: bool
    """Every record of them, so they may travel as they came."""
    batches: list[ReencodedBatch]


class _Named(NamedTuple):
    """A record that has the header."""

    number: int
    """Counted from 0 in its batch."""
    timestamp_ms: int
    body: bytes


def sift(
    batches: Sequence[tuple[BatchHeader, memoryview]], sieve: Sieve, *, bytes_max: int
) -> Sifted | None:
    """What stays of dense batches of one codec with their producers' times, each batch made of
    `bytes_max` at most but for one with a single record; None where opening all is worth as much.

    The caller has verified each CRC.
    """
    pattern = varint(len(sieve.name.encode())) + sieve.name.encode()
    opened: list[tuple[BatchHeader, bytes]] = []
    named = 0
    for header, batch in batches:
        plain = bytes(decompressed(batch, header, DECOMPRESSED_BYTES_MAX))
        found = plain.count(pattern, HEADER_BYTES)
        if found and (not sieve.keeps_named or found * _WORTH_ONE_IN > header.record_count):
            return None
        named += found
        opened.append((header, plain))
    if not named:
        return Sifted(is_all=not sieve.keeps_named, batches=[])
    return Sifted(is_all=False, batches=list(_kept(opened, pattern, bytes_max)))


def _kept(
    opened: Sequence[tuple[BatchHeader, bytes]], pattern: bytes, bytes_max: int
) -> Iterator[ReencodedBatch]:
    codec = opened[0][0].compression
    dense, size_bytes = DenseBatch(), 0
    for header, plain in opened:
        try:
            found = list(_named_in(plain, header, pattern))
        except (IndexError, VarintError) as exc:
            raise CorruptBatch(header.base_offset, f"record: {exc}") from exc
        for number, timestamp_ms, body in found:
            size_bytes += len(body)
            if size_bytes > bytes_max and (made := dense.seal(codec)):
                yield made
                dense, size_bytes = DenseBatch(), len(body)
            dense.add(
                source_offset=header.base_offset + number, timestamp_ms=timestamp_ms, body=body
            )
    if last := dense.seal(codec):
        yield last


def _named_in(plain: bytes, header: BatchHeader, pattern: bytes) -> Iterator[_Named]:
    hit = plain.find(pattern, HEADER_BYTES)
    at = HEADER_BYTES
    for number in range(header.record_count):
        if hit < 0:
            return
        began, low = at, plain[at]
        # Lengths of up to two bytes without a call: this is done for every record.
        if low < _ONE_BYTE:
            at += 1 + (low >> 1)
        elif (high := plain[at + 1]) < _ONE_BYTE:
            at += 2 + ((low & _LOW_BITS | high << 7) >> 1)
        else:
            length, start = read_varint(plain, at)
            at = start + length
        if at > len(plain) or at <= began:
            raise CorruptBatch(header.base_offset, "its records do not fill it")
        if hit < at:
            found = _read(plain, began, header, number, pattern)
            if found is not None:
                yield found
            hit = plain.find(pattern, at)


def _read(plain: bytes, at: int, header: BatchHeader, number: int, pattern: bytes) -> _Named | None:
    """The record that begins there, where one of its headers has the name."""
    length, at = _varint(plain, at)
    end = at + length
    timestamp_delta, at = _varint(plain, at + 1)
    offset_delta, at = _varint(plain, at)
    body_at = at
    size, at = _varint(plain, at)
    if size > 0:
        at += size
    size, at = _varint(plain, at)
    if size > 0:
        at += size
    count, at = _varint(plain, at)
    has_name = False
    for _ in range(count):
        has_name = has_name or plain.startswith(pattern, at)
        size, at = _varint(plain, at)
        size, at = _varint(plain, at + max(size, 0))
        if size > 0:
            at += size
    if at != end or offset_delta != number:
        raise CorruptBatch(header.base_offset, f"record {number} contradicts itself")
    if not has_name:
        return None
    return _Named(number, as_int64(header.base_timestamp_ms + timestamp_delta), plain[body_at:end])


def _varint(plain: bytes, at: int) -> tuple[int, int]:
    """As `read_varint`, which takes three times as long, but for the short ones."""
    byte = plain[at]
    if byte < _ONE_BYTE:
        return (byte >> 1) ^ -(byte & 1), at + 1
    high = plain[at + 1]
    if high < _ONE_BYTE:
        encoded = byte & _LOW_BITS | high << 7
        return (encoded >> 1) ^ -(encoded & 1), at + 2
    return read_varint(plain, at)
