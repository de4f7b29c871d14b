"""Records that were looked into, back into dense v2 batches. No I/O; runs anywhere.

The way back from `opened`: work per record, with the compiled codec wherever it can hold them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.wire.dense import NO_TIMESTAMP_MS, DenseBatch, ReencodedBatch, varint
from heliograph.wire.opened import Content
from heliograph.wire.records import sealed

_MAGIC: Final = 2


def encode_records(
    offsets: Sequence[int], contents: Sequence[Content], codec: int, *, bytes_max: int
) -> Iterator[ReencodedBatch]:
    """Dense batches with these records, in order, compressed by `codec`.

    A batch ends before `bytes_max` of plain records, unless a single one is larger. Offsets are
    those of the source and ascend; a hole begins a stretch.
    """
    start = 0
    while start < len(contents):
        try:
            batch = _compiled(offsets, contents, start, codec, bytes_max)
        except (UnicodeEncodeError, _CodecLimitError):
            batch = _spelled_out(offsets, contents, start, codec, bytes_max)
        yield batch
        start += batch.record_count


class _CodecLimitError(Exception):
    """To the compiled builder a first timestamp of -1 means "not set yet"."""


def _compiled(
    offsets: Sequence[int], contents: Sequence[Content], start: int, codec: int, bytes_max: int
) -> ReencodedBatch:
    if contents[start][0] == NO_TIMESTAMP_MS:
        raise _CodecLimitError
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, False, -1, -1, -1, bytes_max)
    append = builder.append
    starts: list[tuple[int, int]] = []
    expected = -1
    for count, index in enumerate(range(start, len(contents))):
        timestamp_ms, key, value, headers = contents[index]
        if not append(count, timestamp_ms, key, value, list(headers) if headers else []):
            break
        offset = offsets[index]
        if offset != expected:
            starts.append((count, offset))
        expected = offset + 1
    return sealed(builder.build(), starts, codec)


def _spelled_out(
    offsets: Sequence[int], contents: Sequence[Content], start: int, codec: int, bytes_max: int
) -> ReencodedBatch:
    dense, size_bytes = DenseBatch(), 0
    for index in range(start, len(contents)):
        body = _body(contents[index])
        size_bytes += len(body)
        if size_bytes > bytes_max and index > start:
            break
        dense.add(source_offset=offsets[index], timestamp_ms=contents[index][0], body=body)
    batch = dense.seal(codec)
    assert batch is not None  # the first record is always in it
    return batch


def _body(content: Content) -> bytes:
    _, key, value, headers = content
    parts = [_nullable(key), _nullable(value), varint(len(headers))]
    for name, text in headers:
        # As `opened` keeps the bytes of a name that is not UTF-8.
        parts += (_nullable(name.encode("utf-8", "surrogateescape")), _nullable(text))
    return b"".join(parts)


def _nullable(field: bytes | None) -> bytes:
    return varint(-1) if field is None else varint(len(field)) + field
