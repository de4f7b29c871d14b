"""The letters of one lane, each written once. Runs on executors.

1. What is to become a letter is noted in the ledger, with where its topic ends.
2. The letters are appended at their sequences and read again.
3. Only then does anything of the lane that lies behind them leave for the target.

Whoever takes the lane over finds by 1 what may have been written, looks for it in the topic, and
writes what is missing before the lane goes on. A record that was noted is a letter for good: it is
neither mirrored nor asked about again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, BrokerUnreachable, MirrorError, NotAuthorised
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import forget_memo
from heliograph.ledger.store import LedgerStore
from heliograph.letters.append import (
    append_records,
    end_of,
    next_sequence,
    records_from,
    settled_records,
)
from heliograph.letters.letter import Letter, as_letter, read_letter
from heliograph.letters.notes import (
    FOLDED_AT,
    LettersNote,
    fold,
    in_notes,
    note_entry,
    noted,
    notes_of,
)
from heliograph.model import FlowId, Lane, TopicName, TopicPartition
from heliograph.probe import LETTERS_APPENDED, LETTERS_NOTED, LETTERS_TO_NOTE, probe
from heliograph.transform.record import Failure
from heliograph.wire.batch import Stamp

WRITE_S_MAX: Final = 60.0
"""For all letters of one fetch; a lane that waits longer shows why."""


@dataclass(slots=True)
class LaneLetters:
    """What a resume found out about a lane's letters."""

    decided: dict[int, Failure] = field(default_factory=dict)
    """By source offset: those from the lane's place on. All of them are in their topic."""
    stamp: Stamp | None = None
    """Who writes the lane's letters; None before the first."""
    at: TopicPartition | None = None
    sequence: int = 0
    notes: list[LettersNote] = field(default_factory=list)
    """In the ledger, oldest first, but for those that are full."""


