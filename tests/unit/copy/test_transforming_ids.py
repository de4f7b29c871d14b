"""Whole batches whose schema ids are exchanged: in place where nothing else changes."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import pytest

from heliograph.config.transforms import SchemaIdsConfig
from heliograph.copy.chunk import LaneCursor, PreparedChunk, prepare_chunk
from heliograph.copy.transforming import Fates, TransformingWriter
from heliograph.errors import NotYetKnown
from heliograph.transform.lane import LaneTransform, _LaneStep
from heliograph.transform.record import Where
from heliograph.transform.schema_ids import Lookup, SchemaIds
from heliograph.wire import patching
from heliograph.wire.batch import Stamp, parse_header, verify_crc
from heliograph.wire.compression import Codec
from tests.kit.batches import Record, batch_of, records_of
from tests.unit.copy.test_chunk import cursor_at

STAMP = Stamp(producer_id=4711, producer_epoch=0)
SETTINGS = {"source": "A", "target": "B", "parts": ("key", "value")}
KNOWN = {1: 1, 2: 20, 3: 300}


def framed(schema_id: int, payload: bytes = b"x" * 40) -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def records(count: int, first: int = 0) -> list[Record]:
    """Of all sizes, some with headers, some tombstones, keys with ids and without."""
    return [
        Record(
            offset=first + n,
            timestamp_ms=1_700_000_000_000 + n * 977,
            key=None if n % 5 == 0 else framed(1 + n % 3, b"k" * (n % 200)),
            value=None if n % 11 == 0 else framed(1 + n % 3, b"v" * (n * 37 % 9000)),
            headers=((b"trace", b"1" * (n % 130)), (b"null", None)) if n % 4 == 0 else (),
        )
        for n in range(count)
    ]


def packed(codec: int, given: list[Record]) -> bytes:
    return bytes(batch_of(*given, base_offset=given[0].offset, attributes=codec))


def prepare(fetched: bytes, cursor: LaneCursor, lookup: Lookup, times: int = 1) -> PreparedChunk:
    """The first time learns the ids record by record, the later ones do it in place."""
    step = SchemaIds(SchemaIdsConfig.model_validate(SETTINGS), lookup)
    transform = LaneTransform([_LaneStep("ids", step, None)], Where("orders", "orders", 0))
    make = partial(TransformingWriter, transform=transform, fates=Fates(), ahead=None)
    for number in range(times):
        at = cursor if number == times - 1 else cursor_at(cursor.next_offset)
        chunk = prepare_chunk(memoryview(bytearray(fetched)), at, STAMP, make_writer=make)
    return chunk


def sent(chunk: PreparedChunk) -> list[Record]:
    found: list[Record] = []
    for out in chunk.batches:
        header = parse_header(out.view)
        assert header is not None
        verify_crc(out.view, header)
        found += records_of(out.view)
    return found


def exchanged(given: list[Record]) -> list[tuple[object, ...]]:
    def new(part: bytes | None) -> bytes | None:
        return part and framed(KNOWN[part[4]], part[5:])

    return [(e.timestamp_ms, new(e.key), new(e.value), e.headers) for e in given]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("times", [1, 2], ids=["record by record", "in place"])
def test_every_record_gets_its_id_and_keeps_all_else(codec: Codec, times: int) -> None:
    given = records(300)
    cursor = cursor_at(0)

    chunk = prepare(packed(codec, given), cursor, KNOWN.__getitem__, times)

    assert [each.content for each in sent(chunk)] == exchanged(given)
    assert {batch.view[22] & 7 for batch in chunk.batches} == {codec}
    assert (cursor.next_offset, cursor.position, chunk.runs) == (300, 300, [])


def test_known_ids_are_exchanged_without_making_records_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = packed(Codec.LZ4, records(300))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("records were made anew")

    prepare(given, cursor_at(0), KNOWN.__getitem__)
    step = SchemaIds(SchemaIdsConfig.model_validate(SETTINGS), KNOWN.__getitem__)
    transform = LaneTransform([_LaneStep("ids", step, None)], Where("orders", "orders", 0))
    make = partial(TransformingWriter, transform=transform, fates=Fates(), ahead=None)
    prepare_chunk(memoryview(bytearray(given)), cursor_at(0), STAMP, make_writer=make)
    monkeypatch.setattr(TransformingWriter, "_put_rows", never)

    chunk = prepare_chunk(memoryview(bytearray(given)), cursor_at(0), STAMP, make_writer=make)

    assert len(chunk.batches) == 1


def test_a_batch_in_which_no_id_changes_travels_as_it_came() -> None:
    given = packed(Codec.LZ4, [Record(offset=n, key=None, value=framed(1)) for n in range(3000)])

    chunk = prepare(given, cursor_at(0), KNOWN.__getitem__, times=2)

    assert bytes(chunk.batches[0].view[61:]) == given[61:]


def test_a_lane_waits_before_records_whose_id_is_being_asked_for() -> None:
    def asking(schema_id: int) -> int:
        if schema_id == 3:
            raise NotYetKnown("asks for 3", waited_s=0.5)
        return KNOWN[schema_id]

    first = [Record(offset=n, key=None, value=framed(2, b"v" * 8000)) for n in range(40)]
    second = [Record(offset=40 + n, key=None, value=framed(3, b"v" * 8000)) for n in range(40)]
    cursor = cursor_at(0)

    chunk = prepare(packed(0, first) + packed(0, second), cursor, asking)

    assert len(sent(chunk)) == 40
    assert chunk.waits is not None
    assert (chunk.waits.offset, chunk.waits.why, chunk.waits.waited_s) == (40, "asks for 3", 0.5)
    assert chunk.failed is None
    assert (cursor.next_offset, cursor.position) == (40, 40)


def test_three_bytes_where_an_id_should_be_fail_that_record_alone() -> None:
    given = records(300)
    given[200] = Record(offset=200, key=None, value=b"\x00\x00\x01")
    cursor = cursor_at(0)

    chunk = prepare(packed(Codec.LZ4, given), cursor, KNOWN.__getitem__, times=2)

    assert [each.content for each in sent(chunk)] == exchanged(given[:200])
    assert chunk.failed is not None
    assert chunk.failed.offset == 200
    assert "NoSchemaId: its value (3 bytes: 00 00 01)" in chunk.failed.why


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "golden").glob("v2*.bin")), ids=lambda p: p.stem
)
def test_fields_of_real_batches_are_found_where_they_are(path: Path) -> None:
    """Each value's own first byte is exchanged for itself: nothing may change."""
    at, given = 0, path.read_bytes()
    while (header := parse_header(memoryview(given)[at:])) is not None:
        batch = memoryview(bytearray(given[at : at + header.size_bytes]))
        at += header.size_bytes
        if header.is_control or header.is_log_append_time or not header.record_count:
            continue
        same = {bytes([n]): bytes([n]) for n in range(256)} | {b"": b""}
        before = records_of(batch)

        made = patching.patch_heads(
            batch, header, same, head_bytes=1, parts=("key", "value"), marks=frozenset()
        )

        if made is not None:
            restored = bytearray(made)
            assert records_of(memoryview(restored)) == before
