"""heliograph.wire.legacy: old message sets as v2 batches, mixed magics, and what is refused."""

from __future__ import annotations

import struct
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import parse_header, verify_crc
from heliograph.wire.compression import Codec, compress
from heliograph.wire.legacy import legacy_extent, reencode_legacy
from heliograph.wire.records import ReencodedBatch, Stretch
from tests.kit.batches import NOW_MS, Record, batch_of, records_of


def message(
    offset: int,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = NOW_MS,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp_ms) if magic else b""
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    offset: int,
    *inner: bytes,
    magic: int = 1,
    codec: Codec = Codec.GZIP,
    attributes: int = 0,
    timestamp_ms: int = NOW_MS,
) -> bytes:
    return message(
        offset,
        magic=magic,
        attributes=codec | attributes,
        timestamp_ms=timestamp_ms,
        key=None,
        value=bytes(compress(codec, b"".join(inner))),
    )


def reencoded(message_set: bytes, from_offset: int = 0) -> ReencodedBatch:
    result = reencode_legacy(memoryview(message_set), from_offset=from_offset)
    assert result is not None
    header = parse_header(memoryview(result.batch))
    assert header is not None
    verify_crc(memoryview(result.batch), header)
    assert header.is_dense
    return result


def test_magic_1_messages_keep_their_timestamps() -> None:
    message_set = message(7) + message(8, timestamp_ms=NOW_MS - 5, key=None, value=None)

    result = reencoded(message_set)

    assert records_of(result.batch) == [
        Record(offset=0),
        Record(offset=1, timestamp_ms=NOW_MS - 5, key=None, value=None),
    ]
    assert result.stretches == (Stretch(first_record=0, source_offset=7, record_count=2),)


def test_magic_0_messages_have_no_timestamp() -> None:
    message_set = message(0, magic=0) + message(1, magic=0, key=b"", value=b"")

    result = reencoded(message_set)

    assert records_of(result.batch) == [
        Record(offset=0, timestamp_ms=-1),
        Record(offset=1, timestamp_ms=-1, key=b"", value=b""),
    ]
    assert result.max_timestamp_ms == -1


