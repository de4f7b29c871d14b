"""The four codecs of record batches, with a bound on what comes out. No I/O; runs anywhere.

aiokafka's decoders grow their output for as long as the input asks: 9,600 bytes of zstd become
300 MB. Here the caller says how much it will hold, and more than that is a corrupt batch.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode

from heliograph.errors import CorruptBatch

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024

_GZIP_WINDOW_BITS: Final = 31  # a gzip wrapper around the largest window
_GZIP_LEVEL: Final = 6  # what Java's GZIPOutputStream, and so every Java producer, uses
# lz4-java's "level 9" is its fast compressor, so this, not 9, matches what Java producers send.
_LZ4_LEVEL: Final = 1
_GROWTH: Final = 8
_FIRST_GUESS_BYTES_MIN: Final = 4096
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_BLOCK: Final = struct.Struct(">i")
# A copy of 64 bytes takes three, so no honest block exceeds 22 times its size.
_SNAPPY_RATIO_MAX: Final = 64


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, packed: memoryview, *, offset: int, bytes_max: int) -> memoryview:
    """What `packed` holds, never more than `bytes_max`; `CorruptBatch` names `offset`."""
    try:
        match codec:
            case Codec.NONE:
                return packed
            case Codec.GZIP:
                return _gunzip(packed, offset, bytes_max)
            case Codec.SNAPPY:
                return _unsnap(packed, offset, bytes_max)
            case Codec.LZ4:
                return _grow(cramjam.lz4.decompress_into, packed, offset, bytes_max)
            case Codec.ZSTD:
                return _grow(cramjam.zstd.decompress_into, packed, offset, bytes_max)
    except (zlib.error, cramjam.DecompressionError) as exc:
        raise CorruptBatch(offset, f"{Codec(codec).name.lower()}: {exc}") from exc
    raise CorruptBatch(offset, f"codec {codec} is unknown")


def compress(codec: int, plain: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    match codec:
        case Codec.GZIP:
            return gzip.compress(plain, _GZIP_LEVEL, mtime=0)
        case Codec.SNAPPY:
            return bytes(snappy_encode(plain))
        case Codec.LZ4:
            return bytes(lz4_encode(bytes(plain), level=_LZ4_LEVEL))
        case Codec.ZSTD:
            return bytes(zstd_encode(plain))
        case _:
            return plain


def _gunzip(packed: memoryview, offset: int, bytes_max: int) -> memoryview:
    plain = bytearray()
    rest: memoryview | bytes = packed
    while rest:  # members may follow one another; Java reads them as one
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        plain += member.decompress(rest, bytes_max + 1 - len(plain))
        if len(plain) > bytes_max:
            raise _too_large(offset, bytes_max)
        if not member.eof:
            raise CorruptBatch(offset, "gzip: cut short")
        rest = member.unused_data
    return memoryview(plain)


def _unsnap(packed: memoryview, offset: int, bytes_max: int) -> memoryview:
    if bytes(packed[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return memoryview(_unsnap_block(packed, offset, bytes_max))
    plain = bytearray()
    at = _XERIAL_HEADER_BYTES
    while at < len(packed):
        if len(packed) - at < _XERIAL_BLOCK.size:
            raise CorruptBatch(offset, "snappy: block length is cut short")
        (block_bytes,) = _XERIAL_BLOCK.unpack_from(packed, at)
        at += _XERIAL_BLOCK.size
        if not 0 < block_bytes <= len(packed) - at:
            raise CorruptBatch(
                offset, f"snappy: block of {block_bytes} in {len(packed) - at} bytes"
            )
        block = packed[at : at + block_bytes]
        plain += _unsnap_block(block, offset, bytes_max - len(plain))
        at += block_bytes
    return memoryview(plain)


def _unsnap_block(block: memoryview, offset: int, bytes_max: int) -> bytearray:
    plain_bytes = cramjam.snappy.decompress_raw_len(block)
    if plain_bytes > bytes_max:
        raise _too_large(offset, bytes_max)
    if plain_bytes > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptBatch(offset, f"snappy: {plain_bytes} bytes in a block of {len(block)}")
    plain = bytearray(plain_bytes)
    cramjam.snappy.decompress_raw_into(block, plain)
    return plain


def _grow(
    decompress_into: Callable[[memoryview, bytearray], int],
    packed: memoryview,
    offset: int,
    bytes_max: int,
) -> memoryview:
    """Try with ever larger buffers: these frames need not say how large their content is.

    A full buffer and bad input raise the same error, so both try again; the sizes grow so fast that
    all failed attempts together cost a fraction of the last.
    """
    room_bytes = max(_FIRST_GUESS_BYTES_MIN, len(packed) * _GROWTH)
    while True:
        room_bytes = min(room_bytes, bytes_max)
        plain = bytearray(room_bytes)  # zero pages: what is not written is not allocated
        try:
            return memoryview(plain)[: decompress_into(packed, plain)]
        except cramjam.DecompressionError:
            if room_bytes == bytes_max:
                raise
            room_bytes *= _GROWTH


def _too_large(offset: int, bytes_max: int) -> CorruptBatch:
    return CorruptBatch(offset, f"decompresses to more than {bytes_max} bytes")
