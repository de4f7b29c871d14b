"""`df.writeStream.format("heliograph")` and `df.write`: the same stage, claim, append and note as
`sink.exactly_once`, by Spark's Python data source. Driver and executors.

Spark makes a writer twice a micro-batch: one is pickled for the tasks, which stage (`write`),
another commits. Both are made in Python processes beside the driver's JVM, where there is no
`SparkContext`: so what was staged is appended by the committing process itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from heliograph.broker.admin import ClusterAdmin
from heliograph.errors import InvariantError, MirrorError, PipelineRefused
from heliograph.pipeline.append import PartToAppend
from heliograph.pipeline.append_task import AppendOrder, append_here
from heliograph.pipeline.batches import PipelineTarget, incoming_folder
from heliograph.pipeline.columns import require_columns
from heliograph.pipeline.direct_writer import (
    Computed,
    DirectTasks,
    checkpoint_batch,
    commit_direct,
    planned_direct,
)
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import TargetTopics
from heliograph.pipeline.sink_options import SinkOptions, sink_options
from heliograph.pipeline.staging import Folder, StagedPart, Stager
from heliograph.pipeline.staging_task import columns_of, prepared
from heliograph.pipeline.target_topics import target_topics

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # PySpark 4.0, where `require_stream_writer` refuses
    DataSourceStreamArrowWriter = None

log = logging.getLogger("heliograph")


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What one task has staged, or why it could not."""

    task: int
    folder: str
    parts: tuple[StagedPart, ...]
    problem: str = ""
    left_out: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Tasks:
    """All that a task needs to stage its rows; no credentials."""

    folder: str
    topics: TargetTopics

    def stage(self, batches: Iterator[Any]) -> Staged:
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        stager = Stager(Folder(self.folder), self.topics, task)
        with_topic = self.topics.default_topic is None
        try:
            for batch in batches:
                stager.add(columns_of(prepared(batch, with_topic=with_topic)))
            parts = tuple(stager.finish())
            return Staged(task, self.folder, parts, "", stager.left_out, stager.reason)
        except MirrorError as exc:
            # What is wrong with a row is an answer: raised, the task would be tried again.
            for _ in batches:
                continue
            return Staged(task, self.folder, (), str(exc))


class _Writer:
    """What both writers do. It holds no credentials: whoever commits reads the file again."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, is_stream: bool) -> None:
        self._given, self._is_stream = dict(given), is_stream
        require_columns(schema, self._options().topic)
        self._tasks: _Tasks | DirectTasks | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles a writer for its tasks, and no other: here it is known that it will stage.
        options = self._options()
        if self._tasks is None and options.is_deterministic:
            with closing(_target(options)) as target:
                query = query_id(options.checkpoint)
                self._tasks = planned_direct(options, target, query, is_stream=self._is_stream)
        elif self._tasks is None:
            is_stream = self._is_stream
            number = checkpoint_batch(options.checkpoint) if is_stream else options.batch
            self._tasks = _planned(options, number)
        return dict(self.__dict__)

    def write(self, iterator: Iterator[Any]) -> Staged | Computed:
        if self._tasks is None:
            raise InvariantError("a writer that was not sent to a task cannot stage")
        return self._tasks.stage(iterator)

    def _options(self) -> SinkOptions:
        return sink_options(self._given, is_stream=self._is_stream)

    def _commit(self, messages: Sequence[Any], batch: int | None) -> None:
        options = self._options()
        staged = sorted((each for each in messages if each is not None), key=lambda each: each.task)
        query = query_id(options.checkpoint)

        def leave_out(count: int, reason: str) -> None:
            log.warning("pipeline %s: %s left out: %s", options.name, count, reason)

        try:
            with closing(_target(options)) as target:
                if options.is_deterministic:
                    # Not the next number there is: where no batch was begun, none has tasks.
                    number = target.begun_batch() if batch is None else batch
                    commit_direct(options, target, query, staged, number, leave_out)
                    return
                if problems := sorted({each.problem for each in staged if each.problem}):
                    raise PipelineRefused(problems[0])
                if left_out := sum(each.left_out for each in staged):
                    leave_out(left_out, next(each.reason for each in staged if each.reason))
                number = target.next_batch() if batch is None else batch
                target.write(number, query, partial(_taken, staged), _append)
        finally:
            _discard(staged)

    def abort(self, messages: Sequence[Any], *_batch: int) -> None:
        """Nothing was sent; what was staged is worth nothing."""
        _discard([each for each in messages if each is not None])


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    def commit(self, messages: list[Any]) -> None:
        self._commit(messages, self._options().batch)


class StreamWriter(_Writer, DataSourceStreamArrowWriter or object):  # type: ignore[misc]
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's
        self._commit(messages, batchId)


def require_append(*, overwrite: bool) -> None:
    if overwrite:
        raise PipelineRefused(
            'a topic cannot be overwritten: use mode("append") or outputMode("append")'
        )


def require_stream_writer() -> None:
    if DataSourceStreamArrowWriter is None:
        raise PipelineRefused(
            "a streaming query writes to Kafka with PySpark 4.1 or newer: 4.0 has no sinks of "
            "Arrow batches for it"
        )


def query_id(checkpoint: str | None) -> str:
    """Structured Streaming's, from the checkpoint; empty where Spark was told of none here."""
    if checkpoint is None:
        return ""
    folder = Folder(checkpoint)
    if "metadata" not in folder.names():
        return ""
    try:
        return str(json.loads(folder.read("metadata"))["id"])
    except (ValueError, KeyError, TypeError) as exc:
        raise PipelineRefused(f"checkpoint {checkpoint}: its metadata cannot be read") from exc


def _target(options: SinkOptions) -> PipelineTarget:
    return PipelineTarget(
        options.cluster,
        options.name,
        staging=options.staging,
        topic=options.topic,
        codec=options.codec,
        replication_factor=options.replication_factor,
        on_error=options.on_error,
        dead_letter_topic=options.dead_letter_topic,
    )


def _planned(options: SinkOptions, number: int | None) -> _Tasks:
    topics = target_topics(
        ClusterAdmin(options.cluster),
        topic=options.topic,
        codec=options.codec,
        on_error=options.on_error,
        dead_letter_topic=options.dead_letter_topic,
    )
    return _Tasks(incoming_folder(options.staging, options.name, number).uri, topics)


def _taken(staged: Sequence[Staged], folder: Folder, _topics: TargetTopics) -> list[StagedPart]:
    """Move what tasks have staged to where the batch's rows are looked for."""
    for each in staged:
        for name in sorted({piece.file for part in each.parts for piece in part.pieces}):
            folder.take(Folder(each.folder), name)
    return [part for each in staged for part in each.parts]


def _discard(staged: Sequence[Staged | Computed]) -> None:
    for uri in {each.folder for each in staged if each.folder}:
        Folder(uri).remove()


def _append(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
    return asyncio.run(append_here(order, parts))
