"""heliograph.wire.records: what goes in comes out, dense, or `CorruptBatch` does."""

from __future__ import annotations

import struct
from dataclasses import replace

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import parse_header, restamp, verify_crc
from heliograph.wire.compression import Codec
from heliograph.wire.dense import varint
from heliograph.wire.records import (
    ReencodedBatch,
    Stretch,
    coalesce_records,
    coalesce_window,
    reencode_records,
)
from tests.kit.batches import NOW_MS, Record, batch_of, records_of


def reencoded(batch: memoryview, from_offset: int = 0) -> ReencodedBatch:
    result = reencode_records(batch, from_offset=from_offset)
    assert result is not None
    return result


def renumbered(*records: Record) -> list[Record]:
    return [replace(record, offset=index) for index, record in enumerate(records)]


def test_the_codec_in_use_is_the_compiled_one() -> None:
    compiled = "aiokafka.record._crecords.default_records"

    assert DefaultRecordBatch.__module__ == compiled
    assert DefaultRecordBatchBuilder.__module__ == compiled


def test_a_batch_with_holes_becomes_dense_and_says_where_each_record_came_from() -> None:
    holed = [Record(offset=offset, value=b"%d" % offset) for offset in (102, 103, 107, 110)]
    batch = batch_of(*holed, base_offset=100, last_offset_delta=15)

    result = reencoded(batch)

    assert records_of(result.batch) == renumbered(*holed)
    assert result.record_count == 4
    assert result.stretches == (
        Stretch(first_record=0, source_offset=102, record_count=2),
        Stretch(first_record=2, source_offset=107, record_count=1),
        Stretch(first_record=3, source_offset=110, record_count=1),
    )
    assert result.source_next_offset == 111


def test_the_new_batch_is_sealed_dense_and_has_no_producer() -> None:
    result = reencoded(batch_of(Record(offset=5), base_offset=5, attributes=0x10))

    header = parse_header(memoryview(result.batch))

    assert header is not None
    verify_crc(memoryview(result.batch), header)
    assert header.is_dense
    assert (header.base_offset, header.size_bytes) == (0, len(result.batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.attributes == 0
    assert header.max_timestamp_ms == result.max_timestamp_ms == NOW_MS


def test_the_new_batch_can_be_restamped_in_place() -> None:
    result = reencoded(batch_of(Record(offset=5), base_offset=5))

    restamp(memoryview(result.batch), producer_id=9, producer_epoch=0, sequence=77)

    header = parse_header(memoryview(result.batch))
    assert header is not None
    verify_crc(memoryview(result.batch), header)
    assert (header.producer_id, header.base_sequence) == (9, 77)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_codec_stays_what_it_was(codec: Codec) -> None:
    records = [Record(offset=offset, value=b"x" * 500) for offset in (0, 2, 4)]

    result = reencoded(batch_of(*records, attributes=codec))

    header = parse_header(memoryview(result.batch))
    assert header is not None
    assert header.compression == codec
    assert records_of(result.batch) == renumbered(*records)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_of_a_log_append_time_batch_get_its_append_time(codec: Codec) -> None:
    records = [Record(offset=0, timestamp_ms=5), Record(offset=1, timestamp_ms=-1)]
    batch = batch_of(*records, attributes=8 | codec, max_timestamp_ms=NOW_MS + 1)

    result = reencoded(batch)

    assert [each.timestamp_ms for each in records_of(result.batch)] == [NOW_MS + 1] * 2
    assert result.max_timestamp_ms == NOW_MS + 1
    assert result.batch[22] == codec


def test_a_delete_horizon_in_place_of_the_base_timestamp_moves_no_record() -> None:
    records = [Record(offset=0, value=None), Record(offset=2)]
    batch = batch_of(*records, attributes=0x40, base_timestamp_ms=NOW_MS + 86_400_000)

    result = reencoded(batch)

    assert records_of(result.batch) == renumbered(*records)
    assert result.batch[22] == 0


def test_records_before_the_wanted_offset_are_left_out() -> None:
    records = [Record(offset=offset, value=b"%d" % offset) for offset in range(10, 20)]
    batch = batch_of(*records, base_offset=10)

    result = reencoded(batch, from_offset=17)

    assert records_of(result.batch) == renumbered(*records[7:])
    assert result.stretches == (Stretch(first_record=0, source_offset=17, record_count=3),)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch_of(last_offset_delta=9), id="emptied by compaction"),
        pytest.param(batch_of(last_offset_delta=9, attributes=Codec.ZSTD), id="emptied, zstd"),
        pytest.param(batch_of(Record(offset=0), attributes=0x30), id="control"),
        pytest.param(batch_of(Record(offset=0), Record(offset=1)), id="all before the offset"),
    ],
)
def test_nothing_to_write_is_none(batch: memoryview) -> None:
    assert reencode_records(batch, from_offset=2) is None


def test_no_batches_coalesce_to_none() -> None:
    assert coalesce_records([]) is None


