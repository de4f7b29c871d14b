"""A mirror's API over real sockets, on a thread of its own; it can go away and return."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from heliograph.api.server import api_service
from heliograph.config.api import Address, ApiConfig
from heliograph.driver.live import LiveMirror

_START_S_MAX = 30.0


class ServedMirror:
    def __init__(self, mirror: LiveMirror, config: ApiConfig) -> None:
        self._mirror, self._config = mirror, config
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event
        self.address = Address("127.0.0.1", 0)

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def start(self) -> None:
        """At the address it had before, if it had one."""
        ready = threading.Event()

        async def serve() -> None:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            config = self._config.model_copy(update={"listen": self.address})
            async with api_service(config)(self._mirror) as address:
                assert isinstance(address, Address)
                self.address = address
                ready.set()
                await self._over.wait()

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), name="served")
        self._thread.start()
        assert ready.wait(_START_S_MAX), "the API does not start"

    def stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
            self._thread = None


@contextmanager
def served(mirror: LiveMirror, tokens_file: str | None = None) -> Iterator[ServedMirror]:
    config = ApiConfig(listen=Address("127.0.0.1", 0), tokens_file=tokens_file)
    found = ServedMirror(mirror, config)
    found.start()
    try:
        yield found
    finally:
        found.stop()
