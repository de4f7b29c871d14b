"""A batch job that brings rows of one key together, in order, and passes them once. Driver and
executors.

Rows are Python tuples that sort as they should be passed. Spark sorts them on disk where they do
not fit into memory. As in `unit_job` no DataFrame is made.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pyspark import SparkContext, StorageLevel

from heliograph.engine.unit_job import Job, Results

_POLL_S: Final = 0.1

U = TypeVar("U")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
C = TypeVar("C")


def run_sorted(
    context: SparkContext,
    name: str,
    units: Sequence[U],
    read: Callable[[U, Callable[[C], None]], Iterator[K]],
    bucket_of: Callable[[K], int],
    fold: Callable[[Iterable[K]], Iterator[R]],
    summarise: Callable[[Iterable[R]], S],
    *,
    tasks: int,
    on_row: Callable[[R], None] | None = None,
) -> tuple[list[S], list[C]]:
    """Read every unit, fold the sorted rows of each bucket; the summaries, and what was reported.

    What a unit reports may be there twice: Spark may read it again. `on_row` hears every folded
    row in the caller's thread. What `read` holds travels in the pickled function and may hold
    credentials; `name` is shown. Raises `EngineError` when Spark cannot run the job.
    """
    reports = context.accumulator([], Results())
    sliced = context.parallelize([pickle.dumps(unit) for unit in units], max(1, len(units)))
    rows = (
        sliced.flatMap(partial(_rows, read, reports))
        .repartitionAndSortWithinPartitions(tasks, bucket_of)
        .mapPartitions(partial(_folded, fold))
    )
    if on_row is not None:
        rows = rows.persist(StorageLevel.DISK_ONLY)
    summaries: list[S] = []

    def work() -> None:
        context.setJobGroup(name, name, interruptOnCancel=True)
        summaries.extend(rows.mapPartitions(partial(_summarised, summarise)).collect())

    job = Job(name, work)
    try:
        while not job.wait(_POLL_S):
            pass
        job.ensure_done()
        if on_row is not None:
            for row in rows.toLocalIterator():
                on_row(row)
    finally:
        if not job.wait(0):
            context.cancelJobGroup(name)
        if on_row is not None:
            rows.unpersist()
    return summaries, list(reports.value)


def _rows(
    read: Callable[[Any, Callable[[Any], None]], Iterator[Any]], reports: Any, packed: bytes
) -> Iterator[tuple[Any, None]]:
    for row in read(pickle.loads(packed), lambda one: reports.add([one])):
        yield row, None


def _folded(
    fold: Callable[[Iterable[Any]], Iterator[Any]], pairs: Iterator[tuple[Any, None]]
) -> Iterator[Any]:
    return fold(row for row, _ in pairs)


def _summarised(summarise: Callable[[Iterable[Any]], Any], rows: Iterator[Any]) -> Iterator[Any]:
    yield summarise(rows)
