"""Bytes of real brokers through heliograph.wire, against what librdkafka read from the same log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.wire.batch import BatchHeader, parse_header, restamp, verify_crc
from heliograph.wire.compression import Codec
from heliograph.wire.legacy import legacy_extent, reencode_legacy
from heliograph.wire.records import ReencodedBatch, coalesce_records, reencode_records

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.bin"))
V2_NAMES = [name for name in NAMES if name.startswith("v2")]
MAGIC_AT = 16


def fetched(name: str) -> memoryview:
    return memoryview(bytearray((FOLDER / f"{name}.bin").read_bytes()))


def expected(name: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return records


def batches_of(window: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    at = 0
    while at < len(window):
        header = parse_header(window[at:])
        assert header is not None
        yield header, window[at : at + header.size_bytes]
        at += header.size_bytes


def reencoded(window: memoryview, from_offset: int = 0) -> Iterator[ReencodedBatch]:
    """The whole of a fetch, as the shuttle would take it where nothing may travel unopened."""
    at = 0
    while at < len(window):
        rest = window[at:]
        if rest[MAGIC_AT] < 2:
            extent = legacy_extent(rest)
            result = reencode_legacy(rest[: extent.size_bytes], from_offset=from_offset)
            at += extent.size_bytes
        else:
            header = parse_header(rest)
            assert header is not None
            batch = rest[: header.size_bytes]
            verify_crc(batch, header)
            result = reencode_records(batch, from_offset=from_offset)
            at += header.size_bytes
        if result is not None:
            yield result


def as_read(result: ReencodedBatch) -> list[dict[str, Any]]:
    """The records of a new batch in the form of the .json files, with their source offsets."""
    offsets = [
        stretch.source_offset + index
        for stretch in result.stretches
        for index in range(stretch.record_count)
    ]
    return [
        {
            "offset": offset,
            "timestamp_ms": record.timestamp,
            "key": None if record.key is None else record.key.hex(),
            "value": None if record.value is None else record.value.hex(),
            "headers": [
                [name, None if value is None else value.hex()] for name, value in record.headers
            ],
        }
        for offset, record in zip(offsets, DefaultRecordBatch(bytes(result.batch)), strict=True)
    ]


def test_every_file_has_its_origin_written_down() -> None:
    told = (FOLDER / "README.md").read_text()

    assert NAMES
    assert [name for name in NAMES if f"`{name}`" not in told] == []
    assert [name for name in NAMES if not (FOLDER / f"{name}.json").exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_reencoding_gives_the_records_librdkafka_read(name: str) -> None:
    results = list(reencoded(fetched(name)))

    assert [record for result in results for record in as_read(result)] == expected(name)
    for result in results:
        header = parse_header(memoryview(result.batch))
        assert header is not None
        verify_crc(memoryview(result.batch), header)
        assert header.is_dense


@pytest.mark.parametrize("name", NAMES)
def test_reencoding_can_start_at_any_offset(name: str) -> None:
    wanted = expected(name)

    for from_offset in range(wanted[-1]["offset"] + 2):
        results = reencoded(fetched(name), from_offset)

        assert [record["offset"] for result in results for record in as_read(result)] == [
            record["offset"] for record in wanted if record["offset"] >= from_offset
        ]


@pytest.mark.parametrize("name", V2_NAMES)
def test_all_batches_of_a_fetch_coalesce_into_one(name: str) -> None:
    result = coalesce_records([batch for _, batch in batches_of(fetched(name))])

    assert result is not None
    assert as_read(result) == expected(name)


@pytest.mark.parametrize("name", V2_NAMES)
def test_restamping_leaves_the_records_alone(name: str) -> None:
    for before, batch in batches_of(fetched(name)):
        records = bytes(batch[61:])

        restamp(batch, producer_id=12, producer_epoch=3, sequence=45)

        header = parse_header(batch)
        assert header is not None
        verify_crc(batch, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 45)
        assert (header.base_offset, header.compression) == (0, before.compression)
        assert bytes(batch[61:]) == records


@pytest.mark.parametrize("name", NAMES)
def test_a_fetch_cut_anywhere_never_shows_part_of_a_batch(name: str) -> None:
    window = fetched(name)
    first_bytes = 12 + int.from_bytes(window[8:12], "big")

    for end in range(first_bytes):
        if window[MAGIC_AT] < 2:
            assert legacy_extent(window[:end]).size_bytes == 0
        else:
            assert parse_header(window[:end]) is None


@pytest.mark.parametrize("codec", list(Codec))
def test_each_codec_is_among_the_files(codec: Codec) -> None:
    names = [name for name in NAMES if name.startswith(f"v2-{codec.name.lower()}")]

    assert names
    for name in names:
        assert {header.compression for header, _ in batches_of(fetched(name))} == {codec}


@pytest.mark.parametrize("name", ["v2-compacted-none", "v2-compacted-lz4"])
def test_compaction_left_a_batch_with_holes_an_empty_one_and_a_delete_horizon(name: str) -> None:
    headers = [header for header, _ in batches_of(fetched(name))]

    assert any(not header.is_dense and header.record_count for header in headers)
    assert any(header.record_count == 0 for header in headers)
    assert any(header.attributes & 0x40 for header in headers)


def test_transactions_left_control_batches_that_reencode_to_nothing() -> None:
    batches = list(batches_of(fetched("v2-transactions")))

    control = [batch for header, batch in batches if header.is_control]

    assert len(control) == 2
    assert [reencode_records(batch) for batch in control] == [None, None]
    assert sum(header.is_transactional for header, _ in batches) == 4


@pytest.mark.parametrize("name", ["v2-append-time", "v2-append-time-lz4"])
def test_append_time_is_a_bit_of_the_header_and_not_of_the_copy(name: str) -> None:
    assert all(header.is_log_append_time for header, _ in batches_of(fetched(name)))

    for result in reencoded(fetched(name)):
        header = parse_header(memoryview(result.batch))
        assert header is not None
        assert not header.is_log_append_time


def test_javas_magic_0_lz4_frame_does_have_the_wrong_checksum() -> None:
    window = fetched("v0-lz4")
    frame = bytes(window[bytes(window).index(b"\x04\x22\x4d\x18") :])

    with pytest.raises(cramjam.DecompressionError, match=r"[Cc]hecksum"):
        cramjam.lz4.decompress(frame)


def test_an_upgraded_log_holds_all_three_magics() -> None:
    window = fetched("mixed-magics")
    magics = []
    at = 0

    while at < len(window):
        magics.append(window[at + MAGIC_AT])
        at += 12 + int.from_bytes(window[at + 8 : at + 12], "big")

    assert sorted(set(magics)) == [0, 1, 2]
    assert magics == sorted(magics)
