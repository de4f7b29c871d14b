"""Letters whose topic is not there, or is there again, and a fate that was changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest

from heliograph.copy.flow import FetchLimits, Flow
from heliograph.errors import BrokerError
from heliograph.ledger.store import LedgerStore
from heliograph.letters.lane import LaneLetters, LetterBox
from heliograph.letters.letter import Letter
from heliograph.letters.notes import letters_by_topic, notes_of
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

    assert found.decided == {}
    assert stage.target.log(AT).end == 0
    assert with_box(stage, counted) == 0


def test_letters_that_the_lane_is_past_are_not_looked_for() -> None:
    stage = noted_only()

    found = with_box(stage, lambda box: box.find(SPEC, 2, 2, writes=True))

    assert found.decided == {}
    assert stage.target.log(AT).end == 0
