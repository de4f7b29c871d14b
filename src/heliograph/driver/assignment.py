"""Which slot carries which lane: sticky, weighed, pinned apart, each flow as wide as it may be.
No I/O; runs on the driver."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.model import FlowId, Lane, LaneId, LaneLoad, SlotId

IMBALANCE_MAX: Final = 1.5
"""A slot may carry this many times the average before lanes are moved away from it."""

_IMBALANCE_AIM: Final = 1.2
"""Once lanes move, they move until this is reached, so that a slot does not hover at the bound."""
_GAIN_MIN: Final = 1e-6
"""A move must better things by this share of the gap; less may be rounding, and go on for ever."""
_CATCH_UP_S: Final = 60.0
_WEIGHT_UNIT_BYTES: Final = 1 << 20
_EVERY_SLOT: Final[frozenset[SlotId]] = frozenset()

_Together = tuple[LaneId, ...]
"""Lanes that only move as one."""


_Wish = tuple[frozenset[SlotId], frozenset[SlotId]]
"""Where a lane is wanted, anywhere if empty, and which slots it must leave alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Which slots lanes may be in: as operators decided, and as experience taught."""

    pinned: Mapping[LaneId, frozenset[SlotId]] = field(default_factory=dict)
    """Lanes with slots of their own."""
    moved: Mapping[LaneId, frozenset[SlotId]] = field(default_factory=dict)
    """Lanes in slots where others may be too."""
    drained: Mapping[FlowId, frozenset[SlotId]] = field(default_factory=dict)
    """Slots that carry no lane of a flow."""
    avoided: Mapping[LaneId, frozenset[SlotId]] = field(default_factory=dict)
    """Slots where a lane did not get on, as the driver found; no other lane minds them."""


ANYWHERE: Final = Places()


def weigh(load: LaneLoad) -> float:
    """One idle lane weighs 1; each MiB/s carried, or needed to catch up within a minute, adds 1."""
    catch_up_bytes_per_s = load.lag_bytes / _CATCH_UP_S
    return 1.0 + (load.bytes_per_s + catch_up_bytes_per_s) / _WEIGHT_UNIT_BYTES


def assign(
    lanes: Iterable[LaneId],
    slots: Collection[SlotId],
    current: Mapping[LaneId, SlotId],
    weights: Mapping[LaneId, float],
    places: Places = ANYWHERE,
    widths: Mapping[FlowId, int] | None = None,
) -> Mapping[LaneId, SlotId]:
    """Give every lane one slot and move as few lanes as possible.

    A lane stays where it is while its slot exists and is open to it. Only when nothing had to be
    placed are lanes moved for balance, so adding a lane moves no other and losing a slot moves only
    its lanes. Slots that lanes are pinned to are closed to all others, unless that leaves those
    without any. A lane whose slots are all gone, or drained, is carried as if it had none. A flow
    in `widths` is carried by at most that many slots, pinned and moved lanes not counted.
    Without slots nothing is assigned.
    A lane absent from `weights` weighs 1.
    """
    board = _Board(slots, lambda lane: weights.get(lane, 1.0), places, widths or {})
    if not slots:
        return {}
    ordered = sorted(set(lanes), key=lambda lane: (-board.weight(lane), lane))
    kept = _kept_slots(ordered, current, board)
    homeless: list[LaneId] = []
    for lane in ordered:
        slot = current.get(lane)
        if slot is not None and slot in kept.get(board.bounded(lane), board.room(lane)):
            board.put(lane, slot)
        else:
            homeless.append(lane)
    for lane in homeless:
        board.put(lane, board.lightest(board.open_to(lane)))
    if not homeless:
        # Rooms overlap where flows are bounded, so evening one out may upset another.
        while _even_out(board, ordered):
            board.weigh_anew(ordered)
    return board.placed


class _Board:
    """Where the lanes stand while an assignment is made."""

    def __init__(
        self,
        slots: Collection[SlotId],
        weight: Callable[[LaneId], float],
        places: Places,
        widths: Mapping[FlowId, int],
    ) -> None:
        self.weight = weight
        self.widths = widths
        self.placed: dict[LaneId, SlotId] = {}
        self.loads = dict.fromkeys(slots, 0.0)
        self.rooms: dict[_Wish, frozenset[SlotId]] = {}
        """Those that were asked for, by what they were asked for."""
        self._existing = frozenset(slots)
        set_apart = frozenset(slot for wish in places.pinned.values() for slot in wish)
        self._common = (self._existing - set_apart) or self._existing
        self._placed_lanes = {**places.moved, **places.pinned}
        self._drained, self._avoided = places.drained, places.avoided
        self._used: defaultdict[FlowId, Counter[SlotId]] = defaultdict(Counter)

    def room(self, lane: LaneId) -> frozenset[SlotId]:
        """What is open to the lane, its flow's width apart."""
        avoided = self._avoided.get(lane, _EVERY_SLOT)
        return self._room(self._placed_lanes.get(lane, _EVERY_SLOT), lane.flow, avoided)

    def _room(
        self, slots: frozenset[SlotId], flow: FlowId, avoided: frozenset[SlotId] = _EVERY_SLOT
    ) -> frozenset[SlotId]:
        wish = slots, self._drained.get(flow, _EVERY_SLOT) | avoided
        if wish not in self.rooms:
            wanted = (slots & self._existing) or self._common
            common = (self._common - wish[1]) or (self._existing - wish[1]) or self._existing
            self.rooms[wish] = (wanted - wish[1]) or common
        return self.rooms[wish]

    def bounded(self, lane: LaneId) -> FlowId | None:
        """The lane's flow where its width counts for the lane."""
        is_free = lane not in self._placed_lanes
        return lane.flow if lane.flow in self.widths and is_free else None

    def open_to(self, lane: LaneId) -> frozenset[SlotId]:
        flow = self.bounded(lane)
        if flow is None or len(self._used[flow]) < self.widths[flow]:
            return self.room(lane)
        return frozenset(self._used[flow])

    def wing(self, flow: FlowId) -> frozenset[SlotId]:
        """The slots of a bounded flow: those that carry it, and the lightest it may yet take."""
        used = self._used[flow]
        room = self._room(_EVERY_SLOT, flow)
        others = sorted(room - used.keys(), key=lambda s: (self.loads[s], s))
        return frozenset([*used, *others[: max(0, self.widths[flow] - len(used))]])

    def lightest(self, room: Iterable[SlotId]) -> SlotId:
        return min(room, key=lambda slot: (self.loads[slot], slot))

    def put(self, lane: LaneId, slot: SlotId) -> None:
        self.placed[lane] = slot
        self.loads[slot] += self.weight(lane)
        flow = self.bounded(lane)
        if flow is not None:
            self._used[flow][slot] += 1

    def move(self, lane: LaneId, slot: SlotId) -> None:
        before = self.placed[lane]
        self.loads[before] -= self.weight(lane)
        flow = self.bounded(lane)
        if flow is not None:
            self._used[flow][before] -= 1
            if not self._used[flow][before]:
                del self._used[flow][before]
        self.put(lane, slot)

    def weigh_anew(self, ordered: Sequence[LaneId]) -> None:
        """Sums as whoever begins with these places gets them: what is settled then stays so."""
        self.loads = dict.fromkeys(self.loads, 0.0)
        for lane in ordered:
            self.loads[self.placed[lane]] += self.weight(lane)


