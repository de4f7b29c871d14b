"""Streaming queries over Kafka in a process of their own, which may be killed in a batch.

`python -m tests.spark.kafka_query ORDERS`: a JSON file with one `Order` for each query.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.kit.connector import connector_jars
from tests.kit.topics import wait_until
from tests.spark.kit import PATIENCE_S, engine, running_session

_BATCH_OFFSETS_MAX: Final = 150
_LAYOUT: Final = "spark.sql.streaming.offsetLog.formatVersion"
_NAMED: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One query: every batch becomes the file `out/<batch>.json` of what it read."""

    bootstrap: str
    topic: str
    checkpoint: str
    out: str
    layout: int
    name: str = ""
    """Of the source, where sources have names."""
    counts: bool = False
    """Whether it keeps state: how many records each key has had so far."""
    hold_batch: int | None = None
    """The batch whose file is written, and which is never committed: the process is killed."""
    turn: int = 0
    """Of two copies of one query, Spark stops the first when the second starts beside it."""


def write_orders(path: Path, orders: list[Order]) -> Path:
    path.write_text(json.dumps([asdict(order) for order in orders]), encoding="utf-8")
    return path


def batches(out: Path) -> dict[int, list[list[str]]]:
    """What each batch read: rows of key, and value or count."""
    return {int(path.stem): json.loads(path.read_text()) for path in out.glob("*.json")}


def main(orders: list[Order]) -> None:
    settings = {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.sql.shuffle.partitions": "1",
        "spark.task.cpus": "1",
    }
    with running_session(engine("local[2]", spark=settings)) as context:
        session = SparkSession(context)
        held = {order.out: threading.Event() for order in orders if order.hold_batch is not None}
        for turn in sorted({order.turn for order in orders}):
            queries = {
                order.out: _started(session, order, held.get(order.out))
                for order in orders
                if order.turn == turn
            }
            for out in queries.keys() - held.keys():
                queries[out].awaitTermination()
        if held:
            wait_until(
                lambda: all(event.is_set() for event in held.values()),
                "held batches",
                timeout_s=PATIENCE_S,
            )
            os.killpg(os.getpgrp(), signal.SIGKILL)


def _started(session: SparkSession, order: Order, held: threading.Event | None) -> StreamingQuery:
    session.conf.set(_LAYOUT, str(order.layout))
    session.conf.set(_NAMED, str(bool(order.name)).lower())
    reader = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order.bootstrap)
        .option("subscribe", order.topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", _BATCH_OFFSETS_MAX)
    )
    if order.name:
        reader = reader.name(order.name)
    read = reader.load().selectExpr("cast(key as string) key", "cast(value as string) value")
    if order.counts:
        read = read.groupBy("key").count().selectExpr("key", "cast(count as string) count")
    return (
        read.writeStream.foreachBatch(_writer(order, held))
        .outputMode("update" if order.counts else "append")
        .option("checkpointLocation", order.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def _writer(order: Order, held: threading.Event | None) -> Callable[[DataFrame, int], None]:
    def write(read: DataFrame, batch: int) -> None:
        path = Path(order.out) / f"{batch}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([list(row) for row in read.collect()]))
        if held is not None and batch == order.hold_batch:
            held.set()
            threading.Event().wait()

    return write


if __name__ == "__main__":
    main([Order(**fields) for fields in json.loads(Path(sys.argv[1]).read_text())])
