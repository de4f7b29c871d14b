"""What becomes of fetched bytes where a transform looks into them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heliograph.config.transforms import Fate, PredicateConfig, TransformConfig
from heliograph.copy.chunk import LaneCursor, PreparedChunk, TransformStop, prepare_chunk
from heliograph.copy.transforming import BATCH_BYTES_MAX, Fates, TransformingWriter
from heliograph.ledger.runs import Run
from heliograph.model import OffsetRange, StallReason
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Failure, Where
from heliograph.wire.batch import Stamp, parse_header, verify_crc
from tests.kit.batches import Record, batch_of, records_of
from tests.unit.copy.test_chunk import cursor_at, plain

STAMP = Stamp(producer_id=4711, producer_epoch=0)
GOLDEN = Path(__file__).parents[2] / "golden"
WHERE = Where("orders", "A.orders", 0)
FUNCTIONS = "tests.unit.transform.functions"
Step = dict[str, Any]


def prepare(
    fetched: bytes, cursor: LaneCursor, *steps: Step, fate: Fate = "stall"
) -> PreparedChunk:
    configs = [TransformConfig.model_validate({"name": "t", **step}) for step in steps]
    transform = LaneTransform.of(configs, WHERE)
    assert transform is not None
    make: Callable[..., TransformingWriter] = partial(
        TransformingWriter, transform=transform, fates=Fates(on_transform_error=fate), ahead=None
    )
    return prepare_chunk(memoryview(bytearray(fetched)), cursor, STAMP, make_writer=make)


def function(name: str, kind: str = "columns") -> Step:
    return {"kind": kind, "function": f"{FUNCTIONS}:{name}"}


def sent(chunk: PreparedChunk) -> list[Record]:
    found: list[Record] = []
    for out in chunk.batches:
        header = parse_header(out.view)
        assert header is not None
        verify_crc(out.view, header)
        assert header.is_dense
        found += records_of(out.view)
    return found


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("v*.bin")), ids=lambda path: path.stem)
def test_an_identity_transform_sends_what_a_flow_without_one_sends(path: Path) -> None:
    """Real brokers' bytes of all formats: codec, timestamps, headers, order and runs are kept."""
    fetched = path.read_bytes()
    before, after = cursor_at(0), cursor_at(0)

    unopened = prepare_chunk(memoryview(bytearray(fetched)), before, STAMP)
    opened = prepare(fetched, after, function("same"))

    assert [each.content for each in sent(opened)] == [each.content for each in sent(unopened)]
    assert opened.runs == unopened.runs
    assert after == before
    codecs = {batch.view[22] & 7 for batch in opened.batches}
    assert codecs == {batch.view[22] & 7 for batch in unopened.batches}


def test_a_record_that_is_dropped_is_a_gap_and_the_next_begins_a_run() -> None:
    values = (b"a", b"test", b"b", b"c", b"test")
    records = [Record(offset=50 + n, value=value) for n, value in enumerate(values)]
    cursor = cursor_at(50, position=7)

    chunk = prepare(bytes(batch_of(*records, base_offset=50)), cursor, function("no_tests"))

    assert [each.value for each in sent(chunk)] == [b"a", b"b", b"c"]
    assert chunk.runs == [Run(position=8, source_offset=52, target_offset=1008)]
    assert (cursor.next_offset, cursor.position, cursor.target_offset) == (55, 10, 1010)
    assert chunk.batches[-1].source_next_offset == 55


def test_a_chunk_of_which_nothing_is_left_still_passes() -> None:
    cursor = cursor_at(0)

    chunk = prepare(plain(0, 3) + plain(3, 3), cursor, {"kind": "Filter"})

    assert chunk.batches == []
    assert (cursor.next_offset, cursor.position) == (6, 0)


def test_a_lane_stalls_before_the_record_that_fails_and_sends_all_before_it() -> None:
    values = (b"a", b"b", b"bad", b"c")
    records = [Record(offset=n, value=value) for n, value in enumerate(values)]
    cursor = cursor_at(0)

    chunk = prepare(bytes(batch_of(*records)) + plain(4, 2), cursor, function("picky"))

    assert [each.value for each in sent(chunk)] == [b"a", b"b"]
    assert chunk.failed == TransformStop(2, "transform t: ValueError: a bad value")
    assert (cursor.next_offset, cursor.position) == (2, 2)


def test_a_record_that_fails_may_be_left_out_and_is_told_with_the_place_it_would_have_had() -> None:
    values = (b"a", b"bad", b"bad", b"c", b"bad")
    records = [Record(offset=n, value=value) for n, value in enumerate(values)]
    cursor = cursor_at(0)

    chunk = prepare(bytes(batch_of(*records)), cursor, function("picky"), fate="skip")

    assert [each.value for each in sent(chunk)] == [b"a", b"c"]
    assert [each[:2] for each in chunk.skipped] == [(1, 1), (1, 2), (2, 4)]
    assert chunk.failed is None
    assert cursor.next_offset == 5


def test_batches_of_which_no_record_is_touched_travel_as_they_came() -> None:
    given = plain(0, 3)
    cursor = cursor_at(0)

    chunk = prepare(given + plain(3, 3), cursor, function("no_tests"))

    assert len(chunk.batches) == 2
    assert bytes(chunk.batches[0].view[61:]) == given[61:]
    assert (cursor.next_offset, cursor.position) == (6, 6)


def test_small_batches_are_opened_and_put_together() -> None:
    tiny = b"".join(plain(start, 2, value_bytes=10) for start in range(0, 40, 2))
    large = plain(40, 300, value_bytes=6000)
    cursor = cursor_at(0)

    chunk = prepare(tiny + large, cursor, function("same"))

    assert len(sent(chunk)) == 340
    assert chunk.batches[0].record_count == 40
    assert [each.source_next_offset for each in chunk.batches][-1] == 340
    assert chunk.runs == []


