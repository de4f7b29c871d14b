"""`/connectors` as Kafka Connect has it: what there is, and how it is. Driver only."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from heliograph.api.access import Role
from heliograph.api.connect import ConnectState, json, looking, operated, seen, state_of
from heliograph.connect.configs import shown
from heliograph.connect.model import Connector
from heliograph.connect.plugins import Plugin
from heliograph.connect.problems import ConnectProblem
from heliograph.connect.states import ConnectorView, TaskView, state_document, task_document
from heliograph.model import LaneProgress
from heliograph.topics.naming import naming_policy

_UNKNOWN: Final = "Unknown connector {}"


async def list_connectors(request: Request) -> Response:
    """Names, or with `expand` the state or configuration of each; every UI asks this way."""
    caller, state = looking(request), state_of(request)
    found = [one for one in state.herder.connectors() if caller.may(Role.LOOK, one.flow)]
    if "expand" not in request.query_params:
        return json([connector.name for connector in found])
    wanted = request.query_params.getlist("expand")
    sight = state.sight()
    return json(
        {
            connector.name: _expanded(state, connector, state.view(connector, sight), wanted)
            for connector in found
        }
    )


def _expanded(
    state: ConnectState, connector: Connector, view: ConnectorView, wanted: list[str]
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "status" in wanted:
        made["status"] = state_document(connector.name, view, state.herder.facts.worker_id)
    if "info" in wanted:
        made["info"] = _information(connector, view)
    return made


def info(state: ConnectState, connector: Connector) -> dict[str, Any]:
    return _information(connector, state.view(connector))


def _information(connector: Connector, view: ConnectorView) -> dict[str, Any]:
    """Connect's `ConnectorInfo`."""
    return {
        "name": connector.name,
        "config": shown(connector.config),
        "tasks": [_task_id(connector, task) for task in view.tasks],
        "type": "source",
    }


def status(state: ConnectState, connector: Connector) -> dict[str, Any]:
    return state_document(connector.name, state.view(connector), state.herder.facts.worker_id)


def _task_id(connector: Connector, task: TaskView) -> dict[str, Any]:
    return {"connector": connector.name, "task": task.id}


async def get_connector(request: Request) -> Response:
    return json(info(state_of(request), seen(request)))


async def get_config(request: Request) -> Response:
    return json(shown(seen(request).config))


async def get_status(request: Request) -> Response:
    return json(status(state_of(request), seen(request, "No status found for connector {}")))


async def get_tasks(request: Request) -> Response:
    connector = seen(request)
    return json(
        [
            {"id": _task_id(connector, task), "config": _task_config(connector, task)}
            for task in state_of(request).view(connector).tasks
        ]
    )


async def get_tasks_config(request: Request) -> Response:
    """Removed from Connect 4.0; older tools ask for it."""
    connector = seen(request)
    tasks = state_of(request).view(connector).tasks
    return json({f"{connector.name}-{task.id}": _task_config(connector, task) for task in tasks})


def _task_config(connector: Connector, task: TaskView) -> dict[str, str]:
    assigned = ",".join(sorted(str(at.lane.source) for at in task.lanes))
    plugin = connector.plugin or Plugin.SOURCE
    return {
        **shown(connector.config),
        "task.class": plugin.task_class,
        **({"task.assigned.partitions": assigned} if assigned else {}),
        "task.index": str(task.id),
    }


async def get_task_status(request: Request) -> Response:
    state = state_of(request)
    name, number = request.path_params["name"], request.path_params["task"]
    sentence = f"No status found for task {name}-{number}"
    connector = seen(request, sentence.replace("{", "{{").replace("}", "}}"))
    task = task_of(state, connector, number, sentence)
    return json(task_document(task, state.herder.facts.worker_id))


def task_of(state: ConnectState, connector: Connector, number: int, sentence: str) -> TaskView:
    for task in state.view(connector).tasks:
        if task.id == number:
            return task
    raise ConnectProblem(404, sentence)


async def get_topics(request: Request) -> Response:
    """Topics of the target that the connector has written to since it was last reset."""
    state, connector = state_of(request), seen(request, _UNKNOWN)
    _require_tracking(state)
    forgotten = state.forgotten.get(connector.name, {})
    lanes = [at.lane for at in _lanes(state, connector) if at.records > forgotten.get(at.lane, 0)]
    live = state.herder.live()
    if live is None or not lanes:
        return json({connector.name: {"topics": []}})
    policy = naming_policy(live.config.flow(connector.flow))
    topics = {policy.target_topic(lane.source.topic) for lane in lanes}
    return json({connector.name: {"topics": sorted(topics)}})


def _lanes(state: ConnectState, connector: Connector) -> list[LaneProgress]:
    return [at for task in state.view(connector).tasks for at in task.lanes]


async def reset_topics(request: Request) -> Response:
    state, connector = state_of(request), operated(request, _UNKNOWN)
    _require_tracking(state)
    if not state.herder.facts.allows_topic_reset:
        raise ConnectProblem(403, "Topic tracking reset is disabled.")
    state.forgotten[connector.name] = {at.lane: at.records for at in _lanes(state, connector)}
    return Response(status_code=202)


def _require_tracking(state: ConnectState) -> None:
    if not state.herder.facts.tracks_topics:
        raise ConnectProblem(403, "Topic tracking is disabled.")


_ONE: Final = "/connectors/{name}"
routes: Final = (
    Route("/connectors", list_connectors),
    Route(_ONE, get_connector),
    Route(f"{_ONE}/config", get_config),
    Route(f"{_ONE}/status", get_status),
    Route(f"{_ONE}/tasks", get_tasks),
    Route(f"{_ONE}/tasks-config", get_tasks_config),
    Route(f"{_ONE}/tasks/{{task:int}}/status", get_task_status),
    Route(f"{_ONE}/topics", get_topics),
    Route(f"{_ONE}/topics/reset", reset_topics, methods=["PUT"]),
)
