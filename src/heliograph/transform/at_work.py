"""Functions of the operator's, run beside the slot's loop, so that one that hangs costs its lane
and not the slot. Runs on executors.

The loop waits a moment, which is enough for nearly every batch, and not for each of many lanes one
after the other. After it the lane comes again, as it does for what a registry is asked, finds the
call that was made for the same records, and takes its answer. A thread cannot be ended from
outside: what has not come back in time is left behind, and there is a bound for how many of those a
process may have. What takes too much memory is broken off (`memory_watch`), and asked once more
with no other beside it, since memory is the process's and not the thread's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.errors import NotYetKnown
from heliograph.transform.hands import GRACE_S, Call, Hands
from heliograph.transform.memory_watch import too_much
from heliograph.transform.record import Where
from heliograph.wire.opened import Content

_REMEMBERED_MAX: Final = 64
"""Records of a lane that are known to take too much memory."""
Contents = Sequence[Content]


class TransformTimedOut(Exception):
    """A function gave no answer in time; fewer records are tried, and at last one."""


class TransformTookMemory(Exception):
    """The process grew too much at it; fewer records are tried, and at last one."""


class AtWork(NotYetKnown):
    """A function has not come back yet, and its time is not over."""


HANDS: Final = Hands()
"""Of this process."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What a call was made for. The same offsets may have other records a moment later: compacted
    ones are gone, and a leader that was elected uncleanly has its own."""

    round: int
    offsets: tuple[int, ...]
    contents: tuple[Content, ...]
    call: Call

    @property
    def is_condemned(self) -> bool:
        """Whether it took too much memory, and no other can have."""
        return self.call.done.is_set() and self.call.is_over and self.call.is_alone

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
        memory_bytes_max: int,
        hands: Hands = HANDS,
    ) -> None:
        self._name, self._step, self._hands = name, step, hands
        self._timeout_s, self._memory_bytes_max = timeout_ms / 1000, memory_bytes_max
        self._alone = False
        """Whether no other may be at work beside what the lane asks for."""
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
        their records again would leave behind one more each time. So are records that took too
        much memory."""
        left = [each for each in self._asked if each.call.is_left and not each.call.done.is_set()]
        over = [each for each in self._asked if each.is_condemned and len(each.offsets) == 1]
        self._asked = left + over[-_REMEMBERED_MAX:]
        self._round, self._alone = 0, False

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
        count = len(asked.offsets)
        records = "record" if count == 1 else f"{count} records"
        if asked.is_condemned:
            raise TransformTookMemory(f"{too_much(call.bytes_max)} for {records}")
        if call.done.is_set() and call.is_over:
            self._asked.remove(asked)
            self._alone = True
            why = f"transform {self._name} {too_much(call.bytes_max)}, perhaps for others beside it"
            raise NotYetKnown(f"{why}, and is asked by itself", monotonic_s() - call.began_s)
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
        raise TransformTimedOut(f"no answer for {records} in {self._timeout_s:g} s")

    def _known(self, offsets: tuple[int, ...], contents: tuple[Content, ...]) -> _Asked | None:
        """The call made for these; else that for the most of them, from the first on."""
        found = (each for each in self._asked if each.is_for(self._round, offsets, contents))
        return max(found, key=lambda each: len(each.offsets), default=None)

    def _began(
        self, where: Where, offsets: tuple[int, ...], contents: tuple[Content, ...]
    ) -> _Asked:
        call = self._hands.begin(
            partial(self._step, where, offsets, contents),
            self._memory_bytes_max,
            alone=self._alone,
        )
        if isinstance(call, str):
            now_s = monotonic_s()
            self._refused_s = self._refused_s or now_s
            raise NotYetKnown(f"transform {self._name}: {call}", now_s - self._refused_s)
        self._refused_s = None
        asked = _Asked(self._round, offsets, contents, call)
        self._asked.append(asked)
        self._hands.wait(call, min(GRACE_S, self._timeout_s))
        return asked
