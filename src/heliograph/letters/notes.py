"""What the ledger has of letters: decided before they are written. No I/O; runs anywhere.

A note is durable before the letters that it names are sent, so whoever takes the lane over knows
which there may be, and where in the topic they would stand.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.letters.letter import Letter
from heliograph.model import TopicId, TopicName, TopicPartition
from heliograph.transform.record import Failure, Stage

log = logging.getLogger(__name__)

SUBJECT: Final = "letters"
NOTES_APART: Final = 8
"""The newest of a lane, which are not put together with others."""
FOLDED_AT: Final = 40
"""Notes of a lane that are too many."""
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


def fold(
    source: TopicPartition, notes: Sequence[LettersNote]
) -> tuple[list[LettersNote], list[MemoEntry | Tombstone]]:
    """What makes few notes of many, oldest first, and those that may be put together with others
    later. The newest stay as they are, so that whoever takes the lane over reads no more of the
    topic than it must.

    A note that is put together says all that its parts did. Its parts go after it is there: until
    then letters are named twice, which readers know.
    """
    kept: list[LettersNote] = []
    entries: list[MemoEntry | Tombstone] = []
    group: list[LettersNote] = []
    for note in notes[:-NOTES_APART]:
        if group and not _fits(note, group):
            entries += _together(source, group, kept)
            group = []
        group.append(note)
    if group:
        entries += _together(source, group, kept)
    # What has no room, or whose neighbours are another's, is not looked at again.
    return [*kept[-1:], *notes[-NOTES_APART:]], entries


def _fits(note: LettersNote, group: Sequence[LettersNote]) -> bool:
    letters = sum(len(each.letters) for each in (*group, note))
    return letters <= LETTERS_PER_NOTE_MAX and _author_of(note) == _author_of(group[0])


def _author_of(note: LettersNote) -> tuple[object, ...]:
    return note.at, note.producer_id, note.producer_epoch, note.source_topic_id


def _together(
    source: TopicPartition, group: Sequence[LettersNote], kept: list[LettersNote]
) -> list[MemoEntry | Tombstone]:
    if len(group) < 2:
        kept += group
        return []
    letters = {each.offset: each for note in group for each in note.letters}
    first = min(group, key=lambda note: note.from_offset)
    made = replace(
        first,
        position=max(note.position for note in group),
        at_ms=max(note.at_ms for note in group),
        letters=tuple(letters[offset] for offset in sorted(letters)),
    )
    kept.append(made)
    whole = note_entry(source, made)
    parts = {note_entry(source, note).subject for note in group} - {whole.subject}
    return [whole, *(forget_memo(each) for each in sorted(parts))]


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
    offsets: dict[tuple[TopicPartition, TopicId | None], set[int]] = {}
    last_ms: dict[TopicName, int] = {}
    try:
        for source, note in all_notes(view):
            known = offsets.setdefault((source, note.source_topic_id), set())
            known.update(each.offset for each in note.letters)
            last_ms[source.topic] = max(last_ms.get(source.topic, 0), note.at_ms)
    except WireError:
        log.warning("a note of dead letters cannot be read, and is not counted", exc_info=True)
    counts: Counter[TopicName] = Counter()
    for (source, _), each in offsets.items():
        counts[source.topic] += len(each)
    return {
        topic: LetterCount(records=count, last_ms=last_ms[topic]) for topic, count in counts.items()
    }


def _subject_of(source: TopicPartition) -> str:
    return f"{SUBJECT}/{source.topic}/{source.partition}/"
