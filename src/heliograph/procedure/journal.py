"""How far a failover or failback has come, kept in its flow's ledger. Driver only.

    memo|<kind>                       what was asked for, when it began and, once it is over, ended
    memo|<kind>/<id>/<step>           a step that is done: when, and what it found out
    memo|<kind>/<id>/<step>/<part>    a part of a step that is not done yet

What a step found out is recorded with it, because the steps after it and the report need it, and
what it looked at may be gone by then.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import Field

from heliograph.clock import now_ms
from heliograph.ledger.memo import Memo, Typed, forget_memo
from heliograph.ledger.store import LedgerStore
from heliograph.processes import new_signature

Kind = Literal["failover", "failback"]
C = TypeVar("C")
"""What an operator may choose: a dataclass, of each kind of procedure another."""
T = TypeVar("T")
SEPARATOR: Final = "/"


class StepKind(Generic[T]):
    """The name of a step and the type of what it records; fields that are None are left out."""

    def __init__(self, name: str, output: type[T]) -> None:
        self.name = name
        self.output: Typed[T] = Typed(output, writes_null=False)


class PartKind(Generic[T]):
    """What is recorded of the parts of a step while it goes on, each under a name of its own."""

    def __init__(self, step: str, part: Any, *, writes_null: bool = False) -> None:
        self.step = step
        self.part: Typed[T] = Typed(part, writes_null=writes_null)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOutput:
    """Of a step that finds out nothing that is asked for later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    name: str
    began_ms: int
    ended_ms: int
    summary: Annotated[str, Field(alias="told")]
    """One sentence: what was done."""
    outputs: Annotated[Mapping[str, Any], Field(alias="facts")] = field(default_factory=dict)
    """As recorded, for those who show it; `Procedure.output` has it as the step's own type."""

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure(Generic[C]):
    """How far a failover or failback has come."""

    id: str
    kind: Kind
    choices: C
    """What the operator asked for; whoever resumes it must ask for the same."""
    began_ms: int
    host: str
    pid: int
    signature: str = ""
    """Says which process of which machine began it; empty where an earlier version did."""
    done: tuple[StepDone, ...] = ()
    ended_ms: int | None = None

    @property
    def is_over(self) -> bool:
        return self.ended_ms is not None

    def has_done(self, step: StepKind[Any]) -> bool:
        return any(one.name == step.name for one in self.done)

    def output(self, step: StepKind[T]) -> T | None:
        """What a step recorded; None where it is not done. Raises `WireError`."""
        for one in self.done:
            if one.name == step.name:
                subject = f"{self.kind}{SEPARATOR}{self.id}{SEPARATOR}{step.name}"
                return step.output.load(subject, one.outputs)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    id: str
    choices: Mapping[str, Any]
    began_ms: int
    host: str
    pid: int
    signature: Annotated[str, Field(exclude_if=lambda signature: not signature)] = ""
    """Left out where it is not known, as earlier versions wrote it."""
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    facts: Mapping[str, Any]


_HEAD: Final[Memo[_Head]] = Memo(_Head)
_STEP: Final[Memo[StepDone]] = Memo(StepDone)
_PART: Final[Memo[_Part]] = Memo(_Part)


