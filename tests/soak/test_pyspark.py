"""Queries that are started again, on whichever PySpark is installed; `make versions` tries each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import create_topic
from tests.spark.test_pipeline import order_of, run_query, values

pytestmark = pytest.mark.timeout(400)


def test_a_query_that_is_started_again_writes_each_row_once_as_a_function_and_as_a_format(
    pair: dict[str, LocalCluster],
    tmp_path: Path,
    topic: Any,
    record_property: Callable[[str, object], None],
) -> None:
    source, target, by_format = topic("in"), topic("out"), topic("format")
    create_topic(pair["A"], source, partitions=2)
    for each in (target, by_format):
        create_topic(pair["B"], each, partitions=3)
    order = order_of(
        pair,
        tmp_path,
        topic("p"),
        (source, target),
        format_topic=by_format,
        format_steps=(),
    )
    said = []
    for start in (0, 900):
        produce(pair["A"], source, numbered(900, partitions=2, start=start))
        ended = run_query(order, tmp_path)
        assert ended.returncode == 0, ended.stderr
        said.append(json.loads(ended.stdout.splitlines()[-1]))

    before = sorted(values(read_all(pair["A"], source)))
    assert [each["said"] for each in said] == [["ended"]] * 2
    assert sorted(values(read_all(pair["B"], target))) == before
    streams = [each["format"][0] for each in said]
    written = sorted(values(read_all(pair["B"], by_format)))
    batch = [b"batch-0", b"batch-1"]
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        assert all("with PySpark 4.1 or newer: 4.0 has no sinks" in each for each in streams)
        assert written == batch
        record_property("outcome", "refused")
    else:
        assert streams == ["ended"] * 2
        assert written == sorted([*before, *batch])
