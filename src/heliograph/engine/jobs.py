"""One Spark job per slot, each on a thread of its own. Runs on the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from heliograph.engine.task import SlotOrder, SlotResult, carry_slot

_log: Final = logging.getLogger(__name__)


class Job(Protocol):
    """A slot's job; `ended` of whoever submitted it is called exactly once."""

    def cancel(self) -> None:
        """Ask Spark to end it. The Python task may go on for seconds: the lease is what counts."""
        ...


JobEnded = Callable[[SlotResult | None, str], None]
"""Called from the job's thread: what the task returned, or None and what Spark said."""


class SlotJob:
    """Submits at once and waits on a thread of its own.

    The order travels in the pickled function, over the authenticated gateway: it never becomes a
    job's name, a description or a configuration value, because it holds credentials. Spark keeps it
    as a broadcast block in memory; one that it moves to disk is encrypted (`engine.session`).
    """

    def __init__(self, context: SparkContext, order: SlotOrder, ended: JobEnded) -> None:
        self._context, self._order, self._ended = context, order, ended
        self._group = f"heliograph-slot-{order.slot}-{order.generation}"
        self._cancelling: threading.Thread | None = None
        # Not InheritableThread: starting one calls into the JVM on the caller's thread, which is
        # the loop's and must not wait for a JVM in trouble. There is nothing to inherit; py4j gives
        # the thread a JVM thread of its own and closes its connection when it ends.
        threading.Thread(target=self._run, name=self._group, daemon=True).start()

    def cancel(self) -> None:
        # A call into the JVM may take long when Spark is in trouble, and the caller must not.
        if self._cancelling is None:
            self._cancelling = threading.Thread(target=self._cancel, daemon=True)
            self._cancelling.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, f"heliograph slot {self._order.slot}")
            rows = self._context.parallelize([0], 1).mapPartitions(partial(carry_slot, self._order))
            settlements = rows.collect()
        except (Py4JError, PySparkException, OSError, AttributeError) as exc:
            # AttributeError: a context stopped meanwhile has no JVM behind its attributes.
            self._ended(None, _first_line(exc))
        else:
            self._ended(settlements[0], "")

    def _cancel(self) -> None:
        try:
            self._context.cancelJobGroup(self._group)
        except (Py4JError, PySparkException, OSError, AttributeError) as exc:
            _log.debug("job group %s not cancelled: %s", self._group, _first_line(exc))


def spark_is_gone(context: SparkContext) -> bool:
    """Whether nothing can be submitted any more: the JVM ended or the application was stopped."""
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):
        return True


def _first_line(exc: Exception) -> str:
    text = str(exc.java_exception) if isinstance(exc, Py4JJavaError) else str(exc)
    return text.strip().splitlines()[0] if text.strip() else type(exc).__name__
