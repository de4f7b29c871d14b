"""The Spark task that stages rows: Arrow batches in, what was staged out. Runs on executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from heliograph.errors import MirrorError
from heliograph.pipeline.packing import Columns, Headers, Packer, TargetTopics
from heliograph.pipeline.staging import Folder, StagedPart, Stager


def stage_batches(folder: str, topics: TargetTopics, batches: Iterator[Any]) -> Iterator[Any]:
    """The Spark task. What is wrong with a row is an answer: raised, it would be tried again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    stager = Stager(Folder(folder), topics, task)
    problem, parts = "", list[StagedPart]()
    try:
        for batch in batches:
            stager.add(columns_of(batch))
        parts = stager.finish()
    except MirrorError as exc:
        problem = str(exc)
        for _ in batches:
            continue  # a worker that leaves input behind is not used again
    yield _answer(task, parts, problem, stager)


def columns_of(batch: Any) -> Columns:
    """The rows of an Arrow batch with the columns of `columns.selected`."""
    headers, nameless = _headers(batch)
    return Columns(
        topics=_objects(batch, "topic"),
        partitions=_objects(batch, "partition"),
        timestamps_ms=_objects(batch, "timestamp"),
        keys=_objects(batch, "key"),
        values=_objects(batch, "value") or [None] * batch.num_rows,
        headers=headers,
        nameless=nameless,
        times_between=_between(batch, "timestamp"),
    )


def prepared(batch: Any, *, with_topic: bool) -> Any:
    """Rows as a DataFrame has them, made as `columns.selected` would have Spark make them."""
    columns: dict[str, Any] = {}
    for name in ("topic", "partition", "timestamp", "key", "value", "headers"):
        if name not in batch.schema.names or (name == "topic" and not with_topic):
            continue
        column = batch.column(name)
        if name == "timestamp":
            # Arrow refuses to lose microseconds unless it is told to.
            column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        elif name in ("key", "value"):
            column = column.cast(pa.binary())
        columns[name] = column
    return pa.RecordBatch.from_pydict(columns)


def _objects(batch: Any, name: str) -> list[Any] | None:
    """None for a column that holds nothing. By way of numpy, in a fifth of `to_pylist`'s time."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if column.null_count == len(column):
        return None
    if column.null_count and pa.types.is_integer(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return _values(column)


def _between(batch: Any, name: str) -> tuple[int, int] | None:
    if name not in batch.schema.names:
        return None
    found = pc.min_max(batch.column(name)).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def _values(column: Any) -> list[Any]:
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _headers(batch: Any) -> tuple[list[Headers] | None, frozenset[int]]:
    """Of each row, and the rows with one that has no name. By way of the flat columns, in a third
    of the time of `to_pylist`, which makes dictionaries."""
    column = batch.column("headers") if "headers" in batch.schema.names else None
    if column is None or column.null_count == len(column) or not len(column.flatten()):
        return None, frozenset()
    names, contents = column.values.flatten()
    flat = list(zip(names.to_pylist(), _values(contents), strict=True))
    found = [flat[start:end] for start, end in pairwise(column.offsets.to_pylist())]
    for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
        found[row] = []  # whatever lies under it
    if not names.null_count:
        return found, frozenset()
    return found, frozenset(
        row for row, headers in enumerate(found) if any(name is None for name, _ in headers)
    )


def _answer(task: int, parts: Sequence[StagedPart], problem: str, packer: Packer) -> Any:
    rows: list[dict[str, Any]] = [
        {
            "task": task,
            "topic": part.target.topic,
            "partition": part.target.partition,
            "pieces": json.dumps(part.pieces),
            "problem": None,
        }
        for part in parts
    ]
    if packer.left_out:
        rows.append({"task": task, "left_out": packer.left_out, "reason": packer.reason})
    if problem:
        rows = [{"task": task, "problem": problem}]
    schema = pa.schema(
        [
            ("task", pa.int32()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("pieces", pa.string()),
            ("problem", pa.string()),
            ("left_out", pa.int64()),
            ("reason", pa.string()),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema=schema)
