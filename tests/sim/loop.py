"""An event loop of asyncio whose time is a number, and processes in it that can be killed.

Nothing waits: callbacks run until none is ready, and the time moves when whoever drives the loop
says so. A process is whatever runs in a context of its own. Killed, none of its callbacks ever runs
again, no `finally` and no handler; frozen, they wait until it thaws.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

BUSY_MAX: Final = 20_000
"""So many callbacks at one moment, and something spins."""
_OWNER: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("owner")
EPOCH_MS: Final = 1_700_000_000_000
"""What the wall clock shows when a loop begins."""


class Spinning(Exception):
    """Callbacks call for callbacks, and the time does not move."""


class Process:
    """One context; its tasks are born in it, as are all callbacks that they call for."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(_OWNER.set, self)

    def run(self, act: Callable[..., Any], *args: Any) -> Any:
        return self._context.run(act, *args)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self._context)

    def kill(self) -> None:
        self.is_dead = True
        self.held.clear()
        for task in self.tasks:
            # Nobody is to be told that it never ended.
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        held, self.held = self.held, []
        self._loop.ready.extend(held)


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[asyncio.TimerHandle] = []
        self._cancelled = 0
        self.callbacks = 0
        """Run since the beginning."""
        self.set_task_factory(_task_of)
        self.set_exception_handler(self._failed)
        self.failure: BaseException | None = None
        """What a callback raised that nobody was to catch."""

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exc = context.get("exception")
        if exc is not None and "handle" in context and self.failure is None:
            self.failure = exc

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self.timers, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > 200 and 2 * self._cancelled > len(self.timers):
            self.timers = [each for each in self.timers if not each.cancelled()]
            heapq.heapify(self.timers)
            self._cancelled = 0

    # -- what drives it

    def __enter__(self) -> VirtualLoop:
        events._set_running_loop(self)
        return self

    def __exit__(self, *_: object) -> None:
        events._set_running_loop(None)
        self.close()

    def settle(self) -> None:
        """Run what is ready, and what becomes ready by that."""
        ready, begun = self.ready, self.callbacks
        while ready:
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(_OWNER)  # type: ignore[attr-defined]
            if owner is not None:
                if owner.is_dead:
                    continue
                if owner.is_frozen:
                    owner.held.append(handle)
                    continue
            self.callbacks += 1
            handle._run()
            if self.callbacks - begun > BUSY_MAX:
                raise Spinning(f"{handle!r}")
        if self.failure is not None:
            raise self.failure

    def next_timer_s(self) -> float | None:
        timers = self.timers
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
            self._cancelled = max(0, self._cancelled - 1)
        return timers[0].when() if timers else None

    def advance(self, until_s: float) -> None:
        """Move the time, one timer after the other."""
        while (due_s := self.next_timer_s()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            timer = heapq.heappop(self.timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            self.ready.append(timer)
            self.settle()
        self.now_s = max(self.now_s, until_s)


class Clock:
    """Stands in for the module `time` where Heliograph asks it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.now_s

    def time_ns(self) -> int:
        return EPOCH_MS * 1_000_000 + int(self._loop.now_s * 1_000_000_000)


def _task_of(loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **kwargs)
    context = kwargs.get("context")
    owner = _OWNER.get(None) if context is None else context.get(_OWNER)
    if owner is not None:
        owner.tasks.append(task)
        if len(owner.tasks) > 200:
            owner.tasks = [each for each in owner.tasks if not each.done()]
    return task
