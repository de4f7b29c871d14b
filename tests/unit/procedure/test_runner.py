"""A procedure in steps: recorded, resumed, refused when asked for differently, abandoned."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import cast

import pytest

from heliograph.errors import MirrorError, RecoveryRefused, WireError
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone, key_of
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId
from heliograph.procedure.journal import Journal, NoOutput, PartKind, Procedure, StepKind
from heliograph.procedure.runner import (
    Outcome,
    Standing,
    Step,
    StepEvent,
    read_standing,
    resume_or_begin,
    run_steps,
    step,
    steps_left,
    unfinished_to_abandon,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    mode: str = "unplanned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    before: tuple[str, ...] = ()
    more: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    groups: tuple[str, ...] = ()


KINDS = {name: StepKind(name, Found) for name in ("one", "two", "three")}
GROUPS: PartKind[Part] = PartKind("groups", Part)
OTHERS: PartKind[NoOutput] = PartKind("others", NoOutput)


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

    def steps(self) -> list[Step[Choices]]:
        return [step(kind, self._step(name)) for name, kind in KINDS.items()]

    def _step(self, name: str) -> Callable[[Procedure[Choices]], Awaitable[Outcome[Found]]]:
        async def run(procedure: Procedure[Choices]) -> Outcome[Found]:
            if name == self.fails:
                raise MirrorError(f"{name} cannot be done")
            self.ran.append(name)
            before = tuple(one.name for one in procedure.done)
            return Outcome(summary=f"did {name}", output=Found(before=before))

        return run


def journal(paper: Paper) -> Journal[Choices]:
    return Journal(cast(LedgerStore, paper), "failover", Choices)


def run(paper: Paper, work: Work, mode: str = "unplanned") -> list[StepEvent]:
    said: list[StepEvent] = []

    async def all_of_it() -> None:
        procedure = await resume_or_begin(journal(paper), FLOW, Choices(mode=mode))
        await run_steps(journal(paper), procedure, work.steps(), said.append)

    asyncio.run(all_of_it())
    return said


def read(paper: Paper) -> Procedure[Choices]:
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
    assert [(done.name, done.summary) for done in procedure.done] == [
        ("one", "did one"),
        ("two", "did two"),
        ("three", "did three"),
    ]
    assert procedure.output(KINDS["two"]) == Found(before=("one",))
    assert procedure.done[1].outputs == {"before": ["one"]}


@pytest.mark.parametrize("writes", range(5))
def test_whoever_dies_at_any_write_is_followed_by_one_that_does_only_the_rest(writes: int) -> None:
    paper, work = Paper(), Work()
    paper.writes_left = writes
    with pytest.raises(Died):
        run(paper, work)
    recorded = [] if writes == 0 else [done.name for done in read(paper).done]
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


def test_an_unfinished_procedure_asked_for_differently_is_refused_with_a_way_out() -> None:
    paper, work = Paper(), Work()
    work.fails = "two"
    with pytest.raises(MirrorError):
        run(paper, work, "planned")

    with pytest.raises(RecoveryRefused, match=r"mode planned.*--abandon"):
        run(paper, work, "unplanned")

    assert work.ran == ["one"]


def test_a_finished_procedure_makes_room_for_another_and_is_forgotten() -> None:
    paper, work = Paper(), Work()
    run(paper, work)
    first = read(paper).id

    run(paper, work, "planned")

    assert read(paper).id != first
    assert not [subject for subject in paper.view.memos if first in subject]


def test_parts_of_a_step_are_no_steps_and_are_found_again() -> None:
    paper = Paper()

    async def recorded() -> tuple[Procedure[Choices], object]:
        book = journal(paper)
        procedure = await book.begin(Choices())
        await book.record_part(procedure, GROUPS, "1", Part(groups=("a", "b")))
        await book.record_part(procedure, GROUPS, "2", Part(groups=("c",)))
        await book.record_part(procedure, OTHERS, "1", NoOutput())
        return procedure, await book.parts(procedure, GROUPS)

    procedure, parts = asyncio.run(recorded())

    assert parts == {"1": Part(groups=("a", "b")), "2": Part(groups=("c",))}
    assert read(paper).done == ()
    assert read(paper).id == procedure.id


def test_a_procedure_that_is_abandoned_leaves_nothing() -> None:
    paper, work = Paper(), Work()
    work.fails = "three"
    with pytest.raises(MirrorError):
        run(paper, work)

    asyncio.run(journal(paper).forget())

    assert asyncio.run(journal(paper).read()) is None
    assert not paper.view.memos


def test_failover_and_failback_do_not_read_each_other() -> None:
    paper = Paper()
    asyncio.run(journal(paper).begin(Choices()))

    failbacks = Journal(cast(LedgerStore, paper), "failback", Choices)
    assert asyncio.run(failbacks.read()) is None


@pytest.mark.parametrize("text", ["{}", '{"id": 1}', '{"id":"a","choices":[],"began_ms":0}'])
def test_a_head_that_makes_no_sense_is_an_error_and_not_a_fresh_start(text: str) -> None:
    paper = Paper()
    entry = MemoEntry(subject="failover", text=text)
    paper.view.apply_record(encode_key(key_of(entry)), encode(entry)[1])

    with pytest.raises(WireError, match=r"cannot decode ledger record memo\|failover: "):
        asyncio.run(journal(paper).read())


@pytest.mark.parametrize("is_mine", [True, False])
def test_a_procedure_that_another_process_of_this_host_runs_is_refused(is_mine: bool) -> None:
    paper, work = Paper(), Work()
    work.fails = "two"
    with pytest.raises(MirrorError):
        run(paper, work)
    work.fails = ""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        if not is_mine:
            begun_by(paper, other.pid)
            with pytest.raises(RecoveryRefused) as refused:
                run(paper, work)
            assert str(refused.value) == (
                f"another failover of A->B is running on this host (pid {other.pid}); wait for it, "
                "or stop it and rerun this command"
            )
            assert not read(paper).is_over
        other.kill()

    run(paper, work)

    assert read(paper).is_over


@pytest.mark.parametrize("signature", ["0" * 32, None])
def test_a_procedure_of_another_machine_that_has_this_ones_name_is_resumed(
    signature: str | None,
) -> None:
    """Containers may share a host's name and have pids of their own; an earlier version signed
    nothing."""
    paper, work = Paper(), Work()
    work.fails = "two"
    with pytest.raises(MirrorError):
        run(paper, work)
    work.fails = ""
    begun_by(paper, os.getppid(), signature=signature)

    run(paper, work)

    assert read(paper).is_over


def begun_by(paper: Paper, pid: int, **more: str | None) -> None:
    fields = json.loads(paper.view.memos["failover"]) | {"pid": pid} | more
    known = {name: value for name, value in fields.items() if value is not None}
    paper.view.apply(MemoEntry(subject="failover", text=json.dumps({"ended_ms": None, **known})))


def test_a_preview_knows_what_is_unfinished_what_is_left_and_what_is_in_force() -> None:
    paper, work = Paper(), Work()
    work.fails = "two"
    with pytest.raises(MirrorError):
        run(paper, work)
    begun = asyncio.run(read_standing(journal(paper), lambda _: True))
    work.fails = ""
    run(paper, work)
    over = asyncio.run(read_standing(journal(paper), lambda _: True))
    undone = asyncio.run(read_standing(journal(paper), lambda _: False))

    assert (begun.steps_done, begun.finished) == (("one",), None)
    assert steps_left(work.steps(), begun) == ("two", "three")
    assert (over.unfinished, over.finished) == (None, read(paper))
    assert undone == Standing()


def test_only_an_unfinished_procedure_can_be_abandoned() -> None:
    paper, work = Paper(), Work()
    with pytest.raises(RecoveryRefused, match=r"A->B has no unfinished failover to abandon$"):
        asyncio.run(unfinished_to_abandon(journal(paper), FLOW, "failover"))
    work.fails = "two"
    with pytest.raises(MirrorError):
        run(paper, work)

    found = asyncio.run(unfinished_to_abandon(journal(paper), FLOW, "failover"))
    work.fails = ""
    run(paper, work)

    assert found.has_done(KINDS["one"])
    with pytest.raises(RecoveryRefused, match=r"to abandon; fail back$"):
        asyncio.run(unfinished_to_abandon(journal(paper), FLOW, "failover", if_over="fail back"))


def test_a_step_that_recorded_nonsense_is_named_with_its_field() -> None:
    paper, work = Paper(), Work()
    run(paper, work)
    subject = f"failover/{read(paper).id}/one"
    fields = json.loads(paper.view.memos[subject]) | {"facts": {"before": 7}}
    paper.view.apply(MemoEntry(subject=subject, text=json.dumps(fields)))

    with pytest.raises(WireError, match=rf"memo\|{subject}: before: "):
        read(paper).output(KINDS["one"])
