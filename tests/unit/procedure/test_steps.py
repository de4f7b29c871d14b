"""A course of steps: recorded, taken up again, refused when asked for differently, given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest

from heliograph.errors import MirrorError, RecoveryRefused, WireError
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone, key_of
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.procedure.steps import (
    Journal,
    Outcome,
    Procedure,
    Step,
    StepEvent,
    resume_or_begin,
    run_steps,
)


class Paper:
    """A ledger without a broker, as bytes; one that dies writes no more."""

    def __init__(self) -> None:
        self.view = LedgerView()
        self.written: list[tuple[bytes, bytes | None]] = []
        self.writes_left = 1_000

    async def catch_up(self) -> None:
        """Everything is there already."""

    async def write_or_refuse(self, entries: Iterable[Entry | Tombstone]) -> None:
        for entry in entries:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise Died
            record = (
                (encode_key(entry.key), None) if isinstance(entry, Tombstone) else encode(entry)
            )
            self.written.append(record)
            self.view.apply_record(*record)


class Died(BaseException):
    """The process is gone."""


class Work:
    """Three steps that note that they ran; any may be told to fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails = ""

    def steps(self) -> list[Step]:
        return [Step(name=name, run=self._step(name)) for name in ("one", "two", "three")]

    def _step(self, name: str):  # type: ignore[no-untyped-def]
        async def run(procedure: Procedure) -> Outcome:
            if name == self.fails:
                raise MirrorError(f"{name} cannot be done")
            self.ran.append(name)
            return Outcome(told=f"did {name}", facts={"before": list(procedure.facts("one"))})

        return run


def journal(paper: Paper) -> Journal:
    return Journal(cast(LedgerStore, paper), "failover")


def run(paper: Paper, work: Work, mode: str = "unplanned") -> list[StepEvent]:
    said: list[StepEvent] = []

    async def all_of_it() -> None:
        procedure = await resume_or_begin(journal(paper), {"mode": mode})
        await run_steps(journal(paper), procedure, work.steps(), said.append)

    asyncio.run(all_of_it())
    return said


def read(paper: Paper) -> Procedure:
    procedure = asyncio.run(journal(paper).read())
    assert procedure is not None
    return procedure


def test_every_step_is_said_and_recorded_with_what_it_found() -> None:
    paper, work = Paper(), Work()

    said = run(paper, work)

    assert [(event.step, event.what) for event in said] == [
        (name, what) for name in ("one", "two", "three") for what in ("begins", "done")
    ]
    procedure = read(paper)
    assert procedure.is_over
    assert [(step.name, step.told) for step in procedure.done] == [
        ("one", "did one"),
        ("two", "did two"),
        ("three", "did three"),
    ]
    assert procedure.facts("two") == {"before": ["before"]}


@pytest.mark.parametrize("writes", range(5))
def test_whoever_dies_at_any_write_is_followed_by_one_that_does_only_the_rest(writes: int) -> None:
    paper, work = Paper(), Work()
    paper.writes_left = writes
    with pytest.raises(Died):
        run(paper, work)
    recorded = [] if writes == 0 else [step.name for step in read(paper).done]
    paper.writes_left, work.ran = 1_000, []

    said = run(paper, work)

    assert work.ran == ["one", "two", "three"][len(recorded) :]
    assert [event.step for event in said if event.what == "done before"] == recorded
    assert read(paper).is_over


def test_a_step_that_fails_is_not_recorded_and_is_tried_again() -> None:
    paper, work = Paper(), Work()
    work.fails = "two"
    with pytest.raises(MirrorError, match="two cannot be done"):
        run(paper, work)

    work.fails = ""
    run(paper, work)

    assert work.ran == ["one", "two", "three"]


def test_an_unfinished_course_asked_for_differently_is_refused_with_a_way_out() -> None:
    paper, work = Paper(), Work()
    work.fails = "two"
    with pytest.raises(MirrorError):
        run(paper, work, "planned")

    with pytest.raises(RecoveryRefused, match=r"mode planned.*--abandon"):
        run(paper, work, "unplanned")

    assert work.ran == ["one"]


def test_a_finished_course_makes_room_for_another_and_is_forgotten() -> None:
    paper, work = Paper(), Work()
    run(paper, work)
    first = read(paper).id

    run(paper, work, "planned")

    assert read(paper).id != first
    assert not [subject for subject in paper.view.memos if first in subject]


def test_parts_of_a_step_are_no_steps_and_are_found_again() -> None:
    paper = Paper()

    async def marked() -> tuple[Procedure, object]:
        book = journal(paper)
        procedure = await book.begin({})
        await book.mark(procedure, "groups", "1", {"groups": ["a", "b"]})
        await book.mark(procedure, "groups", "2", {"groups": ["c"]})
        await book.mark(procedure, "others", "1", {})
        return procedure, await book.marks(procedure, "groups")

    procedure, marks = asyncio.run(marked())

    assert marks == {"1": {"groups": ["a", "b"]}, "2": {"groups": ["c"]}}
    assert read(paper).done == ()
    assert read(paper).id == procedure.id


def test_a_course_that_is_given_up_leaves_nothing() -> None:
    paper, work = Paper(), Work()
    work.fails = "three"
    with pytest.raises(MirrorError):
        run(paper, work)

    asyncio.run(journal(paper).forget())

    assert asyncio.run(journal(paper).read()) is None
    assert not paper.view.memos


def test_failover_and_failback_do_not_read_each_other() -> None:
    paper = Paper()
    asyncio.run(journal(paper).begin({}))

    assert asyncio.run(Journal(cast(LedgerStore, paper), "failback").read()) is None


@pytest.mark.parametrize("text", ["{}", '{"id": 1}', '{"id":"a","choices":[],"began_ms":0}'])
def test_a_head_that_makes_no_sense_is_an_error_and_not_a_fresh_start(text: str) -> None:
    paper = Paper()
    entry = MemoEntry(subject="failover", text=text)
    paper.view.apply_record(encode_key(key_of(entry)), encode(entry)[1])

    with pytest.raises(WireError):
        asyncio.run(journal(paper).read())
