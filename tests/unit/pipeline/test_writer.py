"""What Spark's sink refuses before anything is staged."""

from __future__ import annotations

import pytest

from heliograph.errors import PipelineRefused
from heliograph.pipeline import writer


def test_a_streaming_sink_is_refused_where_pyspark_has_none_for_arrow_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer.require_stream_writer()

    monkeypatch.setattr(writer, "DataSourceStreamArrowWriter", None)

    with pytest.raises(PipelineRefused, match=r"with PySpark 4\.1 or newer: 4\.0 has no sinks"):
        writer.require_stream_writer()
