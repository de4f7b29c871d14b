"""What becomes of fetched bytes: unopened, coalesced, re-encoded or dropped.

Often on real brokers' bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.copy.chunk import TINY_BATCHES_MIN, LaneCursor, PreparedChunk, prepare_chunk
from heliograph.ledger.runs import Run
from heliograph.wire.batch import SEQUENCES, BatchHeader, Stamp, parse_header, verify_crc
from heliograph.wire.control import is_abort_marker
from tests.kit.batches import Record, batch_of, records_of

GOLDEN = Path(__file__).parents[2] / "golden"
STAMP = Stamp(producer_id=4711, producer_epoch=0)


def cursor_at(offset: int, position: int = 0) -> LaneCursor:
    return LaneCursor(
        next_offset=offset,
        position=position,
        target_offset=1000 + position,
        source_expected=offset,
    )


def plain(base_offset: int, count: int, value_bytes: int = 6000) -> bytes:
    records = [
        Record(offset=base_offset + index, value=b"%d" % index + b"." * value_bytes)
        for index in range(count)
    ]
    return bytes(batch_of(*records, base_offset=base_offset))


def prepare(chunk: bytes, cursor: LaneCursor, **options: object) -> PreparedChunk:
    return prepare_chunk(memoryview(bytearray(chunk)), cursor, STAMP, **options)  # type: ignore[arg-type]


def test_a_dense_batch_travels_unopened_but_for_its_header() -> None:
    batch = plain(50, 3)
    cursor = cursor_at(50, position=7)

    prepared = prepare(batch, cursor)

    (out,) = prepared.batches
    header = parse_header(out.view)
    assert header is not None
    verify_crc(out.view, header)
    assert (header.base_offset, header.producer_id, header.base_sequence) == (0, 4711, 7)
    assert bytes(out.view[61:]) == batch[61:]
    assert (cursor.next_offset, cursor.position, cursor.target_offset) == (53, 10, 1010)
    assert prepared.runs == []


def test_a_gap_between_batches_starts_a_run_where_the_records_go_on() -> None:
    cursor = cursor_at(0)

    prepared = prepare(plain(0, 2) + plain(10, 2), cursor)

    assert prepared.runs == [Run(position=2, source_offset=10, target_offset=1002)]
    assert [out.position for out in prepared.batches] == [0, 2]


def test_the_sequence_wraps_with_the_position() -> None:
    cursor = cursor_at(0, position=SEQUENCES - 1)

    prepared = prepare(plain(0, 3), cursor)

    header = parse_header(prepared.batches[0].view)
    assert header is not None
    assert header.base_sequence == SEQUENCES - 1
    assert header.last_sequence == 1
    assert cursor.position == SEQUENCES + 2


def test_what_lies_before_the_cursor_is_not_sent_again() -> None:
    cursor = cursor_at(12)

    prepared = prepare(plain(0, 5) + plain(10, 5), cursor)

    (out,) = prepared.batches
    assert [record.value for record in records_of(out.view)] == [
        record.value for record in records_of(plain(10, 5))[2:]
    ]
    assert out.source_offset == 12
    assert prepared.runs == []


def test_a_batch_cut_by_the_broker_is_left_for_the_next_fetch() -> None:
    cursor = cursor_at(0)

    prepared = prepare(plain(0, 2) + plain(2, 2)[:-1], cursor)

    assert len(prepared.batches) == 1
    assert cursor.next_offset == 2
    assert prepared.corrupt is None


def test_a_corrupt_batch_is_never_forwarded_and_the_good_ones_before_it_are() -> None:
    bad = bytearray(plain(2, 2))
    bad[-1] ^= 1
    cursor = cursor_at(0)

    prepared = prepare(plain(0, 2) + bytes(bad) + plain(4, 2), cursor)

    assert [out.source_offset for out in prepared.batches] == [0]
    assert prepared.corrupt is not None
    assert prepared.corrupt.offset == 2
    assert cursor.next_offset == 2


def test_many_tiny_batches_leave_as_one() -> None:
    count = TINY_BATCHES_MIN + 5
    cursor = cursor_at(0)

    prepared = prepare(b"".join(plain(index, 1, value_bytes=20) for index in range(count)), cursor)

    (out,) = prepared.batches
    assert out.record_count == count
    assert cursor.position == cursor.next_offset == count


def test_a_few_tiny_batches_stay_as_they_are() -> None:
    cursor = cursor_at(0)

    prepared = prepare(plain(0, 1, value_bytes=20) + plain(1, 1, value_bytes=20), cursor)

    assert [out.record_count for out in prepared.batches] == [1, 1]


@pytest.mark.parametrize("count", [1, 20])
def test_each_batch_says_in_which_epoch_it_was_written(count: int) -> None:
    """Unopened, or coalesced with others: then that of the last of them."""
    raw = bytearray()
    for offset in range(count):
        raw += batch_of(Record(offset=offset), base_offset=offset)
        at = len(raw) - len(batch_of(Record(offset=offset), base_offset=offset))
        raw[at + 12 : at + 16] = (offset + 3).to_bytes(4, "big")
    cursor = LaneCursor(next_offset=0, position=0, target_offset=0, source_expected=0)

    prepared = prepare_chunk(memoryview(raw), cursor, Stamp(1, 0))

    assert [batch.leader_epoch for batch in prepared.batches] == [count + 2]
    assert cursor.leader_epoch == count + 2


def test_tiny_batches_are_left_alone_where_the_target_refused_larger_ones() -> None:
    chunk = b"".join(plain(index, 1, value_bytes=20) for index in range(20))

    prepared = prepare(chunk, cursor_at(0), coalesce=False)

    assert len(prepared.batches) == 20


def test_aborted_and_control_batches_of_a_real_broker_are_dropped() -> None:
    story = json.loads((GOLDEN / "v2-transactions.json").read_text())
    chunk = (GOLDEN / "v2-transactions.bin").read_bytes()
    first = parse_header(memoryview(chunk))
    assert first is not None
    aborted = aborted_of(chunk)
    cursor = cursor_at(first.base_offset)

    prepared = prepare(chunk, cursor, aborted=aborted)

    assert aborted
    # The file's story: 0 to 4 committed, 5 the marker, 6 to 10 aborted, 11 its marker, 12 plain.
    assert len(story) == 11
    assert source_offsets(prepared, cursor_at(first.base_offset)) == [0, 1, 2, 3, 4, 12]


@pytest.mark.parametrize("key", [b"\x00\x00\x00\x63", b"\x00", None])
def test_a_control_record_of_a_kind_nobody_knows_yet_is_dropped_and_counted(
    key: bytes | None,
) -> None:
    """Later brokers write others than commit and abort: KIP-1279 resets producer ids with one."""
    unknown = Record(offset=3, key=key, value=b"of a later version")
    marker = bytes(batch_of(unknown, base_offset=3, attributes=0x30))

    prepared = prepare(plain(0, 3) + marker + plain(4, 2), cursor_at(0), aborted=[])

    assert source_offsets(prepared, cursor_at(0)) == [0, 1, 2, 4, 5]
    assert prepared.unknown_control_records == 1


def aborted_of(chunk: bytes) -> list[tuple[int, int]]:
    """The aborted transactions as a broker's index has them: producer and first offset."""
    opened: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for header, batch in batches_of(chunk):
        if header.is_control:
            if is_abort_marker(batch, header):
                found.append((header.producer_id, opened[header.producer_id]))
            opened.pop(header.producer_id, None)
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    return found


