"""Keeps as many slots as are of use, and lanes out of those where they do not get on. Runs on the
driver's loop.

The decisions are pure: `slot_count` says how many slots, `stuck` which lanes are moved, and
`open_slots` which slots lanes are handed to. A slot that was added gets lanes when it runs, not
before: a lane that waited for an executor to start would stand still for as long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from heliograph.broker.blocking import blocking
from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.driver.flow_state import SlotPool
from heliograph.driver.reconcile import Reconciler
from heliograph.driver.slot_count import Reckoning, Rules, Sight, choose_slots, how_many_slots
from heliograph.driver.stuck import StuckLanes
from heliograph.engine.capacity import Capacity
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.errors import EngineError, MirrorError
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.slots_note import slots_note
from heliograph.model import FlowId, LaneId, LaneProgress, SlotId

log = logging.getLogger("heliograph")

LOOK_S: Final = 2.0
START_S_MAX: Final = 15.0
"""Lanes of a slot that is started anew wait so long for it before others carry them."""
_UP: Final = frozenset({SlotState.RUNNING, SlotState.SILENT})


class KeptSlots(SlotPool, Protocol):
    """What a keeper needs of `heliograph.engine.slots.Slots`."""

    def keep(self, wanted: frozenset[SlotId]) -> None: ...
    def give_up(self, slot: SlotId, why: str) -> None: ...
    def health(self) -> Sequence[SlotHealth]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlots:
    """Which slots lanes are handed to."""

    slots: frozenset[SlotId]
    starting_s: Mapping[SlotId, float] = field(default_factory=dict)
    """Since when those that do not run yet are waited for."""


def open_slots(
    wanted: frozenset[SlotId], health: Sequence[SlotHealth], before: OpenSlots, now_s: float
) -> OpenSlots:
    """Those that run, and for a moment those that did: what is lost is mostly there again soon."""
    states = {each.slot: each.state for each in health}
    up = frozenset(slot for slot in wanted if states.get(slot) in _UP)
    starting_s = {slot: before.starting_s.get(slot, now_s) for slot in wanted - up}
    awaited = frozenset(
        slot
        for slot, since_s in starting_s.items()
        if slot in before.slots and now_s - since_s < START_S_MAX
    )
    return OpenSlots(slots=up | awaited or wanted, starting_s=starting_s)


class SlotKeeper:
    """Looks every two seconds. All state is on the loop."""

    def __init__(
        self, config: MirrorConfig, first: Capacity, clock_s: Callable[[], float] = monotonic_s
    ) -> None:
        self._rules = Rules.of(config)
        self._capacity, self._clock_s = first, clock_s
        self._stuck = StuckLanes()
        self._seen: Mapping[LaneId, LaneProgress] = {}
        self._load = 0.0, 0.0
        self._noted: dict[FlowId, str] = {}
        self._reckoned: Reckoning = how_many_slots(self._rules, _sight(first), clock_s())
        self._wanted = frozenset(map(SlotId, range(self.count)))
        self._open = OpenSlots(slots=self._wanted)
        self._told: tuple[frozenset[SlotId], Mapping[LaneId, frozenset[SlotId]]]
        self._told = self._wanted, {}

    def use(self, config: MirrorConfig) -> None:
        """Keep slots by this configuration, from the next look on."""
        self._rules = Rules.of(config)

    @property
    def count(self) -> int:
        return self._reckoned.count

    @property
    def why(self) -> str:
        """How many slots there are and why, in words."""
        return self._reckoned.why

    @property
    def moved(self) -> Mapping[LaneId, str]:
        """Why lanes were moved lately."""
        return self._stuck.shown(self._clock_s())

    async def run(
        self,
        reconciler: Reconciler,
        slots: KeptSlots,
        capacity: Callable[[], Capacity],
        ledgers: LedgerAccess | None = None,
    ) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._capacity = await blocking(capacity)
            except EngineError as exc:
                log.debug("%s", exc)  # another task starts Spark again, and says so
                continue
            await self.look(reconciler, slots)
            if ledgers is not None:
                await self._note(ledgers, slots)

    async def _note(self, ledgers: LedgerAccess, slots: KeptSlots) -> None:
        """Say in the ledgers of the flows that are carried why there are so many slots."""
        reason = self._reckoned.reason
        for flow in {lane.flow for lane in slots.progress()}:
            if self._noted.get(flow) == reason:
                continue
            try:
                await ledgers.note(flow, [slots_note(ledgers.author, reason)])
            except MirrorError as exc:
                log.debug(
                    "%s: %s", flow, exc
                )  # the lease's task says so; the next look tries again
                continue
            self._noted[flow] = reason

    async def look(self, reconciler: Reconciler, slots: KeptSlots) -> None:
        """One look at Spark, slots and lanes, and what follows from it."""
        now_s, health = self._clock_s(), slots.health()
        wanted = self._choose(reconciler, slots, health, now_s)
        progress = slots.progress()
        if wanted != self._wanted:
            log.info("%s", self.why)
        self._open = open_slots(wanted, health, self._open, now_s)
        if progress is not self._seen:
            # Where nothing has changed no lane went on, so none is behind the others.
            self._seen = progress
            self._find_stuck(reconciler, slots, progress, now_s)
        places = self._open.slots, self._stuck.avoided(now_s)
        if places != self._told:
            self._told = places
            reconciler.use_slots(*places)
            # Before slots go: their lanes are told where to, and settle once.
            await reconciler.rebalance(slots)
        if wanted != self._wanted:
            self._wanted = wanted
            slots.keep(wanted)

    def _choose(
        self,
        reconciler: Reconciler,
        slots: KeptSlots,
        health: Sequence[SlotHealth],
        now_s: float,
    ) -> frozenset[SlotId]:
        decided = reconciler.decided
        is_auto = self._rules.fixed is None
        apart = decided.set_apart() if is_auto else frozenset()
        drained = decided.drained(reconciler.led) if is_auto else frozenset()
        if slots.progress() is not self._seen:
            loads = slots.loads().values()
            self._load = sum(at.lag_bytes for at in loads), sum(at.bytes_per_s for at in loads)
        running = [
            each for each in health if each.state is SlotState.RUNNING and each.slot in self._wanted
        ]
        sight = _sight(
            self._capacity,
            lanes=reconciler.lane_count,
            apart=apart,
            running=running,
            load=self._load,
        )
        self._reckoned = how_many_slots(self._rules, sight, now_s, self._reckoned)
        return choose_slots(
            self.count,
            self._wanted,
            running=[each.slot for each in running],
            pinned=apart,
            drained=drained,
        )

    def _find_stuck(
        self,
        reconciler: Reconciler,
        slots: KeptSlots,
        progress: Mapping[LaneId, LaneProgress],
        now_s: float,
    ) -> None:
        placed = slots.current()
        is_limited = reconciler.decided.is_limited
        for each in self._stuck.look(progress, placed, self._open.slots, now_s, is_limited):
            log.warning("%s is moved to another slot: %s", each.lane, each.why)
        for slot, lane in self._stuck.unwilling(placed, now_s).items():
            slots.give_up(slot, f"it does not let go of {lane}, which made no progress there")


def _sight(
    capacity: Capacity,
    *,
    lanes: int = 0,
    apart: Collection[SlotId] = (),
    running: Sequence[SlotHealth] = (),
    load: tuple[float, float] = (0.0, 0.0),
) -> Sight:
    # Slots set apart for a few lanes say little about what the others need.
    busy = [each.cpu_share for each in running if each.slot not in apart] or [0.0]
    return Sight(
        cores=capacity.cores,
        executors=capacity.executors,
        room=capacity.room,
        most=capacity.most,
        on_demand=capacity.on_demand,
        lanes=lanes,
        apart=len(apart),
        running=len(running),
        busy=sum(busy) / len(busy),
        lag_bytes=load[0],
        bytes_per_s=load[1],
    )
