"""A pipeline's query in a process of its own: crashes at steps it is told, and starts again.

`python -m tests.spark.pipeline_query ORDER`, a JSON file. Its transform is random: each row gets a
number and a target partition that another try would draw differently.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from examples import hourly_totals, join_reference, mask_and_route
from examples.local import Example
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import heliograph
from heliograph import probe
from heliograph.errors import MirrorError
from heliograph.pipeline.needed import columns_needed
from heliograph.pipeline.source import TRIGGERS_HAVE_LIMITS
from tests.spark.killed_writer import KilledSource
from tests.spark.kit import engine, running_session

EXAMPLES: Final = (mask_and_route.EXAMPLE, join_reference.EXAMPLE, hourly_totals.EXAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    config: str
    source_topic: str
    target_topic: str
    name: str
    folder: str
    steps: tuple[str, ...] = ()
    """The query fails at the first of these and starts again. At each of the others one try of a
    batch fails, and another sink tries with rows that are drawn anew, as a new query would."""
    kill_at: str | None = None
    """The process is killed there instead."""
    records_max: int = 400
    format_topic: str | None = None
    """Written by batches of `format("heliograph")`, and by streams, see `format_steps`."""
    format_direct_topic: str | None = None
    """Written by a stream of `format("heliograph")` that is declared deterministic."""
    format_steps: tuple[str, ...] | None = None
    """Where the process that commits a stream is killed, before the last one; None is no stream."""
    direct_topic: str | None = None
    """Written by a query that is declared deterministic."""
    examples: str | None = None
    """The prefix of the topics of `examples`, which run if there is one."""
    example_count: int = len(EXAMPLES)
    queries: tuple[str, ...] = ()
    """SQL over `records`, of which is asked what columns it needs."""


def examples_of(prefix: str | None, count: int) -> list[tuple[str, Example]]:
    """With the prefix of each one's topics; they read topics of the same name."""
    if prefix is None:
        return []
    return [(f"{prefix}{number}-", each) for number, each in enumerate(EXAMPLES[:count])]


def write_order(path: Path, order: Order) -> Path:
    path.write_text(json.dumps(asdict(order)), encoding="utf-8")
    return path


# A worker is a process that imports all of Heliograph: two at once, and none for data so small.
_FEW_PROCESSES: Final = {"spark.task.cpus": "1", "spark.sql.codegen.wholeStage": "false"} | {
    "spark.sql.shuffle.partitions": "2"
}


class Crashed(Exception):
    """The query ends here."""


def main(order: Order) -> None:
    with running_session(engine("local[2]", spark=_FEW_PROCESSES)) as context:
        spark = SparkSession(context)
        # `format("heliograph")` is known without a word: `pyspark_heliograph` is on the path.
        said = _crashing(spark, order)
        document = {
            "said": said,
            "read": _batch_read(spark, order),
            "refused": _refusals(spark, order) if order.steps else [],
            "format": _through_format(spark, order) if order.format_topic else [],
            "format_direct": _format_directly(spark, order) if order.format_direct_topic else [],
            "direct": _directly(spark, order) if order.direct_topic else "",
            "needed": [columns_needed(spark, query, "records") for query in order.queries],
        }
        for prefix, example in examples_of(order.examples, order.example_count):
            example.pipeline(spark, order.config, order.folder, prefix).awaitTermination()
    print(json.dumps(document))  # noqa: T201


def _crashing(spark: SparkSession, order: Order) -> list[str]:
    """How the query ended each time it was started, then where single tries failed."""
    failed: list[str] = []
    first, later = order.steps[:1], order.steps[1:]
    ended = [_run(spark, order, step, (), failed) for step in first]
    return [*ended, _run(spark, order, None, later, failed), *failed]


