"""Functions of the operator's, run beside the slot's loop, so that one that hangs costs its lane
and not the slot. Runs on executors.

The loop waits a moment, which is enough for nearly every batch. After it the lane comes again, as
it does for what a registry is asked, finds the same call, and takes its answer. A thread cannot be
ended from outside: what has not come back in time is left behind, and there is a bound for how many
of those a process may have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.errors import NotYetKnown
from heliograph.transform.record import BadResult, Where
from heliograph.wire.opened import Content

GRACE_S: Final = 0.1
"""How long a slot's loop waits for a function."""
AT_ONCE_MAX: Final = 64
"""Calls of a process that have not come back."""
Contents = Sequence[Content]


class TransformTimedOut(Exception):
    """A function gave no answer in time; fewer records are tried, and at last one."""


class AtWork(NotYetKnown):
    """A function has not come back yet, and its time is not over."""


class _Call:
    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.began_s: Final = monotonic_s()
        self.done: Final = threading.Event()
        self.is_left = False
        """Whether it was given up; what it answers all the same is taken."""
        self._made: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._made = self._work()
        except BaseException as exc:  # noqa: BLE001 - the loop raises it, on behalf of its record
            self._error = exc

    def answer(self) -> Any:
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise BadResult(f"raised {type(self._error).__name__}")
        return self._made


class Hands:
    """Threads that are kept for the next call; usually one is enough."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Call]] = []
        self.busy = 0

    def begin(self, work: Callable[[], Any]) -> _Call | None:
        """None where too many have not come back."""
        call = _Call(work)
        with self._lock:
            if self.busy >= AT_ONCE_MAX:
                return None
            self.busy += 1
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(
                target=self._serve, args=(inbox,), name="transform", daemon=True
            ).start()
        inbox.put(call)
        return call

    def _serve(self, inbox: SimpleQueue[_Call]) -> None:
        while True:
            call = inbox.get()
            call.run()
            with self._lock:
                self.busy -= 1
                self._idle.append(inbox)
            call.done.set()
            del call


HANDS: Final = Hands()
"""Of this process."""


class Beside:
    """A step of one lane, run by other hands."""

    def __init__(
        self,
        name: str,
        step: Callable[[Where, Sequence[int], Contents], list[Content | None]],
        timeout_ms: int,
        hands: Hands = HANDS,
    ) -> None:
        self._name, self._step, self._hands = name, step, hands
        self._timeout_s = timeout_ms / 1000
        self._calls: dict[tuple[int, int, int], _Call] = {}
        """By round, first offset and number of records."""
        self._last: dict[tuple[int, int, int], int] = {}
        """The last offset of each."""
        self._round = 0
        self._refused_s: float | None = None

    def begin(self) -> None:
        """The lane asks, perhaps once more for the same records."""
        self._round = 0

    def ask_anew(self) -> None:
        """What follows is to be made once more, not to be found as it was made."""
        self._round += 1

    def settled(self) -> None:
        """The lane has what it asked for. Calls that never came back are remembered: to ask for
        their records again would leave behind one more each time."""
        self._calls = {
            key: call
            for key, call in self._calls.items()
            if call.is_left and not call.done.is_set()
        }
        self._last = {key: self._last[key] for key in self._calls}
        self._round = 0

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        if not offsets:
            return []
        count = self._known_part(offsets)
        if 0 < count < len(offsets):
            # Fetched again, with more behind it.
            first = self(where, offsets[:count], contents[:count])
            return first + self(where, offsets[count:], contents[count:])
        key = (self._round, offsets[0], len(offsets))
        call = self._calls.get(key)
        if call is None:
            call = self._began(key, where, offsets, contents)
        if call.done.is_set():
            try:
                made: list[Content | None] = call.answer()
            except NotYetKnown:
                del self._calls[key], self._last[key]
                raise
            return made
        age_s = monotonic_s() - call.began_s
        if age_s < self._timeout_s:
            raise AtWork(f"transform {self._name} has been at work for {age_s:.0f} s", age_s)
        call.is_left = True
        records = "record" if len(offsets) == 1 else f"{len(offsets)} records"
        raise TransformTimedOut(f"no answer for {records} in {self._timeout_s:g} s")

    def _began(
        self, key: tuple[int, int, int], where: Where, offsets: Sequence[int], contents: Contents
    ) -> _Call:
        call = self._hands.begin(partial(self._step, where, offsets, contents))
        if call is None:
            now_s = monotonic_s()
            self._refused_s = self._refused_s or now_s
            raise NotYetKnown(
                f"transform {self._name}: {AT_ONCE_MAX} calls of functions have not come back, and "
                "no more are made in this process until one does, or it is started anew",
                now_s - self._refused_s,
            )
        self._refused_s = None
        self._calls[key], self._last[key] = call, offsets[-1]
        call.done.wait(min(GRACE_S, self._timeout_s))
        return call

    def _known_part(self, offsets: Sequence[int]) -> int:
        """How many of these, from the first on, one call was made for."""
        if not self._calls:
            return 0
        return max(
            (
                count
                for (round_, first, count), last in self._last.items()
                if round_ == self._round
                and first == offsets[0]
                and count <= len(offsets)
                and offsets[count - 1] == last
            ),
            default=0,
        )
