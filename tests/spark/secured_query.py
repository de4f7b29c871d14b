"""A stream and a batch between secured clusters, and every plan Spark shows of them.

`python -m tests.spark.secured_query CONFIG SOURCE TARGET FOLDER`.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import heliograph
from tests.spark.kit import engine, running_session


def main(config: str, source: str, target: str, folder: str) -> None:
    logs = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}/events"}
    with running_session(engine("local[2]", spark=logs)) as context:
        spark = SparkSession(context)
        sink = heliograph.exactly_once(
            config,
            cluster="B",
            name="secured",
            topic=target,
            staging=f"{folder}/staged",
            replication_factor=1,
        )
        given = {"config": config, "cluster": "A", "subscribe": source}
        rows = spark.readStream.format("heliograph").options(**given)
        query = (
            rows.option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(extended=True)
        there = spark.read.format("heliograph").options(**given).load()
        there.explain(extended=True)
        print(there._jdf.queryExecution().toString())  # noqa: T201
        print([query.lastProgress, there.count(), context.getConf().getAll()])  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
