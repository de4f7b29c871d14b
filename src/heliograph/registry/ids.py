"""Ids of the source's registry as the target's has them, for a slot. Runs on executors.

A slot's loop asks and never waits: what is not known yet is asked for on a thread, and the lane
comes again a moment later.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.errors import MirrorError, NotYetKnown
from heliograph.registry.pairing import Pairing

AGAIN_S: Final = 2.0
"""After which a question that failed is asked again."""
UNKNOWN_S: Final = 30.0
"""How long a source that said it knows no such id is believed."""


@dataclass(slots=True)
class _Question:
    asked_s: float
    """The first time, as long as there was no answer."""
    since_s: float
    """The last time."""
    is_under_way: bool = True
    is_unknown: bool = False
    why: str = ""


class IdMap:
    """Lanes of a process share it; any thread may ask."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self._lock = threading.Lock()
        self._known: dict[int, int] = {}
        self._questions: dict[int, _Question] = {}

    def get(self, schema_id: int) -> int | None:
        """The target's id; None where the source's registry knows no such id. Raises
        `NotYetKnown` while that is being found out, or cannot be."""
        found = self._known.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            if schema_id in self._known:
                return self._known[schema_id]
            now_s = monotonic_s()
            question = self._questions.get(schema_id)
            if question is None:
                question = self._questions[schema_id] = _Question(now_s, now_s)
                self._ask(schema_id)
            elif not question.is_under_way:
                age_s = now_s - question.since_s
                if question.is_unknown and age_s < UNKNOWN_S:
                    return None
                if age_s >= AGAIN_S:
                    question.is_under_way, question.is_unknown = True, False
                    question.since_s = now_s
                    self._ask(schema_id)
            why = question.why or f"asks the registries for schema id {schema_id}"
            raise NotYetKnown(why, now_s - question.asked_s)

    def _ask(self, schema_id: int) -> None:
        name = f"schema id {schema_id}"
        threading.Thread(target=self._find, args=(schema_id,), name=name, daemon=True).start()

    def _find(self, schema_id: int) -> None:
        found: int | None = None
        is_unknown, why = False, ""
        try:
            found, why = self._looked_up(schema_id)
            is_unknown = found is None and not why
        except MirrorError as exc:
            why = str(exc)
        except Exception as exc:  # noqa: BLE001 - the lane shows it; a thread has nobody to tell
            why = f"{type(exc).__name__}: {exc}"
        with self._lock:
            if found is not None:
                self._known[schema_id] = found
                self._questions.pop(schema_id, None)
                return
            question = self._questions[schema_id]
            question.is_under_way, question.is_unknown = False, is_unknown
            question.why, question.since_s = why, monotonic_s()

    def _looked_up(self, schema_id: int) -> tuple[int | None, str]:
        """The id, or why there is none although the source has the schema."""
        source, target = self._pairing.source, self._pairing.target
        if source.schema(schema_id) is None:
            return None, ""
        places = source.places(schema_id)
        for subject, version in places:
            found = self._pairing.target_of(source.version(subject, version))
            if found is not None:
                return found.id, ""
        if not places:
            return None, f"schema id {schema_id} has no subject in the {source.where} any more"
        subject, version = places[0]
        return None, (
            f"schema id {schema_id} ({subject} version {version}) is not in the {target.where} "
            f"under {self._pairing.target_subject(subject)} yet"
        )
