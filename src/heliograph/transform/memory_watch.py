"""Break off calls while which the process grows too much. Runs on executors.

A call is broken off by an exception that is raised in its thread, which takes effect at its next
step in Python; what a single step in C asks for in one go the system refuses (`RLIMIT_DATA`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from heliograph.memory import free_bytes, limit_data, used
from heliograph.words import bytes_words

LOOK_S: Final = 0.05
_FREE_SHARE: Final = 0.6
"""Of what the machine or the container has left: beyond it the system would end the process."""
_LEAST_BYTES: Final = 32 << 20
_REFUSED_SHARE: Final = 0.9
_REST_BYTES: Final = 512 << 20
"""For the rest of the process, beside twice the bound: where the system refuses it refuses all."""


class Broken(BaseException):
    """Raised in a function's thread. No `Exception`, which a function may well catch."""


class Watched(Protocol):
    """A call at work."""

    @property
    def resident_bytes(self) -> int:
        """Of the process, when it began."""
        ...

    @property
    def bytes_max(self) -> int: ...
    def break_off(self) -> None:
        """From another thread; more than once is once."""
        ...


class Room(NamedTuple):
    """By how much the process may grow from here on, whatever the bound of a function."""

    watched_bytes: int
    refused_bytes: int
    """More than that the system is to refuse."""

    @classmethod
    def now(cls) -> Room:
        free = free_bytes()
        return cls(max(_LEAST_BYTES, int(free * _FREE_SHARE)), int(free * _REFUSED_SHARE))


def resident_bytes() -> int:
    """0 where the system does not tell, and then nothing is ever broken off."""
    now = used()
    return 0 if now is None else now.resident_bytes


def bound_data(bytes_max: int, room: Room) -> None:
    """For what is asked for in one go while calls are at work."""
    now = used()
    if now is not None:
        limit_data(now.data_bytes + min(2 * bytes_max + _REST_BYTES, room.refused_bytes))


def unbound_data() -> None:
    limit_data(None)


def too_much(bytes_max: int) -> str:
    return f"took more than {bytes_words(bytes_max)} of memory"


def raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    """None takes back what was not raised yet."""
    exc = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exc)


class MemoryWatch:
    """One thread, which sleeps while no call is at work."""

    def __init__(self, busy: Callable[[], Collection[Watched]], rest: Callable[[], None]) -> None:
        self._busy, self._rest = busy, rest
        self._is_due = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """A call has begun."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="transform memory", daemon=True)
            thread.start()
            self._thread = thread
        if not self._is_due.is_set():
            self._is_due.set()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._is_due.wait()
            self._is_due.clear()
            while calls := self._busy():
                now = resident_bytes()
                for call in calls:
                    if now - call.resident_bytes > call.bytes_max:
                        call.break_off()
                pause.wait(LOOK_S)
            self._rest()
