"""What the ledger has of letters: decided before they are written. No I/O; runs anywhere.

A note is durable before the letters that it names are sent, so whoever takes the lane over knows
which there may be, and where in the topic they would stand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.memo import Memo
from heliograph.ledger.view import LedgerView
from heliograph.letters.letter import Letter
from heliograph.model import TopicId, TopicName, TopicPartition
from heliograph.transform.record import Failure, Stage

log = logging.getLogger(__name__)

SUBJECT: Final = "letters"
LETTERS_PER_NOTE_MAX: Final = 256
"""A note of so many, each with a reason of its own, stays under half of what a memo may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedLetter:
    offset: int
    """Of the source."""
    step: str
    error: str
    why: str
    stage: Stage

    @property
    def failure(self) -> Failure:
        return Failure(self.step, self.error, self.why, self.stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersNote:
    """Letters of one lane that were decided together."""

    topic: TopicName
    partition: int
    """The dead-letter topic's."""
    from_offset: int
    """Where that ended when they were decided: none of them stands before it."""
    producer_id: int
    producer_epoch: int
    sequence: int
    """That of the first letter, should nobody write for the lane beside its slot."""
    position: int
    """The one that the last of them would have had."""
    source_topic_id: TopicId | None
    at_ms: int
    letters: tuple[NotedLetter, ...]

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(topic=self.topic, partition=self.partition)


_NOTES: Final[Memo[LettersNote]] = Memo(LettersNote)


def note_entry(source: TopicPartition, note: LettersNote) -> MemoEntry:
    subject = f"{_subject_of(source)}{note.letters[0].offset}/{note.position}"
    return _NOTES.entry(subject, note)


def in_notes(letters: Sequence[Letter]) -> Iterator[Sequence[Letter]]:
    for start in range(0, len(letters), LETTERS_PER_NOTE_MAX):
        yield letters[start : start + LETTERS_PER_NOTE_MAX]


def noted(letters: Iterable[Letter]) -> tuple[NotedLetter, ...]:
    return tuple(
        NotedLetter(
            offset=each.offset,
            step=each.failure.step,
            error=each.failure.error,
            why=each.failure.why,
            stage=each.failure.stage,
        )
        for each in letters
    )


def notes_of(view: LedgerView, source: TopicPartition) -> list[LettersNote]:
    """Those of one lane, oldest first; raises `WireError`."""
    prefix = _subject_of(source)
    found = [
        _NOTES.decode(subject, text)
        for subject, text in view.memos.items()
        if subject.startswith(prefix)
    ]
    return sorted(found, key=lambda note: (note.at_ms, note.position))


def all_notes(view: LedgerView) -> Iterator[tuple[TopicPartition, LettersNote]]:
    """Those of all lanes, without an order; raises `WireError`."""
    for subject, text in view.memos.items():
        if subject.startswith(f"{SUBJECT}/"):
            _, topic, partition, *_ = subject.split("/")
            source = TopicPartition(topic=TopicName(topic), partition=int(partition))
            yield source, _NOTES.decode(subject, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterCount:
    """The dead letters of a topic."""

    records: int
    last_ms: int


def letters_by_topic(view: LedgerView) -> dict[TopicName, LetterCount]:
    """As far as the notes can be read."""
    found: dict[TopicName, LetterCount] = {}
    try:
        for source, note in all_notes(view):
            before = found.get(source.topic, LetterCount(records=0, last_ms=0))
            found[source.topic] = LetterCount(
                records=before.records + len(note.letters),
                last_ms=max(before.last_ms, note.at_ms),
            )
    except WireError:
        log.warning("a note of dead letters cannot be read, and is not counted", exc_info=True)
    return found


def _subject_of(source: TopicPartition) -> str:
    return f"{SUBJECT}/{source.topic}/{source.partition}/"
