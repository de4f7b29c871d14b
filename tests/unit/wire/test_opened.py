from __future__ import annotations

import pytest

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import BatchHeader, parse_header
from heliograph.wire.opened import open_columns, open_records
from tests.kit.batches import NOW_MS, Record, batch_of


def header(batch: memoryview) -> BatchHeader:
    found = parse_header(batch)
    assert found is not None
    return found


@pytest.mark.parametrize("codec", range(5))
def test_records_come_out_with_all_that_a_copy_must_keep(codec: int) -> None:
    one = Record(offset=7, key=None, value=b"v", headers=((b"h", None), (b"h", b"2")))
    batch = batch_of(one, Record(offset=8, value=None), base_offset=7, attributes=codec)

    ((first, contents),) = open_records(batch, header(batch))

    assert first == 7
    assert contents == [
        (NOW_MS, None, b"v", (("h", None), ("h", b"2"))),
        (NOW_MS, b"key", None, ()),
    ]


def test_a_hole_begins_another_stretch() -> None:
    batch = batch_of(*(Record(offset=n) for n in (3, 4, 9)), base_offset=3, last_offset_delta=9)

    stretches = open_records(batch, header(batch))

    assert [(first, len(contents)) for first, contents in stretches] == [(3, 2), (9, 1)]


def test_a_header_key_that_is_not_utf8_is_kept_apart_from_others() -> None:
    batches = [
        batch_of(Record(offset=0, headers=((name, b"x"),)), base_offset=0)
        for name in (b"\xff\xfe", b"\xff\xfd")
    ]

    one, other = (open_records(batch, header(batch)) for batch in batches)

    assert one != other
    assert one[0][1][0][3][0][0].encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_a_count_that_the_bytes_do_not_hold_is_corrupt() -> None:
    batch = batch_of(Record(offset=0), base_offset=0, record_count=2, last_offset_delta=1)

    with pytest.raises(CorruptBatch):
        open_records(batch, header(batch))


@pytest.mark.parametrize("codec", range(5))
def test_columns_hold_what_records_hold(codec: int) -> None:
    strange = Record(offset=8, value=None, headers=((b"\xff", b"x"),))
    for second in (Record(offset=8, headers=((b"h", b"1"), (b"h", None))), strange):
        batch = batch_of(Record(offset=7, key=None), second, base_offset=7, attributes=codec)

        columns = open_columns(batch, header(batch))

        ((_, contents),) = open_records(batch, header(batch))
        times, keys, values, headers = zip(*contents, strict=True)
        assert (tuple(columns.times_ms), tuple(columns.keys)) == (times, keys)
        assert tuple(columns.values) == values and columns.headers is not None
        assert tuple(tuple(each or ()) for each in columns.headers) == headers


def test_columns_without_headers_say_so_and_a_wrong_count_is_corrupt() -> None:
    batch = batch_of(Record(offset=0), base_offset=0)
    wrong = batch_of(Record(offset=0), base_offset=0, record_count=2, last_offset_delta=1)

    assert open_columns(batch, header(batch)).headers is None
    with pytest.raises(CorruptBatch):
        open_columns(wrong, header(wrong))
