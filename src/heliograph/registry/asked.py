"""What a registry is asked, for a slot: on a thread beside it, once. Runs on executors.

A slot's loop asks and never waits: what is not known yet is asked for on a thread, and the lane
comes again a moment later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from heliograph.clock import monotonic_s
from heliograph.errors import MirrorError, NotYetKnown

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
AGAIN_S: Final = 2.0
"""After which a question that failed is asked again."""
UNKNOWN_S: Final = 30.0
"""How long a registry that said it knows no such thing is believed."""


@dataclass(slots=True)
class _Question:
    asked_s: float
    """The first time, as long as there was no answer."""
    since_s: float
    """The last time."""
    is_under_way: bool = True
    is_unknown: bool = False
    why: str = ""


class Asked(Generic[K, T]):
    """Lanes of a process share it; any thread may ask."""

    def __init__(self, find: Callable[[K], tuple[T | None, str]], asks: str) -> None:
        """`find` blocks, and returns the answer, or why there is none; neither means that there is
        no such thing. `asks` is what a lane says that waits."""
        self._find, self._asks = find, asks
        self._lock = threading.Lock()
        self._known: dict[K, T] = {}
        self._questions: dict[K, _Question] = {}

    def get(self, key: K) -> T | None:
        """None where there is no such thing. Raises `NotYetKnown` while that is being found out, or
        cannot be."""
        found = self._known.get(key)
        if found is not None:
            return found
        with self._lock:
            if key in self._known:
                return self._known[key]
            now_s = monotonic_s()
            question = self._questions.get(key)
            if question is None:
                question = self._questions[key] = _Question(now_s, now_s)
                self._ask(key)
            elif not question.is_under_way:
                age_s = now_s - question.since_s
                if question.is_unknown and age_s < UNKNOWN_S:
                    return None
                if age_s >= AGAIN_S:
                    question.is_under_way, question.is_unknown = True, False
                    question.since_s = now_s
                    self._ask(key)
            why = question.why or f"{self._asks} {key}"
            raise NotYetKnown(why, now_s - question.asked_s, has_failed=bool(question.why))

    def _ask(self, key: K) -> None:
        name = f"{self._asks} {key}"
        thread = threading.Thread(target=self._answer, args=(key,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The machine's fault, or the container's: asked again as after any failure.
            question = self._questions[key]
            question.is_under_way, question.why = False, f"no thread can be started that {name}"

    def _answer(self, key: K) -> None:
        found: T | None = None
        is_unknown, why = False, ""
        try:
            found, why = self._find(key)
            is_unknown = found is None and not why
        except MirrorError as exc:
            why = str(exc)
        except Exception as exc:  # noqa: BLE001 - the lane shows it; a thread has nobody to tell
            why = f"{type(exc).__name__}: {exc}"
        with self._lock:
            if found is not None:
                self._known[key] = found
                self._questions.pop(key, None)
                return
            question = self._questions[key]
            question.is_under_way, question.is_unknown = False, is_unknown
            question.why, question.since_s = why, monotonic_s()
