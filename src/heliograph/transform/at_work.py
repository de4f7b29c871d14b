"""Functions of the operator's, run beside the slot's loop, so that one that hangs costs its lane
and not the slot. Runs on executors.

The loop waits a moment, which is enough for nearly every batch, and not for each of many lanes one
after the other. After it the lane comes again, as it does for what a registry is asked, finds the
call that was made for the same records, and takes its answer. A thread cannot be ended from
outside: what has not come back in time is left behind, and there is a bound for how many of those a
process may have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.errors import NotYetKnown
from heliograph.transform.record import BadResult, Where
from heliograph.wire.opened import Content

GRACE_S: Final = 0.1
"""How long a slot's loop waits for a function."""
IMPATIENT_S: Final = 1.0
"""How long it waits for none after a wait in vain: the next may be in vain too."""
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
            # Asked more than once, it would keep the frames of all who asked.
            raise self._error.with_traceback(None)
        if self._error is not None:
            raise BadResult(f"raised {type(self._error).__name__}")
        return self._made


class Hands:
    """Threads that are kept for the next call; usually one is enough."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Call]] = []
        self._busy: set[_Call] = set()
        self._in_vain_s = -IMPATIENT_S
        """When a loop last waited for nothing."""

    @property
    def busy(self) -> int:
        return len(self._busy)

    def begin(self, work: Callable[[], Any]) -> _Call | str:
        """Why there is none, where none can be made now."""
        call = _Call(work)
        with self._lock:
            if len(self._busy) >= AT_ONCE_MAX:
                return self._too_many()
            self._busy.add(call)
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            thread = threading.Thread(
                target=self._serve, args=(inbox,), name="transform", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                # The machine's fault, or the container's, and of no record.
                with self._lock:
                    self._busy.discard(call)
                return f"no thread can be started for its function beside the {self.busy} at work"
        inbox.put(call)
        return call

    def wait(self, call: _Call, wait_s_max: float) -> None:
        """A moment, by a loop that has others to serve."""
        if monotonic_s() - self._in_vain_s >= IMPATIENT_S and not call.done.wait(wait_s_max):
            self._in_vain_s = monotonic_s()

    def _too_many(self) -> str:
        calls = f"{AT_ONCE_MAX} calls of functions"
        if any(call.is_left for call in self._busy):
            return (
                f"{calls} have not come back, and no more are made in this process until one does, "
                "or it is started anew"
            )
        return f"{calls} are at work, and no more are made in this process until one is done"

    def _serve(self, inbox: SimpleQueue[_Call]) -> None:
        while True:
            call = inbox.get()
            call.run()
            with self._lock:
                self._busy.discard(call)
                self._idle.append(inbox)
            call.done.set()
            del call


HANDS: Final = Hands()
"""Of this process."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What a call was made for. The same offsets may have other records a moment later: compacted
    ones are gone, and a leader that was elected uncleanly has its own."""

    round: int
    offsets: tuple[int, ...]
    contents: tuple[Content, ...]
    call: _Call

    def is_for(self, round_: int, offsets: tuple[int, ...], contents: tuple[Content, ...]) -> bool:
        """For these, or for the first of them."""
        count = len(self.offsets)
        return (
            self.round == round_
            and self.offsets == offsets[:count]
            and self.contents == contents[:count]
        )


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
        self._asked: list[_Asked] = []
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
        self._asked = [
            each for each in self._asked if each.call.is_left and not each.call.done.is_set()
        ]
        self._round = 0

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        if not offsets:
            return []
        given, records = tuple(offsets), tuple(contents)
        asked = self._known(given, records) or self._began(where, given, records)
        count = len(asked.offsets)
        if count < len(given):
            # Fetched again, with more behind it.
            return self._answer(asked) + self(where, given[count:], records[count:])
        return self._answer(asked)

    def _answer(self, asked: _Asked) -> list[Content | None]:
        call = asked.call
        if call.done.is_set():
            try:
                made: list[Content | None] = call.answer()
            except NotYetKnown:
                self._asked.remove(asked)
                raise
            # Who gets it may strike records out, and ask once more.
            return list(made)
        age_s = monotonic_s() - call.began_s
        if age_s < self._timeout_s:
            raise AtWork(f"transform {self._name} has been at work for {age_s:.0f} s", age_s)
        call.is_left = True
        count = len(asked.offsets)
        records = "record" if count == 1 else f"{count} records"
        raise TransformTimedOut(f"no answer for {records} in {self._timeout_s:g} s")

    def _known(self, offsets: tuple[int, ...], contents: tuple[Content, ...]) -> _Asked | None:
        """The call made for these; else that for the most of them, from the first on."""
        found = (each for each in self._asked if each.is_for(self._round, offsets, contents))
        return max(found, key=lambda each: len(each.offsets), default=None)

    def _began(
        self, where: Where, offsets: tuple[int, ...], contents: tuple[Content, ...]
    ) -> _Asked:
        call = self._hands.begin(partial(self._step, where, offsets, contents))
        if isinstance(call, str):
            now_s = monotonic_s()
            self._refused_s = self._refused_s or now_s
            raise NotYetKnown(f"transform {self._name}: {call}", now_s - self._refused_s)
        self._refused_s = None
        asked = _Asked(self._round, offsets, contents, call)
        self._asked.append(asked)
        self._hands.wait(call, min(GRACE_S, self._timeout_s))
        return asked