ODD = (
    Record(offset=0, key=None, value=None),
    Record(offset=1, key=b"", value=b""),
    Record(offset=2, headers=((b"h", b"1"), (b"h", b"1"), (b"h", None), (b"", b""))),
    Record(offset=3, timestamp_ms=NOW_MS - 10**9),
    Record(offset=4, timestamp_ms=-1),
    Record(offset=5, timestamp_ms=1 << 62, value=b"v" * 100_000),
    Record(offset=6, timestamp_ms=0),
)


@pytest.mark.parametrize("codec", list(Codec))
def test_coalescing_keeps_every_record_as_it_was(codec: Codec) -> None:
    batches = [
        batch_of(
            each, base_offset=each.offset, base_timestamp_ms=each.timestamp_ms, attributes=codec
        )
        for each in ODD
    ]

    result = coalesce_records(batches)

    assert result is not None
    assert records_of(result.batch) == list(ODD)
    assert result.max_timestamp_ms == 1 << 62
    assert result.stretches == (Stretch(first_record=0, source_offset=0, record_count=len(ODD)),)


def test_coalescing_skips_batches_without_records_and_starts_a_stretch_after_them() -> None:
    batches = [
        batch_of(Record(offset=0)),
        batch_of(base_offset=1, last_offset_delta=4),
        batch_of(Record(offset=6), base_offset=6),
        batch_of(Record(offset=7), base_offset=7),
    ]

    result = coalesce_records(batches)

    assert result is not None
    assert [(each.source_offset, each.record_count) for each in result.stretches] == [
        (0, 1),
        (6, 2),
    ]


def test_a_first_record_without_a_timestamp_does_not_get_that_of_the_second() -> None:
    records = [Record(offset=0, timestamp_ms=-1), Record(offset=1), Record(offset=2)]

    result = reencoded(batch_of(*records, base_timestamp_ms=-1))

    assert records_of(result.batch) == records


def test_a_header_key_that_is_not_utf8_is_kept() -> None:
    key = b"\xff\xfe-latin-\xe9"
    batch = batch_of(Record(offset=3, headers=((key, b"1"),)), base_offset=3)

    result = reencoded(batch)

    assert [each.headers for each in records_of(result.batch)] == [((key, b"1"),)]


def test_timestamps_further_apart_than_64_bits_are_kept() -> None:
    batches = [
        batch_of(Record(offset=0), base_timestamp_ms=NOW_MS),
        batch_of(
            Record(offset=1, timestamp_ms=-(1 << 63)), base_offset=1, base_timestamp_ms=-(1 << 63)
        ),
    ]

    result = coalesce_records(batches)

    assert result is not None
    assert [each.timestamp_ms for each in records_of(result.batch)] == [NOW_MS, -(1 << 63)]


def _bomb(codec: Codec, plain_bytes: int) -> memoryview:
    return batch_of(attributes=codec, record_count=1, payload=bytes(plain_bytes))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_corrupt_at_the_bound(codec: Codec) -> None:
    bomb = _bomb(codec, 3_000_000)

    with pytest.raises(CorruptBatch):
        reencode_records(bomb, decompressed_bytes_max=1_000_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_the_bound_on_decompressed_bytes_is_for_all_batches_together(codec: Codec) -> None:
    value = b"v" * 1_000
    batches = [
        batch_of(Record(offset=offset, value=value), base_offset=offset, attributes=codec)
        for offset in range(3)
    ]

    with pytest.raises(CorruptBatch):
        coalesce_records(batches, decompressed_bytes_max=2_500)


def test_a_snappy_block_that_claims_more_than_its_bytes_could_hold_is_corrupt() -> None:
    block = b"\xff\xff\xff\x7f" + bytes(10)
    xerial = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    for payload in (block, xerial):
        batch = batch_of(attributes=0, record_count=1, payload=payload)
        struct.pack_into(">h", batch, 21, Codec.SNAPPY)

        with pytest.raises(CorruptBatch, match="snappy"):
            reencode_records(batch)


def test_a_snappy_batch_without_the_java_framing_is_read() -> None:
    record = Record(offset=0)
    raw = bytes(cramjam.snappy.compress_raw(record.on_the_wire(0, NOW_MS)))
    batch = batch_of(record, payload=raw)
    struct.pack_into(">h", batch, 21, Codec.SNAPPY)

    result = reencoded(batch)

    assert records_of(result.batch) == [record]


GOOD = Record(offset=0).on_the_wire(0, NOW_MS)
HUGE_KEY = b"\0" + varint(0) + varint(0) + varint((1 << 63) - 100) + b"k"


@pytest.mark.parametrize("splices", [False, True], ids=["compiled", "spliced"])
@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch_of(record_count=1, payload=b""), id="no bytes for its record"),
        pytest.param(batch_of(record_count=1, payload=GOOD[:-3]), id="record cut short"),
        pytest.param(batch_of(record_count=1, payload=GOOD + b"?"), id="bytes after the last"),
        pytest.param(batch_of(record_count=1, payload=b"\xff" * 12), id="endless varint"),
        pytest.param(batch_of(record_count=1, payload=varint(-5) + GOOD[1:]), id="negative length"),
        pytest.param(
            batch_of(record_count=1, payload=varint(len(HUGE_KEY)) + HUGE_KEY), id="huge key"
        ),
        pytest.param(
            batch_of(record_count=1, payload=varint(8) + b"\0\0\0\1\1" + varint(1 << 20)),
            id="more headers than bytes",
        ),
        pytest.param(batch_of(record_count=1, payload=varint(8) + GOOD[1:]), id="length too small"),
        pytest.param(
            batch_of(record_count=2, payload=GOOD * 2, last_offset_delta=1), id="repeated"
        ),
        pytest.param(batch_of(Record(offset=5), last_offset_delta=4), id="past its last offset"),
        pytest.param(batch_of(Record(offset=4), base_offset=5, last_offset_delta=0), id="before"),
        pytest.param(batch_of(Record(offset=0), record_count=-1), id="negative count"),
        pytest.param(batch_of(Record(offset=0), record_count=9), id="more records than offsets"),
        pytest.param(batch_of(Record(offset=0), last_offset_delta=-1), id="negative last delta"),
        pytest.param(batch_of(Record(offset=0), base_offset=-2), id="negative offset"),
        pytest.param(batch_of(Record(offset=0))[:-1], id="length past the end"),
        pytest.param(batch_of(Record(offset=0))[:40], id="less than a header"),
        pytest.param(batch_of(attributes=5, record_count=1, payload=GOOD), id="unknown codec"),
    ],
)
def test_bytes_that_contradict_themselves_are_corrupt(batch: memoryview, splices: bool) -> None:
    # A first record without a timestamp sends all of them down the way that does not decode.
    first = batch_of(Record(offset=0, timestamp_ms=-1), base_timestamp_ms=-1)
    if len(batch) >= 61 and splices:
        batch = memoryview(bytearray(batch))
        struct.pack_into(">q", batch, 0, struct.unpack_from(">q", batch)[0] + 1)

    with pytest.raises(CorruptBatch):
        coalesce_records([first, batch] if splices else [batch])


