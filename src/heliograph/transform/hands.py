"""Threads for the calls of functions: how many there may be, and what memory a call may take.

Runs on executors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.transform.memory_watch import (
    Broken,
    MemoryWatch,
    Room,
    bound_data,
    raise_in,
    resident_bytes,
    unbound_data,
)
from heliograph.transform.record import BadResult

GRACE_S: Final = 0.1
"""How long a slot's loop waits for a function."""
IMPATIENT_S: Final = 1.0
"""How long it waits for none after a wait in vain: the next may be in vain too."""
AT_ONCE_MAX: Final = 64
"""Calls of a process that have not come back."""
_TURN_S: Final = 1.0
"""How long others wait for a call that is to be alone, once it has asked."""
_BOUND_S: Final = 1.0
"""How long a bound in memory is kept: to ask the system takes as long as some hundred records."""


class Call:
    """One call of a function, at work on a thread."""

    def __init__(self, work: Callable[[], Any], bytes_max: int, *, is_alone: bool) -> None:
        self._work = work
        self.bytes_max: Final = bytes_max
        self.is_alone: Final = is_alone
        """Whether no other began beside it, so that what the process grows by is its own."""
        self.began_s: Final = monotonic_s()
        self.resident_bytes: Final = resident_bytes()
        self.done: Final = threading.Event()
        self.is_left = False
        """Whether it was given up; what it answers all the same is taken."""
        self.is_over = False
        """Whether it, or one beside it, took too much memory."""
        self._made: Any = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread_id: int | None = None

    def run(self) -> None:
        try:
            try:
                self._thread_id = threading.get_ident()
                self._made = self._work()
            except BaseException as exc:  # noqa: BLE001 - the loop raises it, on behalf of its record
                # Its frames, and those of what it came of, hold what the function took.
                exc.__traceback__ = exc.__context__ = exc.__cause__ = None
                self._error = exc
            self._end()
        except Broken:
            # It came when the function was done, or had failed.
            self._end()
        if isinstance(self._error, MemoryError):
            self.is_over = True

    def break_off(self) -> None:
        with self._lock:
            if self._thread_id is not None and not self.is_over:
                self.is_over = True
                raise_in(self._thread_id, Broken)

    def answer(self) -> Any:
        if isinstance(self._error, Exception):
            # Asked more than once, it would keep the frames of all who asked.
            raise self._error.with_traceback(None)
        if self._error is not None:
            raise BadResult(f"raised {type(self._error).__name__}")
        return self._made

    def _end(self) -> None:
        """From here on nothing is raised in this thread."""
        with self._lock:
            thread_id, self._thread_id = self._thread_id, None
        if thread_id is not None and self.is_over:
            raise_in(thread_id, None)


class Hands:
    """Threads that are kept for the next call; usually one is enough."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Call]] = []
        self._busy: set[Call] = set()
        self._watch = MemoryWatch(self._at_work, self._rest)
        self._room, self._bound_bytes, self._bound_s = Room(0, 0), 0, -_BOUND_S
        self._in_vain_s = -IMPATIENT_S
        """When a loop last waited for nothing."""
        self._turn_s = -_TURN_S
        """When a call that is to be alone last asked for its turn."""

    @property
    def busy(self) -> int:
        return len(self._busy)

    def begin(self, work: Callable[[], Any], bytes_max: int, *, alone: bool = False) -> Call | str:
        """Why there is none, where none can be made now."""
        with self._lock:
            if len(self._busy) >= AT_ONCE_MAX:
                return self._too_many()
            if said := self._waits_its_turn(alone):
                return said
            call = Call(work, self._bound(bytes_max), is_alone=alone)
            self._busy.add(call)
            inbox = self._idle.pop() if self._idle else None
        try:
            self._watch.look()
            if inbox is None:
                inbox = SimpleQueue()
                threading.Thread(
                    target=self._serve, args=(inbox,), name="transform", daemon=True
                ).start()
        except RuntimeError:
            # The machine's fault, or the container's, and of no record.
            self._ended(call, None)
            return f"no thread can be started for its function beside the {self.busy} at work"
        inbox.put(call)
        return call

    def wait(self, call: Call, wait_s_max: float) -> None:
        """A moment, by a loop that has others to serve."""
        if monotonic_s() - self._in_vain_s >= IMPATIENT_S and not call.done.wait(wait_s_max):
            self._in_vain_s = monotonic_s()

    def _bound(self, bytes_max: int) -> int:
        """What a call may take, and the system refuses more than that in one go."""
        now_s = monotonic_s()
        is_old = now_s - self._bound_s >= _BOUND_S
        if is_old:
            self._room = Room.now()
        bytes_max = min(bytes_max, self._room.watched_bytes)
        if is_old or bytes_max > self._bound_bytes:
            bound_data(bytes_max, self._room)
            self._bound_bytes, self._bound_s = bytes_max, now_s
        return bytes_max

    def _rest(self) -> None:
        """None is at work, and the process may have what it likes."""
        with self._lock:
            if not self._busy:
                unbound_data()
                self._bound_s = -_BOUND_S

    def _at_work(self) -> list[Call]:
        with self._lock:
            return list(self._busy)

    def _waits_its_turn(self, alone: bool) -> str:
        others = [each for each in self._busy if not each.is_left]
        if alone and others:
            self._turn_s = monotonic_s()
            return "waits until it can be asked with no other beside it"
        if not alone and monotonic_s() - self._turn_s < _TURN_S:
            return "waits for one that takes much memory and is asked by itself"
        if any(each.is_alone for each in others):
            return "waits for one that takes much memory and is asked by itself"
        if alone:
            self._turn_s = -_TURN_S
        return ""

    def _too_many(self) -> str:
        calls = f"{AT_ONCE_MAX} calls of functions"
        if any(call.is_left for call in self._busy):
            return (
                f"{calls} have not come back, and no more are made in this process until one does, "
                "or it is started anew"
            )
        return f"{calls} are at work, and no more are made in this process until one is done"

    def _serve(self, inbox: SimpleQueue[Call]) -> None:
        while True:
            call = inbox.get()
            call.run()
            self._ended(call, inbox)
            call.done.set()
            del call

    def _ended(self, call: Call, inbox: SimpleQueue[Call] | None) -> None:
        with self._lock:
            self._busy.discard(call)
            if inbox is not None:
                self._idle.append(inbox)
