"""What a request passes before a route sees it: bounds, headers, foreign pages. Driver only.

A page in a browser on this machine can send requests to a loopback address. So a request that comes
from another origin is refused, nothing answers CORS, and where no tokens are asked for the Host
must be one of the server's own: a name that is made to lead here (DNS rebinding) is none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heliograph.api.problems import ApiProblem, answer
from heliograph.config.api import Address

BODY_BYTES_MAX: Final = 64 * 1024
_BODY_S_MAX: Final = 10.0
_SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)

Answers = Callable[[str, ApiProblem], ASGIApp]
"""How a path's dialect says what is wrong."""


def answer_in_v1(path: str, problem: ApiProblem) -> ASGIApp:
    return answer(problem)


class Guard:
    """Around the whole application."""

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] | None, answers: Answers = answer_in_v1
    ) -> None:
        """`hosts` are the names a request may be for; None: any."""
        self._app, self._hosts, self._answers = app, hosts, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        safely = _with_safe_headers(send)
        try:
            headers = Headers(scope=scope)
            self._check_origin(headers)
            body = await _read_body(headers, receive)
        except ApiProblem as problem:
            await self._answers(scope["path"], problem)(scope, receive, safely)
            return
        await self._app(scope, _replay(body, receive), safely)

    def _check_origin(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise ApiProblem(403, "the Host of the request is none of this server's")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise ApiProblem(403, "the request comes from a page of another origin")


def own_hosts(address: Address) -> frozenset[str]:
    return frozenset({"localhost", "127.0.0.1", "[::1]", _without_port(str(address))})


def _without_port(host: str) -> str:
    name, separator, port = host.rpartition(":")
    return (name if separator and port.isdecimal() else host).lower()


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    """The whole body, which is JSON or nothing; never more than may be."""
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:20]) > BODY_BYTES_MAX:
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S_MAX):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    break
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise _too_large()
                parts.append(part)
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiProblem(408, f"the body did not arrive within {_BODY_S_MAX:.0f} s") from None
    if size and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ApiProblem(415, "a body must be JSON, with `Content-Type: application/json`")
    return b"".join(parts)


def _too_large() -> ApiProblem:
    return ApiProblem(413, f"the body is larger than {BODY_BYTES_MAX:,} bytes")


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then what the server has to say."""
    waiting = [body]

    async def replayed() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replayed


def _with_safe_headers(send: Send) -> Send:
    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            # A second policy would only narrow the first: the page says its own.
            safe = [header for header in _SAFE if header[0] not in names]
            message = {**message, "headers": [*given, *safe]}
        await send(message)

    return safely


def guarded(
    app: Any, address: Address | None, *, has_tokens: bool, answers: Answers = answer_in_v1
) -> Guard:
    """`address` is the server's own; None: any Host is taken."""
    hosts = None if has_tokens or address is None else own_hosts(address)
    return Guard(app, hosts=hosts, answers=answers)
