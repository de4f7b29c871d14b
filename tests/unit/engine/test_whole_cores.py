"""A share of a core, on Spark versions that know it and on those that count whole cores."""

from __future__ import annotations

import pytest

from heliograph.engine.whole_cores import booking, master_for, warning


@pytest.mark.parametrize(
    ("cpus", "version", "text"),
    [(0.25, "4.3.0", "0.25"), (0.25, "4.0.1", "1"), (1.0, "4.2.1", "1"), (1.5, "4.1.4", "2")],
)
def test_a_task_books_a_share_where_spark_knows_it_and_whole_cores_elsewhere(
    cpus: float, version: str, text: str
) -> None:
    assert booking(cpus, version) == text


@pytest.mark.parametrize(
    ("master", "cpus", "version", "used"),
    [
        ("local[2]", 0.25, "4.3.0", "local[2]"),
        ("local[2]", 0.25, "4.0.1", "local[8]"),
        ("local", 0.5, "4.2.1", "local[2]"),
        ("local[2]", 1.0, "4.0.1", "local[2]"),
        ("local-cluster[2,1,512]", 0.25, "4.0.1", "local-cluster[2,1,512]"),
        ("spark://there:7077", 0.25, "4.0.1", "spark://there:7077"),
    ],
)
def test_on_this_machine_more_threads_stand_for_shares_of_its_cores(
    master: str, cpus: float, version: str, used: str
) -> None:
    assert master_for(master, cpus, version) == used


def test_on_a_cluster_whoever_asks_for_a_share_is_told_of_the_whole_core() -> None:
    told = warning("spark://there:7077", 0.25, "4.0.1")

    assert told is not None
    assert "each slot books 1 and not 0.25 (slots.cpus)" in told
    assert warning("local[*]", 0.25, "4.0.1") is None
    assert warning("spark://there:7077", 1.0, "4.0.1") is None
    assert warning("spark://there:7077", 0.25, "4.3.0") is None
