"""DataFrames into Kafka, exactly once: `foreachBatch(heliograph.exactly_once(…))`. Driver and
executors.

    heliograph.exactly_once("mm2.properties", cluster="B", name="masked", topic="orders.masked",
                            staging="/checkpoints/masked/staged")

Staging is one Spark job over the user's DataFrame, appending another over target partitions.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.engine.unit_job import run_units
from heliograph.errors import ConfigError, MirrorError, PipelineRefused
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.pipeline.append import PartToAppend
from heliograph.pipeline.append_task import AppendOrder, append_unit
from heliograph.pipeline.batches import DirectOrder, PipelineTarget, WrittenBatch
from heliograph.pipeline.columns import require_columns, selected
from heliograph.pipeline.direct_task import DIRECT_RESULT, append_computed
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import OnError, TargetTopics
from heliograph.pipeline.staging import Folder, Piece, StagedPart
from heliograph.pipeline.staging_task import stage_batches
from heliograph.wire.compression import Codec
from heliograph.words import counted

log = logging.getLogger("heliograph")

_RESULT: Final = (
    "task int, topic string, partition int, pieces string, problem string, left_out long, "
    "reason string"
)
_QUERY_ID: Final = "sql.streaming.queryId"


def exactly_once(
    config: MirrorConfig | Path | str,
    *,
    cluster: str,
    name: str,
    staging: str,
    topic: str | None = None,
    compression: str = "none",
    replication_factor: int = -1,
    deterministic: bool = False,
    on_error: str = "stall",
    dead_letter_topic: str | None = None,
) -> ExactlyOnce:
    """A function for `foreachBatch` that writes each micro-batch to Kafka exactly once.

    Rows have `value`, and may have `key`, `headers`, `timestamp`, `partition`, and `topic`, which
    counts where none is given here. `name` is the pipeline's: its ledger on the cluster goes by it.
    `staging` is a folder that driver and executors reach, beside the query's checkpoint and kept as
    long. A query that is `deterministic`, so that each of its tasks makes the same rows in the same
    order whenever it is tried, stages nothing. `on_error` is `stall`, `skip` or `dead-letter`.
    """
    if not isinstance(config, MirrorConfig):
        config = load_config(Path(config))
    alias = ClusterAlias(cluster)
    if alias not in config.clusters:
        known = ", ".join(sorted(config.clusters))
        raise ConfigError(f"cluster {cluster}", (f"is not in the file, which has {known}",))
    if compression.upper() not in Codec.__members__:
        raise ConfigError(
            f"compression {compression}", (f"is none of {', '.join(Codec.__members__)}".lower(),)
        )
    return ExactlyOnce(
        cluster=config.clusters[alias],
        name=name,
        staging=staging,
        topic=topic,
        codec=Codec[compression.upper()],
        replication_factor=replication_factor,
        is_deterministic=deterministic,
        on_error=policy_of(on_error, dead_letter_topic),
        dead_letter_topic=dead_letter_topic,
    )


def policy_of(on_error: str, dead_letter_topic: str | None) -> OnError:
    """Raises `ConfigError`."""
    known = {each.value for each in OnError}
    if on_error not in known:
        raise ConfigError(f"on_error {on_error}", (f"is none of {', '.join(sorted(known))}",))
    policy = OnError(on_error)
    if (policy is OnError.DEAD_LETTER) != (dead_letter_topic is not None):
        raise ConfigError(
            "dead_letter_topic", ("and on_error = dead-letter are given together, or neither",)
        )
    return policy


class ExactlyOnce:
    """The sink of one pipeline. Called by one query at a time."""

    def __init__(
        self,
        *,
        cluster: ClusterConfig,
        name: str,
        staging: str,
        topic: str | None,
        codec: Codec,
        replication_factor: int,
        is_deterministic: bool = False,
        on_error: OnError = OnError.STALL,
        dead_letter_topic: str | None = None,
    ) -> None:
        self.left_out = 0
        """Rows that could not be written and were skipped, or went to the dead-letter topic."""
        if is_deterministic and topic is None:
            raise PipelineRefused("a pipeline that is declared deterministic needs a topic")
        self._name, self._topic, self._is_deterministic = name, topic, is_deterministic
        self._open = partial(
            PipelineTarget,
            cluster,
            name,
            staging=staging,
            topic=topic,
            codec=codec,
            replication_factor=replication_factor,
            on_error=on_error,
            dead_letter_topic=dead_letter_topic,
        )
        self._target: PipelineTarget | None = None

    def __call__(self, rows: Any, batch: int) -> None:
        """As `foreachBatch` calls it."""
        self.write(rows, batch)

    def write(self, rows: Any, batch: int | None = None) -> WrittenBatch:
        """Write a DataFrame as this batch; without a number, as one that follows all others."""
        require_columns(rows.schema, self._topic)
        if self._target is None:
            self._target = self._open()
        target = self._target
        context = rows.sparkSession.sparkContext
        query = context.getLocalProperty(_QUERY_ID) or ""
        number = target.next_batch() if batch is None else batch
        return target.write(
            number,
            query,
            partial(_stage, rows, self._leave_out),
            partial(_append, context),
            _Direct(rows, self._leave_out) if self._is_deterministic else None,
        )

    def close(self) -> None:
        if self._target is not None:
            self._target.close()
            self._target = None

    def _leave_out(self, count: int, reason: str) -> None:
        self.left_out += count
        log.warning(
            "pipeline %s: %s cannot be written: %s", self._name, counted(count, "row"), reason
        )


LeaveOut = Callable[[int, str], None]


def _stage(
    rows: Any, leave_out: LeaveOut, folder: Folder, topics: TargetTopics
) -> list[StagedPart]:
    """One task of Spark's for each partition of the DataFrame; its result is a few rows."""
    work = partial(stage_batches, folder.uri, topics)
    found = (
        selected(rows, with_topic=topics.default_topic is None).mapInArrow(work, _RESULT).collect()
    )
    _raise_first(found)
    if left_out := sum(row.left_out or 0 for row in found):
        leave_out(left_out, next(row.reason for row in found if row.reason))
    return [
        StagedPart(
            target=TopicPartition(topic=TopicName(row.topic), partition=row.partition),
            pieces=tuple(Piece(*piece) for piece in json.loads(row.pieces)),
        )
        for row in sorted(
            (row for row in found if row.topic is not None),
            key=lambda row: (row.task, row.topic, row.partition),
        )
    ]


