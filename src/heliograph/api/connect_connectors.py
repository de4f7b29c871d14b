"""`/connectors` as Kafka Connect has it: configurations, states, verbs, offsets. Driver only."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from heliograph.api.access import Role
from heliograph.api.connect import (
    ConnectState,
    allowed,
    json,
    looking,
    note,
    operated,
    seen,
    state_of,
)
from heliograph.connect.configs import as_object, flat, java_map, read_json, shown, unmasked
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.offsets import (
    alter_offsets,
    parse_offsets,
    read_offsets,
    require_stopped,
    reset_offsets,
)
from heliograph.connect.plugins import CLASS, NAME, Plugin
from heliograph.connect.problems import ConnectProblem, invalid
from heliograph.connect.states import (
    ConnectorView,
    State,
    TaskView,
    state_document,
    task_document,
)
from heliograph.model import LaneProgress
from heliograph.topics.naming import naming_policy

_UNKNOWN: Final = "Unknown connector {}"
_UNKNOWN_TO_RESTART: Final = "Unknown connector: {}"
_INITIAL: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
_NAME_CHARS_MAX: Final = 249


# -- what there is


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


def _info(state: ConnectState, connector: Connector) -> dict[str, Any]:
    return _information(connector, state.view(connector))


def _information(connector: Connector, view: ConnectorView) -> dict[str, Any]:
    """Connect's `ConnectorInfo`."""
    return {
        "name": connector.name,
        "config": shown(connector.config),
        "tasks": [_task_id(connector, task) for task in view.tasks],
        "type": "source",
    }


def _status(state: ConnectState, connector: Connector) -> dict[str, Any]:
    return state_document(connector.name, state.view(connector), state.herder.facts.worker_id)


def _task_id(connector: Connector, task: TaskView) -> dict[str, Any]:
    return {"connector": connector.name, "task": task.id}


async def get_connector(request: Request) -> Response:
    return json(_info(state_of(request), seen(request)))


async def get_config(request: Request) -> Response:
    return json(shown(seen(request).config))


async def get_status(request: Request) -> Response:
    return json(_status(state_of(request), seen(request, "No status found for connector {}")))


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
    sentence = f"No status found for task {name}-{number}".replace("{", "{{").replace("}", "}}")
    task = _task(state, seen(request, sentence), number, sentence)
    return json(task_document(task, state.herder.facts.worker_id))


def _task(state: ConnectState, connector: Connector, number: int, sentence: str) -> TaskView:
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


# -- configurations


async def create(request: Request) -> Response:
    state = state_of(request)
    looking(request)
    asked = as_object(read_json(await request.body()))
    name = asked.get("name")
    if name is not None and not isinstance(name, str):
        raise ConnectProblem(400, "the name of a connector is text")
    config = _named(flat(asked.get("config") or {}), (name or "").strip())
    initial = asked.get("initial_state")
    if initial is not None and str(initial).upper() not in _INITIAL:
        raise ConnectProblem(400, f"initial_state is none of {', '.join(_INITIAL)}")
    wanted = TargetState.STARTED if initial is None else _INITIAL[str(initial).upper()]
    connector = _connector(config, wanted)
    # The role before what there is: whoever may not change anything learns nothing by trying.
    allowed(request, connector)
    async with state.changing:
        if any(one.name == connector.name for one in state.herder.connectors()):
            raise ConnectProblem(409, f"Connector {connector.name} already exists")
        await _put(state, connector)
    note(request, "create", connector)
    return _created(state, connector)


async def put_config(request: Request) -> Response:
    state = state_of(request)
    looking(request)
    name = request.path_params["name"]
    given = _named(flat(read_json(await request.body())), name)
    async with state.changing:
        before = next((one for one in state.herder.connectors() if one.name == name), None)
        if before is None:
            connector = allowed(request, _connector(given, TargetState.STARTED))
            await _put(state, connector)
            note(request, "create", connector)
            return _created(state, connector)
        allowed(request, before)
        connector = _connector(_merged(given, before), before.target_state)
        await _change(request, state, before, connector)
        return json(_info(state, connector))


async def patch_config(request: Request) -> Response:
    state = state_of(request)
    operated(request)
    patch = flat(read_json(await request.body()))
    async with state.changing:
        before = operated(request)
        config: dict[str, str | None] = {**before.config, **patch}
        kept = {key: value for key, value in config.items() if value is not None}
        if kept.get(NAME, before.name) != before.name:
            raise _other_name(kept[NAME], before.name)
        connector = _connector(_merged({NAME: before.name, **kept}, before), before.target_state)
        await _change(request, state, before, connector)
        return json(_info(state, connector))


async def delete(request: Request) -> Response:
    state = state_of(request)
    async with state.changing:
        connector = operated(request)
        await state.herder.delete(connector)
    note(request, "delete", connector)
    state.forgotten.pop(connector.name, None)
    return Response(status_code=204)


def _named(config: dict[str, str | None], name: str) -> dict[str, str]:
    included = config.get(NAME)
    if included is not None and included != name:
        raise _other_name(included, name)
    empty = [key for key, value in config.items() if value is None and key != NAME]
    if empty:
        sentence = "Null value can not be supplied as the configuration value."
        raise invalid(dict.fromkeys(empty, (sentence,)))
    given = {key: value for key, value in config.items() if value is not None}
    return {**given, NAME: name}


def _other_name(included: str, name: str) -> ConnectProblem:
    return ConnectProblem(
        400,
        f"Connector name configuration ({included}) doesn't match connector name in the URL "
        f"({name})",
    )


def _merged(given: dict[str, str | None] | dict[str, str], before: Connector) -> dict[str, str]:
    return unmasked({k: v for k, v in given.items() if v is not None}, before.config)


