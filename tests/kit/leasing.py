"""A driver's leases without the rest of it, on a loop of their own, for tests that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

from heliograph.config.schema import MirrorConfig
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Fenced
from heliograph.ledger.lease import Activity, Leases
from heliograph.model import FlowId, LaneId, SlotId, TopicName

_CALL_S_MAX: Final = 30.0

T = TypeVar("T")


class Nothing:
    """The activity of a driver that carries nothing."""

    slot_count = 0

    async def idle(self, flow: FlowId) -> None: ...

    def has_left(self, flow: FlowId, topics: Collection[TopicName]) -> bool:
        return True


class NoSlots:
    """Slots of a driver that has none."""

    count = 0

    def current(self) -> Mapping[LaneId, SlotId]:
        return {}


class LeasesAside:
    """Leases and their ledgers on a thread of their own; `close` lets them go."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        lease_s: float | None = None,
        exclusive: bool = True,
        activity: Activity | None = None,
    ) -> None:
        if lease_s is not None:
            engine = config.engine.model_copy(update={"driver_lease_ms": int(lease_s * 1000)})
            config = config.model_copy(update={"engine": engine})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> tuple[LedgerAccess, Leases]:
            ledgers = LedgerAccess(config.clusters)
            return ledgers, Leases(
                config,
                ledgers,
                activity or Nothing(),
                exclusive=exclusive,
            )

        self._ledgers, self._leases = self._call(make())
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        async def begin() -> None:
            self._running = asyncio.create_task(self._leases.run())

        self._call(begin())

    def suspend(self) -> None:
        """Renew no more, as on a machine that was suspended."""

        async def end() -> None:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)
                self._running = None

        self._call(end())

    def wake(self, flow: FlowId) -> None:
        """Claim once, as the machine does when it is awake again."""
        (lease,) = [each for each in self._leases._flows.values() if each.id == flow]
        self._call(lease._claim(None))

    def wait_known(self, timeout_s: float) -> None:
        self._call(self._leases.wait_known(timeout_s))

    def leads(self, flow: FlowId) -> bool:
        return self._leases.leaderships.leads(flow)

    def fence(self, flow: FlowId) -> Fence | None:
        value = self._leases.leaderships[flow]
        return value.fence if isinstance(value, Fenced) else None

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.suspend()
        self._call(self._leases.release())
        self._call(self._ledgers.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S_MAX)
