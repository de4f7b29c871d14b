"""A batch job over independent units of work, heard of one by one. Driver and executors.

Results come back through an accumulator as soon as their task ends, so that progress can be shown
and noted meanwhile. Rows are made by `mapPartitions` and not by `mapInArrow` or a DataFrame: those
need pandas on the driver, and planning one takes a fresh JVM four seconds of CPU.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException

from heliograph.errors import EngineError

_POLL_S: Final = 0.1

U = TypeVar("U")
R = TypeVar("R")


def run_units(
    context: SparkContext,
    name: str,
    units: Sequence[U],
    work: Callable[[U], R],
    on_result: Callable[[R], None],
    *,
    tasks_max: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Do `work` on every unit in Spark tasks; `on_result` hears each result in the caller's thread.

    `work` and what it holds travel in the pickled function, over the authenticated gateway: they
    may hold credentials, so they never become a row, a job's name or a setting. `name` is shown.
    Raises `EngineError` when Spark cannot run the job. Interrupted, or wanted no more, it cancels
    what still runs.
    """
    results = context.accumulator([], Results())
    rows = [pickle.dumps(unit) for unit in units]
    slices = max(1, len(rows) if tasks_max is None else min(tasks_max, len(rows)))
    done = context.parallelize(rows, slices).mapPartitions(partial(_work_rows, work, results))
    job = Job(name, partial(_finish, context, name, done))
    heard = 0
    try:
        while True:
            is_over = job.wait(_POLL_S)
            for result in results.value[heard:]:
                heard += 1
                on_result(result)
            if is_over:
                job.ensure_done()
                return
            if not is_wanted():
                return
    finally:
        if not job.wait(0):
            context.cancelJobGroup(name)


def _finish(context: Any, name: str, done: Any) -> None:
    context.setJobGroup(name, name, interruptOnCancel=True)
    done.count()


class Job:
    """Work on a thread of its own, so that the caller can look at what is done already."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def ensure_done(self) -> None:
        if self._error is not None:
            text = str(self._error).strip().splitlines()
            raise EngineError(
                f"Spark job {self._name} failed: {text[0] if text else 'no reason given'}"
            )

    def _run(self) -> None:
        try:
            self._work()
        except (Py4JError, PySparkException, OSError, AttributeError) as exc:
            # AttributeError: a context stopped meanwhile has no JVM behind its attributes.
            self._error = exc


class Results(AccumulatorParam):  # type: ignore[misc]
    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(  # noqa: N802 - the name is Spark's
        self, value1: list[Any], value2: list[Any]
    ) -> list[Any]:
        value1 += value2
        return value1


def _work_rows(work: Callable[[Any], Any], results: Any, rows: Iterator[bytes]) -> Iterator[int]:
    """The Spark task."""
    for row in rows:
        results.add([work(pickle.loads(row))])
        yield 1
