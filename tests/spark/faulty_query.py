"""A query of one kind in a process of its own, for tests that kill what it runs on.

`python -m tests.spark.faulty_query ORDER`, a JSON file. It writes what is available now, and ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import heliograph
from heliograph import probe
from heliograph.errors import MirrorError
from heliograph.pipeline import sink as sink_module
from heliograph.pipeline.append_task import append_unit
from heliograph.pipeline.direct_task import append_computed
from heliograph.pipeline.source import TRIGGERS_HAVE_LIMITS
from tests.spark.kit import engine, running_session

BETWEEN = "between two target partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyOrder:
    config: str
    source_topic: str
    target_topic: str
    name: str
    folder: str
    kind: str
    """`random`, `repartitioned`, `shuffled`, `stateful` or `direct`; `format` is random, written by
    `format("heliograph")`, and `format-direct` that, declared deterministic. `narrow` is random
    with fewer columns, and `mistyped` has a value that is none."""
    master: str = "local[2]"
    records_max: int = 20_000
    """Of a micro-batch; PySpark before 4.2 reads all there is."""
    shuffle_partitions: int = 2
    holds: tuple[str, ...] = ()
    """Steps of `heliograph.probe`, or `BETWEEN`. At each of them, in this order, the query makes a
    file `<number>.at` in `held_folder` and waits until there is one that ends in `.go`."""


def held_folder(order: FaultyOrder) -> Path:
    return Path(order.folder) / "held"


def main(order: FaultyOrder) -> None:
    spark_settings = {"spark.sql.shuffle.partitions": str(order.shuffle_partitions)}
    if order.master.startswith("spark://"):
        # What workers of `standalone` have room for.
        spark_settings["spark.executor.memory"] = "512m"
    hold = partial(_hold, str(held_folder(order)), order.holds)
    if order.holds:
        probe.install(hold)
        sink_module.append_unit = partial(_one_by_one, hold)  # type: ignore[attr-defined]
        sink_module.append_computed = partial(_computed, hold)  # type: ignore[attr-defined]
    with running_session(engine(order.master, spark=spark_settings)) as context:
        spark = SparkSession(context)
        sink = heliograph.exactly_once(
            order.config,
            cluster="B",
            name=order.name,
            topic=order.target_topic,
            staging=f"{order.folder}/staged",
            replication_factor=1,
            deterministic=order.kind == "direct",
        )
        limit = {"maxRecordsPerTrigger": order.records_max} if TRIGGERS_HAVE_LIMITS else {}
        rows = (
            spark.readStream.format("heliograph")
            .option("config", order.config)
            .option("cluster", "A")
            .option("subscribe", order.source_topic)
            .option("startingOffsets", "earliest")
            .option("maxRecordsPerPartition", "5000")
            .options(**limit)
            .load()
        )
        print("begins", flush=True)  # noqa: T201
        writer = _made(rows, order.kind).writeStream
        query = (
            (
                _through_format(writer, order)
                if "format" in order.kind
                else writer.foreachBatch(sink)
            )
            .outputMode("update" if order.kind == "stateful" else "append")
            .option("checkpointLocation", f"{order.folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _through_format(writer: Any, order: FaultyOrder) -> Any:
    given = {
        "config": order.config,
        "cluster": "B",
        "name": order.name,
        "topic": order.target_topic,
        "staging": f"{order.folder}/staged",
        "replication_factor": "1",
        "deterministic": str(order.kind == "format-direct"),
    }
    return writer.format("heliograph").options(**given)


def _made(rows: DataFrame, kind: str) -> Any:
    drawn = sql.concat(sql.col("value"), sql.lit("#"), sql.rand().cast("string"))
    if kind.endswith("direct"):
        return rows.select("key", "value", "headers", "timestamp")
    if kind == "mistyped":
        return rows.select(sql.length("value").alias("value"))
    if kind == "narrow":
        return rows.select(drawn.alias("value"))
    if kind == "stateful":
        bucket = sql.conv(sql.substring(sql.md5("value"), 1, 1), 16, 10).alias("bucket")
        totals = rows.select(bucket).groupBy("bucket").count()
        count = sql.col("count").cast("string").alias("value")
        return totals.select(sql.col("bucket").cast("string").alias("key"), count)
    if kind == "shuffled":
        placed = rows.select("key", "value").mapInArrow(
            _placed, "key binary, value binary, place int"
        )
        slow = placed.repartition(8, "place").mapInArrow(_slow, placed.schema)
        return slow.select("key", "value")
    made = rows.select("key", drawn.alias("value"), "headers", "timestamp")
    return made.repartition(3, sql.rand()) if kind == "repartitioned" else made


def _placed(batches: Iterator[Any]) -> Iterator[Any]:
    """A place that Spark does not know to be random: tried again, a row goes elsewhere."""
    drawn = np.random.default_rng()
    for batch in batches:
        places = pa.array(drawn.integers(0, 1_000, batch.num_rows), pa.int32())
        yield pa.RecordBatch.from_arrays(
            [batch.column("key"), batch.column("value"), places], ["key", "value", "place"]
        )


def _slow(batches: Iterator[Any]) -> Iterator[Any]:
    """So that of the tasks behind a shuffle some have ended when an executor is lost."""
    time.sleep(0.5)
    yield from batches


def _hold(folder: str, holds: tuple[str, ...], step: str, _subject: object = None) -> None:
    held = Path(folder)
    number = len(list(held.glob("*.go")))
    if number >= len(holds) or holds[number] != step:
        return
    (held / f"{number}.at").touch()
    while not (held / f"{number}.go").exists():
        time.sleep(0.02)


def _one_by_one(hold: Any, order: Any, parts: list[Any]) -> Any:
    """`append_unit` of one target partition after the other."""
    ends: list[Any] = []
    for number, part in enumerate(parts):
        if number:
            hold(BETWEEN)
        answer = append_unit(order, [part])
        if isinstance(answer, MirrorError):
            return answer
        ends += answer
    return ends


def _computed(hold: Any, order: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """`append_computed` that holds when its first batch is there."""
    probe.install(lambda step, _: hold(BETWEEN) if step == probe.PIPELINE_APPENDED else None)
    yield from append_computed(order, batches)


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    main(FaultyOrder(**{**given, "holds": tuple(given["holds"])}))