def _connector(config: dict[str, str], wanted: TargetState) -> Connector:
    """Raises 400 where it is no connector that could be one here."""
    name = config[NAME]
    if len(name) > _NAME_CHARS_MAX:
        raise ConnectProblem(400, f"a connector's name has at most {_NAME_CHARS_MAX} characters")
    if not config.get(CLASS):
        raise ConnectProblem(400, f"Connector config {java_map(config)} contains no connector type")
    connector = Connector(name=name, config=config, target_state=wanted)
    if connector.plugin is None:
        known = ", ".join(plugin.class_path for plugin in Plugin)
        raise ConnectProblem(
            400,
            "Failed to find any class that implements Connector and which name matches "
            f"{config[CLASS][:200]}, available connectors are: {known}",
        )
    return connector


async def _change(
    request: Request, state: ConnectState, before: Connector, connector: Connector
) -> None:
    # It may leave one flow and join another: the caller must be trusted with both.
    allowed(request, connector)
    if dict(connector.config) != dict(before.config):
        await _put(state, connector)
        note(request, "change", connector)


async def _put(state: ConnectState, connector: Connector) -> None:
    errors = state.herder.errors_of(connector)
    if errors:
        raise invalid(errors)
    await state.herder.put(connector)


def _created(state: ConnectState, connector: Connector) -> Response:
    where = f"/connectors/{quote(connector.name, safe='')}"
    return json(_info(state, connector), 201, {"Location": where})


# -- verbs


async def pause(request: Request) -> Response:
    connector = operated(request, _UNKNOWN)
    await state_of(request).herder.want(connector, TargetState.PAUSED)
    note(request, "pause", connector)
    return Response(status_code=202)


async def resume(request: Request) -> Response:
    connector = operated(request, _UNKNOWN)
    await state_of(request).herder.want(connector, TargetState.STARTED)
    note(request, "resume", connector)
    return Response(status_code=202)


async def stop(request: Request) -> Response:
    connector = operated(request, _UNKNOWN)
    await state_of(request).herder.want(connector, TargetState.STOPPED)
    note(request, "stop", connector)
    return Response(status_code=204)


async def restart(request: Request) -> Response:
    state, connector = state_of(request), operated(request, _UNKNOWN_TO_RESTART)
    tasks, failed = _switch(request, "includeTasks"), _switch(request, "onlyFailed")
    view = state.view(connector)
    note(request, "restart", connector)
    if not tasks and not failed:
        await state.herder.restart(connector, None)
        return Response(status_code=204)
    chosen = [task for task in view.tasks if tasks and (not failed or task.state is State.FAILED)]
    if not failed or view.state is State.FAILED:
        await state.herder.restart(connector, None)
    elif chosen:
        lanes = [at.lane for task in chosen for at in task.lanes]
        await state.herder.restart(connector, lanes)
    return json(_status(state, connector), 202)


async def restart_task(request: Request) -> Response:
    state, number = state_of(request), request.path_params["task"]
    connector = operated(request, _UNKNOWN_TO_RESTART)
    task = _task(state, connector, number, f"Unknown task: {connector.name}-{number}")
    await state.herder.restart(connector, [at.lane for at in task.lanes])
    note(request, "restart task", connector)
    return Response(status_code=204)


def _switch(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


# -- offsets


async def get_offsets(request: Request) -> Response:
    state, connector = state_of(request), seen(request)
    found = await read_offsets(connector, state.herder.config_for(connector))
    return json({"offsets": found})


async def patch_offsets(request: Request) -> Response:
    state, connector = state_of(request), operated(request)
    wanted = parse_offsets(read_json(await request.body()), connector.flow)
    require_stopped(connector)
    await alter_offsets(connector, state.herder.config_for(connector), wanted)
    note(request, "alter offsets", connector)
    return json({"message": "The offsets for this connector have been altered successfully"})


async def delete_offsets(request: Request) -> Response:
    state, connector = state_of(request), operated(request)
    require_stopped(connector)
    await reset_offsets(connector, state.herder.config_for(connector))
    note(request, "reset offsets", connector)
    return json({"message": "The offsets for this connector have been reset successfully"})


_ONE: Final = "/connectors/{name}"
routes: Final = (
    Route("/connectors", list_connectors),
    Route("/connectors", create, methods=["POST"]),
    Route(_ONE, get_connector),
    Route(_ONE, delete, methods=["DELETE"]),
    Route(f"{_ONE}/config", get_config),
    Route(f"{_ONE}/config", put_config, methods=["PUT"]),
    Route(f"{_ONE}/config", patch_config, methods=["PATCH"]),
    Route(f"{_ONE}/status", get_status),
    Route(f"{_ONE}/tasks", get_tasks),
    Route(f"{_ONE}/tasks-config", get_tasks_config),
    Route(f"{_ONE}/tasks/{{task:int}}/status", get_task_status),
    Route(f"{_ONE}/tasks/{{task:int}}/restart", restart_task, methods=["POST"]),
    Route(f"{_ONE}/restart", restart, methods=["POST"]),
    Route(f"{_ONE}/pause", pause, methods=["PUT"]),
    Route(f"{_ONE}/resume", resume, methods=["PUT"]),
    Route(f"{_ONE}/stop", stop, methods=["PUT"]),
    Route(f"{_ONE}/topics", get_topics),
    Route(f"{_ONE}/topics/reset", reset_topics, methods=["PUT"]),
    Route(f"{_ONE}/offsets", get_offsets),
    Route(f"{_ONE}/offsets", patch_offsets, methods=["PATCH"]),
    Route(f"{_ONE}/offsets", delete_offsets, methods=["DELETE"]),
)