def test_messages_of_both_magics_share_a_batch() -> None:
    message_set = message(3, magic=0) + message(4, magic=1) + message(9, magic=0)

    result = reencoded(message_set)

    assert [each.timestamp_ms for each in records_of(result.batch)] == [-1, NOW_MS, -1]
    assert [(each.source_offset, each.record_count) for each in result.stretches] == [
        (3, 2),
        (9, 1),
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_magic_1_wrapper_counts_back_from_its_own_offset(codec: Codec) -> None:
    message_set = wrapper(105, message(0), message(1), message(5, value=b"last"), codec=codec)

    result = reencoded(message_set)

    assert [(each.source_offset, each.record_count) for each in result.stretches] == [
        (100, 2),
        (105, 1),
    ]
    assert [each.value for each in records_of(result.batch)] == [b"value", b"value", b"last"]
    assert result.batch[22] == codec


def test_a_magic_0_wrapper_holds_absolute_offsets() -> None:
    inner = [message(offset, magic=0) for offset in (40, 41, 44)]

    result = reencoded(wrapper(44, *inner, magic=0))

    assert [(each.source_offset, each.record_count) for each in result.stretches] == [
        (40, 2),
        (44, 1),
    ]


def test_a_wrapper_with_append_time_gives_it_to_all_it_holds() -> None:
    inner = [message(0, timestamp_ms=1), message(1, timestamp_ms=2)]

    result = reencoded(wrapper(1, *inner, attributes=8, timestamp_ms=NOW_MS))

    assert [each.timestamp_ms for each in records_of(result.batch)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
)
def test_what_aiokafka_writes_is_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(3):
        builder.append(offset, NOW_MS, b"key", b"value" * 30)

    message_set = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", message_set, 0, 2)  # a wrapper gets its offset from the broker

    result = reencoded(bytes(message_set))

    assert [each.value for each in records_of(result.batch)] == [b"value" * 30] * 3


def test_messages_before_the_wanted_offset_are_left_out() -> None:
    message_set = message(3) + wrapper(7, message(0), message(1), message(2), message(3))

    result = reencoded(message_set, from_offset=6)

    assert result.stretches == (Stretch(first_record=0, source_offset=6, record_count=2),)
    assert reencode_legacy(memoryview(message_set), from_offset=8) is None


def test_nothing_is_none() -> None:
    assert reencode_legacy(memoryview(b"")) is None


def test_an_extent_ends_at_the_first_v2_batch() -> None:
    old = message(3, magic=0) + message(4)
    window = memoryview(old + bytes(batch_of(Record(offset=5), base_offset=5)) + message(6))

    extent = legacy_extent(window)

    assert (extent.size_bytes, extent.next_offset) == (len(old), 5)
    assert legacy_extent(window[len(old) :]).size_bytes == 0


def test_an_extent_ends_before_a_message_that_is_cut_short() -> None:
    window = memoryview(message(3) + message(4))

    for cut_bytes in range(1, len(message(4))):
        extent = legacy_extent(window[:-cut_bytes])

        assert (extent.size_bytes, extent.next_offset) == (len(message(3)), 4)


def test_an_extent_takes_one_message_however_large_and_then_minds_the_bound() -> None:
    window = memoryview(message(0) * 3)

    sizes = [legacy_extent(window, bytes_max=n).size_bytes for n in (1, 100, len(window))]

    one = len(message(0))
    assert sizes == [one, 100 // one * one, len(window)]


def test_a_magic_0_lz4_frame_with_javas_wrong_checksum_is_read() -> None:
    good = wrapper(0, message(0, magic=0), magic=0, codec=Codec.LZ4)
    frame = bytearray(compress(Codec.LZ4, message(0, magic=0)))
    frame[6] ^= 0xFF
    wrong = message(0, magic=0, attributes=Codec.LZ4, key=None, value=bytes(frame))

    assert reencoded(wrong).batch == reencoded(good).batch


@pytest.mark.parametrize(
    "message_set",
    [
        pytest.param(message(0)[:-1], id="cut short"),
        pytest.param(message(0) + b"\0" * 5, id="half a header"),
        pytest.param(message(-1), id="negative offset"),
        pytest.param(message(5) + message(5), id="repeated offset"),
        pytest.param(message(0)[:-1] + b"?", id="wrong checksum"),
        pytest.param(message(0, magic=3), id="unknown magic"),
        pytest.param(message(0, attributes=5, value=b"?"), id="unknown codec"),
        pytest.param(message(0, attributes=1, value=None), id="wrapper of null"),
        pytest.param(message(0, attributes=1, value=b"?"), id="wrapper of noise"),
        pytest.param(wrapper(0), id="wrapper of nothing"),
        pytest.param(wrapper(0, wrapper(0, message(0))), id="wrapper of a wrapper"),
        pytest.param(wrapper(0, message(0, magic=0)), id="wrapper of another magic"),
        pytest.param(wrapper(0, message(0)[:-1]), id="wrapper of a cut message"),
        pytest.param(wrapper(2, message(3)), id="wrapper that starts before 0"),
        pytest.param(wrapper(9, message(8, magic=0), magic=0), id="wrapper with another last"),
        pytest.param(
            wrapper(9, bytes(batch_of(Record(offset=0))), magic=0), id="wrapper of a v2 batch"
        ),
        pytest.param(wrapper(0, message(0, value=bytes(2_000_000))), id="bomb"),
    ],
)
def test_bytes_that_contradict_themselves_are_corrupt(message_set: bytes) -> None:
    with pytest.raises(CorruptBatch):
        reencode_legacy(memoryview(message_set), decompressed_bytes_max=1_000_000)


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("length", [-2, 1 << 30, 6])
def test_a_key_or_value_longer_than_its_message_is_corrupt(field: str, length: int) -> None:
    body = bytearray(message(0)[16:])
    struct.pack_into(">i", body, 10 if field == "key" else 17, length)
    forged = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body

    with pytest.raises(CorruptBatch):
        reencode_legacy(memoryview(forged))


def test_a_size_less_than_a_message_is_corrupt_for_the_extent_too() -> None:
    forged = bytearray(message(0))
    struct.pack_into(">i", forged, 8, 3)

    with pytest.raises(CorruptBatch):
        legacy_extent(memoryview(forged))
