"""Kafka Connect's dialect: its paths, its errors, who may call. Driver only.

Bodies and texts are Connect's, since tools compare them; `docs/reference/connect.md` has every
route and where an answer differs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heliograph.api.access import Caller, FailedTries, Role, Tokens
from heliograph.api.problems import ApiProblem, problem_of
from heliograph.api.state import Door, caller_of, not_authenticated, require
from heliograph.api.trail import Trail
from heliograph.connect.herder import Herder
from heliograph.connect.model import Connector
from heliograph.connect.problems import ConnectProblem
from heliograph.connect.states import ConnectorView, Sight, look
from heliograph.errors import MirrorError
from heliograph.model import LaneId

log = logging.getLogger(__name__)

_FIRST: Final = frozenset({"connectors", "connector-plugins", "admin"})
_TIMED_OUT: Final = "Request timed out. The worker is currently {}"

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectState:
    """What the routes of the dialect share."""

    herder: Herder
    tokens: Tokens | None = None
    tries: FailedTries = field(default_factory=FailedTries)
    trail: Trail = field(default_factory=Trail)
    forgotten: dict[str, Mapping[LaneId, int]] = field(default_factory=dict)
    """Records of the lanes of a connector when its topics were last reset."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One change at a time, so that each is checked against what the one before left."""

    def named(self, name: str, sentence: str = "Connector {} not found") -> Connector:
        for connector in self.herder.connectors():
            if connector.name == name:
                return connector
        raise ConnectProblem(404, sentence.format(name))

    def sight(self) -> Sight | None:
        live = self.herder.live()
        return None if live is None else Sight(live)

    def view(self, connector: Connector, sight: Sight | None = None) -> ConnectorView:
        """`sight` is one of the moment, where more than one connector is looked at."""
        problem = self.herder.problems().get(connector.name, "")
        return look(connector, sight or self.sight(), problem)


def is_of_connect(path: str) -> bool:
    """Whether a path is Connect's, on a server that has `/v1` too."""
    return path == "/" or path.lstrip("/").partition("/")[0] in _FIRST


def state_of(request: Request) -> ConnectState:
    found = request.app.state.connect
    assert isinstance(found, ConnectState)
    return found


def caller_from(request: Request) -> Caller:
    return known(state_of(request), request)


def known(door: Door, request: Request) -> Caller:
    """By `Bearer TOKEN`, or by `Basic` with the token as the password, which is all that the
    clients of other dialects can send. Raises 401."""
    kind, _, shown = request.headers.get("authorization", "").partition(" ")
    token: str | None = shown.strip() if kind.lower() == "bearer" else None
    if kind.lower() == "basic":
        try:
            token = base64.b64decode(shown, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            raise not_authenticated("Authorization is not readable") from None
    caller = caller_of(door, request, token)
    if caller is None:
        raise not_authenticated(
            "this needs a token: `Authorization: Bearer TOKEN`, or Basic with it as the password"
        )
    return caller


def looking(request: Request) -> Caller:
    caller = caller_from(request)
    require(caller, Role.LOOK)
    return caller


def seen(request: Request, sentence: str = "Connector {} not found") -> Connector:
    """The connector of the path, for a caller who may look at it."""
    caller = looking(request)
    connector = state_of(request).named(request.path_params["name"], sentence)
    require(caller, Role.LOOK, connector.flow)
    return connector


def operated(request: Request, sentence: str = "Connector {} not found") -> Connector:
    """The connector of the path, for a caller who may change it."""
    looking(request)
    connector = state_of(request).named(request.path_params["name"], sentence)
    return allowed(request, connector)


def allowed(request: Request, connector: Connector) -> Connector:
    """Raises 403 where the caller may not change it."""
    require(caller_from(request), Role.OPERATE, connector.flow)
    return connector


def note(request: Request, verb: str, connector: Connector) -> None:
    """Called once the change was made."""
    caller, state = caller_from(request), state_of(request)
    config = partial(state.herder.config_for, connector)
    state.trail.keep(caller, verb, connector.flow, f"connector {connector.name}", config)


def json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(body, status_code=status, headers=headers)


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Connect's `ErrorMessage`."""
    return json({"error_code": status, "message": message}, status, headers)


def answer_in_connect(path: str, problem: ApiProblem) -> Response:
    return error(problem.status, problem.message, problem.headers)


async def _problem(request: Request, exc: Exception) -> Response:
    match exc:
        case ConnectProblem():
            return error(exc.status, exc.message)
        case ApiProblem():
            return answer_in_connect(request.url.path, exc)
        case MirrorError():
            return answer_in_connect(request.url.path, problem_of(exc))
        case HTTPException():
            phrase = exc.detail
            return error(exc.status_code, f"HTTP {exc.status_code} {phrase}", exc.headers)
        case TimeoutError():
            return error(500, _TIMED_OUT.format("changing what is mirrored"))
        case _:
            log.error("bug in %s %s", request.method, request.url.path, exc_info=exc)
            return error(500, "a bug of Heliograph; the driver's log has more")


ERRORS: Final[dict[Any, Callable[[Request, Exception], Awaitable[Response]]]] = dict.fromkeys(
    (ConnectProblem, ApiProblem, MirrorError, HTTPException, TimeoutError, Exception), _problem
)


def with_state(app: Starlette, state: ConnectState) -> Starlette:
    app.state.connect = state
    return app
