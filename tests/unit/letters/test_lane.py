"""Letters whose topic is not there, or is there again, and a fate that was changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest

from heliograph.copy.flow import FetchLimits, Flow
from heliograph.errors import BrokerError
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.letters.lane import LaneLetters, LetterBox
from heliograph.letters.letter import Letter
from heliograph.letters.notes import (
    FOLDED_AT,
    NOTES_APART,
    LettersNote,
    fold,
    letters_by_topic,
    note_entry,
    noted,
    notes_of,
)
from heliograph.model import TopicName, TopicPartition
from heliograph.transform.record import Failure
from tests.kit.batches import Record, batch_of
from tests.kit.fake_cluster import Asked
from tests.unit.copy.resume_kit import FLOW, LEDGER, ORDERS, SPEC, Stage

TOPIC = TopicName("letters")
AT = TopicPartition(topic=TOPIC, partition=0)
T = TypeVar("T")


def letter(offset: int) -> Letter:
    return Letter(offset, offset, (1, b"k", b"v", ()), Failure("t", "ValueError", "no"))


def with_box(stage: Stage, act: Callable[[LetterBox], Coroutine[object, object, T]]) -> T:
    async def run() -> T:
        store = LedgerStore(stage.target, LEDGER)
        try:
            flow = Flow(FLOW, stage.source, stage.target, store, FetchLimits())
            await store.catch_up()
            return await act(flow.letter_box)
        finally:
            await store.close()

    return asyncio.run(run())


def noted_only() -> Stage:
    """A letter was noted, and its writer died before it was sent."""
    stage = Stage()
    stage.target.create(TOPIC)
    records = batch_of(*(Record(offset=n, value=b"%d" % n) for n in range(3)))
    stage.read.hold([records])

    def break_produce(asked: Asked) -> None:
        if asked == Asked("produce", frozenset({TOPIC})):
            raise BrokerError("cluster B: no")

    stage.target.before = break_produce

    async def write(box: LetterBox) -> None:
        with pytest.raises(BrokerError):
            await box.write(SPEC, TOPIC, LaneLetters(), [letter(1)])

    with_box(stage, write)
    stage.target.before = lambda _: None
    assert stage.target.log(AT).end == 0
    return stage


def test_a_topic_that_is_not_there_is_said_and_nothing_is_noted() -> None:
    stage = Stage()

    async def write(box: LetterBox) -> str:
        with pytest.raises(BrokerError) as refused:
            await box.write(SPEC, TOPIC, LaneLetters(), [letter(1)])
        await box.ledger.catch_up()
        assert notes_of(box.ledger.view, ORDERS) == []
        return str(refused.value)

    assert "the dead-letter topic letters is absent" in with_box(stage, write)


def test_a_letter_that_was_only_noted_is_written_from_the_source_before_the_lane_goes_on() -> None:
    stage = noted_only()

    found = with_box(stage, lambda box: box.find(SPEC, 0, 0, writes=True))
    again = with_box(stage, lambda box: box.find(SPEC, 0, 0, writes=True))

    assert set(found.decided) == set(again.decided) == {1}
    assert stage.target.log(AT).end == 1


def test_a_letter_that_was_only_noted_is_no_letter_once_its_flow_writes_none() -> None:
    stage = noted_only()

    found = with_box(stage, lambda box: box.find(SPEC, 0, 0, writes=False))

    async def counted(box: LetterBox) -> int:
        return sum(each.records for each in letters_by_topic(box.ledger.view).values())

    assert found.decided == {} and found.notes == []
    assert stage.target.log(AT).end == 0
    assert with_box(stage, counted) == 0


def test_letters_that_the_lane_is_past_are_not_looked_for() -> None:
    stage = noted_only()

    found = with_box(stage, lambda box: box.find(SPEC, 2, 2, writes=True))

    assert found.decided == {}
    assert stage.target.log(AT).end == 0


def test_many_notes_of_a_lane_become_few_and_name_the_same_letters() -> None:
    stage = Stage()
    stage.target.create(TOPIC)
    count = 3 * FOLDED_AT

    async def write(box: LetterBox) -> tuple[int, list[int], int]:
        known = LaneLetters()
        for offset in range(count):
            await box.write(SPEC, TOPIC, known, [letter(offset)])
        await box.ledger.flush(10)
        await box.ledger.catch_up()
        notes = notes_of(box.ledger.view, ORDERS)
        counted = letters_by_topic(box.ledger.view)[ORDERS.topic].records
        return len(notes), [each.offset for note in notes for each in note.letters], counted

    notes, offsets, counted = with_box(stage, write)
    found = with_box(stage, lambda box: box.find(SPEC, count - 2, count - 2, writes=True))

    assert notes < FOLDED_AT
    assert sorted(offsets) == list(range(count))
    assert counted == count
    assert set(found.decided) == {count - 2, count - 1}
    assert stage.target.log(AT).end == count


def test_a_fold_that_was_cut_off_names_letters_twice_and_counts_them_once() -> None:
    def note(offset: int, **more: int) -> LettersNote:
        fields = {"producer_id": 7, "from_offset": offset, "sequence": offset, **more}
        return LettersNote(
            topic=TOPIC,
            partition=0,
            producer_epoch=0,
            position=offset,
            source_topic_id=None,
            at_ms=offset,
            letters=noted([letter(offset)]),
            **fields,
        )

    notes = [note(offset) for offset in range(4 + NOTES_APART)]
    notes[2] = note(2, producer_id=8)
    view = LedgerView()
    for each in notes:
        view.apply(note_entry(ORDERS, each))

    kept, (whole, *gone) = fold(ORDERS, notes)

    assert isinstance(whole, MemoEntry)
    assert len(gone) == 2, "those of another producer stay by themselves"
    view.apply(whole)
    assert letters_by_topic(view)[ORDERS.topic].records == len(notes)
    together = notes_of(view, ORDERS)
    assert len(kept) == 1 + NOTES_APART
    (merged,) = (each for each in together if len(each.letters) == 2)
    assert (merged.from_offset, merged.sequence, merged.position) == (0, 0, 1)