def _raise_first(found: Sequence[Any]) -> None:
    problems = sorted({row.problem for row in found if row.problem})
    if problems:
        raise PipelineRefused(problems[0])


class _Direct:
    """`DirectWork` of a DataFrame: one task for each of its partitions."""

    def __init__(self, rows: Any, leave_out: LeaveOut) -> None:
        self._rows = selected(rows, with_topic=False)
        self._leave_out = leave_out

    def task_count(self) -> int:
        return int(self._rows._jdf.queryExecution().toRdd().getNumPartitions())

    def run(self, order: DirectOrder) -> list[tuple[PartEnd, int]]:
        found = self._rows.mapInArrow(partial(append_computed, order), DIRECT_RESULT).collect()
        _raise_first(found)
        if left_out := sum(row.left_out for row in found):
            self._leave_out(left_out, next(row.reason for row in found if row.reason))
        return [
            (
                PartEnd(
                    topic=topic,
                    partition=partition,
                    position=position,
                    offset=offset,
                    producer=producer,
                ),
                count,
            )
            for row in found
            for topic, partition, position, offset, producer, count in json.loads(row.ends)
        ]


def _append(context: Any, order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
    """As many tasks as Spark has cores, each with some of the partitions."""
    tasks = max(1, min(context.defaultParallelism, len(parts)))
    units = [list(parts[index::tasks]) for index in range(tasks)]
    ends: list[PartEnd] = []
    problems: list[MirrorError] = []

    def heard(answer: list[PartEnd] | MirrorError) -> None:
        if isinstance(answer, MirrorError):
            problems.append(answer)
        else:
            ends.extend(answer)

    run_units(context, f"heliograph-pipeline-{order.id}", units, partial(append_unit, order), heard)
    if problems:
        raise problems[0]
    return ends
