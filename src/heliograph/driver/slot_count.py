"""How many slots there should be, and why. No I/O, no clock; runs on the driver.

Three things decide: what Spark has (`Sight.cores`, `executors`), what the file says (`Rules`), and
what the lanes need (`Sight.busy`, `lag_bytes`). What Spark has counts within seconds, so that a
machine that is added is used. What the lanes need counts after a while and by one slot at a time,
up sooner than down, so that the number does not swing with the load.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from heliograph.config.schema import MirrorConfig
from heliograph.model import SlotId
from heliograph.words import bytes_words, counted

CORES_PER_SLOT: Final = 2
"""One slot fills its target broker long before it fills a core; more of them only share that
broker. Not one that opens records: it fills its core first."""
SETTLE_S: Final = 4.0
"""What Spark has is believed once it was the same for so long: executors come one by one, and one
that is lost is often started again at once."""
GROW_S: Final = 15.0
SHRINK_S: Final = 300.0
IDLE_S: Final = 600.0
BUSY: Final = 0.7
"""Cores that a slot uses on the average, from which it counts as at its limit: it has one thread
for everything, and other work of its machine takes its part."""
_CALM: Final = 0.5
"""A slot is let go where the others would not have more than so much to do."""
_IDLE: Final = 0.05
_BEHIND_S: Final = 5.0
_BEHIND_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the file says."""

    fixed: int | None = None
    """`slots`; None is `auto`."""
    least: int = 1
    most: int | None = None
    """`slots.max`, or what the flows may have together (`tasks.max`)."""
    opens_records: bool = False
    """Whether a flow has transforms."""

    @property
    def cores_per_slot(self) -> int:
        return 1 if self.opens_records else CORES_PER_SLOT

    @classmethod
    def of(cls, config: MirrorConfig) -> Rules:
        """`tasks.max` bounds a flow; where every flow has one, their sum bounds the run."""
        engine = config.engine
        widths = [flow.tasks_max for flow in config.flows if flow.tasks_max is not None]
        bounds = [sum(widths)] if widths and len(widths) == len(config.flows) else []
        if engine.slots_max is not None and engine.slots is None:
            bounds.append(engine.slots_max)
        most = min(bounds) if bounds else None
        opens = any(not each.names_topics for flow in config.flows for each in flow.transforms)
        return cls(fixed=engine.slots, least=engine.slots_min, most=most, opens_records=opens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen of Spark and of the lanes."""

    cores: int
    executors: int
    room: int
    """Slots that fit on these cores."""
    most: int | None = None
    """Slots that could ever fit; None where Spark may ask for as much as it likes."""
    on_demand: bool = False
    """Whether Spark asks for an executor when a slot finds no room."""
    lanes: int = 0
    """0 while it is not known."""
    apart: int = 0
    """Slots that lanes are pinned to."""
    running: int = 0
    busy: float = 0.0
    """Cores that a slot uses, on the average."""
    lag_bytes: float = 0.0
    bytes_per_s: float = 0.0

    @property
    def is_behind(self) -> bool:
        return self.lag_bytes > _BEHIND_BYTES + _BEHIND_S * self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoning:
    """The count, why it is that, and what the next look needs to know of this one."""

    count: int
    why: str
    """With the lag of the moment."""
    reason: str = ""
    """Without it."""
    base: int
    """By Spark and the file alone."""
    ceiling: int
    extra: int = 0
    """More than the base for lag, or fewer for want of work."""
    unsettled: tuple[int, int] | None = None
    """Base and ceiling as seen last, where they are not believed yet."""
    unsettled_s: float = 0.0
    pressed_s: float | None = None
    """Since when slots are at their limit with lanes behind."""
    calm_s: float | None = None
    """Since when one slot fewer would do."""


def how_many_slots(
    rules: Rules, sight: Sight, now_s: float, before: Reckoning | None = None
) -> Reckoning:
    """The first look, without `before`, is believed at once."""
    base, ceiling = _bounds(rules, sight)
    if before is None:
        return _said(Reckoning(count=0, why="", base=base, ceiling=ceiling), rules, sight)
    at = before
    if (base, ceiling) == (at.base, at.ceiling):
        at = replace(at, unsettled=None)
    elif (base, ceiling) != at.unsettled:
        at = replace(at, unsettled=(base, ceiling), unsettled_s=now_s)
    elif now_s - at.unsettled_s >= SETTLE_S:
        # More machines are meant to be used, also by a mirror that has little to do.
        extra = max(0, at.extra) if base > at.base else at.extra
        at = replace(at, base=base, ceiling=ceiling, extra=extra, unsettled=None)
    if rules.fixed is None:
        at = _followed(at, rules, sight, now_s)
    return _said(at, rules, sight)


def _bounds(rules: Rules, sight: Sight) -> tuple[int, int]:
    """How many there should be for what Spark has, and how many there can be."""
    fits = sight.most if sight.on_demand else max(1, sight.room)
    ceiling = min(bound for bound in (fits, rules.most, 100_000) if bound is not None)
    if rules.fixed is not None:
        return min(rules.fixed, ceiling), ceiling
    if sight.on_demand:
        # Executors come for slots, so they say nothing about how many slots there should be.
        return min(rules.least, ceiling), ceiling
    base = max(1, sight.executors, sight.cores // rules.cores_per_slot)
    if sight.lanes:
        base = min(base, sight.lanes)
    return min(max(base, _floor(rules, sight)), ceiling), ceiling


def _floor(rules: Rules, sight: Sight) -> int:
    """Lanes with slots of their own are apart only if there is one for the others."""
    return max(rules.least, sight.apart + 1 if sight.apart else 1)


def _followed(at: Reckoning, rules: Rules, sight: Sight, now_s: float) -> Reckoning:
    """One slot more or fewer, if the load has asked for it long enough."""
    count = min(max(at.base + at.extra, _floor(rules, sight)), at.ceiling)
    if sight.running < count:
        return replace(at, pressed_s=None, calm_s=None)  # what was asked for before is not there
    useful = sight.lanes or count
    if not sight.on_demand:
        # Slots at their limit need a core each; past that they take it from each other.
        useful = min(useful, max(at.base, sight.cores))
    is_pressed = sight.is_behind and sight.busy >= BUSY and count < min(at.ceiling, useful)
    is_back = at.extra < 0 and sight.busy >= _CALM
    if is_pressed or is_back:
        since_s = now_s if at.pressed_s is None else at.pressed_s
        if now_s - since_s < GROW_S:
            return replace(at, pressed_s=since_s, calm_s=None)
        extra = 0 if at.extra < 0 else count + 1 - at.base
        return replace(at, extra=extra, pressed_s=None, calm_s=None)
    at = replace(at, pressed_s=None)
    is_surplus = at.extra > 0 and sight.busy * count <= _CALM * (count - 1)
    is_idle = at.extra <= 0 and sight.busy <= _IDLE
    if sight.is_behind or count <= _floor(rules, sight) or not (is_surplus or is_idle):
        return replace(at, calm_s=None)
    since_s = now_s if at.calm_s is None else at.calm_s
    if now_s - since_s < (SHRINK_S if is_surplus else IDLE_S):
        return replace(at, calm_s=since_s)
    return replace(at, extra=count - 1 - at.base, calm_s=None)


def _said(at: Reckoning, rules: Rules, sight: Sight) -> Reckoning:
    floor = min(_floor(rules, sight), at.ceiling) if rules.fixed is None else 1
    count = min(max(at.base + at.extra, floor), at.ceiling)
    parts = [_base_words(rules, sight)]
    if at.extra > 0:
        parts.append(f"{at.extra} more for lag")
    elif at.extra < 0 and count < at.base:
        parts.append(f"{at.base - count} fewer while there is little to do")
    if rules.fixed is None and sight.apart and count == sight.apart + 1 > 1:
        parts.append(f"{sight.apart} of them for critical topics")
    if count == at.ceiling < at.base + max(0, at.extra) or (rules.fixed or 0) > count:
        bound = "the file allows" if count == rules.most else "Spark has room for"
        parts.append(f"{bound} {count}")
    lag = bytes_words(round(sight.lag_bytes)) if sight.lag_bytes >= 1 else "0"
    reason = f"{counted(count, 'slot')}: {', '.join(parts)}"
    return replace(at, count=count, reason=reason, why=f"{reason}, lag {lag}")


def _base_words(rules: Rules, sight: Sight) -> str:
    if rules.fixed is not None:
        return f"`slots` is {rules.fixed}"
    if sight.on_demand:
        return "Spark starts executors for them"
    by_cores = max(1, sight.cores // rules.cores_per_slot)
    if 0 < sight.lanes < max(sight.executors, by_cores):
        return counted(sight.lanes, "lane")
    if sight.executors > by_cores:
        return counted(sight.executors, "executor")
    if rules.opens_records:
        return f"{counted(sight.cores, 'core')}, records are opened"
    return f"{counted(sight.cores, 'core')} / {CORES_PER_SLOT}"


def choose_slots(
    count: int,
    current: Collection[SlotId],
    *,
    running: Collection[SlotId] = (),
    pinned: Collection[SlotId] = (),
    drained: Collection[SlotId] = (),
) -> frozenset[SlotId]:
    """Which slots there should be, by number: those that run stay, so that no lane moves that need
    not.

    A slot that is `drained` for every flow goes away and is not replaced: its number stays free
    until it is wanted again. Of slots that go, the first are those that do not run.
    """
    gone = {slot for slot in drained if slot < count}
    wanted = max(1, count - len(gone))
    kept = sorted(
        (slot for slot in current if slot not in drained),
        key=lambda slot: (slot not in running, slot not in pinned, slot),
    )[:wanted]
    numbers = {*pinned, *map(SlotId, range(count + len(kept) + len(drained)))}
    free = sorted(numbers.difference(kept, drained), key=lambda slot: (slot not in pinned, slot))
    return frozenset([*kept, *free[: wanted - len(kept)]])
