"""One server, two dialects and a page: whose a path is, and in whose words its errors are.

Driver only. Connect's clients ask for `/` too, and want JSON; a browser says that it wants HTML.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from heliograph.api.connect import answer_in_connect, is_of_connect
from heliograph.api.guard import answer_in_v1
from heliograph.api.problems import ApiProblem


class Dialects:
    """Connect's paths go to Connect's application, all others to that of `/v1`."""

    def __init__(self, v1: ASGIApp, connect: ASGIApp) -> None:
        self._v1, self._connect = v1, connect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_connect = is_of_connect(scope["path"]) and not _is_for_page(scope)
        await (self._connect if is_connect else self._v1)(scope, receive, send)


def _is_for_page(scope: Scope) -> bool:
    accepted = Headers(scope=scope).get("accept", "")
    return scope["path"] == "/" and scope["method"] == "GET" and "text/html" in accepted


def answer_in(path: str, problem: ApiProblem) -> ASGIApp:
    return (answer_in_connect if is_of_connect(path) else answer_in_v1)(path, problem)
