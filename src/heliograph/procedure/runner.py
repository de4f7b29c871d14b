"""Run a failover or failback step by step, resume it after a crash, or abandon it. Driver only.

A step may be cut off anywhere and begun again by another process, so each must be safe to repeat;
one that was recorded is never begun again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from heliograph.clock import now_ms
from heliograph.errors import RecoveryRefused
from heliograph.model import FlowId
from heliograph.procedure.journal import C, Journal, Kind, Procedure, StepDone, StepKind
from heliograph.processes import Liveness, liveness_of

T = TypeVar("T")


class PlanChanged(RecoveryRefused):
    """What would be done now is not what who asks for it was shown; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What a step did."""

    summary: str
    """One sentence."""
    output: T
    """What is recorded for the steps after it and the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[C]):
    """Made by `step`, which holds `run` to what the kind records."""

    kind: StepKind[Any]
    run: Callable[[Procedure[C]], Awaitable[Outcome[Any]]]
    """Safe to repeat. Raises `MirrorError` where it cannot be done; then nothing is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    step: str
    what: Literal["begins", "goes on", "done", "done before"]
    text: str = ""
    seconds: float = 0.0


Say = Callable[[StepEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing(Generic[C]):
    """What the ledger has of earlier procedures of this kind; at most one of the two is there."""

    unfinished: Procedure[C] | None = None
    """Would be resumed."""
    finished: Procedure[C] | None = None
    """Is over and still in force: there is nothing left to do."""

    @property
    def steps_done(self) -> tuple[str, ...]:
        return () if self.unfinished is None else tuple(one.name for one in self.unfinished.done)


def step(kind: StepKind[T], run: Callable[[Procedure[C]], Awaitable[Outcome[T]]]) -> Step[C]:
    return Step(kind=kind, run=run)


async def read_standing(
    journal: Journal[C], is_in_force: Callable[[Procedure[C]], bool]
) -> Standing[C]:
    """`is_in_force` says of a procedure that is over whether the flow is still as it left it."""
    procedure = await journal.read()
    if procedure is None:
        return Standing()
    if not procedure.is_over:
        return Standing(unfinished=procedure)
    return Standing(finished=procedure if is_in_force(procedure) else None)


async def resume_or_begin(journal: Journal[C], flow: FlowId, choices: C) -> Procedure[C]:
    """The procedure that is not over, or a new one.

    Raises `RecoveryRefused` for one that was asked for differently or that another process runs.
    """
    procedure = await journal.read()
    if procedure is None or procedure.is_over:
        return await journal.begin(choices)
    _require_not_running(procedure, flow)
    require_same(journal, procedure, flow, choices)
    return procedure


def require_same(journal: Journal[C], procedure: Procedure[C], flow: FlowId, choices: C) -> None:
    if procedure.choices != choices:
        raise RecoveryRefused(
            f"an unfinished {procedure.kind} of {flow}, begun on {procedure.host} (pid "
            f"{procedure.pid}), was asked for with {journal.choices_text(procedure.choices)}: "
            "resume it with the same choices, or abandon it with --abandon"
        )


def _require_not_running(procedure: Procedure[Any], flow: FlowId) -> None:
    """Two at once would each take the other's half-done step for one that was cut off."""
    if procedure.pid == os.getpid():
        return
    if liveness_of(procedure.signature, procedure.pid) is Liveness.ALIVE:
        raise RecoveryRefused(
            f"another {procedure.kind} of {flow} is running on this host (pid {procedure.pid}); "
            "wait for it, or stop it and rerun this command"
        )


async def run_steps(
    journal: Journal[C], procedure: Procedure[C], steps: Sequence[Step[C]], say: Say
) -> Procedure[C]:
    """Do what is not done yet, in order, and end the procedure."""
    for one in steps:
        name = one.kind.name
        before = next((done for done in procedure.done if done.name == name), None)
        if before is not None:
            say(StepEvent(step=name, what="done before", text=before.summary))
            continue
        say(StepEvent(step=name, what="begins"))
        began_ms = now_ms()
        outcome = await one.run(procedure)
        done = StepDone(
            name=name,
            began_ms=began_ms,
            ended_ms=now_ms(),
            summary=outcome.summary,
            outputs=one.kind.output.dump(outcome.output),
        )
        procedure = await journal.record_step(procedure, done)
        say(StepEvent(step=name, what="done", text=done.summary, seconds=done.seconds))
    return await journal.end(procedure)


def steps_left(steps: Sequence[Step[C]], standing: Standing[C]) -> tuple[str, ...]:
    """For a preview: by name, in order."""
    return tuple(one.kind.name for one in steps if one.kind.name not in standing.steps_done)


async def unfinished_to_abandon(
    journal: Journal[C], flow: FlowId, kind: Kind, *, if_over: str = ""
) -> Procedure[C]:
    """What `--abandon` is about; raises `RecoveryRefused` where there is nothing unfinished.

    `if_over` is what to do about one that is over.
    """
    procedure = await journal.read()
    if procedure is None or procedure.is_over:
        more = f"; {if_over}" if procedure is not None and if_over else ""
        raise RecoveryRefused(f"{flow} has no unfinished {kind} to abandon{more}")
    return procedure
