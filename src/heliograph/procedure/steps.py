"""A command in steps, each recorded when it is done, taken up again after a crash. Driver only.

A step may be cut off anywhere and begun again by another process, so each must be safe to repeat;
one that was recorded is never begun again. What a step found out is recorded with it, because the
steps after it and the report need it, and what it looked at may be gone by then.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from heliograph.clock import now_ms
from heliograph.errors import RecoveryRefused, WireError
from heliograph.ledger.entries import MemoEntry, MemoKey, Tombstone
from heliograph.ledger.store import LedgerStore

Kind = Literal["failover", "failback"]
Facts = Mapping[str, Any]
"""JSON, as a step wrote it and reads it again; each step knows its own and its predecessors'."""
SEPARATOR: Final = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    name: str
    began_ms: int
    ended_ms: int
    told: str
    """One sentence: what was done."""
    facts: Facts = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """How far a failover or failback has come."""

    id: str
    kind: Kind
    choices: Mapping[str, str]
    """What the operator asked for; whoever takes it up again must ask for the same."""
    began_ms: int
    host: str
    pid: int
    done: tuple[StepDone, ...] = ()
    ended_ms: int | None = None

    @property
    def is_over(self) -> bool:
        return self.ended_ms is not None

    def facts(self, step: str) -> Facts:
        """What a step recorded; empty where it was not done."""
        return next((one.facts for one in self.done if one.name == step), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step did."""

    told: str
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    run: Callable[[Procedure], Awaitable[Outcome]]
    """Safe to repeat. Raises `MirrorError` where it cannot be done; then nothing is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    step: str
    what: Literal["begins", "goes on", "done", "done before"]
    text: str = ""
    seconds: float = 0.0


Say = Callable[[StepEvent], None]


class Journal:
    """One kind of course in a flow's ledger. The head of a course is a memo, each step another."""

    def __init__(self, store: LedgerStore, kind: Kind) -> None:
        self._store, self._kind = store, kind

    async def read(self) -> Procedure | None:
        """The latest course, over or not."""
        await self._store.catch_up()
        memos = self._store.view.memos
        head = memos.get(self._kind)
        if head is None:
            return None
        procedure = _procedure(self._kind, head)
        prefix = self._prefix(procedure.id)
        steps = [
            _step(text)
            for subject, text in memos.items()
            if subject.startswith(prefix) and SEPARATOR not in subject.removeprefix(prefix)
        ]
        return replace(procedure, done=tuple(sorted(steps, key=lambda step: step.ended_ms)))

    async def begin(self, choices: Mapping[str, str]) -> Procedure:
        """A new course; what an earlier one recorded is forgotten."""
        await self._store.catch_up()
        old = [s for s in self._store.view.memos if s.startswith(f"{self._kind}{SEPARATOR}")]
        procedure = Procedure(
            id=uuid.uuid4().hex[:12],
            kind=self._kind,
            choices=dict(choices),
            began_ms=now_ms(),
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        # The new head first: steps of a course that is not the head's are nobody's.
        await self._store.write_or_refuse([MemoEntry(subject=self._kind, text=_head(procedure))])
        await self._store.write_or_refuse([Tombstone(key=MemoKey(subject=one)) for one in old])
        return procedure

    async def note(self, procedure: Procedure, step: StepDone) -> Procedure:
        subject = f"{self._prefix(procedure.id)}{step.name}"
        await self._store.write_or_refuse([MemoEntry(subject=subject, text=_step_text(step))])
        return replace(procedure, done=(*procedure.done, step))

    async def mark(self, procedure: Procedure, step: str, part: str, facts: Facts) -> None:
        """Record a part of a step that is not done yet, under a name that no other part has."""
        subject = f"{self._prefix(procedure.id)}{step}{SEPARATOR}{part}"
        text = json.dumps({"v": 1, "facts": dict(facts)})
        await self._store.write_or_refuse([MemoEntry(subject=subject, text=text)])

    async def marks(self, procedure: Procedure, step: str) -> Mapping[str, Facts]:
        """The parts of a step that were recorded, by name."""
        await self._store.catch_up()
        prefix = f"{self._prefix(procedure.id)}{step}{SEPARATOR}"
        return {
            subject.removeprefix(prefix): _mark(text)
            for subject, text in self._store.view.memos.items()
            if subject.startswith(prefix)
        }

    async def forget(self) -> None:
        """As if there had never been a course of this kind."""
        await self._store.catch_up()
        old = [s for s in self._store.view.memos if s.startswith(f"{self._kind}{SEPARATOR}")]
        # The head first: what is left of a course without one is nobody's.
        subjects = [self._kind, *old] if self._kind in self._store.view.memos else old
        await self._store.write_or_refuse([Tombstone(key=MemoKey(subject=s)) for s in subjects])

    async def end(self, procedure: Procedure) -> Procedure:
        over = replace(procedure, ended_ms=now_ms())
        await self._store.write_or_refuse([MemoEntry(subject=self._kind, text=_head(over))])
        return over

    def _prefix(self, course_id: str) -> str:
        return f"{self._kind}{SEPARATOR}{course_id}{SEPARATOR}"


async def run_steps(
    journal: Journal, procedure: Procedure, steps: Sequence[Step], say: Say
) -> Procedure:
    """Do what is not done yet, in order, and end the course."""
    for step in steps:
        before = next((one for one in procedure.done if one.name == step.name), None)
        if before is not None:
            say(StepEvent(step=step.name, what="done before", text=before.told))
            continue
        say(StepEvent(step=step.name, what="begins"))
        began_ms = now_ms()
        outcome = await step.run(procedure)
        done = StepDone(
            name=step.name,
            began_ms=began_ms,
            ended_ms=now_ms(),
            told=outcome.told,
            facts=outcome.facts,
        )
        procedure = await journal.note(procedure, done)
        say(StepEvent(step=step.name, what="done", text=done.told, seconds=done.seconds))
    return await journal.end(procedure)


async def resume_or_begin(journal: Journal, choices: Mapping[str, str]) -> Procedure:
    """The course that is not over, or a new one; raises `RecoveryRefused` for one that differs."""
    procedure = await journal.read()
    if procedure is None or procedure.is_over:
        return await journal.begin(choices)
    if dict(procedure.choices) != dict(choices):
        asked = ", ".join(f"{name} {value}" for name, value in procedure.choices.items())
        raise RecoveryRefused(
            f"a {procedure.kind} begun on {procedure.host} (pid {procedure.pid}) is not finished "
            f"and was asked for with {asked}: take it up with the same choices, or give it up with "
            "--abandon"
        )
    return procedure


def _head(procedure: Procedure) -> str:
    return json.dumps(
        {
            "v": 1,
            "id": procedure.id,
            "choices": dict(procedure.choices),
            "began_ms": procedure.began_ms,
            "host": procedure.host,
            "pid": procedure.pid,
            "ended_ms": procedure.ended_ms,
        }
    )


def _procedure(kind: Kind, text: str) -> Procedure:
    try:
        fields = json.loads(text)
        return Procedure(
            id=str(fields["id"]),
            kind=kind,
            choices={str(k): str(v) for k, v in fields["choices"].items()},
            began_ms=int(fields["began_ms"]),
            host=str(fields["host"]),
            pid=int(fields["pid"]),
            ended_ms=None if fields["ended_ms"] is None else int(fields["ended_ms"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise WireError(f"the ledger's memo of a {kind} makes no sense") from exc


def _step_text(step: StepDone) -> str:
    return json.dumps(
        {
            "v": 1,
            "name": step.name,
            "began_ms": step.began_ms,
            "ended_ms": step.ended_ms,
            "told": step.told,
            "facts": dict(step.facts),
        }
    )


def _mark(text: str) -> Facts:
    try:
        return dict(json.loads(text)["facts"])
    except (KeyError, TypeError, ValueError) as exc:
        raise WireError("the ledger's memo of a part of a step makes no sense") from exc


def _step(text: str) -> StepDone:
    try:
        fields = json.loads(text)
        return StepDone(
            name=str(fields["name"]),
            began_ms=int(fields["began_ms"]),
            ended_ms=int(fields["ended_ms"]),
            told=str(fields["told"]),
            facts=dict(fields["facts"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise WireError("the ledger's memo of a step makes no sense") from exc
