"""Run the periodic jobs of all flows beside the copying. Runs on the driver's loop.

A job never overlaps itself and never holds up another: each is a task, and each step blocks on a
thread of its own. A step that fails is tried again at the job's next turn; what failed is shown
until a step succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, runtime_checkable

from heliograph.broker.blocking import blocking, first_of
from heliograph.clock import monotonic_s
from heliograph.driver.activity import FlowActivity
from heliograph.errors import DrillFailed, MirrorError
from heliograph.health.sight import WatchFigures
from heliograph.ledger.leadership import Lapsed, Leaderships
from heliograph.model import FlowId, LaneId, LaneProgress, TopicPartition

log = logging.getLogger(__name__)

_LAST_STEPS_S_MAX: Final = 10.0


class PeriodicJob(Protocol):
    """Something that is done again and again for one flow."""

    @property
    def flow(self) -> FlowId: ...
    @property
    def what(self) -> str:
        """What it keeps up, as in `checkpoints`."""
        ...

    @property
    def interval_s(self) -> float: ...

    def step(self) -> None:
        """Do it once; may be repeated after a crash at any line. Raises `BrokerError`.

        Called on a thread of its own, and may block.
        """
        ...


@runtime_checkable
class LastStep(Protocol):
    """A job that has more to do when it ends than a step: what it holds back otherwise."""

    def finish(self) -> None: ...


@runtime_checkable
class AfterDrain(Protocol):
    """A job that tells how far the lanes came in the end; progress is not asked for any more."""

    def drained(self, progress: Mapping[LaneId, LaneProgress]) -> None: ...


@runtime_checkable
class Measured(Protocol):
    """A job that measures more than how long a step takes."""

    @property
    def latency_ms(self) -> Mapping[tuple[str, TopicPartition], int]:
        """By consumer group and partition, of what was last written for them."""
        ...


@runtime_checkable
class Watching(Protocol):
    """The job that looks whether its flow is well."""

    @property
    def measured(self) -> WatchFigures | None: ...


@runtime_checkable
class LapsedStep(Protocol):
    """A job that has something to do while this driver led the flow and cannot renew its lease."""

    def step_lapsed(self, why: str) -> None:
        """Once, as `step`, which is not called meanwhile. The target does not answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    flow: FlowId
    what: str
    took_s: float | None
    """The last step; None before the first has ended."""
    failures: int
    latency_ms: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    measured: WatchFigures | None = None


@dataclass(slots=True, eq=False)
class _Turn:
    job: PeriodicJob
    is_running: bool = False
    problem: str = ""
    took_s: float | None = None
    failures: int = 0
    keeping: asyncio.Task[None] | None = None
    step: asyncio.Task[None] | None = None
    """The last one that was begun."""
    after: tuple[asyncio.Task[None], ...] = ()
    """Steps of the flow's jobs before this one that would not end: none is begun beside them."""


