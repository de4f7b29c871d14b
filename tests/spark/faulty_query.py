"""A query of one kind in a process of its own, for tests that kill what it runs on.

`python -m tests.spark.faulty_query ORDER`, a JSON file. It writes what is available now, and ends.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import heliograph
from tests.spark.kit import engine, running_session


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyOrder:
    config: str
    source_topic: str
    target_topic: str
    name: str
    folder: str
    kind: str
    """`random`, `repartitioned`, `stateful` or `direct`."""
    master: str = "local[2]"
    records_max: int = 20_000
    shuffle_partitions: int = 2


def main(order: FaultyOrder) -> None:
    spark_settings = {"spark.sql.shuffle.partitions": str(order.shuffle_partitions)}
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
        rows = (
            spark.readStream.format("heliograph")
            .option("config", order.config)
            .option("cluster", "A")
            .option("subscribe", order.source_topic)
            .option("startingOffsets", "earliest")
            .option("maxRecordsPerTrigger", str(order.records_max))
            .option("maxRecordsPerPartition", "5000")
            .load()
        )
        print("begins", flush=True)  # noqa: T201
        query = (
            _made(rows, order.kind)
            .writeStream.foreachBatch(sink)
            .outputMode("update" if order.kind == "stateful" else "append")
            .option("checkpointLocation", f"{order.folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _made(rows: DataFrame, kind: str) -> Any:
    drawn = sql.concat(sql.col("value"), sql.lit("#"), sql.rand().cast("string"))
    if kind == "direct":
        return rows.select("key", "value", "headers", "timestamp")
    if kind == "stateful":
        bucket = sql.conv(sql.substring(sql.md5("value"), 1, 1), 16, 10).alias("bucket")
        totals = rows.select(bucket).groupBy("bucket").count()
        count = sql.col("count").cast("string").alias("value")
        return totals.select(sql.col("bucket").cast("string").alias("key"), count)
    made = rows.select("key", drawn.alias("value"), "headers", "timestamp")
    return made.repartition(3, sql.rand()) if kind == "repartitioned" else made


if __name__ == "__main__":
    main(FaultyOrder(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
