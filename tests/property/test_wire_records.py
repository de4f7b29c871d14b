"""Whatever the wire allows survives re-encoding; whatever it forbids is `CorruptBatch`, soon."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import parse_header, restamp, verify_crc
from heliograph.wire.compression import Codec
from heliograph.wire.legacy import legacy_extent, reencode_legacy
from heliograph.wire.records import (
    ReencodedBatch,
    coalesce_records,
    coalesce_window,
    reencode_records,
)
from tests.kit.batches import Record, batch_of, records_of

GOLDEN = [
    path.read_bytes() for path in sorted((Path(__file__).parent.parent / "golden").glob("*.bin"))
]
BYTES_MAX = 1 << 22

timestamps_ms = st.one_of(st.just(-1), st.integers(-1, 1 << 62))
fields = st.one_of(st.none(), st.binary(max_size=300))
headers = st.lists(st.tuples(st.binary(max_size=6), fields), max_size=4).map(tuple)
codecs = st.sampled_from(list(Codec))
gaps = st.one_of(st.just(0), st.just(0), st.integers(0, 100_000))


@st.composite
def batches(
    draw: st.DrawFn, codec: Codec | None = None, base_offset: int | None = None
) -> memoryview:
    base = draw(st.integers(0, 1 << 61)) if base_offset is None else base_offset
    offset = base
    records = []
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(gaps)
        records.append(
            Record(
                offset=offset,
                timestamp_ms=draw(timestamps_ms),
                key=draw(fields),
                value=draw(fields),
                headers=draw(headers),
            )
        )
        offset += 1
    compression = draw(codecs) if codec is None else codec
    # Transactional, LogAppendTime and delete horizon, in any mixture.
    flags = draw(st.sampled_from([0, 0, 0x08, 0x10, 0x40, 0x58]))
    return batch_of(
        *records,
        base_offset=base,
        last_offset_delta=max(offset - base - 1, 0) + draw(gaps),
        attributes=compression | flags,
        base_timestamp_ms=draw(timestamps_ms),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[memoryview]:
    """Batches that follow one another, with gaps between some."""
    codec = draw(codecs)
    next_offset = draw(st.integers(0, 1 << 60))
    log = []
    for _ in range(draw(st.integers(1, 5))):
        batch = draw(batches(codec=codec, base_offset=next_offset + draw(gaps)))
        header = parse_header(batch)
        assert header is not None
        next_offset = header.next_offset
        log.append(batch)
    return log


def with_source_offsets(result: ReencodedBatch | None) -> list[Record]:
    if result is None:
        return []
    header = parse_header(memoryview(result.batch))
    assert header is not None
    verify_crc(memoryview(result.batch), header)
    assert header.is_dense
    assert header.attributes & ~7 == 0
    records = records_of(result.batch)
    assert header.record_count == result.record_count == len(records)
    assert max(record.timestamp_ms for record in records) == result.max_timestamp_ms
    assert header.max_timestamp_ms == result.max_timestamp_ms
    offsets = [
        stretch.source_offset + index
        for stretch in result.stretches
        for index in range(stretch.record_count)
    ]
    return [replace(record, offset=offset) for offset, record in zip(offsets, records, strict=True)]


@given(batches(), st.data())
def test_reencoding_keeps_every_record_to_the_byte_and_millisecond(
    batch: memoryview, data: st.DataObject
) -> None:
    records = records_of(batch)
    offsets = [
        0,
        *(record.offset for record in records),
        *(record.offset + 1 for record in records),
    ]
    from_offset = data.draw(st.sampled_from(offsets))

    result = reencode_records(batch, from_offset=from_offset)

    assert with_source_offsets(result) == [each for each in records if each.offset >= from_offset]
    assert result is None or result.batch[22] == batch[22] & 7


@given(logs())
def test_coalescing_keeps_every_record_in_order(log: list[memoryview]) -> None:
    result = coalesce_records(log)

    assert with_source_offsets(result) == [record for batch in log for record in records_of(batch)]


@given(logs())
def test_a_sweep_gives_the_same_records_as_coalescing_what_it_took(log: list[memoryview]) -> None:
    window = memoryview(b"".join(log))

    swept = coalesce_window(window, tiny_bytes_max=2_000, bytes_max=20_000, batches_min=1)

    if swept is not None:
        taken = log[: swept.batch_count]
        assert swept.size_bytes == sum(len(batch) for batch in taken)
        assert swept.batch == coalesce_records(taken)


@given(logs())
def test_stretches_are_the_fewest_there_can_be(log: list[memoryview]) -> None:
    result = coalesce_records(log)

    stretches = result.stretches if result is not None else ()
    for left, right in pairwise(stretches):
        assert left.record_count > 0
        assert right.first_record == left.first_record + left.record_count
        assert right.source_offset > left.source_offset + left.record_count


@given(
    batches(),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 15) - 1),
    st.integers(0, (1 << 31) - 1),
)
def test_restamping_changes_nothing_a_consumer_sees(
    batch: memoryview, producer_id: int, producer_epoch: int, sequence: int
) -> None:
    struct.pack_into(">h", batch, 21, batch[22] & ~8)  # LogAppendTime batches are re-encoded
    before = parse_header(batch)
    assert before is not None
    records = [record.content for record in records_of(batch)]

    restamp(batch, producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence)

    header = parse_header(batch)
    assert header is not None
    verify_crc(batch, header)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert header.base_sequence == sequence
    assert header.last_offset_delta == before.last_offset_delta
    assert [record.content for record in records_of(batch)] == records


@st.composite
def message_sets(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """Old messages, plain and wrapped, and what a consumer sees of them."""
    offset = draw(st.integers(0, 1 << 61))
    message_set, seen = b"", []
    for _ in range(draw(st.integers(0, 4))):
        magic = draw(st.sampled_from([0, 1]))
        codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
        inner = []
        for _ in range(draw(st.integers(1, 4)) if codec else 1):
            offset += draw(gaps)
            inner.append(
                Record(
                    offset=offset,
                    timestamp_ms=draw(timestamps_ms) if magic else -1,
                    key=draw(fields),
                    value=draw(fields),
                )
            )
            offset += 1
        first_offset = inner[0].offset if codec and magic else 0
        encoded = b"".join(_old_message(each, magic, each.offset - first_offset) for each in inner)
        if codec:
            value = bytes(_compressed(codec, encoded))
            outer = Record(offset=offset - 1, timestamp_ms=-1, key=None, value=value)
            encoded = _old_message(outer, magic, outer.offset, codec)
        message_set += encoded
        seen += inner
    return message_set, seen


def _compressed(codec: Codec, plain: bytes) -> memoryview:
    return batch_of(attributes=codec, payload=plain)[61:]


def _old_message(record: Record, magic: int, offset: int, codec: int = 0) -> bytes:
    body = struct.pack(">bb", magic, codec)
    body += struct.pack(">q", record.timestamp_ms) if magic else b""
    for field in (record.key, record.value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@given(message_sets(), st.data())
def test_old_messages_keep_everything_they_had(
    made: tuple[bytes, list[Record]], data: st.DataObject
) -> None:
    message_set, seen = made
    from_offset = data.draw(st.sampled_from([0, *(record.offset for record in seen)]))
    window = memoryview(message_set)

    extent = legacy_extent(window)
    result = reencode_legacy(window, from_offset=from_offset)

    assert extent.size_bytes == len(message_set)
    assert extent.next_offset == (seen[-1].offset + 1 if seen else -1)
    assert with_source_offsets(result) == [each for each in seen if each.offset >= from_offset]


# Fuzz: nothing but CorruptBatch comes out, whatever goes in.


def _open_anyhow(noise: bytes) -> None:
    window = memoryview(bytearray(noise))
    for attempt in (_header, _reencode, _coalesce, _sweep, _extent, _legacy):
        _never_raises_but_corrupt(attempt, window)


def _never_raises_but_corrupt(attempt: Callable[[memoryview], None], window: memoryview) -> None:
    try:
        attempt(window)
    except CorruptBatch as corrupt:
        assert str(corrupt)


def _header(window: memoryview) -> None:
    header = parse_header(window)
    assert header is None or 61 <= header.size_bytes <= len(window)


def _reencode(window: memoryview) -> None:
    result = reencode_records(window, decompressed_bytes_max=BYTES_MAX)
    assert len(with_source_offsets(result)) <= len(window) + BYTES_MAX


def _coalesce(window: memoryview) -> None:
    coalesce_records([window, window], from_offset=5, decompressed_bytes_max=BYTES_MAX)


def _sweep(window: memoryview) -> None:
    doubled = memoryview(bytes(window) * 2)
    swept = coalesce_window(doubled, tiny_bytes_max=1 << 20, bytes_max=1 << 20, batches_min=1)
    assert swept is None or swept.size_bytes <= len(doubled)


def _extent(window: memoryview) -> None:
    assert legacy_extent(window).size_bytes <= len(window)


def _legacy(window: memoryview) -> None:
    with_source_offsets(reencode_legacy(window, decompressed_bytes_max=BYTES_MAX))


def _sealed(noise: bytearray) -> bytearray:
    """Lengths and checksums mended, so that the noise inside is reached."""
    if len(noise) > 61 and noise[16] == 2:
        struct.pack_into(">i", noise, 8, len(noise) - 12)
        struct.pack_into(">I", noise, 17, crc32c(noise[21:]))
    elif len(noise) > 26 and noise[16] in (0, 1):
        struct.pack_into(">i", noise, 8, len(noise) - 12)
        struct.pack_into(">I", noise, 12, zlib.crc32(noise[16:]))
    return noise


@given(st.binary(max_size=600))
def test_noise_is_corrupt_or_cut_short(noise: bytes) -> None:
    _open_anyhow(noise)


@given(st.binary(max_size=400), st.sampled_from([0, 1, 2]), st.integers(0, 15), st.integers(1, 9))
def test_noise_in_a_good_frame_is_corrupt_or_harmless(
    noise: bytes, magic: int, attributes: int, count: int
) -> None:
    framed = bytearray(max(0, 27 - len(noise))) + noise
    framed[16] = magic
    if magic == 2:
        framed = bytearray(batch_of(attributes=0, record_count=count, payload=noise))
        struct.pack_into(">hi", framed, 21, attributes, count)
    else:
        framed[17] = attributes

    _open_anyhow(bytes(_sealed(framed)))


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(GOLDEN), st.integers(0, 1 << 32), st.integers(1, 12))
def test_mutated_bytes_of_real_brokers_are_corrupt_or_harmless(
    golden: bytes, seed: int, changes: int
) -> None:
    chance = random.Random(seed)
    first_bytes = 12 + int.from_bytes(golden[8:12], "big")
    mutated = bytearray(golden[:first_bytes])
    for _ in range(changes):
        at = chance.randrange(len(mutated))
        match chance.randrange(4):
            case 0:
                mutated[at] ^= 1 << chance.randrange(8)
            case 1:
                mutated[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2 if len(mutated) > 70:
                del mutated[at : at + chance.randrange(1, 9)]
            case _:
                mutated[at:at] = chance.randbytes(chance.randrange(1, 9))

    _open_anyhow(bytes(mutated))
    _open_anyhow(bytes(_sealed(mutated)))
