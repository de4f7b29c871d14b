"""Spark's dynamic allocation under a mirror: executors come for slots, and go with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import psutil

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import running_mirror
from tests.kit.spark_start import LIGHT_JVM, light_jvm
from tests.kit.topics import wait_until
from tests.spark.standalone import standalone

_PARTITIONS: Final = 4
_WAIT_S: Final = 120.0
_ENGINE: Final = {
    "slots": "auto",
    "slots.min": "1",
    "slots.cpus": "1",
    "link.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.pyspark.python": sys.executable,
    "spark.driver.extraJavaOptions": LIGHT_JVM,
}


def test_an_executor_comes_for_a_slot_and_goes_with_it(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = lasting_topic(source, topic("elastic"), partitions=_PARTITIONS)
    with standalone(tmp_path / "spark") as spark:
        workers = [spark.start_worker(), spark.start_worker()]
        config = write_config(
            tmp_path / "mm2.properties",
            {"node": source, "to": target},
            {"node->to": {"topics": name}},
            top={
                **RECORDS_ONLY,
                **_ENGINE,
                "master": spark.url,
                "spark.executor.extraJavaOptions": light_jvm(),
            },
        )
        way = route(config, ("node", source), ("to", target))
        with running_mirror(config) as run:
            produce(source, name, numbered(200, partitions=_PARTITIONS))
            assert way.assert_arrives(name) == 200
            _wait_executors(workers, 1)

            config.write_text(config.read_text().replace("slots.min = 1", "slots.min = 2"))
            run.wait_for_words("2 slots: ", timeout_s=_WAIT_S)
            _wait_executors(workers, 2)
            produce(source, name, numbered(200, partitions=_PARTITIONS, start=200))
            assert way.assert_arrives(name) == 400

            config.write_text(config.read_text().replace("slots.min = 2", "slots.min = 1"))
            _wait_executors(workers, 1)
            produce(source, name, numbered(200, partitions=_PARTITIONS, start=400))
            assert way.assert_arrives(name) == 600
            assert run.stop() == 0
            way.assert_exact_map(name)


def _wait_executors(workers: list[psutil.Process], count: int) -> None:
    def executors() -> int:
        children = [child for worker in workers for child in worker.children()]
        return sum(child.name() == "java" for child in children)

    wait_until(lambda: executors() == count, f"{count} executors", timeout_s=_WAIT_S)
