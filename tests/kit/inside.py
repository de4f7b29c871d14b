"""A slot in this very process, on a thread of its own: mirrors without Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

from heliograph.broker.clients import Clients
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig
from heliograph.copy.shuttle import Shuttle
from heliograph.driver.jobs import periodic_jobs
from heliograph.driver.reconcile import Reconciler
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, Idle, Lane, LaneId, LaneLoad, LaneProgress, SlotId
from tests.kit.topics import wait_until

_CALL_S_MAX: Final = 30.0

T = TypeVar("T")


class InsideSlots:
    """The `SlotPool` of a `Reconciler`; all lanes are in one shuttle."""

    def __init__(self, clusters: Mapping[ClusterAlias, ClusterConfig]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lanes: dict[LaneId, Lane] = {}

        async def begin() -> tuple[Shuttle, asyncio.Task[None]]:
            shuttle = Shuttle(clusters)
            return shuttle, asyncio.create_task(shuttle.run())

        self._shuttle, self._running = self._call(begin())

    def apply(self, assignment: Mapping[SlotId, tuple[Lane, ...]]) -> None:
        wanted = {lane.id: lane for lanes in assignment.values() for lane in lanes}

        async def change() -> None:
            await self._shuttle.remove(self._lanes.keys() - wanted.keys())
            self._shuttle.add(wanted.values())

        self._call(change())
        self._lanes = wanted

    def resume(self, ids: Iterable[LaneId]) -> None:
        async def go_on() -> None:
            self._shuttle.resume(ids)

        self._call(go_on())

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        async def look() -> tuple[LaneProgress, ...]:
            return self._shuttle.progress()

        return {at.lane: at for at in self._call(look())}

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    def current(self) -> Mapping[LaneId, SlotId]:
        return {}

    def close(self) -> None:
        async def end() -> None:
            await self._shuttle.close()
            await self._running

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S_MAX)


def carry(file: Path, *, lanes: int | None = None, checkpoints: bool = False) -> None:
    """Mirror until nothing waits, then stop; by default as many lanes as are planned."""
    config = load_config(file)
    with (
        closing(Clients(config)) as clients,
        closing(LedgerService(config.clusters)) as ledgers,
        closing(InsideSlots(config.clusters)) as slots,
    ):
        steered = Reconciler(config, ledgers, clients, 1)
        steered.reconcile(slots)
        wanted = len(steered.lanes) if lanes is None else lanes

        def is_idle() -> bool:
            found = slots.progress().values()
            return len(found) == wanted > 0 and all(isinstance(at.state, Idle) for at in found)

        wait_until(is_idle, "all lanes idle", timeout_s=60)
        for loop in periodic_jobs(config, clients, ledgers, slots.progress):
            if checkpoints and loop.what == "checkpoints":
                loop.step()
