"""Run the periodic jobs of all flows beside the copying. Runs on the driver's loop.

A job never overlaps itself and never holds up another: each is a task, and each step blocks on a
thread of its own. A step that fails is tried again at the job's next turn; what failed is shown
until a step succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from heliograph.broker.blocking import blocking, first_of
from heliograph.clock import monotonic_s
from heliograph.driver.activity import FlowActivity
from heliograph.errors import DrillFailed, MirrorError
from heliograph.ledger.leadership import Leaderships
from heliograph.model import FlowId

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


@dataclass(slots=True, eq=False)
class _Turn:
    job: PeriodicJob
    is_running: bool = False
    problem: str = ""


class PeriodicJobs:
    """All jobs of a run. Steps begin only while this driver leads the flow."""

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

    async def run(self) -> None:
        """Until it is cancelled; then `settle` or `finish`."""
        async with asyncio.TaskGroup() as tasks:
            for turn in self._turns:
                tasks.create_task(self._keep(turn), name=f"{turn.job.flow} {turn.job.what}")

    async def settle(self) -> None:
        """Wait, within reason, for the steps under way; none may begin any more."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_STEPS_S_MAX)

    async def finish(self) -> None:
        """One last step of each job, one after the other, so that all that was copied is known."""
        await self.settle()
        for turn in self._turns:
            if not turn.is_running:
                await self._step(turn, is_last=True)

    @property
    def problems(self) -> Mapping[FlowId, str]:
        """What does not work at this moment, a sentence per flow."""
        found: dict[FlowId, list[str]] = {}
        for turn in self._turns:
            if turn.problem:
                found.setdefault(turn.job.flow, []).append(f"{turn.job.what}: {turn.problem}")
        return {flow: "; ".join(sentences) for flow, sentences in found.items()}

    async def _keep(self, turn: _Turn) -> None:
        flow = turn.job.flow
        while True:
            if not self._leaderships.leads(flow):
                turn.problem = ""
                await self._leaderships.wait_leading(flow)
            due_s = monotonic_s() + turn.job.interval_s
            step = asyncio.create_task(self._step(turn))
            self._tasks.add(step)
            step.add_done_callback(self._tasks.discard)
            # A step that was begun goes on when this task is cancelled: `settle` waits for it.
            await asyncio.shield(step)
            while self._leaderships.leads(flow) and (left_s := due_s - monotonic_s()) > 0:
                await first_of(self._leaderships.changed, timeout_s=left_s)

    async def _step(self, turn: _Turn, *, is_last: bool = False) -> None:
        name = f"{turn.job.flow}: {turn.job.what}"
        if not self._leaderships.leads(turn.job.flow) or self._is_stopped(turn.job.flow):
            return
        work = turn.job.finish if is_last and isinstance(turn.job, LastStep) else turn.job.step
        turn.is_running = True
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
            turn.problem = ""
        finally:
            turn.is_running = False

    def _failed(self, turn: _Turn, name: str, problem: str, *, again: str) -> None:
        if turn.problem != problem:
            log.error("%s: %s%s", name, problem, again)
        turn.problem = problem
