"""Serve `/v1` beside a mirror, on the mirror's own loop. Driver only; begin here.

uvicorn's server without its signal handlers: signals stop the mirror, and the mirror the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from heliograph.api.access import Tokens
from heliograph.api.app import make_app
from heliograph.api.connect import ConnectState
from heliograph.api.connect_worker import make_connect_app
from heliograph.api.dialects import Dialects, answer_in
from heliograph.api.guard import guarded
from heliograph.api.state import ApiState
from heliograph.config.api import Address, ApiConfig, ApiTlsConfig
from heliograph.connect.of_file import FileConnectors
from heliograph.driver.live import LiveMirror, Service
from heliograph.errors import ConfigError, InvariantError
from heliograph.inspect.why_reading import Values, no_values

log = logging.getLogger("heliograph")

_CONNECTIONS_MAX: Final = 256
_HEADERS_BYTES_MAX: Final = 32 * 1024
_STOP_S_MAX: Final = 2
_STARTED_S: Final = 0.01


Made = Callable[[Address, Tokens | None], ASGIApp]
"""Makes what is served, once its address and the tokens are known."""


def api_service(config: ApiConfig, values: Values = no_values) -> Service:
    """Serves while the mirror runs; raises `ConfigError` on entering where it cannot.

    `values` knows which line of the file each key of a flow comes from.
    """

    @asynccontextmanager
    async def serve(live: LiveMirror) -> AsyncIterator[Address]:
        def make(address: Address, tokens: Tokens | None) -> ASGIApp:
            state = ApiState(live=live, tokens=tokens, values=values)
            herder = FileConnectors(live, str(address))
            shared = ConnectState(
                herder=herder, tokens=tokens, tries=state.tries, trail=state.trail
            )
            return Dialects(make_app(state), make_connect_app(shared, has_health=False))

        async with serving(config, make) as address:
            yield address

    return serve


@asynccontextmanager
async def serving(
    config: ApiConfig, make: Made, what: str = "api at %s/v1"
) -> AsyncIterator[Address]:
    """Serves what `make` makes; raises `ConfigError` on entering where it cannot."""
    if config.listen is None:
        raise InvariantError("an API server without an address")
    tokens = None if config.tokens_file is None else Tokens(Path(config.tokens_file))
    context = _tls(config.tls)
    with _listening(config.listen) as listener:
        address = Address(config.listen.host, listener.getsockname()[1])
        settings = uvicorn.Config(
            guarded(
                make(address, tokens), address, has_tokens=tokens is not None, answers=answer_in
            ),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=_HEADERS_BYTES_MAX,
            timeout_graceful_shutdown=_STOP_S_MAX,
            ssl_context_factory=None if context is None else lambda _config, _make: context,
        )
        server = _Server(settings)
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(_STARTED_S)
            log.info(what, f"{'http' if context is None else 'https'}://{address}")
            yield address
        finally:
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The driver's own handlers stay."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Nor does a connection outlive the server: one that was accepted at the last moment was
        told nothing, and neither was one whose request could not be ended in time."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # sockets are closed at the loop's next turn


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family)
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise ConfigError("api.listen", (f"is {address}: {why}",)) from exc
    with listener:
        # asyncio sets it only on sockets whose protocol is named. Without it the second part of an
        # answer waits until the client acknowledges the first, which it delays by 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def _tls(config: ApiTlsConfig) -> ssl.SSLContext | None:
    if config.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # No password is asked for at a terminal that a driver may not have.
    try:
        context.load_cert_chain(config.certificate, config.key, password=lambda: b"")
    except (OSError, ValueError) as exc:
        raise ConfigError("api.tls.certificate", (_unusable(exc, config.certificate),)) from exc
    if config.client_ca is not None:
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ValueError) as exc:
            raise ConfigError("api.tls.client.ca", (_unusable(exc, config.client_ca),)) from exc
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _unusable(exc: Exception, path: str) -> str:
    why = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or type(exc).__name__
    return f"{path} cannot be used: {why}"