@dataclass(frozen=True, slots=True)
class LetterBox:
    """What is needed to write letters of a flow."""

    flow: FlowId
    source: Cluster
    target: Cluster
    ledger: LedgerStore

    async def find(
        self, lane: Lane, position: int, next_offset: int, *, writes: bool
    ) -> LaneLetters:
        """Of a lane that goes on there. Letters that were decided and not written are written, or
        without `writes` withdrawn: their records have another fate by now.

        The ledger was just read. Raises `MirrorError`.
        """
        notes = [
            note
            for note in notes_of(self.ledger.view, lane.id.source)
            if note.source_topic_id == lane.source_topic_id
        ]
        if not notes:
            return LaneLetters()
        last = notes[-1]
        stamp = Stamp(last.producer_id, last.producer_epoch)
        found = LaneLetters(stamp=stamp, at=last.at, notes=notes)
        owed = [
            note
            for note in notes
            if note.position >= position and note.letters[-1].offset >= next_offset
        ]
        if not owed:
            found.sequence = await next_sequence(self.target, last.at, last.producer_id)
            return found
        found.decided = {
            each.offset: each.failure
            for note in owed
            for each in note.letters
            if each.offset >= next_offset
        }
        first = min(owed, key=lambda note: note.from_offset)
        there, found.sequence = await settled_records(
            self.target, first.at, first.from_offset, first.producer_id, first.sequence
        )
        present = self._offsets_of(lane, first.at, there)
        missing = [offset for offset in sorted(found.decided) if offset not in present]
        if missing and writes:
            try:
                await self._write_missing(lane, found, missing)
            except MirrorError as exc:
                raise refused(last.at.topic, exc) from exc
        elif missing:
            await self._withdraw(lane, owed, frozenset(missing))
            # What was taken back must not come again with what is put together.
            found.notes = [note for note in notes if note not in owed]
            for offset in missing:
                del found.decided[offset]
        return found

    async def write(
        self, lane: Lane, topic: TopicName, known: LaneLetters, letters: Sequence[Letter]
    ) -> None:
        """Returns when all are in their topic for good. Raises `MirrorError`."""
        try:
            async with asyncio.timeout(WRITE_S_MAX):
                await self._write(lane, topic, known, letters)
        except TimeoutError as exc:
            problem = self.ledger.problem
            raise BrokerUnreachable(
                f"cluster {self.target.alias}: topic {topic}: letters not written in "
                f"{WRITE_S_MAX:g} s{f': {problem}' if problem else ''}"
            ) from exc

    async def _write(
        self, lane: Lane, topic: TopicName, known: LaneLetters, letters: Sequence[Letter]
    ) -> None:
        at = await self._place(topic, lane)
        if known.stamp is None or known.at != at:
            known.stamp = Stamp(*await self.target.new_producer_id())
            known.at, known.sequence = at, 0
        from_offset, sequence = await end_of(self.target, at), known.sequence
        probe(LETTERS_TO_NOTE)
        notes: list[LettersNote] = []
        for some in in_notes(letters):
            note = LettersNote(
                topic=at.topic,
                partition=at.partition,
                from_offset=from_offset,
                producer_id=known.stamp.producer_id,
                producer_epoch=known.stamp.producer_epoch,
                sequence=sequence,
                position=some[-1].position,
                source_topic_id=lane.source_topic_id,
                at_ms=now_ms(),
                letters=noted(some),
            )
            sequence += len(some)
            notes.append(note)
        await self.ledger.write_or_refuse(note_entry(lane.id.source, each) for each in notes)
        probe(LETTERS_NOTED)
        await self._append(lane, known, letters)
        probe(LETTERS_APPENDED)
        known.notes += notes
        if len(known.notes) >= FOLDED_AT:
            # The ledger's view here is of the time when the lane was found.
            known.notes, entries = fold(lane.id.source, known.notes)
            self.ledger.write_soon(entries)

    async def _append(self, lane: Lane, known: LaneLetters, letters: Sequence[Letter]) -> None:
        assert known.at is not None and known.stamp is not None
        at_ms = now_ms()
        contents = [as_letter(self.flow, lane.id.source, each, at_ms) for each in letters]
        known.sequence = await append_records(
            self.target, known.at, known.stamp, known.sequence, contents
        )

    async def _place(self, topic: TopicName, lane: Lane) -> TopicPartition:
        """The partition of the dead-letter topic that takes the lane's letters."""
        found = self.target.topic(topic)
        if found is None:
            await self.target.refresh([topic])
            found = self.target.topic(topic)
        if found is None:
            raise BrokerError(
                f"cluster {self.target.alias}: the dead-letter topic {topic} is absent"
            )
        partition = lane.id.source.partition % found.partition_count
        return TopicPartition(topic=topic, partition=partition)

    async def _write_missing(self, lane: Lane, found: LaneLetters, missing: Sequence[int]) -> None:
        """Noted, and not in the topic: their writer was killed. The records are read anew."""
        letters: list[Letter] = []
        for offset in missing:
            read = [
                Letter(0, at, content, found.decided[offset])
                async for at, content in records_from(
                    self.source, lane.id.source, offset, offset + 1
                )
            ]
            letters += read
        await self._append(lane, found, letters)

    async def _withdraw(
        self, lane: Lane, owed: Sequence[LettersNote], missing: frozenset[int]
    ) -> None:
        source = lane.id.source
        entries: list[MemoEntry | Tombstone] = []
        for note in owed:
            written = tuple(each for each in note.letters if each.offset not in missing)
            if len(written) < len(note.letters):
                entries.append(forget_memo(note_entry(source, note).subject))
            if 0 < len(written) < len(note.letters):
                entries.append(note_entry(source, replace(note, letters=written)))
        await self.ledger.write_or_refuse(entries)

    def _offsets_of(
        self, lane: Lane, at: TopicPartition, records: Sequence[tuple[int, object]]
    ) -> frozenset[int]:
        """Source offsets of the lane that there are letters of."""
        read = (read_letter(at, offset, content) for offset, content in records)  # type: ignore[arg-type]
        return frozenset(
            each.offset
            for each in read
            if each is not None and each.source == lane.id.source and each.flow == str(self.flow)
        )


def refused(topic: TopicName, error: MirrorError) -> MirrorError:
    """What a lane says whose letters cannot be written."""
    why = f"the dead-letter topic {topic} cannot be written: {error}"
    if isinstance(error, NotAuthorised):
        return NotAuthorised(why)
    return BrokerUnreachable(why) if error.retriable else BrokerError(why)
