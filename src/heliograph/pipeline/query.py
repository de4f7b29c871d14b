"""A pipeline of the file as a streaming query of the driver's Spark. Runs on the driver; blocks.

The session is the mirror's own: Spark SQL is loaded into its JVM by the first pipeline. Credentials
are no options of the query but part of a class that is made for it, which Spark shows nowhere.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from heliograph.clock import now_ms
from heliograph.config.plugins import load_function
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig, PipelineConfig
from heliograph.errors import PipelineRefused
from heliograph.ledger.pipeline_note import PipelineFigures, PipelineState
from heliograph.model import ClusterAlias
from heliograph.pipeline.columns import require_columns
from heliograph.pipeline.needed import columns_needed
from heliograph.pipeline.packing import OnError
from heliograph.pipeline.reasons import reason_of
from heliograph.pipeline.sink import ExactlyOnce
from heliograph.pipeline.source import FORMAT, TRIGGERS_HAVE_LIMITS, HeliographSource
from heliograph.wire.compression import Codec

log: Final = logging.getLogger("heliograph")

VIEW: Final = "records"
_TASK_FAILURES_MAX: Final = 4
"""A mirror's Spark tries a task for ever, since slots must be; a pipeline's task is not."""
_ERRORS_SEEN: Final = 100
_IS_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"
_SHUFFLE_CHECKS: Final = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""What a lost executor had shuffled is computed again, and a random key sends rows elsewhere: the
tasks that had read it start again where these are on. PySpark before 4.1 does not know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOrder:
    """All that a pipeline needs; holds credentials."""

    pipeline: PipelineConfig
    source: ClusterConfig = field(repr=False)
    target: ClusterConfig = field(repr=False)
    read_committed: bool
    replication_factor: int
    once: bool = False
    """End when all that is there now has been written."""


def order_of(
    config: MirrorConfig, flow: FlowConfig, pipeline: PipelineConfig, *, once: bool = False
) -> QueryOrder:
    return QueryOrder(
        pipeline=pipeline,
        source=config.source_of(flow.id),
        target=config.target_of(flow.id),
        read_committed=flow.read_committed,
        replication_factor=flow.replication_factor,
        once=once,
    )


def pipeline_session(context: Any, order: QueryOrder) -> SparkSession:
    """One for each pipeline: their views and settings have nothing to do with each other."""
    if importlib.util.find_spec("pandas") is None:
        raise PipelineRefused("pipelines need pandas: install the extra `pipelines`")
    spark = SparkSession(context).newSession()
    parallelism = max(1, int(context.defaultParallelism))
    if not context.getConf().contains("spark.sql.shuffle.partitions"):
        spark.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    for name in _SHUFFLE_CHECKS:
        if not context.getConf().contains(name):
            spark.conf.set(name, "true")
    clusters = {cluster.alias: cluster for cluster in (order.source, order.target)}
    try:
        spark.dataSource.register(_knowing(clusters))
    except AnalysisException as exc:
        if exc.getCondition() != _IS_KNOWN:
            raise
        raise PipelineRefused(
            "pipelines of a file need PySpark 4.1 or newer: 4.0 takes no source of theirs beside "
            "the installed one; heliograph.exactly_once writes the same query"
        ) from exc
    return spark


def _knowing(clusters: Mapping[ClusterAlias, ClusterConfig]) -> type[HeliographSource]:
    """A source that needs no file: made here, it is pickled whole, clusters and all."""
    known = {str(alias): cluster for alias, cluster in clusters.items()}

    class KnowingSource(HeliographSource):
        clusters = known

    return KnowingSource


def records(spark: SparkSession, reader: Any, order: QueryOrder) -> Any:
    """What a pipeline reads, for `spark.read` or `spark.readStream`. Raises `PipelineRefused`."""
    topics = "|".join(f"(?:{each})" for each in order.pipeline.topics)
    level = "read_committed" if order.read_committed else "read_uncommitted"
    reader = (
        reader.format(FORMAT)
        .option("cluster", order.source.alias)
        .option("subscribePattern", topics)
        .option("isolation.level", level)
    )
    if order.pipeline.sql is None:
        return reader
    try:
        needed = columns_needed(spark, order.pipeline.sql, VIEW)
    except Exception as exc:  # whatever Spark says of the operator's SQL
        raise _wrong("sql", exc) from exc
    return reader.option("columns", ",".join(needed))


def transformed(spark: SparkSession, order: QueryOrder, rows: DataFrame) -> DataFrame:
    """The rows that the pipeline makes. Raises `PipelineRefused` for what cannot be written."""
    pipeline = order.pipeline
    if pipeline.function is not None:
        what = f"function {pipeline.function}"
    else:
        what = "sql"
        rows.createOrReplaceTempView(VIEW)
    try:
        made = (
            spark.sql(pipeline.sql or "")
            if pipeline.function is None
            else load_function(pipeline.function)(rows)
        )
    except Exception as exc:  # the operator's own code may raise anything
        raise _wrong(what, exc) from exc
    if not isinstance(made, DataFrame):
        raise PipelineRefused(f"{what} returns {type(made).__name__}, not a DataFrame")
    require_columns(made.schema, pipeline.target_topic)
    return made


def _wrong(what: str, exc: Exception) -> PipelineRefused:
    return PipelineRefused(f"{what}: {reason_of(f'{type(exc).__name__}: {exc}')}")


class PipelineQuery:
    """One run of a pipeline. Used by one thread at a time."""

    def __init__(self, context: Any, order: QueryOrder) -> None:
        """Begins at once. Raises `MirrorError`."""
        self._context, self._order = context, order
        # py4j logs a page for each sentence that a batch is refused with; it is shown anyway.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        self._rows_written = self._records_read = 0
        self._seen_batch: int | None = None
        self._records_per_s: float | None = None
        pipeline = order.pipeline
        self._sink = ExactlyOnce(
            cluster=order.target,
            name=pipeline.name,
            staging=pipeline.staging_folder,
            topic=pipeline.target_topic,
            codec=Codec[pipeline.compression.upper()],
            replication_factor=order.replication_factor,
            is_deterministic=pipeline.deterministic,
            on_error=OnError(pipeline.on_error),
            dead_letter_topic=pipeline.dead_letter_topic,
        )
        try:
            self._query = self._started(pipeline_session(context, order))
        except (Py4JError, PySparkException) as exc:
            raise PipelineRefused(reason_of(str(exc))) from exc

    def _started(self, spark: SparkSession) -> Any:
        order, pipeline = self._order, self._order.pipeline
        by_group = pipeline.start_group is not None
        reader = records(spark, spark.readStream, order).option(
            "startingGroup" if by_group else "startingOffsets",
            pipeline.start_group or pipeline.start_at,
        )
        if TRIGGERS_HAVE_LIMITS:
            reader = reader.option("maxRecordsPerTrigger", str(pipeline.records_max))
        else:
            log.warning(
                "pipeline %s: PySpark %s reads all there is in one batch, whatever "
                "trigger.records.max says; PySpark 4.2 or newer keeps to it",
                pipeline.name,
                pyspark.__version__,
            )
        made = transformed(spark, order, reader.load())
        if not made.isStreaming:
            raise PipelineRefused("the rows do not come from `records`: nothing would ever be read")
        writer = (
            made.writeStream.foreachBatch(self._write)
            .queryName(pipeline.name)
            .outputMode(pipeline.output_mode)
            .option("checkpointLocation", pipeline.checkpoint_folder)
        )
        if order.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{pipeline.trigger_ms} milliseconds").start()

    def _write(self, rows: DataFrame, batch: int) -> None:
        self._rows_written += self._sink.write(rows, batch).records

    def look(self) -> PipelineFigures:
        """How it is. Raises `PipelineRefused` where it has ended, or its tasks fail for good."""
        query = self._query
        try:
            is_active = query.isActive
            figures = self._figures(is_active)
            problem = _failing(self._context, query.runId) if is_active else query.exception()
        except (Py4JError, PySparkException, OSError, AttributeError) as exc:
            raise PipelineRefused(f"Spark does not answer: {reason_of(str(exc))}") from exc
        if problem:
            raise PipelineRefused(reason_of(str(problem)))
        if not is_active and not self._order.once:
            raise PipelineRefused("the query was stopped, and not by its driver")
        return figures

    def stop(self) -> None:
        """Whatever state it is in; what a batch has begun is gone on with by the next run."""
        query = getattr(self, "_query", None)
        if query is not None:
            # A JVM that has ended has no query either.
            with suppress(Py4JError, PySparkException, OSError, AttributeError):
                query.stop()
        self._sink.close()

    def _figures(self, is_active: bool) -> PipelineFigures:
        lag: int | None = None
        batch = batch_ms = batch_at_ms = None
        for progress in self._query.recentProgress:
            if self._seen_batch is None or progress.batchId > self._seen_batch:
                if progress.numInputRows:
                    self._records_read += progress.numInputRows
                    self._records_per_s = progress.processedRowsPerSecond
                if "addBatch" in progress.durationMs:
                    self._seen_batch = progress.batchId
        last = self._query.lastProgress
        if last is not None:
            batch = self._seen_batch
            batch_ms = last.durationMs.get("triggerExecution")
            batch_at_ms = _at_ms(last.timestamp)
            lag = _lag(last.sources)
        return PipelineFigures(
            name=self._order.pipeline.name,
            state=PipelineState.RUNNING if is_active else PipelineState.ENDED,
            at_ms=now_ms(),
            batch=batch,
            batch_ms=batch_ms,
            batch_at_ms=batch_at_ms,
            records_read=self._records_read,
            rows_written=self._rows_written,
            rows_left_out=self._sink.left_out,
            records_per_s=self._records_per_s,
            lag_records=lag,
        )


def _lag(sources: Any) -> int | None:
    """Of our own source; others of the query, such as files, tell none."""
    total: int | None = None
    for source in sources:
        try:
            end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
            behind = sum(
                max(0, int(offset) - int(end.get(topic, {}).get(partition, 0)))
                for topic, partitions in latest.items()
                for partition, offset in partitions.items()
            )
        except (TypeError, ValueError, AttributeError):
            continue
        total = behind + (total or 0)
    return total


def _at_ms(timestamp: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _failing(context: Any, group: str) -> str:
    """What the tasks of a running job say that have failed too often; nothing where none has."""
    tracker = context.statusTracker()
    for job in set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(group)):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            at = tracker.getStageInfo(stage)
            if at is not None and at.numFailedTasks >= _TASK_FAILURES_MAX:
                return _said_by_tasks(context, stage, at.currentAttemptId)
    return ""


def _said_by_tasks(context: Any, stage: int, attempt: int) -> str:
    tasks = context._jsc.sc().statusStore().taskList(stage, attempt, _ERRORS_SEEN)
    for index in range(tasks.size()):
        said = tasks.apply(index).errorMessage()
        if said.isDefined():
            return str(said.get())
    return f"{_TASK_FAILURES_MAX} tasks of stage {stage} failed"
