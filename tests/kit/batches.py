"""Record batches built and read by hand, so that tests can say what no builder would."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from crc32c import crc32c

from heliograph.wire.compression import compress
from heliograph.wire.dense import as_int64, varint

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int
    timestamp_ms: int = NOW_MS
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    @property
    def content(self) -> tuple[object, ...]:
        """All but the offset."""
        return self.timestamp_ms, self.key, self.value, self.headers

    def on_the_wire(self, base_offset: int, base_timestamp_ms: int) -> bytes:
        fields = [
            b"\0",
            varint(as_int64(self.timestamp_ms - base_timestamp_ms)),
            varint(self.offset - base_offset),
            _nullable(self.key),
            _nullable(self.value),
            varint(len(self.headers)),
            *(_nullable(name) + _nullable(value) for name, value in self.headers),
        ]
        encoded = b"".join(fields)
        return varint(len(encoded)) + encoded


def _nullable(field: bytes | None) -> bytes:
    return varint(-1) if field is None else varint(len(field)) + field


def batch_of(
    *records: Record,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    base_timestamp_ms: int = NOW_MS,
    max_timestamp_ms: int | None = None,
    record_count: int | None = None,
    payload: bytes | None = None,
) -> memoryview:
    if payload is None:
        payload = b"".join(each.on_the_wire(base_offset, base_timestamp_ms) for each in records)
    packed = bytes(compress(attributes & 7, payload))
    last_delta = records[-1].offset - base_offset if records else 0
    times = [each.timestamp_ms for each in records]
    sealed = struct.pack(
        ">hiqqqhii",
        attributes,
        last_delta if last_offset_delta is None else last_offset_delta,
        base_timestamp_ms,
        max(times, default=-1) if max_timestamp_ms is None else max_timestamp_ms,
        4711,
        3,
        99,
        len(records) if record_count is None else record_count,
    )
    sealed += packed
    head = struct.pack(">qiibI", base_offset, len(sealed) + 9, 7, 2, crc32c(sealed))
    return memoryview(bytearray(head + sealed))


def records_of(batch: bytes | bytearray | memoryview) -> list[Record]:
    """Every record, read with nothing of heliograph but its words."""
    (base_offset, attributes, base_timestamp_ms, max_timestamp_ms, count) = struct.unpack_from(
        ">q13xh4xqq14xi", batch
    )
    if not count:
        return []  # compaction leaves nothing behind such a header, not even a codec's frame
    decode = {0: bytes, 1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
    stream = io.BytesIO(decode[attributes & 7](bytes(batch[61:])))
    records = []
    for _ in range(count):
        end = _number(stream) + stream.tell()
        stream.read(1)
        timestamp_ms = base_timestamp_ms + _number(stream)
        timestamp_ms = (timestamp_ms + (1 << 63)) % (1 << 64) - (1 << 63)
        offset = base_offset + _number(stream)
        key, value = _field(stream), _field(stream)
        headers = tuple((_field(stream) or b"", _field(stream)) for _ in range(_number(stream)))
        assert stream.tell() == end
        records.append(
            Record(
                offset=offset,
                timestamp_ms=max_timestamp_ms if attributes & 8 else timestamp_ms,
                key=key,
                value=value,
                headers=headers,
            )
        )
    assert stream.read() == b""
    return records


def _field(stream: io.BytesIO) -> bytes | None:
    size_bytes = _number(stream)
    return None if size_bytes < 0 else stream.read(size_bytes)


def _number(stream: io.BytesIO) -> int:
    encoded = shift = 0
    while True:
        (byte,) = stream.read(1)
        encoded |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (encoded >> 1) ^ -(encoded & 1)
