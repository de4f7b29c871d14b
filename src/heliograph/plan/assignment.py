"""Which slot carries which lane: sticky, weighed, pinned apart. Pure; runs on the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.model import LaneId, SlotId

IMBALANCE_MAX: Final = 1.5
"""A slot may carry this many times the average before lanes are moved away from it."""

_IMBALANCE_AIM: Final = 1.2
"""Once lanes move, they move until this is reached, so that a slot does not hover at the bound."""
_CATCH_UP_S: Final = 60.0
_WEIGHT_UNIT_BYTES: Final = 1 << 20
_EVERY_SLOT: Final[frozenset[SlotId]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLoad:
    """What a lane asked of its slot lately."""

    bytes_per_s: float
    lag_bytes: float
    """Estimated from the records that wait and the lane's bytes per record."""


def weigh(load: LaneLoad) -> float:
    """One idle lane weighs 1; each MiB/s carried, or needed to catch up within a minute, adds 1."""
    catch_up_bytes_per_s = load.lag_bytes / _CATCH_UP_S
    return 1.0 + (load.bytes_per_s + catch_up_bytes_per_s) / _WEIGHT_UNIT_BYTES


def assign(
    lanes: Iterable[LaneId],
    slots: Collection[SlotId],
    current: Mapping[LaneId, SlotId],
    weights: Mapping[LaneId, float],
    pinned: Mapping[LaneId, frozenset[SlotId]] | None = None,
) -> Mapping[LaneId, SlotId]:
    """Give every lane one slot and move as few lanes as possible.

    A lane stays where it is while its slot exists and is open to it. Only when nothing had to be
    placed are lanes moved for balance, so adding a lane moves no other and losing a slot moves only
    its lanes. Slots named in `pinned` are closed to all other lanes, unless that would leave those
    without any. Without slots nothing is assigned.
    A lane absent from `weights` weighs 1.
    """
    rooms = _rooms(slots, pinned or {})
    weight: Callable[[LaneId], float] = lambda lane: weights.get(lane, 1.0)  # noqa: E731
    ordered = sorted(set(lanes), key=lambda lane: (-weight(lane), lane))
    if not rooms[_EVERY_SLOT]:
        return {}

    def room_of(lane: LaneId) -> frozenset[SlotId]:
        return rooms[(pinned or {}).get(lane, _EVERY_SLOT)]

    placed: dict[LaneId, SlotId] = {}
    loads = dict.fromkeys(slots, 0.0)
    homeless: list[LaneId] = []
    for lane in ordered:
        slot = current.get(lane)
        if slot is None or slot not in room_of(lane):
            homeless.append(lane)
            continue
        placed[lane] = slot
        loads[slot] += weight(lane)
    for lane in homeless:
        slot = min(room_of(lane), key=lambda candidate: (loads[candidate], candidate))
        placed[lane] = slot
        loads[slot] += weight(lane)
    if not homeless:
        for room in sorted(set(rooms.values()), key=sorted):
            members = [lane for lane in ordered if room_of(lane) == room]
            _balance(room, members, placed, loads, weight)
    return placed


def _rooms(
    slots: Collection[SlotId], pinned: Mapping[LaneId, frozenset[SlotId]]
) -> Mapping[frozenset[SlotId], frozenset[SlotId]]:
    """What is open to each wish; a pinned lane whose slots are all gone joins the unpinned."""
    existing = frozenset(slots)
    set_apart = frozenset(slot for wish in pinned.values() for slot in wish) & existing
    common = (existing - set_apart) or existing
    rooms = {wish: (wish & existing) or common for wish in pinned.values()}
    rooms[_EVERY_SLOT] = common
    return rooms


def _balance(
    room: frozenset[SlotId],
    members: list[LaneId],
    placed: dict[LaneId, SlotId],
    loads: dict[SlotId, float],
    weight: Callable[[LaneId], float],
) -> None:
    """Move single lanes from the heaviest slot to the lightest while it is too heavy and it helps.

    Each move lowers the sum of squared loads, so this ends.
    """
    average = sum(loads[slot] for slot in room) / len(room)
    if max(loads[slot] for slot in room) <= IMBALANCE_MAX * average:
        return
    while True:
        heaviest = max(room, key=lambda slot: (loads[slot], slot))
        lightest = min(room, key=lambda slot: (loads[slot], slot))
        if loads[heaviest] <= _IMBALANCE_AIM * average:
            return
        gap = loads[heaviest] - loads[lightest]
        movable = [m for m in members if placed[m] == heaviest and weight(m) < gap * (1 - 1e-9)]
        if not movable:
            return
        # Nearest to half the gap evens the two slots out; heavier or lighter helps less.
        lane = min(movable, key=lambda m: (abs(weight(m) - gap / 2), m))
        placed[lane] = lightest
        loads[heaviest] -= weight(lane)
        loads[lightest] += weight(lane)