class Journal(Generic[C]):
    """The procedures of one kind in a flow's ledger; only the latest one is kept."""

    def __init__(self, store: LedgerStore, kind: Kind, choices: type[C]) -> None:
        self._store, self._kind = store, kind
        self._choices: Typed[C] = Typed(choices)

    async def read(self) -> Procedure[C] | None:
        """The latest procedure, over or not."""
        await self._store.catch_up()
        head = _HEAD.read(self._store.view, self._kind)
        if head is None:
            return None
        prefix = self._prefix(head.id)
        steps = [
            _STEP.decode(subject, text)
            for subject, text in self._store.view.memos.items()
            if subject.startswith(prefix) and SEPARATOR not in subject.removeprefix(prefix)
        ]
        return Procedure(
            id=head.id,
            kind=self._kind,
            choices=self._choices.load(self._kind, head.choices),
            began_ms=head.began_ms,
            host=head.host,
            pid=head.pid,
            signature=head.signature,
            done=tuple(sorted(steps, key=lambda step: step.ended_ms)),
            ended_ms=head.ended_ms,
        )

    async def begin(self, choices: C) -> Procedure[C]:
        """A new procedure; what an earlier one recorded is forgotten."""
        await self._store.catch_up()
        old = self._subjects()
        procedure = Procedure(
            id=uuid.uuid4().hex[:12],
            kind=self._kind,
            choices=choices,
            began_ms=now_ms(),
            host=socket.gethostname(),
            pid=os.getpid(),
            signature=new_signature(),
        )
        # The new head first: steps of a procedure that is not the head's belong to none.
        await self._write_head(procedure)
        await self._store.write_or_refuse([forget_memo(subject) for subject in old])
        return procedure

    async def record_step(self, procedure: Procedure[C], step: StepDone) -> Procedure[C]:
        subject = f"{self._prefix(procedure.id)}{step.name}"
        await self._store.write_or_refuse([_STEP.entry(subject, step)])
        return replace(procedure, done=(*procedure.done, step))

    async def record_part(
        self, procedure: Procedure[C], kind: PartKind[T], name: str, part: T
    ) -> None:
        """Record a part of a step that is not done yet, under a name that no other part has."""
        subject = f"{self._prefix(procedure.id)}{kind.step}{SEPARATOR}{name}"
        await self._store.write_or_refuse([_PART.entry(subject, _Part(facts=kind.part.dump(part)))])

    async def parts(self, procedure: Procedure[C], kind: PartKind[T]) -> Mapping[str, T]:
        """The parts of a step that were recorded, by name."""
        await self._store.catch_up()
        prefix = f"{self._prefix(procedure.id)}{kind.step}{SEPARATOR}"
        return {
            subject.removeprefix(prefix): kind.part.load(subject, _PART.decode(subject, text).facts)
            for subject, text in self._store.view.memos.items()
            if subject.startswith(prefix)
        }

    async def end(self, procedure: Procedure[C]) -> Procedure[C]:
        over = replace(procedure, ended_ms=now_ms())
        await self._write_head(over)
        return over

    async def forget(self) -> None:
        await forget_procedures(self._store, self._kind)

    def choices_text(self, choices: C) -> str:
        """`mode planned`, as an operator reads it."""
        return ", ".join(
            f"{name} {' '.join(value) if isinstance(value, list) else value}"
            for name, value in self._choices.dump(choices).items()
        )

    async def _write_head(self, procedure: Procedure[C]) -> None:
        head = _Head(
            id=procedure.id,
            choices=self._choices.dump(procedure.choices),
            began_ms=procedure.began_ms,
            host=procedure.host,
            pid=procedure.pid,
            signature=procedure.signature,
            ended_ms=procedure.ended_ms,
        )
        await self._store.write_or_refuse([_HEAD.entry(self._kind, head)])

    def _subjects(self) -> list[str]:
        return _subjects(self._store, self._kind)

    def _prefix(self, procedure_id: str) -> str:
        return f"{self._kind}{SEPARATOR}{procedure_id}{SEPARATOR}"


async def forget_procedures(store: LedgerStore, kind: Kind) -> None:
    """As if the flow had never had a procedure of this kind."""
    await store.catch_up()
    old = _subjects(store, kind)
    # The head first: what is left of a procedure without one belongs to none.
    subjects = [kind, *old] if kind in store.view.memos else old
    await store.write_or_refuse([forget_memo(subject) for subject in subjects])


def _subjects(store: LedgerStore, kind: Kind) -> list[str]:
    return [subject for subject in store.view.memos if subject.startswith(f"{kind}{SEPARATOR}")]
