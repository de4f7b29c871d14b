"""What Kafka Connect says of a worker: version, health, plugins, loggers. Driver only."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from heliograph import __version__
from heliograph.api import connect_changes, connect_connectors, connect_verbs
from heliograph.api.access import Role
from heliograph.api.connect import (
    ERRORS,
    ConnectState,
    json,
    looking,
    state_of,
    with_state,
)
from heliograph.api.state import require
from heliograph.clock import now_ms
from heliograph.connect.configs import flat, java_map, read_json, shown
from heliograph.connect.model import Connector
from heliograph.connect.plugins import (
    CLASS,
    NAME,
    VERSION,
    Definition,
    Plugin,
    definitions_of,
    listed,
    plugin_named,
)
from heliograph.connect.problems import ConnectProblem
from heliograph.connect.translate import Errors

_OWN: Final = "heliograph"
_ROOT: Final = "root"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}
_WORDS: Final = {level: word for word, level in _LEVELS.items() if word != "TRACE"}
_GROUPS: Final = ("Common", "Transforms", "Predicates", "Error Handling", "Topic Creation")


def make_connect_app(state: ConnectState, *, has_health: bool) -> Starlette:
    """`has_health`: `/health` is Connect's, and not that of `/v1`."""
    routes = [
        *connect_connectors.routes,
        *connect_changes.routes,
        *connect_verbs.routes,
        *_ROUTES,
    ]
    if has_health:
        routes.append(Route("/health", health))
    slashes = Middleware(_WithoutLastSlash)
    app = Starlette(routes=routes, exception_handlers=ERRORS, middleware=[slashes])
    app.router.redirect_slashes = False
    return with_state(app, state)


class _WithoutLastSlash:
    """`/connectors/` is `/connectors`, as in Connect: kcctl asks so, and follows no redirect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/") and scope["path"] != "/":
            scope = {**scope, "path": scope["path"][:-1]}
        await self._app(scope, receive, send)


async def root(request: Request) -> Response:
    looking(request)
    facts = state_of(request).herder.facts
    return json(
        {
            "version": VERSION,
            "commit": f"heliograph-{__version__}",
            "kafka_cluster_id": facts.kafka_cluster_id,
        }
    )


async def health(request: Request) -> Response:
    """For whoever asks, as Connect's and without a token: it tells nothing."""
    if state_of(request).herder.facts.kafka_cluster_id is None:
        return json({"status": "starting", "message": "Worker is still starting up."}, 503)
    message = "Worker has completed startup and is ready to handle requests."
    return json({"status": "healthy", "message": message})


# -- plugins


async def plugins(request: Request) -> Response:
    """The three connectors; Heliograph has no plugins of other kinds."""
    looking(request)
    return json(listed())


async def plugin_config(request: Request) -> Response:
    looking(request)
    return json([_defined(each) for each in definitions_of(_plugin(request))])


async def validate(request: Request) -> Response:
    """Changes nothing, but reads what a configuration refers to: files, the environment."""
    caller, state = looking(request), state_of(request)
    require(caller, Role.OPERATE)
    config = {
        key: value
        for key, value in flat(read_json(await request.body())).items()
        if value is not None
    }
    named = request.path_params["plugin"]
    included = config.get(CLASS)
    if included is not None and not _bare(included).endswith(_bare(named)):
        raise ConnectProblem(
            400, f"Included connector type {included} does not match request type {named}"
        )
    if not included:
        raise ConnectProblem(400, f"Connector config {java_map(config)} contains no connector type")
    plugin = _plugin(request)
    name = config.get(NAME, "")
    errors = state.herder.errors_of(Connector(name=name, config=config))
    return json(_validated(plugin, config, errors))


def _plugin(request: Request) -> Plugin:
    named = request.path_params["plugin"]
    plugin = plugin_named(named)
    if plugin is None:
        raise ConnectProblem(404, f"Unknown plugin {named}.")
    return plugin


