"""A query between clusters with TLS and SASL; its credentials are nowhere that Spark shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph_tools.localkafka.spec import ClusterSpec
from tests.kit.clusters import ClusterFactory
from tests.kit.mirror import write_config
from tests.kit.records import assert_same_records, numbered, produce
from tests.kit.topics import create_topic
from tests.spark.kit import REPOSITORY

pytestmark = pytest.mark.timeout(400)


def test_no_plan_event_or_file_of_a_query_has_a_password(
    clusters: ClusterFactory, tmp_path: Path, topic: Any
) -> None:
    both = clusters(
        ClusterSpec(alias="A", tls=True, sasl="SCRAM-SHA-512"),
        ClusterSpec(alias="B", tls=True, sasl="PLAIN"),
    )
    source, target = topic("in"), topic("out")
    create_topic(both["A"], source, partitions=2)
    create_topic(both["B"], target, partitions=2)
    produce(both["A"], source, numbered(400, partitions=2))
    config = write_config(tmp_path / "mm2.properties", both, {"A->B": {}})
    folder = tmp_path / "query"
    (folder / "events").mkdir(parents=True)

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.spark.secured_query"),
            *(str(config), source, target, str(folder)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"},
    )

    assert ended.returncode == 0, ended.stderr
    assert_same_records(both["A"], both["B"], source, target)
    secrets = {
        str(cluster.librdkafka_config["sasl.password"]).encode() for cluster in both.values()
    }
    files = [path for path in folder.rglob("*") if path.is_file()]
    shown = {"stdout": ended.stdout.encode(), "stderr": ended.stderr.encode()}
    shown |= {str(path): path.read_bytes() for path in files}
    assert any("events" in name for name in shown) and "== Physical Plan ==" in ended.stdout
    assert [name for name, said in shown.items() for each in secrets if each in said] == []
