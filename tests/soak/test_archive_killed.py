"""`heliograph archive` and `restore` with Spark, killed -9 again and again; tables with Spark."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import running_inside
from tests.kit.mirror import write_config
from tests.kit.records import assert_same_records, numbered, produce, read_all
from tests.kit.topics import create_topic, delete_records_before, wait_until
from tests.spark.kit import REPOSITORY

pytestmark = pytest.mark.timeout(1_200)

KILLS = 4
RUNS_MAX = 30


def command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"},
    )


def to_the_end(drawn: random.Random, *words: str) -> str:
    """Run it again and again, killed with all it started; what the last one said."""
    for run in range(RUNS_MAX):
        process = command(*words)
        try:
            said, problem = process.communicate(
                timeout=drawn.uniform(5, 14) if run < KILLS else 400
            )
        except subprocess.TimeoutExpired:
            family = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGKILL)
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.communicate()
            continue
        assert process.returncode == 0, problem
        return said
    raise AssertionError("not at its end")


def test_an_archive_and_its_restore_survive_kill_9(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    source, target, drawn = topic("in"), topic("back"), random.Random(16)
    create_topic(pair["A"], source, partitions=3)
    produce(pair["A"], source, numbered(120_000, partitions=3))
    delete_records_before(pair["A"], source, {0: 500})
    config = str(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}}))
    folder = tmp_path / "archive"
    archive = ("--cluster", "A", "--topic", source, "--to", str(folder))

    to_the_end(
        drawn, "heliograph", "archive", config, *archive, "--records-per-file", "5000", "--json"
    )
    restore = ("--from", str(folder), "--cluster", "B", "--topic", target)
    to_the_end(drawn, "heliograph", "restore", config, *restore, "--replication-factor", "1")

    assert pq.read_table(folder).num_rows == 119_500
    assert assert_same_records(pair["A"], pair["B"], source, target) == 119_500
    assert read_all(pair["B"], target)[0][0].offset == 500


def test_spark_has_every_table(pair: dict[str, LocalCluster], tmp_path: Path, topic: Any) -> None:
    source = topic("orders")
    create_topic(pair["A"], source, partitions=2)
    produce(pair["A"], source, numbered(10, partitions=2))
    file = write_config(tmp_path / "mm2.properties", pair, {"A->B": {"topics": source}})
    with running_inside(file):
        wait_until(
            lambda: sum(map(len, read_all(pair["B"], f"A.{source}").values())) == 10, "records"
        )
    produce(pair["A"], source, numbered(1))

    said, problem = command("tests.spark.tables_shown", str(file)).communicate(timeout=200)

    assert said, problem
    found = json.loads(said.splitlines()[-1])
    assert found["counts"]["lanes"] == found["counts"]["offset_map"] == 2, found
    assert found["late"] == 1 and found["counts"]["ledger"] > 2
