"""What two sources make of one topic: `python -m tests.spark.compared_sources ORDER`, a JSON file.

Spark's own Kafka source and `format("heliograph")`, in one session, told the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from heliograph.pipeline.source import TRIGGERS_HAVE_LIMITS
from tests.kit.connector import connector_jars
from tests.spark.kit import engine, running_session

OURS: Final = "heliograph"
SPARKS: Final = "kafka"
_LIMIT: Final = "200"
_HEADERS: Final = "transform(headers, h -> concat(h.key, '=', coalesce(hex(h.value), 'none')))"
_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp)",
    "timestampType",
    "hex(key)",
    "hex(value)",
    f"coalesce({_HEADERS}, array())",  # no headers are null to Spark's own source
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOrder:
    config: str
    bootstrap: str
    topics: str
    folder: str
    reads: list[dict[str, str]]
    """Options that both know; one batch for each."""


def main(order: CompareOrder) -> None:
    jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    with running_session(engine("local[2]", spark=jars)) as context:
        spark = SparkSession(context)
        found = {
            source: {
                "batches": [_batch(spark, order, source, options) for options in order.reads],
                "stream": _stream(spark, order, source),
            }
            for source in (OURS, SPARKS)
        }
    print(json.dumps(found))  # noqa: T201


def _batch(
    spark: SparkSession, order: CompareOrder, source: str, options: Mapping[str, str]
) -> list[list[Any]]:
    return _rows(_told(spark.read, order, source).options(**options).load())


def _stream(spark: SparkSession, order: CompareOrder, source: str) -> dict[str, Any]:
    """Each batch's rows where a trigger has a limit, all there are elsewhere; where it ended."""
    batches: list[list[list[Any]]] = []
    reader = _told(spark.readStream, order, source).option("startingOffsets", "earliest")
    if TRIGGERS_HAVE_LIMITS:
        reader = reader.option("maxOffsetsPerTrigger", _LIMIT)
    query = (
        reader.load()
        .writeStream.foreachBatch(lambda rows, _: batches.append(_rows(rows)))
        .option("checkpointLocation", f"{order.folder}/{source}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    log = Path(order.folder) / source / "offsets" / str(len(batches) - 1)
    ends = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    return {"rows": sorted((row for batch in batches for row in batch), key=str), "ends": ends}


def _told(reader: Any, order: CompareOrder, source: str) -> Any:
    reader = reader.format(source).option("subscribe", order.topics)
    if source == OURS:
        return reader.option("config", order.config).option("cluster", "A")
    return (
        reader.option("kafka.bootstrap.servers", order.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
    )


def _rows(rows: DataFrame) -> list[list[Any]]:
    return sorted([list(row) for row in rows.selectExpr(*_COLUMNS).collect()], key=str)


if __name__ == "__main__":
    main(CompareOrder(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
