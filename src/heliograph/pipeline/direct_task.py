"""The Spark task of a deterministic pipeline: Arrow batches in, where the logs are then out. Runs
on executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from heliograph.errors import MirrorError
from heliograph.model import TopicPartition
from heliograph.pipeline.batches import DirectOrder
from heliograph.pipeline.direct import DirectAppender, DirectPacker
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.staging_task import columns_of

DIRECT_RESULT: Final = "task int, ends string, left_out long, reason string, problem string"
_SCHEMA: Final = pa.schema(
    [
        ("task", pa.int32()),
        ("ends", pa.string()),
        ("left_out", pa.int64()),
        ("reason", pa.string()),
        ("problem", pa.string()),
    ]
)


def append_computed(order: DirectOrder, batches: Iterator[Any]) -> Iterator[Any]:
    """The Spark task. What is wrong with a row is an answer: raised, it would be tried again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    found: dict[str, Any] = {"task": task, "ends": "[]", "left_out": 0, "reason": "", "problem": ""}
    try:
        found |= _appended(order, task, batches)
    except MirrorError as exc:
        found["problem"] = str(exc)
        for _ in batches:
            continue  # a worker that leaves input behind is not used again
    yield pa.RecordBatch.from_pylist([found], schema=_SCHEMA)


def _appended(order: DirectOrder, task: int, batches: Iterator[Any]) -> dict[str, Any]:
    appender = DirectAppender(order.cluster, order.stamps[task], order.starts[task])
    try:
        packer = DirectPacker(order.topics, task, appender, at_ms=order.at_ms)
        for batch in batches:
            packer.add(columns_of(batch))
        packer.seal_all()
        ends = appender.finish()
    finally:
        appender.close()
    rows = [
        (end.topic, end.partition, end.position, end.offset, end.producer, count)
        for end, count in with_counts(ends, order.starts[task])
    ]
    return {"ends": json.dumps(rows), "left_out": packer.left_out, "reason": packer.reason}


def with_counts(
    ends: Sequence[PartEnd], starts: Mapping[TopicPartition, PartEnd]
) -> list[tuple[PartEnd, int]]:
    """How many rows of each partition are the batch's."""
    return [(end, end.position - starts[end.target].position) for end in ends]
