"""What is kept for a header's name is what opening every record would keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import BatchHeader, parse_header
from heliograph.wire.compression import Codec
from heliograph.wire.sifting import Sieve, sift
from tests.kit.batches import Record, batch_of, records_of
from tests.property.test_wire_records import fields, timestamps_ms, with_source_offsets

NAME = "mark"
FRAMED = b"\x08mark"
"""As a header's name stands on the wire; it may stand in values as well."""
names = st.sampled_from([b"mark", b"marks", b"mar", b"", b"\xff", b"xmark"])
contents = st.one_of(fields, st.just(FRAMED), st.binary(max_size=9000).map(FRAMED.__add__))
headers = st.lists(st.tuples(names, contents), max_size=2).map(tuple)
plain_headers = st.just(())


@st.composite
def logs(draw: st.DrawFn) -> list[list[Record]]:
    """Records of dense batches; few have a header."""
    offset, log = draw(st.integers(0, 1 << 60)), []
    for _ in range(draw(st.integers(1, 3))):
        records = []
        for _ in range(draw(st.integers(1, 40))):
            has_any = draw(st.integers(0, 9)) == 0
            records.append(
                Record(
                    offset=offset,
                    timestamp_ms=draw(timestamps_ms),
                    key=draw(contents) if has_any else b"k",
                    value=draw(contents) if has_any else b"v",
                    headers=draw(headers) if has_any else (),
                )
            )
            offset += 1
        log.append(records)
    return log


def with_headers(log: list[list[Record]], codec: int) -> list[tuple[BatchHeader, memoryview]]:
    made = []
    for records in log:
        batch = batch_of(*records, base_offset=records[0].offset, attributes=codec)
        header = parse_header(batch)
        assert header is not None
        made.append((header, batch))
    return made


@given(
    logs(),
    st.sampled_from(list(Codec)),
    st.booleans(),
    st.sampled_from([1, 200, 1 << 20]),
)
def test_what_is_kept_for_a_header_is_what_opening_all_would_keep(
    log: list[list[Record]], codec: Codec, keeps_named: bool, bytes_max: int
) -> None:
    found = sift(with_headers(log, codec), Sieve(NAME, keeps_named), bytes_max=bytes_max)

    records = [each for some in log for each in some]
    wanted = [each for each in records if (NAME.encode() in dict(each.headers)) is keeps_named]
    if found is None:
        # Too many to be worth it, or a name that stands in a value and looks like so many.
        return
    if found.is_all:
        assert wanted == records
        return
    kept = [each for made in found.batches for each in with_source_offsets(made)]
    assert kept == wanted
    assert {made.batch[22] & 7 for made in found.batches} <= {codec}


def test_where_one_in_ten_has_the_header_or_none_has_it_nothing_else_is_opened() -> None:
    log = [
        [
            Record(offset=n, headers=((b"mark", b"1"),) if n % 10 == 0 else ())
            for n in range(start, start + 200)
        ]
        for start in (0, 200)
    ]

    kept = sift(with_headers(log, 0), Sieve(NAME, True), bytes_max=1 << 20)
    none = sift(with_headers(log, 0), Sieve("other", True), bytes_max=1 << 20)
    every = sift(with_headers(log, 0), Sieve("other", False), bytes_max=1 << 20)

    assert kept is not None
    assert [each.offset for made in kept.batches for each in with_source_offsets(made)] == list(
        range(0, 400, 10)
    )
    assert none == (False, [])
    assert every == (True, [])


@pytest.mark.parametrize("cut", [30, 700])
def test_records_that_contradict_their_batch_are_corrupt(cut: int) -> None:
    records = [Record(offset=n) for n in range(50)]
    marked = Record(offset=50, headers=((b"mark", b"1"),))
    payload = b"".join(each.on_the_wire(0, each.timestamp_ms) for each in (*records, marked))
    batch = batch_of(*records, marked, payload=payload[cut:])
    header = parse_header(batch)
    assert header is not None

    with pytest.raises(CorruptBatch):
        sift([(header, batch)], Sieve(NAME, True), bytes_max=1 << 20)


def test_golden_reader_agrees_on_what_a_name_is() -> None:
    """`records_of` reads with nothing of heliograph but its words."""
    log = [[Record(offset=0, headers=((b"mark", None),)), *(Record(offset=n) for n in range(1, 9))]]

    kept = sift(with_headers(log, 0), Sieve(NAME, True), bytes_max=1 << 20)

    assert kept is not None
    assert [each.headers for each in records_of(kept.batches[0].batch)] == [((b"mark", None),)]
