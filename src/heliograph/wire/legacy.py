"""Message sets from before Kafka 0.11 (magic 0 and 1), re-encoded as v2 batches. Runs anywhere.

    offset  size  field
         0     8  offset       of a wrapper: of its last message
         8     4  size         counts the bytes after itself
        12     4  crc          CRC-32 (not CRC-32C) of the bytes after itself
        16     1  magic
        17     1  attributes   codec (0-2), timestamp type (3)
        18     8  timestamp    magic 1 only
            4+n  key, value   -1 stands for null

A message with a codec is a *wrapper*: its value is a message set. Offsets inside are absolute in
magic 0 and count from the first message in magic 1 (KIP-31).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import COMPRESSION_MASK, LENGTH_END, LOG_APPEND_TIME_BIT, MAGIC_AT
from heliograph.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from heliograph.wire.dense import NO_TIMESTAMP_MS, DenseBatch, ReencodedBatch, varint

_PREFIX: Final = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_CRC_FROM: Final = 16
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = varint(-1)
_NO_HEADERS: Final = varint(0)
_MESSAGE_BYTES_MIN: Final = {0: 26, 1: 34}

_LZ4_FLAGS_AT: Final = 4
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_DICTIONARY_BIT: Final = 0x01
_XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_UINT32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyExtent:
    """The leading whole messages of magic 0 or 1 in a window."""

    size_bytes: int
    next_offset: int
    """After the last of them; -1 when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION_MASK


def legacy_extent(window: memoryview, *, bytes_max: int | None = None) -> LegacyExtent:
    """How far `window` is whole old messages: up to a v2 batch, the cut, or about `bytes_max`.

    A log upgraded in place holds all three magics, in any order after a downgrade. A size of 0
    means that the first message is cut short or the window starts with a v2 batch. The first
    message counts however large it is, or it could never be read.
    """
    at, next_offset = 0, -1
    while len(window) - at >= _PREFIX.size and window[at + MAGIC_AT] in _MESSAGE_BYTES_MIN:
        offset, size_bytes = _measure(window[at:])
        if size_bytes > len(window) - at:
            break
        if at and bytes_max is not None and at + size_bytes > bytes_max:
            break
        at += size_bytes
        next_offset = offset + 1
    return LegacyExtent(size_bytes=at, next_offset=next_offset)