def test_batches_out_of_order_are_corrupt() -> None:
    batches = [batch_of(Record(offset=offset), base_offset=offset) for offset in (5, 4)]

    with pytest.raises(CorruptBatch, match="comes after offset 5"):
        coalesce_records(batches)


TINY = [batch_of(Record(offset=offset), base_offset=offset) for offset in range(10, 16)]


def window_of(*batches: memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def test_a_window_of_tiny_batches_becomes_one_batch_and_says_how_far_it_went() -> None:
    window = window_of(*TINY)

    swept = coalesce_window(window, tiny_bytes_max=1_000, bytes_max=1_000_000)

    assert swept is not None
    assert swept.batch == coalesce_records(TINY)
    assert (swept.size_bytes, swept.batch_count) == (len(window), 6)
    assert (swept.next_offset, swept.leader_epoch) == (16, 7)


def _flawed(batch: memoryview, at: int) -> memoryview:
    flawed = memoryview(bytearray(batch))
    flawed[at] ^= 1
    return flawed


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(_flawed(TINY[3], 70), id="wrong checksum"),
        pytest.param(TINY[3][:-1], id="cut short"),
        pytest.param(TINY[3][:30], id="cut in its header"),
        pytest.param(batch_of(base_offset=13), id="without records"),
        pytest.param(
            batch_of(Record(offset=13), base_offset=13, attributes=0x10), id="transaction"
        ),
        pytest.param(batch_of(Record(offset=13), base_offset=13, attributes=0x30), id="control"),
        pytest.param(
            batch_of(Record(offset=13), base_offset=13, attributes=0x08), id="append time"
        ),
        pytest.param(batch_of(Record(offset=13), base_offset=13, attributes=Codec.LZ4), id="lz4"),
        pytest.param(
            batch_of(Record(offset=13, value=bytes(2_000)), base_offset=13), id="not tiny"
        ),
        pytest.param(_flawed(TINY[3], 16), id="another magic"),
        pytest.param(TINY[0], id="going back"),
    ],
)
def test_a_sweep_stops_before_what_it_would_not_take(stop: memoryview) -> None:
    window = window_of(*TINY[:3], stop)

    swept = coalesce_window(window, tiny_bytes_max=1_000, bytes_max=1_000_000)

    assert swept is not None
    assert (swept.batch_count, swept.next_offset) == (3, 13)
    assert swept.size_bytes == sum(len(batch) for batch in TINY[:3])


def test_a_sweep_of_fewer_batches_than_asked_for_is_none() -> None:
    window = window_of(*TINY)

    assert coalesce_window(window, tiny_bytes_max=1_000, bytes_max=10_000, batches_min=7) is None
    assert coalesce_window(window, tiny_bytes_max=1_000, bytes_max=200, batches_min=3) is None
    assert coalesce_window(window[:0], tiny_bytes_max=1_000, bytes_max=200) is None


def test_a_sweep_leaves_out_records_before_the_wanted_offset() -> None:
    window = window_of(*TINY)

    for from_offset in range(9, 17):
        swept = coalesce_window(
            window, from_offset=from_offset, tiny_bytes_max=1_000, bytes_max=10_000
        )

        assert swept is not None
        assert swept.batch == coalesce_records(TINY, from_offset=from_offset)
        assert swept.size_bytes == len(window)
