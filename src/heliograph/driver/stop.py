"""How a running mirror is asked to end. Runs on the driver."""

from __future__ import annotations

import asyncio
import contextlib


class StopRequest:
    """Asks one run to drain and end; may be made before the run and used from any thread."""

    def __init__(self) -> None:
        self._is_made = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made: asyncio.Event | None = None

    @property
    def is_made(self) -> bool:
        return self._is_made

    def make(self) -> None:
        """Safe in a signal handler, and may be repeated."""
        self._is_made = True
        if self._loop is not None and self._made is not None:
            # The loop is closed once the run has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._made.set)

    async def wait(self) -> None:
        """For the run; on its loop."""
        self._loop, self._made = asyncio.get_running_loop(), asyncio.Event()
        if not self._is_made:
            await self._made.wait()