def _bare(name: str) -> str:
    return name.removesuffix("Connector") or name


def _defined(definition: Definition) -> dict[str, Any]:
    return {**asdict(definition), "dependents": list(definition.dependents)}


def _validated(plugin: Plugin, config: dict[str, str], errors: Errors) -> dict[str, Any]:
    """Connect's `ConfigInfos`: every key there is, and those that were given with a mistake."""
    known = {each.name: each for each in definitions_of(plugin)}
    visible = shown(config)
    rows: list[dict[str, Any]] = [
        {
            "definition": _defined(each),
            "value": _value(each.name, visible.get(each.name, each.default_value), errors),
        }
        for each in known.values()
    ]
    rows += [
        {"definition": None, "value": _value(key, visible.get(key), errors)}
        for key in errors
        if key not in known
    ]
    return {
        "name": plugin.class_path,
        "error_count": sum(len(sentences) for sentences in errors.values()),
        "groups": list(_GROUPS),
        "configs": rows,
    }


def _value(name: str, value: str | None, errors: Errors) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "recommended_values": [],
        "errors": list(errors.get(name, ())),
        "visible": True,
    }


# -- loggers


async def loggers(request: Request) -> Response:
    looking(request)
    return json({name: _level(name) for name in _known_loggers() if _is_set(name)})


async def logger(request: Request) -> Response:
    looking(request)
    name = request.path_params["logger"]
    if name not in _known_loggers():
        raise ConnectProblem(404, f"Logger {name} not found.")
    return json(_level(name))


async def set_logger(request: Request) -> Response:
    """Heliograph's own loggers; `root` is all of them. Others would log what clients send."""
    require(looking(request), Role.OPERATE)
    name = request.path_params["logger"]
    wanted = flat(read_json(await request.body())).get("level")
    if wanted is None:
        raise ConnectProblem(400, "Desired 'level' parameter was not specified in request.")
    level = _LEVELS.get(wanted.upper())
    if level is None:
        raise ConnectProblem(404, f"invalid log level '{wanted[:100]}'.")
    own = _OWN if name == _ROOT else name
    if own != _OWN and not own.startswith(f"{_OWN}."):
        raise ConnectProblem(404, f"Logger {name} not found.")
    logging.getLogger(own)
    affected = [
        each
        for each in _known_loggers()
        if each != _ROOT and (each == own or each.startswith(f"{own}."))
    ]
    for each in affected:
        logging.getLogger(each).setLevel(level)
        _CHANGED_MS[each] = now_ms()
    if request.query_params.get("scope", "worker").lower() == "cluster":
        return Response(status_code=204)
    return json(affected)


_CHANGED_MS: Final[dict[str, int]] = {}


def _known_loggers() -> list[str]:
    own = [
        name
        for name, found in logging.root.manager.loggerDict.items()
        if isinstance(found, logging.Logger) and (name == _OWN or name.startswith(f"{_OWN}."))
    ]
    return [_ROOT, *sorted({_OWN, *own})]


def _is_set(name: str) -> bool:
    return name in (_ROOT, _OWN) or logging.getLogger(name).level != logging.NOTSET


def _level(name: str) -> dict[str, Any]:
    found = logging.getLogger(None if name == _ROOT else name).getEffectiveLevel()
    level = max((known for known in _WORDS if known <= found), default=logging.DEBUG)
    return {"level": _WORDS[level], "last_modified": _CHANGED_MS.get(name)}


_ROUTES: Final = (
    Route("/", root),
    Route("/connector-plugins", plugins),
    Route("/connector-plugins/{plugin}/config", plugin_config),
    Route("/connector-plugins/{plugin}/config/validate", validate, methods=["PUT"]),
    Route("/admin/loggers", loggers),
    Route("/admin/loggers/{logger}", logger),
    Route("/admin/loggers/{logger}", set_logger, methods=["PUT"]),
)
