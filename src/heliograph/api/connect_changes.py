"""Connectors made, changed and deleted, as Kafka Connect has it. Driver only."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from heliograph.api.connect import (
    ConnectState,
    allowed,
    json,
    looking,
    note,
    operated,
    state_of,
)
from heliograph.api.connect_connectors import info
from heliograph.connect.configs import as_object, flat, java_map, read_json, unmasked
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.plugins import CLASS, NAME, Plugin
from heliograph.connect.problems import ConnectProblem, invalid

_INITIAL: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
_NAME_CHARS_MAX: Final = 249


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
        return json(info(state, connector))


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
        return json(info(state, connector))


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
    return json(info(state, connector), 201, {"Location": where})


_ONE: Final = "/connectors/{name}"
routes: Final = (
    Route("/connectors", create, methods=["POST"]),
    Route(_ONE, delete, methods=["DELETE"]),
    Route(f"{_ONE}/config", put_config, methods=["PUT"]),
    Route(f"{_ONE}/config", patch_config, methods=["PATCH"]),
)
