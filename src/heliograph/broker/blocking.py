"""Where the driver's loop meets calls that block: librdkafka's and Spark's. Runs on the driver.

Everything else on the driver is a task of one loop, so its state needs no locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from heliograph.errors import InvariantError

T = TypeVar("T")


async def blocking(function: Callable[..., T], *arguments: object) -> T:
    """Call `function` on a thread of its own and wait for it; the loop goes on meanwhile.

    A task that is cancelled waits no longer; the call itself goes on until it returns.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = function(*arguments)
        except BaseException as exc:  # noqa: BLE001 - the task that waits gets it
            error = exc
        # The loop is closed once the driver has ended, and then no task waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    # Not a ThreadPoolExecutor: its threads are not daemons and would keep a process alive whose
    # cluster does not answer.
    name = getattr(function, "__qualname__", "blocking")
    threading.Thread(target=work, name=name, daemon=True).start()
    return await done


def on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> T:
    """Call `function` on the loop and wait for it; for threads behind `blocking`."""

    async def call() -> T:
        return function()

    return asked_of_loop(loop, call)


def asked_of_loop(loop: asyncio.AbstractEventLoop, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As `on_loop`, of an answer that the loop has to wait for itself."""
    if asyncio._get_running_loop() is loop:
        raise InvariantError("the loop cannot wait for itself")
    return asyncio.run_coroutine_threadsafe(ask(), loop).result()


async def end_other_tasks() -> None:
    """Cancel every other task of this loop and wait for its end, as `asyncio.run` does.

    For who stops a loop of its own: a task that is connecting meanwhile would leave its socket
    open, with nobody to close it.
    """
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    # Transports close their sockets in the turn after they were told to.
    await asyncio.sleep(0)


class Changed:
    """Wakes every task that waits for the next change of something. Used on one loop only."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        for future in tuple(self._waiting):
            if not future.done():
                future.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Done at the next change from here on, whether or not it is awaited by then."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future


async def first_of(*changes: Changed, timeout_s: float | None = None) -> None:
    """Wait until one of them changes, or the time is over."""
    futures = [change.wait() for change in changes]
    try:
        await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in futures:
            future.cancel()
