"""Holds lanes back that would make critical ones late. Runs on the driver's loop.

`giving_way` decides how much the others may copy; here it is asked every second and told to the
slots, as a limit that all lanes keep which have no slots of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from heliograph.clock import monotonic_s
from heliograph.driver.decided import DecidedFlows
from heliograph.driver.flow_state import SlotPool
from heliograph.driver.giving_way import LIFTED_S, LOOK_S, Allowance, seen_between
from heliograph.model import LaneId, LaneProgress
from heliograph.words import rate_words

log = logging.getLogger("heliograph")


class HandsOut(Protocol):
    """What is needed of `heliograph.driver.reconcile.Reconciler`."""

    @property
    def decided(self) -> DecidedFlows: ...

    async def rebalance(self, slots: SlotPool) -> None: ...


class CriticalFirst:
    """Without `critical.latency.ms` it does nothing. All state is on the loop."""

    def __init__(self, clock_s: Callable[[], float] = monotonic_s) -> None:
        self._clock_s = clock_s
        self._allowance: Allowance | None = None
        self._before: Mapping[LaneId, LaneProgress] = {}
        self._looked_s = 0.0

    async def run(self, reconciler: HandsOut, slots: SlotPool) -> None:
        while True:
            await self.look(reconciler, slots)
            await asyncio.sleep(LOOK_S)

    async def look(self, reconciler: HandsOut, slots: SlotPool) -> None:
        """One look at all lanes, and what follows from it."""
        decided, now_s = reconciler.decided, self._clock_s()
        if decided.has_critical is (self._allowance is None):
            self._allowance = Allowance() if decided.has_critical else None
            self._before, self._looked_s = slots.progress(), now_s
            self._tell(decided, slots)
            await reconciler.rebalance(slots)  # lanes are told whether they give way
        elif self._allowance is not None:
            progress = slots.progress()
            elapsed_s, self._looked_s = now_s - self._looked_s, now_s
            before, self._before = self._before, progress
            critical = decided.critical(progress)
            seen = seen_between(before, progress, critical, elapsed_s)
            self._allowance.look(now_s, seen)
            self._tell(decided, slots)

    def _tell(self, decided: DecidedFlows, slots: SlotPool) -> None:
        allowed = None if self._allowance is None else self._allowance.bytes_per_s
        held_back = None if allowed is None else int(allowed)
        before = decided.held_back
        if held_back == before:
            return
        if before is not None and held_back is not None and held_back < before:
            rate = rate_words(held_back)
            log.info("critical topics were late: all other lanes copy at most %s together", rate)
        if held_back is None and self._allowance is not None:
            log.warning(
                "critical topics are late though next to nothing is copied beside them: "
                "for %.0f minutes no lane is held back for them",
                LIFTED_S / 60,
            )
        decided.held_back = held_back
        slots.throttle(decided.limits())
