from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from heliograph.pipeline.staging_task import columns_of, prepared


def test_rows_of_a_dataframe_are_columns_of_bytes_and_milliseconds() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["from", "from"],
            "offset": [7, 8],
            "key": ["k", None],
            "value": [b"v", None],
            "timestamp": pa.array([at, None], pa.timestamp("us", tz="UTC")),
            "partition": pa.array([None, 2], pa.int64()),
        }
    )

    columns = columns_of(prepared(batch, with_topic=False))

    assert columns.topics is None
    assert (columns.keys, columns.values) == ([b"k", None], [b"v", None])
    at_ms = int(at.timestamp() * 1000)
    assert columns.timestamps_ms == [at_ms, None] and columns.times_between == (at_ms, at_ms)
    assert columns.partitions == [None, 2]
    assert columns_of(prepared(batch, with_topic=True)).topics == ["from", "from"]


def test_headers_are_those_of_their_row_wherever_a_batch_was_cut() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    one, two = {"key": "a", "value": b"1"}, {"key": "b", "value": None}
    given: list[Any] = [[one], None, [], [one, two], [two, two], None, [one]]
    whole = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * len(given), pa.binary()), pa.array(given, kind)], ["value", "headers"]
    )

    for start, count in ((0, 7), (3, 2), (1, 3), (4, 3)):
        found = columns_of(whole.slice(start, count)).headers

        assert found == [
            [(header["key"], header["value"]) for header in headers or ()]
            for headers in given[start : start + count]
        ]
    assert columns_of(whole.slice(1, 2)).headers is None


def test_headers_under_a_row_without_any_are_not_its_own() -> None:
    """Arrow lets a list that is null have a stretch of the values."""
    values = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}])
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), values, mask=pa.array([True, False])
    )
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), lists], ["value", "headers"])

    assert columns_of(batch).headers == [[], [("b", b"2")]]


def test_rows_with_a_nameless_header_are_told() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = [[{"key": "a", "value": b"1"}], [{"key": None, "value": b"2"}], []]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * 3), pa.array(given, kind)], ["value", "headers"]
    )

    assert columns_of(batch).nameless == {1}
    assert columns_of(batch.slice(0, 1)).nameless == frozenset()