def _run(
    spark: SparkSession, order: Order, step: str | None, tries: tuple[str, ...], failed: list[str]
) -> str:
    """Run what is available now to its end, or to the step; what ended it."""
    ahead = [*tries, step]
    sink = _sink(order)

    def on_step(name: str, _: object) -> None:
        if name == order.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == ahead[0]:
            raise Crashed(name)

    def write(rows: DataFrame, batch: int) -> None:
        nonlocal sink
        while True:
            try:
                sink(_randomly(rows), batch)
            except Crashed as crashed:
                if len(ahead) == 1:
                    raise
                failed.append(str(crashed))
                del ahead[0]
                sink.close()
                sink = _sink(order)
            else:
                return

    probe.install(on_step)
    query = (
        _stream(spark, order)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{order.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except PySparkException as exc:
        return "crashed" if "Crashed" in str(exc) else str(exc)
    finally:
        sink.close()
        probe.install(lambda _step, _subject: None)
    return "ended"


def _through_format(spark: SparkSession, order: Order) -> list[str]:
    """The same query by Spark's own way to write, then rows of batches; what was said of each."""
    folder = Path(order.folder) / "format"
    folder.mkdir(exist_ok=True)
    if order.format_steps:
        spark.dataSource.register(KilledSource)
    steps = () if order.format_steps is None else (*order.format_steps, None)
    said = [_run_format(spark, order, folder, step) for step in steps]
    rows = spark.range(2).selectExpr("concat('batch-', id) as value")
    for frame, more in (
        (rows, {"batch": "100"}),
        (rows, {"batch": "100"}),
        (rows.selectExpr("value", "7 as partition"), {}),
        (rows.selectExpr("1 as value"), {}),
    ):
        # Of another name than the streams, which go on with a batch before 100.
        other = {"name": f"{order.name}-rows", **more}
        writer = _target(frame.write, order, folder).mode("append").options(**other)
        said.append(_ended(writer.save))
    said.append(_ended(_target(rows.write, order, folder).mode("overwrite").save))
    return said


def _directly(spark: SparkSession, order: Order) -> str:
    sink = heliograph.exactly_once(
        order.config,
        cluster="B",
        name=f"{order.name}-direct",
        topic=order.direct_topic,
        staging=f"{order.folder}/staged",
        replication_factor=1,
        deterministic=True,
        on_error="skip",
    )
    rows = _source(spark.readStream, order).option("startingOffsets", "earliest").load()
    seventh = "if(offset % 7 = 0, 9, partition) as partition"  # which there is not
    query = (
        rows.selectExpr("key", "value", "headers", "timestamp", seventh)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", f"{order.folder}/direct")
        .trigger(availableNow=True)
        .start()
    )
    said = _ended(query.awaitTermination)
    sink.close()
    return f"{said}, {sink.left_out} left out"


def _format_directly(spark: SparkSession, order: Order) -> list[str]:
    """All there is as one batch, and that batch again by its number."""
    folder = Path(order.folder) / "format-direct"
    rows = _source(spark.readStream, order).option("startingOffsets", "earliest").load()
    again = _source(spark.read, order).load()
    given = {
        "config": order.config,
        "cluster": "B",
        "name": f"{order.name}-format-direct",
        "topic": order.format_direct_topic,
        "staging": str(folder / "staged"),
        "replicationFactor": "1",
        "deterministic": "true",
    }
    columns = ("key", "value", "headers", "timestamp")
    query = (
        rows.select(*columns)
        .writeStream.format("heliograph")
        .options(**given)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    said = _ended(query.awaitTermination)
    writer = again.select(*columns).write.format("heliograph").mode("append")
    return [said, _ended(writer.options(**given, batch="0").save)]


def _run_format(spark: SparkSession, order: Order, folder: Path, step: str | None) -> str:
    if step is not None:
        (folder / "kill-at").write_text(step)
    query = (
        _target(
            _stream(spark, order).load().transform(_randomly).writeStream,
            order,
            folder,
        )
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    return _ended(lambda: query.start().awaitTermination())


def _target(writer: Any, order: Order, folder: Path) -> Any:
    return (
        writer.format("heliograph")
        .option("config", order.config)
        .option("cluster", "B")
        .option("name", f"{order.name}-format")
        .option("topic", order.format_topic)
        .option("staging", str(folder / "staged"))
        .option("replicationFactor", "1")
    )


def _ended(work: Callable[[], object]) -> str:
    try:
        work()
    except PySparkException as exc:
        return str(exc)
    return "ended"


def _stream(spark: SparkSession, order: Order) -> Any:
    reader = _source(spark.readStream, order).option("startingOffsets", "earliest")
    if not TRIGGERS_HAVE_LIMITS:
        return reader
    return reader.option("maxRecordsPerTrigger", str(order.records_max))


def _source(reader: Any, order: Order) -> Any:
    return (
        reader.format("heliograph")
        .option("config", order.config)
        .option("cluster", "A")
        .option("subscribe", order.source_topic)
    )


def _sink(order: Order, *, has_topic: bool = True) -> Any:
    return heliograph.exactly_once(
        order.config,
        cluster="B",
        name=order.name,
        topic=order.target_topic if has_topic else None,
        staging=f"{order.folder}/staged",
        replication_factor=1,
    )


def _randomly(rows: DataFrame) -> DataFrame:
    drawn = sql.concat(sql.col("value"), sql.lit("#"), sql.rand().cast("string"))
    return rows.select(
        "key",
        drawn.cast("binary").alias("value"),
        "headers",
        "timestamp",
        (sql.rand() * 3).cast("int").alias("partition"),
    )


def _batch_read(spark: SparkSession, order: Order) -> list[list[Any]]:
    rows = (
        _source(spark.read, order)
        .option("maxRecordsPerPartition", "150")
        .load()
        .orderBy("partition", "offset")
        .selectExpr(
            "topic",
            "partition",
            "offset",
            "unix_millis(timestamp)",
            "timestampType",
            "cast(key as string)",
            "cast(value as string)",
            "transform(headers, h -> concat(h.key, '=', cast(h.value as string)))",
            "leaderEpoch",
        )
    )
    return [list(row) for row in rows.collect()]


def _refusals(spark: SparkSession, order: Order) -> list[str]:
    """What is said of batches that cannot be written, each of which must leave nothing behind."""
    rows = spark.range(3)
    value = rows.selectExpr("cast(id as string) as value")
    ours, anywhere = _sink(order), _sink(order, has_topic=False)
    said = []
    for sink, frame, batch in (
        (ours, rows.selectExpr("id as key"), None),
        (ours, value.selectExpr("value", "7 as partition"), None),
        (anywhere, value.selectExpr("value", "'nowhere' as topic"), None),
        (ours, value, 0),
    ):
        try:
            sink.write(frame, batch)
        except MirrorError as exc:
            said.append(str(exc))
        else:
            said.append("written")
    ours.close()
    anywhere.close()
    return said


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    main(Order(**{**given, "steps": tuple(given["steps"])}))
