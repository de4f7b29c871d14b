"""A loop on a thread of its own, for tests that have none and ask what lives on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from heliograph.broker.blocking import end_other_tasks, on_loop

_WAIT_S_MAX: Final = 60.0
T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        return on_loop(self._loop, function)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S_MAX)

    def close(self) -> None:
        self.wait(end_other_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    made = LoopThread()
    try:
        yield made
    finally:
        made.close()
