"""One error body for every route, and what becomes one. Driver only."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from heliograph.decisions.decide import DecidedMeanwhile, NoSuchDecision
from heliograph.decisions.decision import BadDecision
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    ConfigError,
    MirrorError,
    NoLedger,
    RecoveryRefused,
)
from heliograph.health.note import BadSilence
from heliograph.health.silencing import NoSuchAlarm
from heliograph.procedure.runner import PlanChanged

log = logging.getLogger(__name__)

_BY_STATUS: Final = {
    400: "bad_request",
    401: "not_authenticated",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_too_slow",
    409: "conflict",
    412: "changed_since",
    413: "body_too_large",
    415: "not_json",
    429: "too_many_failures",
    500: "bug",
    502: "broker_error",
    503: "unavailable",
}


class ErrorBody(BaseModel):
    """What every route answers when it does not do what it was asked for."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    status: int
    """The HTTP status."""
    code: str
    """One word for programs; it does not change where the message does."""
    message: str
    """One sentence: what failed, where, and what to do."""
    details: dict[str, Any] = {}
    """What the sentence is about, for programs."""


class ApiProblem(Exception):
    """Ends a request with its status and sentence."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message
        self.code = code or _BY_STATUS[status]
        self.details, self.headers = dict(details or {}), dict(headers or {})


def answer(problem: ApiProblem) -> JSONResponse:
    body = ErrorBody(
        status=problem.status,
        code=problem.code,
        message=problem.message,
        details=problem.details,
    )
    return JSONResponse(
        body.model_dump(mode="json"), status_code=problem.status, headers=problem.headers
    )


def problem_of(error: MirrorError) -> ApiProblem:
    """An error of the mirror as an answer: whose fault it is decides the status."""
    match error:
        case DecidedMeanwhile() | PlanChanged():
            return ApiProblem(412, str(error))
        case NoSuchDecision() | NoSuchAlarm():
            return ApiProblem(404, str(error))
        case BadDecision() | BadSilence():
            return ApiProblem(400, str(error))
        case RecoveryRefused():
            return ApiProblem(409, str(error), code="refused")
        case NoLedger():
            return ApiProblem(409, str(error), code="nothing_mirrored")
        case ConfigError():
            return ApiProblem(409, "; ".join(error.problems), code="configuration")
        case BrokerUnreachable():
            return ApiProblem(503, str(error), code="cluster_unreachable")
        case BrokerError():
            return ApiProblem(502, str(error))
        case _:
            return ApiProblem(500, str(error))


def answer_with_problems(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Let every error of `app`, its own and those of its `routes`, be an `ErrorBody`."""
    app.add_exception_handler(ApiProblem, _own)
    app.add_exception_handler(MirrorError, _mirror)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, partial(_http, routes))
    app.add_exception_handler(Exception, _bug)


async def _own(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiProblem)
    return answer(error)


async def _mirror(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, MirrorError)
    return answer(problem_of(error))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """The first mistake as a sentence, all of them as details; what was sent is not quoted."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"at": ".".join(map(str, each["loc"])), "why": str(each["msg"])} for each in error.errors()
    ]
    first = found[0]
    message = f"{first['at']}: {first['why']}"
    return answer(ApiProblem(400, message, details={"problems": found}))


async def _http(routes: Sequence[BaseRoute], request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    messages = {
        404: f"there is no {request.url.path}; /v1/openapi.json has every route",
        405: f"{request.url.path} has no {request.method}; /v1/openapi.json has every route",
    }
    message = messages.get(error.status_code, str(error.detail))
    code = _BY_STATUS.get(error.status_code, "http")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(routes, request)))
    return answer(ApiProblem(error.status_code, message, code=code, headers=headers))


def _methods(routes: Sequence[BaseRoute], request: Request) -> Iterator[str]:
    """Of every route of the path: Starlette names those of the first one alone."""
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            yield from route.methods or ()


async def _bug(request: Request, error: Exception) -> JSONResponse:
    log.error("bug in %s %s", request.method, request.url.path, exc_info=error)
    return answer(ApiProblem(500, "a bug of Heliograph; the driver's log has more"))
