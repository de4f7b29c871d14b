"""Mask card numbers and send each order to the topic of its country: `python -m
examples.mask_and_route`.

Orders of a country that has no topic go to `orders.rejected`, with the reason in a header.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import heliograph
from examples.local import Example, run


def pipeline(spark: SparkSession, config: str, folder: str, prefix: str) -> Any:
    orders = (
        spark.readStream.format("heliograph")
        .option("config", config)
        .option("cluster", "A")
        .option("subscribe", f"{prefix}orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    text = sql.col("value").cast("string")
    country = sql.lower(sql.get_json_object(text, "$.country"))
    routed = orders.select(
        "key",
        sql.regexp_replace(text, r'("card": *")\d{12}', "$1************").alias("value"),
        "headers",
        "timestamp",
        sql.concat(sql.lit(f"{prefix}orders."), country).alias("topic"),
    )
    sink = heliograph.exactly_once(
        config,
        cluster="B",
        name=f"{prefix}mask-and-route",
        staging=f"{folder}/mask-and-route/staged",
        on_error="dead-letter",
        dead_letter_topic=f"{prefix}orders.rejected",
        replication_factor=1,
    )
    return (
        routed.writeStream.foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/mask-and-route/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


EXAMPLE = Example(
    a={"orders": {}},
    b={"orders.de": {}, "orders.fr": {}, "orders.rejected": {}},
    records={
        "orders": tuple(
            (f"k{n}", json.dumps({"id": n, "country": land, "card": f"{n:016d}"}))
            for n, land in enumerate(("DE", "FR", "DE", "IT", "FR"))
        )
    },
    pipeline=pipeline,
)

if __name__ == "__main__":
    run(EXAMPLE)
