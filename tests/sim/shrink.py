"""A shorter schedule that fails in the same way: parts are left out as long as it still does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.sim.episode import Action, Outcome, run

_NUMBER: Final = re.compile(r"\d+")
_KIND_CHARS: Final = 90
_SETTLE: Final[Action] = ("settle", 0, 0, 0)
_FLOWS: Final = frozenset({"net", "replicate", "settle"})


def kind_of(violation: str) -> str:
    """The sentence without its numbers, up to what it was about."""
    return _NUMBER.sub("#", violation)[:_KIND_CHARS]


class Shrinking:
    """One failure on its way to its shortest schedule."""

    def __init__(
        self,
        seed: str,
        failed: Outcome,
        *,
        unpromised: bool = False,
        seconds_max: float = 60.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        assert failed.violation is not None
        self.best = failed
        self._seed, self._unpromised, self._tell = seed, unpromised, tell
        self._kind = kind_of(failed.violation)
        self._until_s = time.monotonic() + seconds_max

    def shrink(self) -> Outcome:
        before = None
        while before is not self.best and self._has_time():
            before = self.best
            self._leave_kinds_out()
            self._settle_at_once()
            self._leave_out()
        return self.best

    def _has_time(self) -> bool:
        return time.monotonic() < self._until_s

    def _try(self, schedule: Sequence[Action]) -> bool:
        outcome = run(self._seed, 0, schedule, unpromised=self._unpromised)
        is_same = outcome.violation is not None and kind_of(outcome.violation) == self._kind
        if not is_same or len(outcome.schedule) >= len(self.best.schedule):
            return False
        self.best = outcome
        self._tell(f"{len(outcome.schedule)} steps")
        return True

    def _leave_kinds_out(self) -> None:
        """What the failure does not need at all goes first."""
        for name in sorted({action[0] for action in self.best.schedule}):
            if name != "net" and self._has_time():
                self._try([action for action in self.best.schedule if action[0] != name])

    def _leave_out(self) -> None:
        """Halves, quarters, and so on down to single steps; from the end, where most are idle."""
        size = max(1, len(self.best.schedule) // 2)
        while size and self._has_time():
            at = len(self.best.schedule)
            while at > 0 and self._has_time():
                at = max(0, at - size)
                schedule = self.best.schedule
                self._try([*schedule[:at], *schedule[at + size :]])
            size //= 2

    def _settle_at_once(self) -> None:
        """Where the order of arrivals does not matter one step does for many."""
        at = 0
        while at < len(self.best.schedule) and self._has_time():
            schedule, end = self.best.schedule, at
            while end < len(schedule) and schedule[end][0] in _FLOWS:
                end += 1
            if end - at > 1:
                self._try([*schedule[:at], _SETTLE, *schedule[end:]])
            at = max(end, at + 1)


def shrink(
    seed: str,
    failed: Outcome,
    *,
    unpromised: bool = False,
    seconds_max: float = 60.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """The shortest found in that time; `failed` itself where nothing can be left out."""
    shrinking = Shrinking(seed, failed, unpromised=unpromised, seconds_max=seconds_max, tell=tell)
    return shrinking.shrink()