def _kept_slots(
    lanes: Sequence[LaneId], current: Mapping[LaneId, SlotId], board: _Board
) -> Mapping[FlowId | None, Collection[SlotId]]:
    """For each bounded flow the slots it keeps: of too many, those that carry most of it."""
    carried: defaultdict[FlowId, defaultdict[SlotId, float]]
    carried = defaultdict(lambda: defaultdict(float))
    for lane in lanes:
        flow, slot = board.bounded(lane), current.get(lane)
        if flow is not None and slot is not None and slot in board.room(lane):
            carried[flow][slot] += board.weight(lane)
    return {
        flow: sorted(by_slot, key=lambda slot: (-by_slot[slot], slot))[: board.widths[flow]]
        for flow, by_slot in carried.items()
    }


def _even_out(board: _Board, ordered: Sequence[LaneId]) -> bool:
    """One round over all rooms; whether anything moved.

    A bounded flow moves lane by lane among its own slots. To another slot it moves with all it has
    on the one it leaves, so that it never becomes wider.
    """
    moved = False
    for room in sorted(set(board.rooms.values()), key=sorted):
        together: defaultdict[tuple[FlowId, SlotId], list[LaneId]] = defaultdict(list)
        units: list[_Together] = []
        for lane in ordered:
            if board.room(lane) != room:
                continue
            flow = board.bounded(lane)
            if flow is None:
                units.append((lane,))
            else:
                together[flow, board.placed[lane]].append(lane)
        units += [tuple(some) for some in together.values()]
        moved |= _balance(board, room, units)
    by_flow: defaultdict[FlowId, list[_Together]] = defaultdict(list)
    for lane in ordered:
        flow = board.bounded(lane)
        if flow is not None:
            by_flow[flow].append((lane,))
    for flow in sorted(by_flow):
        moved |= _balance(board, board.wing(flow), by_flow[flow])
    return moved


