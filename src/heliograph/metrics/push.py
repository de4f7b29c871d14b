"""Post figures to a collector as OTLP, again and again. Runs beside a mirror on the driver."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from heliograph.broker.blocking import blocking
from heliograph.config.metrics import MetricsConfig
from heliograph.driver.live import LiveMirror, Service
from heliograph.metrics.gather import Looked
from heliograph.metrics.otlp import otlp_json
from heliograph.metrics.scrape import Metrics
from heliograph.processes import machine_id

log = logging.getLogger("heliograph")

_ANSWER_S_MAX: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 1024


def push_service(settings: MetricsConfig) -> Service:
    """Posts while the mirror runs, and once more when it has ended."""

    @asynccontextmanager
    async def push(live: LiveMirror) -> AsyncIterator[None]:
        pusher = _Pusher(settings, Metrics(live))
        pushing = asyncio.create_task(pusher.run(), name="otlp")
        try:
            yield
        finally:
            pushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pushing
            await pusher.post()

    return push


class _Pusher:
    def __init__(self, settings: MetricsConfig, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._problem = ""
        self._resource = {
            "service.name": "heliograph",
            "service.instance.id": machine_id(),
            "host.name": socket.gethostname(),
        }

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.otlp_interval_s)
            await self.post()

    async def post(self) -> None:
        """What fails is said once; the next post has newer figures."""
        looked = await self._metrics.looked()
        try:
            await blocking(self._post, looked)
        except (OSError, ValueError) as exc:
            # The URL may hold a password, so it is not quoted.
            problem = f"metrics.otlp.endpoint: {_why(exc)}"
            if problem != self._problem:
                log.warning("%s; tried again every %d s", problem, self._settings.otlp_interval_s)
            self._problem = problem
        else:
            if self._problem:
                log.info("metrics.otlp.endpoint: works again")
            self._problem = ""

    def _post(self, looked: Looked) -> None:
        if self._settings.otlp_endpoint is None:
            return
        body = otlp_json(
            self._metrics.families(looked, lanes=self._settings.lanes),
            began_ms=looked.began_ms,
            at_ms=looked.at_ms,
            resource=self._resource,
        )
        request = urllib.request.Request(
            self._settings.otlp_endpoint.reveal(),
            data=body,
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        if self._settings.otlp_token is not None:
            request.add_header("Authorization", f"Bearer {self._settings.otlp_token.reveal()}")
        with _opener().open(request, timeout=_ANSWER_S_MAX) as answer:
            answer.read(_ANSWER_BYTES_MAX)
            if not 200 <= answer.status < 300:
                raise _Refused(f"the collector answered {answer.status}")


class _Refused(ValueError):
    """Its text is ours; that of other errors may quote the address."""


def _opener() -> urllib.request.OpenerDirector:
    """No file: or ftp: URLs, and no redirects, which would take the token to another host."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _why(exc: OSError | ValueError) -> str:
    if isinstance(exc, _Refused):
        return str(exc)
    reason = getattr(exc, "reason", None)
    for one in (reason, exc):
        if isinstance(one, OSError) and one.strerror:
            return one.strerror
    return "no answer in time" if isinstance(reason or exc, TimeoutError) else type(exc).__name__
