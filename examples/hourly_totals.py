"""Totals of each product and hour into a compacted topic of another cluster: `python -m
examples.hourly_totals`.

A query with state: each micro-batch writes the totals that it changed, and the topic keeps the
newest of each key.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import heliograph
from examples.local import Example, run


def pipeline(spark: SparkSession, config: str, folder: str, prefix: str) -> Any:
    sales = (
        spark.readStream.format("heliograph")
        .option("config", config)
        .option("cluster", "A")
        .option("subscribe", f"{prefix}sales")
        .option("startingOffsets", "earliest")
        .load()
    )
    sale = sql.from_json(sql.col("value").cast("string"), "product string, amount double")
    totals = (
        sales.select("timestamp", sale.alias("sale"))
        .withWatermark("timestamp", "2 hours")
        .groupBy(sql.window("timestamp", "1 hour"), "sale.product")
        .agg(sql.sum("sale.amount").alias("amount"), sql.count("*").alias("sales"))
    )
    hour = sql.date_format("window.start", "yyyy-MM-dd'T'HH:mm")
    rows = totals.select(
        sql.concat_ws("|", hour, "product").alias("key"),
        sql.to_json(sql.struct("product", "amount", "sales")).alias("value"),
        sql.col("window.start").alias("timestamp"),
    )
    sink = heliograph.exactly_once(
        config,
        cluster="B",
        name=f"{prefix}hourly-totals",
        topic=f"{prefix}sales.hourly",
        staging=f"{folder}/hourly-totals/staged",
        replication_factor=1,
    )
    return (
        rows.writeStream.foreachBatch(sink)
        .outputMode("update")
        .option("checkpointLocation", f"{folder}/hourly-totals/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


EXAMPLE = Example(
    a={"sales": {}},
    b={"sales.hourly": {"cleanup.policy": "compact"}},
    records={
        "sales": tuple(
            (None, json.dumps({"product": product, "amount": amount}))
            for product, amount in (("lamp", 10.0), ("lens", 2.5), ("lamp", 5.0), ("lens", 1.0))
        )
    },
    pipeline=pipeline,
)

if __name__ == "__main__":
    run(EXAMPLE)
