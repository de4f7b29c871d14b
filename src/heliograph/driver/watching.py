"""Follow a configuration file while the mirror it describes runs. Runs on the driver's loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from heliograph.broker.blocking import Changed, blocking, first_of
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.config.watch import FileWatch
from heliograph.driver.changes import ConfigChanges
from heliograph.errors import ConfigError

log = logging.getLogger("heliograph")

_LOOK_S: Final = 1.0
_STILL_S: Final = 0.2
"""A file that was written to in this time is not read yet: somebody may be half through."""


class WatchedFile:
    """A file, all it names, and the changes that a mirror is told because of them."""

    def __init__(self, load: Callable[[Environment], MirrorConfig]) -> None:
        """`load` gives what the file says at the moment; it raises `ConfigError`."""
        self.changes: Final = ConfigChanges()
        self._watch = FileWatch(load)
        self._enabled = True
        self._is_asked = False
        self._asked = Changed()
        self._loop: asyncio.AbstractEventLoop | None = None

    def load(self) -> MirrorConfig:
        """What the mirror begins with; blocks, and raises `ConfigError`."""
        config = self._watch.load()
        self._enabled = config.engine.reload_enabled
        return config

    def look_now(self) -> None:
        """Have it read now, changed or not. Safe in a signal handler and from any thread."""
        self._is_asked = True
        if self._loop is not None:
            # The loop is closed once the run has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._asked.notify)

    @asynccontextmanager
    async def followed(self, _: object) -> AsyncIterator[None]:
        """A `driver.run.Service`: offers what changes as long as the mirror runs."""
        self._loop = asyncio.get_running_loop()
        following = asyncio.create_task(self._follow(), name="reload")
        try:
            yield
        finally:
            self._loop = None
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            if not self._is_asked:
                await first_of(self._asked, timeout_s=_LOOK_S)
            if self._is_asked or (self._enabled and await blocking(self._watch.is_changed)):
                self._is_asked = False
                await self._still()
                try:
                    config = await blocking(self.load)
                except ConfigError as exc:
                    self.changes.unusable(exc)
                except Exception as exc:  # our own bug must show, and the next change be followed
                    log.exception("the changed configuration: a bug")
                    why = f"a bug: {type(exc).__name__}"
                    self.changes.unusable(ConfigError("the changed configuration", (why,)))
                else:
                    self.changes.offer(config)

    async def _still(self) -> None:
        """Until nobody writes any more."""
        before = None
        while (now := await blocking(self._watch.stamps)) != before:
            before = now
            await asyncio.sleep(_STILL_S)
