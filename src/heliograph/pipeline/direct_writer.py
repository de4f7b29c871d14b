"""`format("heliograph")` declared deterministic: tasks append what they compute. Driver and
executors.

Here nobody knows how many tasks a batch has before they have run. So a batch that goes on, of which
others may have written, is not appended by its tasks: they put what they compute into files, and
whoever commits compares it with the logs, appends the rest, and sees that no task more has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from heliograph.broker.cluster import open_cluster
from heliograph.errors import MirrorError, PipelineRefused
from heliograph.pipeline.append import StagedFiles, retried
from heliograph.pipeline.batches import DirectBatch, PipelineTarget, incoming_folder
from heliograph.pipeline.direct import DirectAppender, DirectPacker, require_untouched
from heliograph.pipeline.direct_task import with_counts
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import Packer
from heliograph.pipeline.sink_options import SinkOptions
from heliograph.pipeline.staging import Folder, StagedPart, Stager
from heliograph.pipeline.staging_task import columns_of, prepared

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig

TASKS_MAX: Final = 256
"""Of a batch: so many producers are claimed."""
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Computed(WriterCommitMessage):  # type: ignore[misc]
    """What one task has appended or put into a file, or why it could not."""

    task: int
    token: str
    """Of the claim; empty where the batch was written before."""
    folder: str = ""
    parts: tuple[StagedPart, ...] = ()
    ends: tuple[tuple[PartEnd, int], ...] = ()
    problem: str = ""
    left_out: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DirectTasks:
    """All that a task needs; holds credentials."""

    cluster: ClusterConfig = field(repr=False)
    number: int
    is_stream: bool
    batch: DirectBatch | None
    """None where all of it is written."""
    folder: str
    """Where tasks put what they compute; empty where they append it."""

    def stage(self, batches: Iterator[Any]) -> Computed:
        context = TaskContext.get()
        told = None if context is None else context.getLocalProperty(_BATCH_ID)
        task = context.partitionId() if context is not None else 0
        if not self.is_stream or told == str(self.number):
            return self.computed(task, batches)
        for _ in batches:
            continue
        problem = (
            f"the checkpoint says that batch {self.number} is next, and Spark that it is {told}: "
            "declared deterministic, `checkpointLocation` must be the query's own"
        )
        return Computed(task, "", problem=problem)

    def computed(self, task: int, batches: Iterator[Any]) -> Computed:
        """What is wrong with a row is an answer: raised, the task would be tried again."""
        found = Computed(task, "")
        try:
            if self.batch is not None:
                return self._done(self.batch, task, batches)
        except MirrorError as exc:
            found = Computed(task, "", problem=str(exc))
        for _ in batches:
            continue
        return found

    def _done(self, batch: DirectBatch, task: int, batches: Iterator[Any]) -> Computed:
        if task >= TASKS_MAX:
            raise PipelineRefused(
                f"a batch has more than {TASKS_MAX} tasks: declared deterministic, as few are "
                "known; coalesce the rows, or stage them"
            )
        token = batch.claim.token
        if self.folder:
            stager = Stager(Folder(self.folder), batch.topics, task, at_ms=batch.claim.at_ms)
            _add_all(stager, batches)
            parts = tuple(stager.finish())
            said = (stager.left_out, stager.reason)
            return Computed(task, token, self.folder, parts, (), "", *said)
        starts = batch.starts(task)
        with closing(DirectAppender(self.cluster, batch.stamp(task), starts)) as appender:
            packer = DirectPacker(batch.topics, task, appender, at_ms=batch.claim.at_ms)
            _add_all(packer, batches)
            packer.seal_all()
            ends = tuple(with_counts(appender.finish(), starts))
        return Computed(task, token, "", (), ends, "", packer.left_out, packer.reason)


def planned_direct(
    options: SinkOptions, target: PipelineTarget, query: str, *, is_stream: bool
) -> DirectTasks:
    number = _number(options, target, is_stream=is_stream)
    batch = target.begin_direct(number, query, TASKS_MAX)
    folder = ""
    if batch is not None and batch.is_again:
        folder = incoming_folder(options.staging, options.name, number).uri
    return DirectTasks(options.cluster, number, is_stream, batch, folder)


def commit_direct(
    options: SinkOptions,
    target: PipelineTarget,
    query: str,
    found: Sequence[Computed],
    number: int,
    leave_out: Callable[[int, str], None],
) -> None:
    if problems := sorted({each.problem for each in found if each.problem}):
        raise PipelineRefused(problems[0])
    batch = target.begin_direct(number, query, TASKS_MAX)
    if batch is None:
        return
    if any(each.token != batch.claim.token for each in found):
        raise PipelineRefused(f"batch {number} was begun anew by another copy of this query")
    if left_out := sum(each.left_out for each in found):
        leave_out(left_out, next(each.reason for each in found if each.reason))
    written = [end for each in found for end in each.ends]
    if any(each.folder for each in found):
        asyncio.run(_require_no_other(options.cluster, batch, len(found)))
        for each in found:
            written += _appended(options.cluster, batch, each)
    target.finish_direct(batch, written)


def _appended(
    cluster: ClusterConfig, batch: DirectBatch, computed: Computed
) -> list[tuple[PartEnd, int]]:
    """What is missing of a task's rows; those that are there are compared."""
    starts = batch.starts(computed.task)
    appender = DirectAppender(cluster, batch.stamp(computed.task), starts)
    with closing(appender), closing(StagedFiles(Folder(computed.folder))) as files:
        for part in computed.parts:
            for piece in part.pieces:
                appender.put(part.target, files.batch(piece))
        return with_counts(appender.finish(), starts)


async def _require_no_other(cluster: ClusterConfig, batch: DirectBatch, tasks: int) -> None:
    """Raises `PipelineRefused` where a task wrote that this try does not have: others would write
    its rows again."""
    target = open_cluster(cluster, "producer")
    try:
        topics = {start.target.topic for start in batch.claim.starts}
        await retried(target, topics, partial(target.refresh, topics))
        for task in range(tasks, len(batch.claim.producers)):
            stamp, starts = batch.stamp(task), batch.starts(task)
            await require_untouched(target, stamp, starts)
    finally:
        target.close()


def _add_all(packer: Packer, batches: Iterator[Any]) -> None:
    for batch in batches:
        packer.add(columns_of(prepared(batch, with_topic=False)))


def _number(options: SinkOptions, target: PipelineTarget, *, is_stream: bool) -> int:
    if not is_stream:
        return target.next_batch() if options.batch is None else options.batch
    number = checkpoint_batch(options.checkpoint)
    if number is None:
        raise PipelineRefused(
            "a query that is declared deterministic needs `checkpointLocation` as an option of its "
            "own: there it finds the number of its batch"
        )
    return number


def checkpoint_batch(checkpoint: str | None) -> int | None:
    """The number of the batch that a stream's checkpoint says is next."""
    names = [] if checkpoint is None else Folder(checkpoint).child("offsets").names()
    return max((int(name) for name in names if name.isdigit()), default=None)