def reencode_legacy(
    message_set: memoryview,
    *,
    from_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> ReencodedBatch | None:
    """The messages at or after `from_offset` as one v2 batch, with the codec of the first wrapper.

    `message_set` is whole messages of magic 0 and 1, as `legacy_extent` found them. Magic 0 has no
    timestamps: its records get -1. CRCs are checked. None when no message is left.
    """
    dense = DenseBatch()
    codec: int = Codec.NONE
    budget_bytes = decompressed_bytes_max
    for outer in _messages(message_set):
        if outer.codec == Codec.NONE:
            inner_messages: tuple[_Message, ...] = (outer,)
        else:
            plain = _unwrap(outer, budget_bytes)
            budget_bytes -= len(plain)
            inner_messages = _absolute(outer, tuple(_messages(plain)))
            codec = codec or outer.codec
        for message in inner_messages:
            if message.offset >= from_offset:
                dense.add(
                    source_offset=message.offset,
                    timestamp_ms=message.timestamp_ms,
                    body=_body(message),
                )
    return dense.seal(codec)


def _measure(window: memoryview) -> tuple[int, int]:
    """Offset and whole size of the message at the start of `window`, which may be cut short."""
    offset, length, _, magic, _ = _PREFIX.unpack_from(window)
    if offset < 0:
        raise CorruptBatch(offset, "offset is negative")
    size_bytes = LENGTH_END + length
    if size_bytes < _MESSAGE_BYTES_MIN[magic]:
        raise CorruptBatch(offset, f"message of {size_bytes} bytes is less than its header")
    return offset, size_bytes


def _messages(message_set: memoryview) -> Iterator[_Message]:
    at = 0
    while at < len(message_set):
        rest = message_set[at:]
        if len(rest) < _PREFIX.size:
            raise CorruptBatch(-1, f"message of {len(rest)} bytes is less than its header")
        if rest[MAGIC_AT] not in _MESSAGE_BYTES_MIN:
            raise CorruptBatch(-1, f"magic is {rest[MAGIC_AT]}, expected 0 or 1")
        offset, size_bytes = _measure(rest)
        if size_bytes > len(rest):
            raise CorruptBatch(offset, f"message of {size_bytes} bytes where {len(rest)} remain")
        yield _parse(rest[:size_bytes])
        at += size_bytes


def _parse(message: memoryview) -> _Message:
    offset, _, crc, magic, attributes = _PREFIX.unpack_from(message)
    if zlib.crc32(message[_CRC_FROM:]) != crc:
        raise CorruptBatch(offset, "checksum does not match its bytes")
    at = _PREFIX.size
    timestamp_ms = NO_TIMESTAMP_MS
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(message, at)
        at += _TIMESTAMP.size
    key, at = _nullable(message, at, offset)
    value, at = _nullable(message, at, offset)
    if at != len(message):
        raise CorruptBatch(offset, f"{len(message) - at} bytes follow its value")
    return _Message(
        offset=offset,
        magic=magic,
        attributes=attributes,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
    )


def _nullable(message: memoryview, at: int, offset: int) -> tuple[memoryview | None, int]:
    if len(message) - at < _LENGTH.size:
        raise CorruptBatch(offset, "length of key or value is cut short")
    (length,) = _LENGTH.unpack_from(message, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(message) - at:
        raise CorruptBatch(offset, f"{length} bytes where {len(message) - at} remain")
    return message[at : at + length], at + length


def _unwrap(wrapper: _Message, bytes_max: int) -> memoryview:
    if wrapper.value is None:
        raise CorruptBatch(wrapper.offset, "wrapper without messages")
    packed = wrapper.value
    if wrapper.magic == 0 and wrapper.codec == Codec.LZ4:
        packed = _with_lz4_checksum(packed)
    return decompress(wrapper.codec, packed, offset=wrapper.offset, bytes_max=bytes_max)


def _absolute(wrapper: _Message, inner_messages: tuple[_Message, ...]) -> tuple[_Message, ...]:
    """What a wrapper holds, with the offsets and timestamps a consumer sees."""
    if not inner_messages:
        raise CorruptBatch(wrapper.offset, "wrapper without messages")
    if any(inner.codec or inner.magic != wrapper.magic for inner in inner_messages):
        raise CorruptBatch(wrapper.offset, "wrapper around wrappers or around another magic")
    base_offset = wrapper.offset - inner_messages[-1].offset
    if wrapper.magic == 0:
        if base_offset:
            raise CorruptBatch(wrapper.offset, f"wrapper ends at {inner_messages[-1].offset}")
        return inner_messages
    if base_offset < 0:
        raise CorruptBatch(wrapper.offset, f"wrapper starts at {base_offset}")
    is_append_time = bool(wrapper.attributes & LOG_APPEND_TIME_BIT)
    return tuple(
        replace(
            inner,
            offset=base_offset + inner.offset,
            # With LogAppendTime brokers stamp the wrapper and leave what is inside alone (KIP-32).
            timestamp_ms=wrapper.timestamp_ms if is_append_time else inner.timestamp_ms,
        )
        for inner in inner_messages
    )


def _body(message: _Message) -> bytes:
    fields: list[bytes | memoryview] = []
    for field in (message.key, message.value):
        fields += (_NULL,) if field is None else (varint(len(field)), field)
    return b"".join((*fields, _NO_HEADERS))


def _with_lz4_checksum(frame: memoryview) -> memoryview:
    """Java's magic 0 frames carry a wrong descriptor checksum (KAFKA-3160); decoders refuse it."""
    if len(frame) <= _LZ4_FLAGS_AT:
        return frame
    flags = frame[_LZ4_FLAGS_AT]
    descriptor_end = _LZ4_FLAGS_AT + 2
    descriptor_end += 8 if flags & _LZ4_CONTENT_SIZE_BIT else 0
    descriptor_end += 4 if flags & _LZ4_DICTIONARY_BIT else 0
    if len(frame) <= descriptor_end:
        return frame
    mended = bytearray(frame)
    mended[descriptor_end] = _xxh32(frame[_LZ4_FLAGS_AT:descriptor_end]) >> 8 & 0xFF
    return memoryview(mended)


def _xxh32(short: memoryview) -> int:
    """xxHash32 of fewer than 16 bytes, seed 0: all that an LZ4 frame descriptor needs."""
    prime1, prime2, prime3, prime4, prime5 = _XXH_PRIMES
    digest = prime5 + len(short)
    words_end = len(short) & ~3
    for at in range(0, words_end, 4):
        digest += int.from_bytes(short[at : at + 4], "little") * prime3
        digest = _rotate(digest & _UINT32, 17) * prime4
    for byte in short[words_end:]:
        digest += byte * prime5
        digest = _rotate(digest & _UINT32, 11) * prime1
    digest &= _UINT32
    digest = (digest ^ digest >> 15) * prime2 & _UINT32
    digest = (digest ^ digest >> 13) * prime3 & _UINT32
    return digest ^ digest >> 16


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _UINT32
