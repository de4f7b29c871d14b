"""Slots that are processes of their own instead of tasks of Spark: link, lease and roster are real.

They start in a second and need no JVM; a test may put something in their way (`prepare`).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from unittest import mock

from heliograph.engine import slots as engine_slots
from heliograph.engine.jobs import JobEnded
from heliograph.engine.task import SlotOrder, run_slot

Prepare = Callable[[SlotOrder], None]
"""Called in the process of a slot before it begins; importable."""


class NoSpark:
    """What `Slots` asks of a context."""

    master = "local[2]"


class ProcessJob:
    """A slot as a process."""

    started: Final[list[ProcessJob]] = []

    def __init__(
        self,
        context: object,
        order: SlotOrder,
        ended: JobEnded,
        prepare: Prepare | None = None,
    ) -> None:
        self.slot = order.slot
        spawning = multiprocessing.get_context("spawn")
        self.process = spawning.Process(target=_run, args=(order, prepare))
        self.process.start()
        self.started.append(self)
        threading.Thread(target=self._wait, args=(ended,), daemon=True).start()

    def _wait(self, ended: JobEnded) -> None:
        self.process.join()
        ended(None, "ended")

    def cancel(self) -> None:
        self.process.kill()


@contextmanager
def slots_as_processes(prepare: Prepare | None = None) -> Iterator[None]:
    """`Slots` that are started in the block have no Spark."""
    with (
        mock.patch.object(engine_slots, "SlotJob", partial(ProcessJob, prepare=prepare)),
        mock.patch.object(engine_slots, "spark_is_gone", lambda _: False),
    ):
        yield


def _run(order: SlotOrder, prepare: Prepare | None) -> None:
    if prepare is not None:
        prepare(order)
    asyncio.run(run_slot(order, attempt="0"))
