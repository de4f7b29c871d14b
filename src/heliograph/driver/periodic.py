"""Run the slow loops of all flows beside the copying. Runs on the driver.

A loop never overlaps itself and never holds up another: each step has a thread of its own. A step
that fails is tried again at the loop's next turn; what failed is shown until a step succeeds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from heliograph.clock import monotonic_s
from heliograph.errors import DrillFailed, MirrorError
from heliograph.model import FlowId

log = logging.getLogger(__name__)

_TICK_S: Final = 0.2
_JOIN_S_MAX: Final = 10.0


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
        """Do it once; may be repeated after a crash at any line. Raises `BrokerError`."""
        ...


@runtime_checkable
class LastStep(Protocol):
    """A loop that has more to do when it ends than a step: what it holds back otherwise."""

    def finish(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Turn:
    loop: PeriodicJob
    due_s: float = 0.0
    is_running: bool = False
    problem: str = ""


class PeriodicJobs:
    """All loops of a run. Steps begin only while `leads` says that the flow is ours."""

    def __init__(self, loops: Sequence[PeriodicJob], leads: Callable[[FlowId], bool]) -> None:
        self._turns = [_Turn(loop) for loop in loops]
        self._leads = leads
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="loops", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no step any more and wait for those under way, within reason. May be repeated."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S_MAX)
        deadline_s = monotonic_s() + _JOIN_S_MAX
        while any(turn.is_running for turn in self._turns) and monotonic_s() < deadline_s:
            threading.Event().wait(0.05)

    def finish(self) -> None:
        """One last step of each loop, one after the other: what was copied is told everywhere."""
        self.stop()
        for turn in self._turns:
            if not turn.is_running and self._leads(turn.loop.flow):
                self._step(turn, is_last=True)

    def is_busy(self, flow: FlowId) -> bool:
        """Whether a step of the flow is under way."""
        return any(turn.is_running and turn.loop.flow == flow for turn in self._turns)

    @property
    def problems(self) -> Mapping[FlowId, str]:
        """What does not work at this moment, a sentence per flow."""
        found: dict[FlowId, list[str]] = {}
        for turn in self._turns:
            if turn.problem:
                found.setdefault(turn.loop.flow, []).append(f"{turn.loop.what}: {turn.problem}")
        return {flow: "; ".join(sentences) for flow, sentences in found.items()}

    def _keep(self) -> None:
        while not self._stop.wait(_TICK_S):
            for turn in self._turns:
                if turn.is_running or turn.due_s > monotonic_s():
                    continue
                # Busy before it asks: who waits until it is not busy may then rely on the answer.
                turn.is_running = True
                if not self._leads(turn.loop.flow):
                    turn.is_running, turn.problem = False, ""
                    continue
                turn.due_s = monotonic_s() + turn.loop.interval_s
                # Not a pool's: those keep a process alive whose cluster does not answer.
                threading.Thread(target=self._step, args=(turn,), name="loop", daemon=True).start()

    def _step(self, turn: _Turn, *, is_last: bool = False) -> None:
        name = f"{turn.loop.flow}: {turn.loop.what}"
        try:
            if is_last and isinstance(turn.loop, LastStep):
                turn.loop.finish()
            else:
                turn.loop.step()
        except DrillFailed as exc:
            # Nothing is tried again before the next drill is due.
            self._failed(turn, name, str(exc), again="")
        except MirrorError as exc:
            again = f"; tried again every {turn.loop.interval_s:g} s"
            self._failed(turn, name, str(exc), again=again)
        except Exception as exc:  # our own bug must not end what others copy
            if not turn.problem:
                log.exception("%s: a bug, please report it", name)
            turn.problem = f"bug: {type(exc).__name__}"
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
