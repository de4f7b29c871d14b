"""Lanes that make no progress where they are, though others do. No I/O, no clock; driver.

A lane that is stalled and says what an operator must change is not touched: it would stall
anywhere. One that waits without a reason, or cannot reach a cluster that other slots reach, may
only have the wrong slot: it is moved, and not brought back there for some minutes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.model import (
    Awaited,
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneProgress,
    SlotId,
    Stalled,
    StallReason,
    Starting,
    Waiting,
)
from heliograph.words import in_words

STUCK_S: Final = 60.0
THROTTLED_S: Final = 600.0
"""For a lane with a throttle, which may wait that long for its turn."""
AGAIN_S: Final = 300.0
"""A lane that was moved stays away from the slot for so long, and is not judged in that time; twice
as long after each move that did not help."""
AGAIN_S_MAX: Final = 3_600.0
LEAVE_S_MAX: Final = 30.0
"""A slot that has not let go of a lane for so long is ended."""
_LOCAL: Final = frozenset({StallReason.SOURCE_UNREACHABLE, StallReason.TARGET_UNREACHABLE})
"""What a lane may suffer from in one slot and not in another."""
_SLOW_SHARE: Final = 0.25
"""Of a flow's lanes that wait, in more than one slot: so many are a slow link, not stuck lanes."""
_Mark = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A lane that did not get on, the slot it left, and why."""

    lane: LaneId
    slot: SlotId
    at_s: float
    times: int
    why: str

    @property
    def until_s(self) -> float:
        return self.at_s + min(AGAIN_S * 2.0 ** (self.times - 1), AGAIN_S_MAX)


class StuckLanes:
    """What was seen of the lanes that have something to do."""

    def __init__(self) -> None:
        self._marks: dict[LaneId, tuple[_Mark, float]] = {}
        """How far a lane was, and since when it is there."""
        self._totals: dict[FlowId, int] = {}
        self._went_on_s: dict[FlowId, float] = {}
        self._moved: dict[LaneId, Moved] = {}
        self._ended_s: dict[SlotId, float] = {}

    def look(
        self,
        progress: Mapping[LaneId, LaneProgress],
        placed: Mapping[LaneId, SlotId],
        open_slots: frozenset[SlotId],
        now_s: float,
        is_throttled: Callable[[LaneId], bool] = lambda _: False,
    ) -> tuple[Moved, ...]:
        """The lanes to be moved now; none where no other slot could take them."""
        waiting = self._noted(progress, now_s)
        late = {lane: waited_s for lane, waited_s in waiting.items() if waited_s >= STUCK_S}
        slow = _slow_flows(waiting, late, placed)
        found: list[Moved] = []
        for lane, waited_s in late.items():
            slot = placed.get(lane)
            if slot is None or lane.flow in slow or not open_slots - {slot}:
                continue
            if waited_s < THROTTLED_S and is_throttled(lane):
                continue
            before = self._moved.get(lane)
            if before is not None and now_s < before.until_s:
                continue
            others = self._others(lane, progress, placed, now_s)
            if others is None:
                continue
            why = f"no progress in slot {slot} for {in_words(round(waited_s))}, while {others}"
            times = 1 if before is None else before.times + 1
            found.append(Moved(lane=lane, slot=slot, at_s=now_s, times=times, why=why))
        self._moved.update((each.lane, each) for each in found)
        for lane in [i for i, at in self._moved.items() if now_s > at.until_s + AGAIN_S_MAX]:
            del self._moved[lane]
        return tuple(found)

    def avoided(self, now_s: float) -> dict[LaneId, frozenset[SlotId]]:
        """Where lanes are not brought back for now."""
        return {
            lane: frozenset({moved.slot})
            for lane, moved in self._moved.items()
            if now_s < moved.until_s
        }

    def shown(self, now_s: float) -> dict[LaneId, str]:
        """Why lanes were moved lately."""
        return {lane: at.why for lane, at in self._moved.items() if now_s < at.until_s}

    def unwilling(self, placed: Mapping[LaneId, SlotId], now_s: float) -> dict[SlotId, LaneId]:
        """Slots that do not let go of a lane that was moved, with the lane; each once for a
        while."""
        found: dict[SlotId, LaneId] = {}
        for lane, at in self._moved.items():
            is_late = now_s - at.at_s >= LEAVE_S_MAX and now_s < at.until_s
            is_new = now_s - self._ended_s.get(at.slot, -AGAIN_S) >= AGAIN_S
            if is_late and is_new and placed.get(lane) == at.slot:
                found.setdefault(at.slot, lane)
        self._ended_s.update(dict.fromkeys(found, now_s))
        return found

    def _noted(self, progress: Mapping[LaneId, LaneProgress], now_s: float) -> dict[LaneId, float]:
        """Lanes that should go on, with the seconds since they last did."""
        waiting: dict[LaneId, float] = {}
        marks: dict[LaneId, tuple[_Mark, float]] = {}
        totals: Counter[FlowId] = Counter()
        for lane, at in progress.items():
            totals[lane.flow] += at.position
            if not _should_go_on(at):
                continue
            mark, before = (at.position, at.source_next_offset), self._marks.get(lane)
            since_s = before[1] if before is not None and before[0] == mark else now_s
            marks[lane] = mark, since_s
            waiting[lane] = now_s - since_s
        for flow, total in totals.items():
            if total > self._totals.get(flow, total):
                self._went_on_s[flow] = now_s
        self._marks, self._totals = marks, dict(totals)
        return waiting

    def _others(
        self,
        lane: LaneId,
        progress: Mapping[LaneId, LaneProgress],
        placed: Mapping[LaneId, SlotId],
        now_s: float,
    ) -> str | None:
        """What other lanes do that this one could too, in words; None where they cannot either."""
        state = progress[lane].state
        if isinstance(state, Stalled):
            side = "source" if state.reason is StallReason.SOURCE_UNREACHABLE else "target"
            reaching = {
                placed[other]
                for other, at in progress.items()
                if other.flow == lane.flow and isinstance(at.state, Copying | Idle)
                if placed.get(other) not in (None, placed[lane])
            }
            return f"slot {min(reaching)} reaches the {side}" if reaching else None
        went_on_s = self._went_on_s.get(lane.flow)
        if went_on_s is None or now_s - went_on_s > STUCK_S:
            return None
        return f"other lanes of {lane.flow} went on"


def _slow_flows(
    waiting: Mapping[LaneId, float], late: Mapping[LaneId, float], placed: Mapping[LaneId, SlotId]
) -> frozenset[FlowId]:
    """Flows whose lanes take long turns in every slot: others would not carry them faster."""
    all_of = Counter(lane.flow for lane in waiting)
    late_of = Counter(lane.flow for lane in late)
    slots_of: defaultdict[FlowId, set[SlotId | None]] = defaultdict(set)
    for lane in late:
        slots_of[lane.flow].add(placed.get(lane))
    return frozenset(
        flow
        for flow, count in late_of.items()
        if count > _SLOW_SHARE * all_of[flow] and len(slots_of[flow]) > 1
    )


def _should_go_on(at: LaneProgress) -> bool:
    match at.state:
        case Starting() | Waiting(awaited=Awaited.PLACE):
            return True
        case Copying():
            return bool(at.lag_records)
        case Stalled(reason=reason, retrying=retrying):
            return retrying and reason in _LOCAL
        case _:
            return False
