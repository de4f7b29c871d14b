"""Serve a Connect worker: Connect's dialect, and `/v1` of the mirror it runs. Driver only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from heliograph.api.access import FailedTries, Tokens
from heliograph.api.app import make_app
from heliograph.api.connect import ConnectState
from heliograph.api.connect_worker import make_connect_app
from heliograph.api.operations import Operations
from heliograph.api.problems import ApiProblem, answer
from heliograph.api.server import serving
from heliograph.api.state import ApiState
from heliograph.api.trail import Trail
from heliograph.config.api import Address, ApiConfig
from heliograph.connect.worker import ConnectWorker
from heliograph.driver.live import LiveMirror


@asynccontextmanager
async def serve_worker(config: ApiConfig, worker: ConnectWorker) -> AsyncIterator[Address]:
    """Raises `ConfigError` on entering where it cannot."""

    def make(address: Address, tokens: Tokens | None) -> ASGIApp:
        worker.listens_at(str(address))
        state = ConnectState(herder=worker, tokens=tokens)
        return _Worker(
            make_connect_app(state, has_health=True),
            _Current(worker, tokens, state.tries, state.trail),
        )

    async with serving(config, make, "connectors at %s/connectors") as address:
        yield address


class _Worker:
    """All paths are Connect's but those of `/v1`."""

    def __init__(self, connect: ASGIApp, v1: ASGIApp) -> None:
        self._connect, self._v1 = connect, v1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_v1 = scope["path"].startswith("/v1/") or scope["path"] == "/ready"
        await (self._v1 if is_v1 else self._connect)(scope, receive, send)


class _Current:
    """`/v1` of the mirror of the moment; there is none while one is being started."""

    def __init__(
        self, worker: ConnectWorker, tokens: Tokens | None, tries: FailedTries, trail: Trail
    ) -> None:
        self._worker, self._tokens, self._tries, self._trail = worker, tokens, tries, trail
        self._operations = Operations()
        self._made: tuple[LiveMirror, ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = self._worker.live()
        if live is None:
            problem = ApiProblem(503, "the mirror is being started, or ends")
            await answer(problem)(scope, receive, send)
            return
        if self._made is None or self._made[0] is not live:
            state = ApiState(
                live=live,
                tokens=self._tokens,
                tries=self._tries,
                trail=self._trail,
                operations=self._operations,
            )
            self._made = live, make_app(state)
        await self._made[1](scope, receive, send)
