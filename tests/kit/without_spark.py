"""`heliograph` with slots that are threads of the driver: for tests of a whole run, not of Spark.

Driver, leases, link, supervisor and slots are the real ones; only who runs a slot's task is not. A
start of Spark costs six seconds of CPU, and its subject is in `tests/spark`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Final

from heliograph.cli.app import main as heliograph
from heliograph.config.schema import MirrorConfig
from heliograph.driver import run as driver
from heliograph.engine import slots
from heliograph.engine.capacity import Capacity
from heliograph.engine.jobs import JobEnded
from heliograph.engine.task import Outcome, SlotOrder, SlotResult, run_slot

_CORES: Final = 2
_log: Final = logging.getLogger(__name__)
_attempts: Final = itertools.count()


class NoSpark:
    """In the place of `SparkApplication`."""

    def __init__(self, config: MirrorConfig, say: Callable[[str], None]) -> None:
        self.session = "no session"

    def start(self) -> None: ...

    def start_again(self) -> None:
        raise AssertionError("there is no Spark that could be gone")

    def stop(self) -> None: ...

    def capacity(self) -> Capacity:
        return Capacity(cores=_CORES, executors=1, room=_CORES, most=_CORES)

    def jvm(self) -> None: ...


class ThreadJob:
    """In the place of `SlotJob`: the task on a loop and a thread of its own."""

    def __init__(self, _: object, order: SlotOrder, ended: JobEnded) -> None:
        self._order, self._ended = order, ended
        self._cancel: Callable[[], object] = lambda: None
        threading.Thread(target=self._run, name=f"slot {order.slot}", daemon=True).start()

    def cancel(self) -> None:
        # Its loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            self._cancel()

    def _run(self) -> None:
        order = self._order
        try:
            result = asyncio.run(self._carry())
        except asyncio.CancelledError:
            self._ended(None, "cancelled")
        except Exception as exc:  # noqa: BLE001 - as `carry_slot`: our own bug, which is told
            _log.exception("slot %d failed", order.slot)
            failed = SlotResult(
                slot=order.slot,
                generation=order.generation,
                outcome=Outcome.FAILED,
                detail=f"{type(exc).__name__}: {exc}",
            )
            self._ended(failed, "")
        else:
            self._ended(result, "")

    async def _carry(self) -> SlotResult:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        return await run_slot(self._order, attempt=str(next(_attempts)))


def install() -> None:
    """From here on this process starts no Spark."""
    for owner, name, value in (
        (driver, "SparkApplication", NoSpark),
        (slots, "SlotJob", ThreadJob),
        (slots, "spark_is_gone", lambda _: False),
        (slots, "_link_host", lambda _, __: "127.0.0.1"),
    ):
        assert hasattr(owner, name), f"{owner} has no {name}"
        setattr(owner, name, value)


def main() -> None:
    install()
    heliograph()
