"""Which lanes each slot should carry, may be carrying, and is told next. No I/O; driver.

A lane is *held* from the moment a slot is told to add it until that slot said it settled, or is
known to be over. It is given to another slot only when nobody holds it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from heliograph.engine.messages import (
    LANES_PER_MESSAGE,
    AddLanes,
    Down,
    LimitLanes,
    PauseLanes,
    RemoveLanes,
    ResumeLanes,
    Throttle,
)
from heliograph.engine.shares import Demand, divide
from heliograph.errors import InvariantError
from heliograph.model import FlowId, Lane, LaneId, LaneLoad, SlotId

_T = TypeVar("_T")
_BEHIND_S: Final = 0.5
"""A lane with more than so many seconds' worth to copy is behind."""
Order = tuple[SlotId, Down]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    slot: SlotId
    lane: Lane
    """As last told."""
    leaving: bool = False
    settling: bool = False
    """Whether it leaves with all that was fetched for it."""


class Roster:
    """Every method that changes something returns what is to be sent because of it, in order.

    Each looks only at the lanes its event is about: the beats of all slots would wait for a look at
    tens of thousands of them.
    """

    def __init__(self) -> None:
        self._wanted: dict[LaneId, tuple[SlotId, Lane]] = {}
        self._wanted_of: dict[SlotId, list[LaneId]] = {}
        self._abandoned: frozenset[FlowId] = frozenset()
        self._stuck: frozenset[LaneId] = frozenset()
        self._held: dict[LaneId, _Held] = {}
        self._held_of: defaultdict[SlotId, dict[LaneId, None]] = defaultdict(dict)
        """By slot, in the order in which they came."""
        self._counts: Counter[tuple[str, SlotId]] = Counter()
        """Lanes of each limit, by slot."""
        self._present: set[SlotId] = set()
        self._limits: dict[str, int] = {}
        self._loads: Mapping[LaneId, LaneLoad] = {}
        self._limits_told: dict[tuple[str, SlotId], int] = {}

    def want(
        self,
        assignment: Mapping[SlotId, Iterable[Lane]],
        abandoned: frozenset[FlowId] = frozenset(),
        stuck: frozenset[LaneId] = frozenset(),
    ) -> list[Order]:
        """Replace what is wanted as a whole. Lanes of `abandoned` flows append nothing more, and
        `stuck` ones leave their slots without what was fetched for them: it may never go."""
        wanted: dict[LaneId, tuple[SlotId, Lane]] = {}
        wanted_of: dict[SlotId, list[LaneId]] = {}
        for slot, lanes in assignment.items():
            wanted_of[slot] = []
            for lane in lanes:
                if lane.id in wanted:
                    raise InvariantError(f"{lane.id} is assigned to two slots")
                wanted[lane.id] = slot, lane
                wanted_of[slot].append(lane.id)
        before, self._wanted, self._wanted_of = self._wanted, wanted, wanted_of
        self._abandoned, self._stuck = abandoned, stuck
        gone = self._held.keys() - wanted.keys()
        changed = [i for i, wish in wanted.items() if before.get(i) != wish or i not in self._held]
        return self._next_orders([*(i for i in self._held if i in gone), *changed])

    def resume(self, ids: Iterable[LaneId]) -> list[Order]:
        """Also lifts a pause that came with the lane's spec, until the next assignment."""
        lifted = [lane_id for lane_id in dict.fromkeys(ids) if lane_id in self._wanted]
        stalled: defaultdict[SlotId, list[LaneId]] = defaultdict(list)
        for lane_id in lifted:
            slot, lane = self._wanted[lane_id]
            self._wanted[lane_id] = slot, replace(lane, paused=False)
            held = self._held.get(lane_id)
            # One that was not paused may be stalled, which only its slot knows; it is told as well.
            if held is not None and held.slot == slot and not (held.lane.paused or held.leaving):
                stalled[slot].append(lane_id)
        orders = self._next_orders(lifted)
        for slot, lane_ids in stalled.items():
            if slot in self._present:
                orders += [(slot, ResumeLanes(ids=c)) for c in _chunks(lane_ids)]
        return orders

    def limit(self, limits: Mapping[str, int]) -> list[Order]:
        """Replace the limits as a whole."""
        self._limits = dict(limits)
        return self._next_orders(())

    @property
    def has_limits(self) -> bool:
        return bool(self._limits)

    def divide(self, loads: Mapping[LaneId, LaneLoad]) -> list[Order]:
        """Share the limits out anew, by what the lanes asked of their slots lately."""
        self._loads = loads
        orders = self._limit_orders()
        self._loads = {}
        return orders

    def arrived(self, slot: SlotId, lanes: Iterable[Lane]) -> list[Order]:
        """A slot connected and carries `lanes`; what it was told before may not have reached it."""
        held_before = self._release_all(slot)
        self._limits_told = {key: v for key, v in self._limits_told.items() if key[1] != slot}
        for lane in lanes:
            if lane.id in self._held:
                raise InvariantError(f"{lane.id} is carried by two slots")
            self._hold(_Held(slot=slot, lane=lane))
        self._present.add(slot)
        touched = [*held_before, *self._held_of[slot], *self._wanted_of.get(slot, ())]
        return self._next_orders(touched)

    def silent(self, slot: SlotId) -> None:
        """Not connected; it may still carry what it holds."""
        self._present.discard(slot)

    def over(self, slot: SlotId) -> list[Order]:
        """The slot carries nothing any more, for certain."""
        self._present.discard(slot)
        return self._next_orders(self._release_all(slot))

    def settled(self, slot: SlotId, ids: Iterable[LaneId]) -> list[Order]:
        ids = tuple(ids)
        for lane_id in ids:
            held = self._held.get(lane_id)
            if held is not None and held.slot == slot:
                self._release(held)
        return self._next_orders(ids)

    def holders(self) -> Mapping[LaneId, SlotId]:
        return {lane_id: held.slot for lane_id, held in self._held.items()}

    def held_count(self, slot: SlotId) -> int:
        return len(self._held_of[slot])

    def is_wanted(self, lane_id: LaneId) -> bool:
        return lane_id in self._wanted

    def _hold(self, held: _Held) -> None:
        lane_id = held.lane.id
        before = self._held.get(lane_id)
        if before is None:
            self._held_of[held.slot][lane_id] = None
        elif before.lane.limits:
            self._counts.subtract((name, before.slot) for name in before.lane.limits)
        self._counts.update((name, held.slot) for name in held.lane.limits)
        self._held[lane_id] = held

    def _release(self, held: _Held) -> None:
        lane_id = held.lane.id
        del self._held[lane_id], self._held_of[held.slot][lane_id]
        self._counts.subtract((name, held.slot) for name in held.lane.limits)

    def _release_all(self, slot: SlotId) -> list[LaneId]:
        ids = list(self._held_of[slot])
        for lane_id in ids:
            self._release(self._held[lane_id])
        return ids

    def _next_orders(self, ids: Iterable[LaneId]) -> list[Order]:
        """What these lanes' slots are to be told; of all others nothing has changed."""
        removes: defaultdict[tuple[SlotId, bool], list[LaneId]] = defaultdict(list)
        adds: defaultdict[SlotId, list[Lane]] = defaultdict(list)
        pauses: defaultdict[SlotId, list[LaneId]] = defaultdict(list)
        resumes: defaultdict[SlotId, list[LaneId]] = defaultdict(list)
        limits: defaultdict[tuple[SlotId, tuple[str, ...]], list[LaneId]] = defaultdict(list)
        for lane_id in dict.fromkeys(ids):
            held, wish = self._held.get(lane_id), self._wanted.get(lane_id)
            if held is not None and (wish is None or wish[0] != held.slot):
                settle = lane_id.flow not in self._abandoned and lane_id not in self._stuck
                is_told = held.leaving and (settle or not held.settling)
                if not is_told and held.slot in self._present:
                    removes[held.slot, settle].append(lane_id)
                    self._hold(replace(held, leaving=True, settling=settle))
                continue
            if wish is None or (held is not None and held.leaving):
                continue
            slot, lane = wish
            if slot not in self._present:
                continue
            if held is None or _differs(held.lane, lane):
                adds[slot].append(lane)
            else:
                if held.lane.limits != lane.limits:
                    limits[slot, lane.limits].append(lane_id)
                if held.lane.paused != lane.paused:
                    (pauses if lane.paused else resumes)[slot].append(lane_id)
            self._hold(_Held(slot=slot, lane=lane))
        orders: list[Order] = []
        for (slot, settle), leaving in removes.items():
            orders += [(slot, RemoveLanes(ids=c, settle=settle)) for c in _chunks(leaving)]
        # Limits first, so that a lane never runs unthrottled.
        orders += self._limit_orders()
        orders += [
            (slot, LimitLanes(ids=chunk, limits=names))
            for (slot, names), ids_ in limits.items()
            for chunk in _chunks(ids_)
        ]
        orders += [(s, AddLanes(lanes=c)) for s, lanes in adds.items() for c in _chunks(lanes)]
        orders += [(s, PauseLanes(ids=c)) for s, ids in pauses.items() for c in _chunks(ids)]
        orders += [(s, ResumeLanes(ids=c)) for s, ids in resumes.items() for c in _chunks(ids)]
        return orders

    def _limit_orders(self) -> list[Order]:
        """A limit is shared out by the lanes each slot holds, and what they ask for."""
        orders: list[Order] = []
        for name, bytes_per_s in self._limits.items():
            for slot, share in divide(bytes_per_s, self._demands(name)).items():
                if slot in self._present and self._limits_told.get((name, slot)) != share:
                    self._limits_told[name, slot] = share
                    orders.append((slot, Throttle(limit=name, bytes_per_s=share)))
        for key in [k for k in self._limits_told if k[0] not in self._limits]:
            del self._limits_told[key]
            if key[1] in self._present:
                orders.append((key[1], Throttle(limit=key[0], bytes_per_s=None)))
        return orders

    def _demands(self, name: str) -> dict[SlotId, Demand]:
        lanes = {slot: count for (limit, slot), count in self._counts.items() if limit == name}
        demands = {slot: Demand(lanes=count) for slot, count in lanes.items()}
        for lane_id, load in self._loads.items():
            held = self._held.get(lane_id)
            if held is None or name not in held.lane.limits or held.lane.paused:
                continue
            before = demands[held.slot]
            is_behind = load.lag_bytes > max(load.bytes_per_s, 1.0) * _BEHIND_S
            demands[held.slot] = replace(
                before,
                behind=before.behind + is_behind,
                bytes_per_s=before.bytes_per_s + load.bytes_per_s,
            )
        return demands


def _differs(held: Lane, wanted: Lane) -> bool:
    """Whether the lane is another to its slot; a pause and limits are told by messages."""
    return replace(held, paused=wanted.paused, limits=wanted.limits) != wanted


def _chunks(items: list[_T]) -> list[tuple[_T, ...]]:
    return [
        tuple(items[start : start + LANES_PER_MESSAGE])
        for start in range(0, len(items), LANES_PER_MESSAGE)
    ]
