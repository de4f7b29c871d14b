"""A streaming query that is killed -9 and goes on in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph import probe
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import create_topic
from tests.spark.test_pipeline import order_of, run_query, values

pytestmark = pytest.mark.timeout(280)


def test_a_query_that_is_killed_goes_on_in_another_process(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    source, target = topic("in"), topic("out")
    create_topic(pair["A"], source, partitions=2)
    create_topic(pair["B"], target, partitions=3)
    produce(pair["A"], source, numbered(900, partitions=2))
    names = (source, target)
    order = order_of(pair, tmp_path, topic("p"), names, kill_at=probe.PIPELINE_TO_NOTE)

    killed = run_query(order, tmp_path)
    ended = run_query(order_of(pair, tmp_path, order.name, names), tmp_path)

    assert killed.returncode == -9
    assert ended.returncode == 0, ended.stderr
    assert sorted(values(read_all(pair["B"], target))) == sorted(
        values(read_all(pair["A"], source))
    )
