"""A mirror whose configuration changes while it runs. Runs on the driver's loop.

A change ends the mirror there is, drained, and begins another with the new configuration, in the
same process and the same Spark. So every flow stands still for the few seconds that takes, also one
that did not change; nothing is lost or repeated by it, as by any restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from heliograph.broker.blocking import Changed, blocking, first_of
from heliograph.config.schema import MirrorConfig
from heliograph.driver.run import LiveMirror, run_mirror, stop_spark
from heliograph.driver.stop import StopRequest
from heliograph.engine.application import SparkApplication
from heliograph.errors import EngineError, MirrorError

log = logging.getLogger("heliograph")

_TOGETHER_S: Final = 0.3
"""Changes that come so soon after each other are one."""
_AGAIN_S: Final = 10.0


class ChangingMirror:
    """Mirrors what it was told last. All state is on the loop."""

    def __init__(self, config: MirrorConfig, stop: StopRequest) -> None:
        self._wanted, self._stop = config, stop
        self._changed = Changed()
        self._ending: StopRequest | None = None
        """Ends the mirror of the moment."""
        self._spark: SparkApplication | None = None
        self._mirrored: MirrorConfig | None = None
        self.live: LiveMirror | None = None
        """None between two mirrors."""
        self.problem = ""
        """Why there is no mirror."""

    def reconfigure(self, config: MirrorConfig) -> None:
        """Mirror this from now on; the same again changes nothing. Returns before it acts."""
        if config != self._wanted:
            self._wanted = config
            self._end_current()

    async def followed(self) -> None:
        """Until what was told last is what is mirrored, or cannot be."""
        while self._mirrored != self._wanted or (self.live is None and not self.problem):
            await self._changed.wait()

    async def run(self) -> None:
        """Until stopped. Raises `EngineError` where Spark cannot run."""
        stopping = asyncio.create_task(self._hear_stop())
        try:
            while not self._stop.is_made:
                await asyncio.sleep(_TOGETHER_S)
                await self._mirror(self._wanted)
        finally:
            stopping.cancel()
            if self._spark is not None:
                await stop_spark(self._spark)

    async def _hear_stop(self) -> None:
        await self._stop.wait()
        self._end_current()

    def _end_current(self) -> None:
        if self._ending is not None:
            self._ending.make()
        self._changed.notify()

    async def _mirror(self, config: MirrorConfig) -> None:
        if self._stop.is_made:
            return
        self._ending, self._mirrored, self.problem = StopRequest(), config, ""
        try:
            if config.flows and self._spark is None:
                await self._start_spark(config)
            if config == self._wanted and not self._stop.is_made:
                await run_mirror(
                    config, stop=self._ending, services=(self._shown,), spark=self._spark
                )
        except EngineError:
            raise
        except MirrorError as exc:
            log.error("nothing is mirrored: %s; trying again every %.0f s", exc, _AGAIN_S)
            self.problem = str(exc)
            self._changed.notify()
            if config == self._wanted and not self._stop.is_made:
                await first_of(self._changed, timeout_s=_AGAIN_S)
        finally:
            self._ending = None

    async def _start_spark(self, config: MirrorConfig) -> None:
        spark = SparkApplication(config, lambda what: log.info("%s", what))
        await blocking(spark.start)
        self._spark = spark

    @asynccontextmanager
    async def _shown(self, live: LiveMirror) -> AsyncIterator[None]:
        self.live = live
        self._changed.notify()
        try:
            yield
        finally:
            self.live = None
            self._changed.notify()