def _balance(board: _Board, room: frozenset[SlotId], units: Sequence[_Together]) -> bool:
    """Move units from the heaviest slot to the lightest while it is too heavy and it helps.

    Each move lowers the sum of squared loads, so this ends.
    """
    loads = board.loads
    average = sum(loads[slot] for slot in sorted(room)) / len(room)
    # A slot without a lane was added, or has come back: it is there to be used.
    is_filled = all(loads[slot] for slot in room)
    if is_filled and max(loads[slot] for slot in room) <= IMBALANCE_MAX * average:
        return False
    standing = _Standing(board, units)
    moved = False
    while True:
        heaviest = max(room, key=lambda slot: (loads[slot], slot))
        lightest = board.lightest(room)
        is_even = loads[heaviest] <= _IMBALANCE_AIM * average
        if is_even and (is_filled or loads[lightest] * _IMBALANCE_AIM >= average):
            return moved
        donors = [heaviest]
        if not is_filled:
            # One lane may be heavier than all others and stay: the next slot gives then.
            donors = sorted(room, key=lambda slot: (-loads[slot], slot))
        taken = (standing.take(slot, loads[slot] - loads[lightest]) for slot in donors)
        chosen = next((unit for unit in taken if unit is not None), None)
        if chosen is None:
            return moved
        for lane in chosen:
            board.move(lane, lightest)
        standing.add(chosen, lightest)
        moved = True


class _Standing:
    """The units on each slot by weight, so that a move looks at two of them and not at all."""

    def __init__(self, board: _Board, units: Sequence[_Together]) -> None:
        weighed = [(sum(board.weight(lane) for lane in unit), unit) for unit in units]
        # Stable: of equal weights the first stays first.
        weighed.sort(key=lambda pair: pair[0])
        self._units = [unit for _, unit in weighed]
        self._entries = {unit[0]: (weight, at) for at, (weight, unit) in enumerate(weighed)}
        self._on: defaultdict[SlotId, list[tuple[float, int]]] = defaultdict(list)
        for at, (weight, unit) in enumerate(weighed):
            self._on[board.placed[unit[0]]].append((weight, at))

    def take(self, slot: SlotId, gap: float) -> _Together | None:
        """The unit on the slot nearest to half the gap: heavier or lighter evens out less."""
        entries, middle = self._on[slot], gap / 2
        above = bisect_right(entries, (middle, len(self._units)))
        near = entries[above : above + 1]
        if above:
            # The first of those that weigh the same.
            lighter = bisect_left(entries, (entries[above - 1][0], -1))
            near.append(entries[lighter])
        near = [entry for entry in near if entry[0] < gap * (1 - _GAIN_MIN)]
        if not near:
            return None
        chosen = min(near, key=lambda entry: (abs(entry[0] - middle), entry[1]))
        del entries[bisect_left(entries, chosen)]
        return self._units[chosen[1]]

    def add(self, unit: _Together, slot: SlotId) -> None:
        insort(self._on[slot], self._entries[unit[0]])


def by_slot(
    lanes: Iterable[Lane], placed: Mapping[LaneId, SlotId], slots: Iterable[SlotId]
) -> dict[SlotId, tuple[Lane, ...]]:
    """The lanes of each slot, also of those that have none."""
    found: dict[SlotId, list[Lane]] = {slot: [] for slot in slots}
    for lane in lanes:
        if lane.id in placed:
            found[placed[lane.id]].append(lane)
    return {slot: tuple(some) for slot, some in found.items()}