class PeriodicJobs:
    """All jobs of a run. Steps begin only while this driver leads the flow, `LapsedStep` apart."""

    def __init__(
        self,
        jobs: Sequence[PeriodicJob],
        leaderships: Leaderships,
        activity: FlowActivity,
        is_stopped: Callable[[FlowId], bool] = lambda _: False,
    ) -> None:
        """`is_stopped` says of a flow that an operator stopped it: its jobs rest."""
        self._is_stopped = is_stopped
        self._turns = [_Turn(job) for job in jobs]
        self._leaderships, self._activity = leaderships, activity
        self._tasks: set[asyncio.Task[None]] = set()
        self._unended: dict[FlowId, tuple[asyncio.Task[None], ...]] = {}
        self._group: asyncio.TaskGroup | None = None
        """While it runs."""

    async def run(self) -> None:
        """Until it is cancelled; then `settle` or `finish`."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for turn in self._turns:
                    self._begin(turn, self._group)
                await asyncio.Event().wait()  # also where there is no job yet
        finally:
            self._group = None

    async def end(self, flows: Collection[FlowId]) -> None:
        """End the jobs of these flows, and wait within reason for the steps under way."""
        ended = [turn for turn in self._turns if turn.job.flow in flows]
        self._turns = [turn for turn in self._turns if turn.job.flow not in flows]
        for turn in ended:
            if turn.keeping is not None:
                turn.keeping.cancel()
        steps = {turn.step: turn for turn in ended if turn.step and not turn.step.done()}
        if steps:
            await asyncio.wait(steps, timeout=_LAST_STEPS_S_MAX)
        for flow in flows:
            self._unended[flow] = tuple(
                step for step, turn in steps.items() if turn.job.flow == flow and not step.done()
            )

    def begin(self, jobs: Sequence[PeriodicJob]) -> None:
        """Keep these jobs too."""
        for job in jobs:
            turn = _Turn(job, after=self._unended.get(job.flow, ()))
            self._turns.append(turn)
            if self._group is not None:
                self._begin(turn, self._group)

    def _begin(self, turn: _Turn, group: asyncio.TaskGroup) -> None:
        name = f"{turn.job.flow} {turn.job.what}"
        turn.keeping = group.create_task(self._keep(turn), name=name)

    async def settle(self) -> None:
        """Wait, within reason, for the steps under way; none may begin any more."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_STEPS_S_MAX)

    async def finish(self) -> None:
        """One last step of each job, one after the other, so that all that was copied is known."""
        await self.settle()
        for turn in self._turns:
            if not turn.is_running:
                await self._step(turn, self._work(turn, is_last=True))

    async def drained(self, progress: Mapping[LaneId, LaneProgress]) -> None:
        """The slots have settled all that they carried, and this is how far they came."""
        for turn in self._turns:
            if isinstance(turn.job, AfterDrain) and not turn.is_running:
                await self._step(turn, partial(turn.job.drained, progress))

    @property
    def problems(self) -> Mapping[FlowId, str]:
        """What does not work at this moment, a sentence per flow."""
        found: dict[FlowId, list[str]] = {}
        for turn in self._turns:
            if turn.problem:
                found.setdefault(turn.job.flow, []).append(f"{turn.job.what}: {turn.problem}")
        return {flow: "; ".join(sentences) for flow, sentences in found.items()}

    @property
    def figures(self) -> tuple[JobFigures, ...]:
        return tuple(
            JobFigures(
                flow=turn.job.flow,
                what=turn.job.what,
                took_s=turn.took_s,
                failures=turn.failures,
                latency_ms=dict(turn.job.latency_ms) if isinstance(turn.job, Measured) else {},
                measured=turn.job.measured if isinstance(turn.job, Watching) else None,
            )
            for turn in self._turns
        )

    async def _keep(self, turn: _Turn) -> None:
        if turn.after:
            await asyncio.wait(turn.after)
        while True:
            if not self._has_turn(turn):
                turn.problem = ""
                while not self._has_turn(turn):
                    await self._leaderships.changed.wait()
            due_s = monotonic_s() + turn.job.interval_s
            turn.step = step = asyncio.create_task(self._step(turn))
            self._tasks.add(step)
            step.add_done_callback(self._tasks.discard)
            # A step that was begun goes on when this task is cancelled: `settle` waits for it.
            await asyncio.shield(step)
            while self._has_turn(turn) and (left_s := due_s - monotonic_s()) > 0:
                await first_of(self._leaderships.changed, timeout_s=left_s)

    def _has_turn(self, turn: _Turn) -> bool:
        if isinstance(self._leaderships[turn.job.flow], Lapsed):
            return isinstance(turn.job, LapsedStep)
        return self._leaderships.leads(turn.job.flow)

    def _work(self, turn: _Turn, *, is_last: bool) -> Callable[[], None]:
        job, leadership = turn.job, self._leaderships[turn.job.flow]
        if isinstance(leadership, Lapsed) and isinstance(job, LapsedStep):
            return partial(job.step_lapsed, leadership.why)
        return job.finish if is_last and isinstance(job, LastStep) else job.step

    async def _step(self, turn: _Turn, work: Callable[[], None] | None = None) -> None:
        name = f"{turn.job.flow}: {turn.job.what}"
        if not self._has_turn(turn) or self._is_stopped(turn.job.flow):
            return
        work = work or self._work(turn, is_last=False)
        turn.is_running = True
        began_s, is_well = monotonic_s(), False
        try:
            with self._activity.job(turn.job.flow):
                await blocking(work)
        except DrillFailed as exc:
            # Nothing is tried again before the next drill is due.
            self._failed(turn, name, str(exc), again="")
        except MirrorError as exc:
            again = f"; tried again every {turn.job.interval_s:g} s"
            self._failed(turn, name, str(exc), again=again)
        except Exception as exc:  # our own bug must not end what others copy
            if not turn.problem:
                log.exception("unexpected error in %s of %s", turn.job.what, turn.job.flow)
            turn.problem = f"unexpected error: {type(exc).__name__}"
        else:
            if turn.problem:
                log.info("%s: works again", name)
            turn.problem, is_well = "", True
        finally:
            turn.is_running, turn.took_s = False, monotonic_s() - began_s
            turn.failures += not is_well

    def _failed(self, turn: _Turn, name: str, problem: str, *, again: str) -> None:
        if turn.problem != problem:
            log.error("%s: %s%s", name, problem, again)
        turn.problem = problem
