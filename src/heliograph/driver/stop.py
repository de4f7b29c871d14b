"""How a running mirror is asked to end, and ends. Runs on the driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from heliograph.broker.blocking import blocking

if TYPE_CHECKING:
    from heliograph.engine.application import SparkApplication

_SPARK_STOP_S_MAX: Final = 10.0


class StopRequest:
    """Asks one run to drain and end; may be made before the run and used from any thread."""

    def __init__(self) -> None:
        self._is_made = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made: asyncio.Event | None = None

    @property
    def is_made(self) -> bool:
        return self._is_made

    def make(self) -> None:
        """Safe in a signal handler, and may be repeated."""
        self._is_made = True
        if self._loop is not None and self._made is not None:
            # The loop is closed once the run has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._made.set)

    async def wait(self) -> None:
        """For the run; on its loop."""
        self._loop, self._made = asyncio.get_running_loop(), asyncio.Event()
        if not self._is_made:
            await self._made.wait()


async def unless_stopped(work: Coroutine[Any, Any, None], stopping: asyncio.Future[None]) -> bool:
    """Whether `work` came to its end before `stopping` was done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def stop_spark(spark: SparkApplication) -> None:
    """A Spark in trouble must not keep the mirror from ending."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SPARK_STOP_S_MAX):
            await blocking(spark.stop)