def test_a_batch_that_grew_too_large_is_cut() -> None:
    """As the last of its batches says, all that was dropped behind it has passed."""
    cursor = cursor_at(0)

    chunk = prepare(plain(0, 300), cursor, function("marked", "record"))

    assert len(sent(chunk)) == 300
    assert len(chunk.batches) > 3
    assert all(len(each.view) <= BATCH_BYTES_MAX for each in chunk.batches)
    assert [each.source_offset for each in chunk.batches[1:]] == [
        each.source_next_offset for each in chunk.batches[:-1]
    ]


def test_what_the_compiled_codec_cannot_hold_is_kept_as_it_is() -> None:
    """A name that is not UTF-8, and a first record without a timestamp."""
    odd = Record(offset=0, timestamp_ms=-1, headers=((b"\xff", b"1"),))
    given = bytes(batch_of(odd, Record(offset=1), base_timestamp_ms=-1))
    lacks = {"kind": "Filter", "predicate": PredicateConfig(kind="HasHeaderKey", text="no")}

    chunk = prepare(given, cursor_at(0), lacks)

    assert [each.content for each in sent(chunk)] == [odd.content, Record(offset=1).content]


def refused(offset: int) -> dict[int, Failure]:
    return {offset: Failure("target", "MESSAGE_TOO_LARGE", "no", "KAFKA_PRODUCE")}


def prepare_refused(cursor: LaneCursor, fates: Fates) -> PreparedChunk:
    """Six records that no transform touches."""
    fetched = batch_of(*(Record(offset=n, value=b"%d" % n) for n in range(6)))
    make: Callable[..., TransformingWriter] = partial(
        TransformingWriter, transform=LaneTransform.nothing(WHERE), fates=fates, ahead=None
    )
    return prepare_chunk(memoryview(bytearray(fetched)), cursor, STAMP, make_writer=make)


def test_records_of_a_batch_that_was_refused_are_sent_one_by_one() -> None:
    suspects = OffsetRange(start=2, end=5)

    chunk = prepare_refused(cursor_at(0), Fates(on_unwritable="skip", suspects=suspects))

    assert [each.record_count for each in chunk.batches] == [2, 1, 1, 1, 1]


def test_a_record_that_was_refused_by_itself_is_a_letter_with_its_content_and_place() -> None:
    cursor = cursor_at(0)

    chunk = prepare_refused(cursor, Fates(on_unwritable="dead-letter", unwritable=refused(3)))

    assert [rec.value for rec in sent(chunk)] == [b"0", b"1", b"2", b"4", b"5"]
    (letter,) = chunk.letters
    assert (letter.position, letter.offset, letter.content[2]) == (3, 3, b"3")
    assert (cursor.next_offset, cursor.position) == (6, 5)


def test_a_record_that_was_refused_by_itself_may_be_skipped_with_the_reason_it_had() -> None:
    chunk = prepare_refused(cursor_at(0), Fates(on_unwritable="skip", unwritable=refused(3)))

    assert chunk.skipped == [(3, 3, StallReason.REFUSED_BY_TARGET)]


def test_a_record_that_is_a_letter_already_is_no_letter_again_and_is_not_sent() -> None:
    chunk = prepare_refused(cursor_at(0), Fates(decided=refused(3)))

    assert len(sent(chunk)) == 5
    assert not chunk.letters and not chunk.skipped and chunk.failed is None


@pytest.mark.parametrize("codec", [0, 3])
def test_records_that_the_target_is_known_to_refuse_are_letters_without_a_try(codec: int) -> None:
    """What is sent fits: batches of many are made smaller, one that just fits is sent."""
    noise = random.Random(codec).randbytes
    values = [
        b"s" * 100,
        noise(5_000),
        *(noise(100) for _ in range(60)),
        noise(3_900),
        noise(9_000),
    ]
    fetched = batch_of(*(Record(offset=n, value=v) for n, v in enumerate(values)), attributes=codec)
    make: Callable[..., TransformingWriter] = partial(
        TransformingWriter,
        transform=LaneTransform.nothing(WHERE),
        fates=Fates(on_unwritable="dead-letter", batch_bytes_max=4_000),
        ahead=None,
    )
    cursor = cursor_at(0)

    chunk = prepare_chunk(memoryview(bytearray(fetched)), cursor, STAMP, make_writer=make)

    assert [(each.offset, each.failure.error) for each in chunk.letters] == [
        (1, "MESSAGE_TOO_LARGE"),
        (63, "MESSAGE_TOO_LARGE"),
    ]
    assert "max.message.bytes is 4000" in chunk.letters[0].failure.why
    assert [each.value for each in sent(chunk)] == [values[0], *values[2:63]]
    assert all(len(each.view) <= 4_000 for each in chunk.batches)
    assert len(chunk.batches) < 6
    assert (cursor.next_offset, cursor.position) == (64, 62)


def test_batches_that_fit_travel_as_they_came_while_a_target_is_known_to_refuse_larger_ones() -> (
    None
):
    given = plain(0, 60)
    make: Callable[..., TransformingWriter] = partial(
        TransformingWriter,
        transform=LaneTransform.nothing(WHERE),
        fates=Fates(on_unwritable="skip", batch_bytes_max=len(given)),
        ahead=None,
    )

    chunk = prepare_chunk(memoryview(bytearray(given)), cursor_at(0), STAMP, make_writer=make)

    assert [bytes(each.view[61:]) for each in chunk.batches] == [given[61:]]