@pytest.mark.parametrize("name", ["v2-compacted-none", "v2-compacted-lz4"])
def test_holes_of_a_real_compacted_log_become_runs(name: str) -> None:
    chunk = (GOLDEN / f"{name}.bin").read_bytes()
    first = parse_header(memoryview(chunk))
    assert first is not None
    cursor = cursor_at(first.base_offset)

    prepared = prepare(chunk, cursor)

    offsets = source_offsets(prepared, cursor_at(first.base_offset))
    assert offsets == [record.offset for record in golden_records(chunk)]
    for out in prepared.batches:
        header = parse_header(out.view)
        assert header is not None
        assert header.is_dense


def golden_records(chunk: bytes) -> list[Record]:
    return [record for _, batch in batches_of(chunk) for record in records_of(batch)]


def batches_of(chunk: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    window = memoryview(chunk)
    while (header := parse_header(window)) is not None:
        yield header, window[: header.size_bytes]
        window = window[header.size_bytes :]


def source_offsets(prepared: PreparedChunk, start: LaneCursor) -> list[int]:
    """Where each record came from, by the runs alone, as a resume would find it."""
    runs = [Run(position=0, source_offset=start.next_offset, target_offset=1000), *prepared.runs]
    total = sum(out.record_count for out in prepared.batches)
    found = []
    for position in range(total):
        run = [run for run in runs if run.position <= position][-1]
        found.append(run.source_offset + position - run.position)
    return found


def test_append_times_of_a_real_broker_arrive_as_create_times() -> None:
    chunk = (GOLDEN / "v2-append-time.bin").read_bytes()
    first = parse_header(memoryview(chunk))
    assert first is not None

    prepared = prepare(chunk, cursor_at(first.base_offset))

    for out in prepared.batches:
        header = parse_header(out.view)
        assert header is not None
        assert not header.is_log_append_time
        assert all(r.timestamp_ms == first.max_timestamp_ms for r in records_of(out.view)[:1])


@pytest.mark.parametrize("name", ["v0-none", "v1-none", "v1-gzip", "mixed-magics"])
def test_old_messages_of_a_real_broker_leave_as_v2(name: str) -> None:
    chunk = (GOLDEN / f"{name}.bin").read_bytes()
    cursor = cursor_at(0)

    prepared = prepare(chunk, cursor)

    assert prepared.corrupt is None
    assert sum(out.record_count for out in prepared.batches) > 0
    assert all(parse_header(out.view) is not None for out in prepared.batches)
