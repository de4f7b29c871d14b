"""Pause, resume, stop, restart; offsets: as Kafka Connect has them. Driver only."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from heliograph.api.access import Role
from heliograph.api.connect import caller_from, json, note, operated, seen, state_of
from heliograph.api.connect_connectors import status, task_of
from heliograph.api.state import require
from heliograph.connect.configs import read_json
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.offsets import parse_offsets, read_offsets, require_stopped
from heliograph.connect.states import State

_UNKNOWN: Final = "Unknown connector {}"
_UNKNOWN_TO_RESTART: Final = "Unknown connector: {}"


async def pause(request: Request) -> Response:
    await _want(request, TargetState.PAUSED, "pause")
    return Response(status_code=202)


async def resume(request: Request) -> Response:
    await _want(request, TargetState.STARTED, "resume")
    return Response(status_code=202)


async def stop(request: Request) -> Response:
    await _want(request, TargetState.STOPPED, "stop")
    return Response(status_code=204)


async def _want(request: Request, wanted: TargetState, verb: str) -> None:
    connector = operated(request, _UNKNOWN)
    await state_of(request).herder.want(connector, wanted, caller_from(request).name)
    note(request, verb, connector)


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
    return json(status(state, connector), 202)


async def restart_task(request: Request) -> Response:
    state, number = state_of(request), request.path_params["task"]
    connector = operated(request, _UNKNOWN_TO_RESTART)
    task = task_of(state, connector, number, f"Unknown task: {connector.name}-{number}")
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


def _altered(request: Request) -> Connector:
    """A rewind by another name needs the role of a rewind."""
    connector = operated(request)
    if state_of(request).herder.facts.alters_by_rewinds:
        require(caller_from(request), Role.RECOVER, connector.flow)
    return connector


async def patch_offsets(request: Request) -> Response:
    connector = _altered(request)
    wanted = parse_offsets(read_json(await request.body()), connector.flow)
    require_stopped(connector)
    await state_of(request).herder.alter(connector, wanted, caller_from(request).name)
    note(request, "alter offsets", connector)
    return json({"message": "The offsets for this connector have been altered successfully"})


async def delete_offsets(request: Request) -> Response:
    connector = _altered(request)
    require_stopped(connector)
    await state_of(request).herder.alter(connector, None, caller_from(request).name)
    note(request, "reset offsets", connector)
    return json({"message": "The offsets for this connector have been reset successfully"})


_ONE: Final = "/connectors/{name}"
routes: Final = (
    Route(f"{_ONE}/tasks/{{task:int}}/restart", restart_task, methods=["POST"]),
    Route(f"{_ONE}/restart", restart, methods=["POST"]),
    Route(f"{_ONE}/pause", pause, methods=["PUT"]),
    Route(f"{_ONE}/resume", resume, methods=["PUT"]),
    Route(f"{_ONE}/stop", stop, methods=["PUT"]),
    Route(f"{_ONE}/offsets", get_offsets),
    Route(f"{_ONE}/offsets", patch_offsets, methods=["PATCH"]),
    Route(f"{_ONE}/offsets", delete_offsets, methods=["DELETE"]),
)
