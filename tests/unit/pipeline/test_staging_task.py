from __future__ import annotations

from datetime import UTC, datetime

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
    assert columns.timestamps_ms == [int(at.timestamp() * 1000), None]
    assert columns.partitions == [None, 2]
    assert columns_of(prepared(batch, with_topic=True)).topics == ["from", "from"]
