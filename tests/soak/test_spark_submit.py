"""The program that Spark's operators start: spark-submit gives the master, the file does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.spark_start import LIGHT_JVM
from tests.spark.standalone import standalone

MAIN = Path(__file__).parents[2] / "deploy/container/main.py"
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin/spark-submit"


def test_a_submitted_mirror_copies_on_the_executors_of_its_master(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = lasting_topic(source, topic("submitted"), partitions=1)
    produce(source, name, numbered(100, partitions=1))
    config = write_config(
        tmp_path / "mm2.properties",
        {"sub": source, "to": target},
        {"sub->to": {"topics": name}},
        top={**RECORDS_ONLY, "slots": "1", "slots.cpus": "1"},
    )
    with standalone(tmp_path / "spark") as spark:
        spark.start_worker()

        ended = subprocess.run(
            [
                str(SPARK_SUBMIT),
                *("--master", spark.url),
                # Another name than a local mirror would take, so that one is told from the other.
                *("--conf", "spark.driver.host=localhost"),
                *("--conf", "spark.executor.memory=512m"),
                *("--conf", f"spark.executor.extraJavaOptions={LIGHT_JVM}"),
                *("--driver-java-options", LIGHT_JVM),
                *(str(MAIN), "run", str(config), "--once"),
            ],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
        )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    # spark-submit gives both of the program's streams on as one.
    assert "sending the package to the executors" in ended.stdout + ended.stderr
    assert route(config, ("sub", source), ("to", target)).assert_arrives(name) == 100
