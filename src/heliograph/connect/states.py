"""What Connect says of a connector and its tasks. No I/O; runs anywhere.

The states are Connect's closed set: a client that meets another one may show nothing at all. A task
is a slot with the lanes of the flow it carries; why a lane stands still is the task's trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, assert_never

from heliograph.connect.model import Connector, TargetState
from heliograph.connect.plugins import VERSION, Plugin
from heliograph.driver.live import LiveMirror, RunStatus
from heliograph.ledger.leadership import Fenced, Lapsed, Leading, Standby
from heliograph.model import FlowId, LaneProgress, Stalled

_JOBS: Final = {
    Plugin.SOURCE: ("offset syncs", "topic configs", "acls", "drill", "audit"),
    Plugin.CHECKPOINT: ("checkpoints", "group offsets"),
    Plugin.HEARTBEAT: ("heartbeats",),
}
"""Jobs of a flow by the connector that does them in MirrorMaker 2, as their problems begin."""
_EVERY_JOB: Final = tuple(f"{job}: " for jobs in _JOBS.values() for job in jobs)


class State(StrEnum):
    """A task is never STOPPED: a stopped connector has none."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    UNASSIGNED = "UNASSIGNED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    id: int
    state: State
    trace: str = ""
    lanes: tuple[LaneProgress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorView:
    state: State
    trace: str = ""
    tasks: tuple[TaskView, ...] = ()


class Sight:
    """A mirror at one moment, its lanes sorted once for all connectors that are looked at."""

    def __init__(self, live: LiveMirror) -> None:
        self.live, self.status = live, live.status()
        self._by_flow: dict[FlowId, dict[int, list[LaneProgress]]] | None = None

    def lanes(self, flow: FlowId) -> Mapping[int, list[LaneProgress]]:
        """By slot; -1 has those that no slot holds at the moment."""
        if self._by_flow is None:
            placed = {} if self.status is None else self.live.placed()
            self._by_flow = {}
            progress = {} if self.status is None else self.status.progress
            for lane, at in progress.items():
                slots = self._by_flow.setdefault(lane.flow, {})
                slots.setdefault(placed.get(lane, -1), []).append(at)
        return self._by_flow.get(flow, {})


def look(connector: Connector, sight: Sight | None, problem: str = "") -> ConnectorView:
    """`problem` is why the connector could not be run at all; no sight: the mirror is starting."""
    if connector.target_state is TargetState.STOPPED:
        return ConnectorView(state=State.STOPPED)
    if problem or connector.plugin is None:
        return ConnectorView(state=State.FAILED, trace=problem or "its class does not run here")
    if connector.target_state is TargetState.PAUSED:
        return ConnectorView(state=State.PAUSED, tasks=_paused(connector, sight))
    live = None if sight is None else sight.live
    if (
        sight is None
        or live is None
        or not any(pair.id == connector.flow for pair in live.config.pairs)
    ):
        return _unassigned("the mirror is starting", connector_state=State.RUNNING)
    why = _why_not_led(live, connector.flow)
    if why is not None:
        return _unassigned(why)
    status = sight.status
    if status is None:
        return _unassigned(live.phase(), connector_state=State.RUNNING)
    match connector.plugin:
        case Plugin.SOURCE:
            return _source(connector.flow, sight, status)
        case Plugin.CHECKPOINT:
            return _checkpoint(connector.flow, live, status)
        case Plugin.HEARTBEAT:
            return _jobs(Plugin.HEARTBEAT, connector.flow, status)
        case _:
            assert_never(connector.plugin)


def _unassigned(why: str, connector_state: State = State.UNASSIGNED) -> ConnectorView:
    task = TaskView(id=0, state=State.UNASSIGNED, trace=why)
    trace = why if connector_state is State.UNASSIGNED else ""
    return ConnectorView(state=connector_state, trace=trace, tasks=(task,))


def _why_not_led(live: LiveMirror, flow: FlowId) -> str | None:
    leadership = live.leaderships[flow]
    match leadership:
        case Leading():
            return None
        case Standby(holder=None):
            return "it is not known yet which driver leads the flow"
        case Standby():
            return live.leaderships.standing_by[flow]
        case Lapsed() | Fenced():
            return leadership.why
        case _:
            assert_never(leadership)


def _source(flow: FlowId, sight: Sight, status: RunStatus) -> ConnectorView:
    problem = status.problems.get(flow, "")
    is_failed = bool(problem) and not problem.startswith(_EVERY_JOB)
    tasks = _tasks(flow, sight)
    return ConnectorView(
        state=State.FAILED if is_failed else State.RUNNING,
        trace=problem if is_failed else "",
        tasks=tasks or (TaskView(id=0, state=State.UNASSIGNED, trace="it has no lanes yet"),),
    )


def _tasks(flow: FlowId, sight: Sight) -> tuple[TaskView, ...]:
    slots = sorted(sight.lanes(flow).items())
    return tuple(_task(number, tuple(lanes)) for number, (_, lanes) in enumerate(slots))


def _task(number: int, lanes: tuple[LaneProgress, ...]) -> TaskView:
    stalled = [
        f"{at.lane.source}: {at.state.reason}: {at.state.detail}"
        for at in lanes
        if isinstance(at.state, Stalled)
    ]
    return TaskView(
        id=number,
        state=State.FAILED if stalled else State.RUNNING,
        trace="\n".join(stalled),
        lanes=lanes,
    )


def _paused(connector: Connector, sight: Sight | None) -> tuple[TaskView, ...]:
    tasks: tuple[TaskView, ...] = ()
    if sight is not None and connector.plugin is Plugin.SOURCE:
        tasks = _tasks(connector.flow, sight)
    paused = tuple(TaskView(id=task.id, state=State.PAUSED, lanes=task.lanes) for task in tasks)
    return paused or (TaskView(id=0, state=State.PAUSED),)


def _checkpoint(flow: FlowId, live: LiveMirror, status: RunStatus) -> ConnectorView:
    if not live.config.flow(flow).enabled:
        why = f"no MirrorSourceConnector runs for {flow}, and checkpoints come from its ledger"
        return _unassigned(why, connector_state=State.RUNNING)
    return _jobs(Plugin.CHECKPOINT, flow, status)


def _jobs(plugin: Plugin, flow: FlowId, status: RunStatus) -> ConnectorView:
    """One task; what a job of it cannot do is tried again, and shown meanwhile."""
    problem = status.problems.get(flow, "")
    is_failed = any(f"{job}: " in problem for job in _JOBS[plugin])
    task = TaskView(
        id=0,
        state=State.FAILED if is_failed else State.RUNNING,
        trace=problem if is_failed else "",
    )
    return ConnectorView(state=State.RUNNING, tasks=(task,))


def state_document(name: str, view: ConnectorView, worker_id: str) -> dict[str, Any]:
    """Connect's `ConnectorStateInfo`."""
    return {
        "name": name,
        "connector": _state(view.state, view.trace, worker_id),
        "tasks": [task_document(task, worker_id) for task in view.tasks],
        "type": "source",
    }


def task_document(task: TaskView, worker_id: str) -> dict[str, Any]:
    return {"id": task.id, **_state(task.state, task.trace, worker_id)}


def _state(state: State, trace: str, worker_id: str) -> dict[str, Any]:
    said: Mapping[str, Any] = {"trace": trace} if trace else {}
    return {"state": state.value, "worker_id": worker_id, **said, "version": VERSION}
