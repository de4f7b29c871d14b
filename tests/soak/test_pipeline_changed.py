"""Queries that are not what they were: other columns, another checkpoint, an older one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliograph import probe
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.faulty_runs import FaultyRun, to_the_end
from tests.kit.records import numbered, produce
from tests.soak.test_pipeline_faults import assert_each_once, killed_at, order_of
from tests.spark.faulty_query import FaultyOrder

pytestmark = pytest.mark.timeout(600)


def refused(order: FaultyOrder, folder: Path, why: str) -> None:
    query = FaultyRun(order, folder)
    assert query.code() != 0 and why in query.said, query.said


def test_a_query_that_changed_is_refused_or_goes_on_with_every_row_once(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    """A half written batch is finished as it was staged, whatever the query makes by then."""
    order = order_of(pair, tmp_path, topic, 6_000, kind="random", records_max=2_000)
    killed_at(order, tmp_path, probe.PIPELINE_CLAIMED)
    older = tmp_path / "older"
    shutil.copytree(order.folder, older)

    refused(replace(order, kind="mistyped"), tmp_path, "column value is int, not binary or string")
    to_the_end(replace(order, kind="narrow"), tmp_path)
    produce(pair["A"], order.source_topic, numbered(600, partitions=3, start=6_000))
    refused(replace(order, folder=str(tmp_path / "new")), tmp_path, "was written by another query")
    refused(replace(order, folder=str(older)), tmp_path, "comes from a checkpoint that is too old")
    to_the_end(order, tmp_path)

    assert_each_once(pair, order)
