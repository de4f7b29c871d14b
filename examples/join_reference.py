"""Orders with their customers' names, who are in a compacted topic: `python -m
examples.join_reference`.

The customers are read anew for each micro-batch, so an order is joined with what is known of its
customer when the batch is staged; a batch that is tried again is not joined again.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import heliograph
from examples.local import Example, run


def customers(spark: SparkSession, config: str, prefix: str) -> DataFrame:
    """The newest value of each key; a key whose newest is a tombstone is left out."""
    rows = (
        spark.read.format("heliograph")
        .option("config", config)
        .option("cluster", "A")
        .option("subscribe", f"{prefix}customers")
        .load()
    )
    newest = rows.groupBy("key").agg(sql.max_by("value", "offset").alias("customer"))
    return newest.where("customer IS NOT NULL")


def pipeline(spark: SparkSession, config: str, folder: str, prefix: str) -> Any:
    orders = (
        spark.readStream.format("heliograph")
        .option("config", config)
        .option("cluster", "A")
        .option("subscribe", f"{prefix}orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    sink = heliograph.exactly_once(
        config,
        cluster="B",
        name=f"{prefix}join-reference",
        topic=f"{prefix}orders.named",
        staging=f"{folder}/join-reference/staged",
        replication_factor=1,
    )

    def joined(rows: DataFrame, batch: int) -> None:
        known = customers(rows.sparkSession, config, prefix)
        name = sql.get_json_object(sql.col("customer").cast("string"), "$.name")
        order = sql.col("value").cast("string")
        value = sql.to_json(sql.struct(order.alias("order"), name.alias("name")))
        sink.write(
            rows.join(known, "key", "left").select("key", value.alias("value"), "timestamp"), batch
        )

    return (
        orders.writeStream.foreachBatch(joined)
        .option("checkpointLocation", f"{folder}/join-reference/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


EXAMPLE = Example(
    a={"orders": {}, "customers": {"cleanup.policy": "compact"}},
    b={"orders.named": {}},
    records={
        "customers": (
            ("c1", json.dumps({"name": "Ada"})),
            ("c2", json.dumps({"name": "Grace"})),
            ("c1", json.dumps({"name": "Ada Lovelace"})),
            ("c3", json.dumps({"name": "Alan"})),
            ("c3", None),
        ),
        "orders": (("c1", "1 telescope"), ("c2", "2 lamps"), ("c3", "1 mirror"), ("c1", "1 lens")),
    },
    pipeline=pipeline,
)

if __name__ == "__main__":
    run(EXAMPLE)
