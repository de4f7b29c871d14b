"""What all lanes of a slot share: room, tasks, and what waits for attention. Runs on executors."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from heliograph.clock import monotonic_s
from heliograph.copy.lane import CarriedLane
from heliograph.copy.room import Room
from heliograph.model import FlowId


class Slot:
    """Used by one event loop; the shuttle, its lanes' machine and both sides have it in common."""

    def __init__(self, bytes_max: int) -> None:
        self.room = Room(bytes_max)
        self.settled = asyncio.Event()
        """Set when a lane may have nothing on its way any more."""
        self.heads_due = asyncio.Event()
        """Set when the ledger should show a lane's state soon."""
        self.lookups_due = asyncio.Event()
        self.closed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.bug: BaseException | None = None
        self.asked: dict[CarriedLane, float] = {}
        """Lanes that have yet to hear where they go on, and since when."""
        self._lookups: defaultdict[FlowId, set[CarriedLane]] = defaultdict(set)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside; if it fails that is our bug, and the slot ends with it."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, act)

    def look_up(self, lane: CarriedLane) -> None:
        """Have the lane's log asked where it goes on, together with its flow's other lanes."""
        self._lookups[lane.spec.id.flow].add(lane)
        self.asked[lane] = monotonic_s()
        self.lookups_due.set()

    def take_lookups(self) -> dict[FlowId, set[CarriedLane]]:
        waiting, self._lookups = self._lookups, defaultdict(set)
        self.lookups_due.clear()
        return waiting

    def show(self, lane: CarriedLane) -> None:
        """Write the lane's head soon if the ledger's says something else."""
        if lane.head_is_due(settling=False):
            self.heads_due.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.bug = task.exception()
            self.closed.set()
