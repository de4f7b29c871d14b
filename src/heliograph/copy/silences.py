"""Lanes that wait for an answer which is overdue show that, not what they knew before. Runs on
executors.

A look costs a glance at each connection; lanes are gone through only while something is overdue, or
was at the look before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.clock import monotonic_s, now_ms
from heliograph.copy.flow import Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running, StreamKey
from heliograph.copy.slot import Slot
from heliograph.copy.sources import SourceSide
from heliograph.copy.targets import TargetSide
from heliograph.model import Awaited, Waiting

LOOK_S: Final = 1.0
_OVERDUE_S: Final = 5.0
"""Of what has no link of its own whose pace would say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overdue:
    """What has waited too long, and since when."""

    fetches: Mapping[CarriedLane, float]
    appends: Mapping[StreamKey, float]
    writes: Mapping[Flow, float]
    places: Mapping[CarriedLane, float]
    lacks_room: bool
    at_s: float

    @property
    def is_nothing(self) -> bool:
        known = self.fetches or self.appends or self.writes or self.places
        return not (known or self.lacks_room)

    def of(self, lane: CarriedLane) -> tuple[Awaited, float] | None:
        """Whom the lane waits for, and since when."""
        running = lane.running
        if running is None:
            since_s = self.places.get(lane)
            return None if since_s is None else (Awaited.PLACE, since_s)
        if not lane.is_drained:
            awaited, since_s = self._on_its_way(lane, running)
        elif lane.retiring:
            # It fetches no more, and leaves the slot once its head is written.
            awaited, since_s = Awaited.LEDGER, self.writes.get(lane.flow)
        elif not running.share.is_open:
            awaited, since_s = Awaited.ROOM, running.share.closed_s
            if self.at_s - since_s <= _OVERDUE_S:
                return None
        else:
            awaited, since_s = Awaited.SOURCE, self.fetches.get(lane)
        return None if since_s is None else (awaited, since_s)

    def _on_its_way(self, lane: CarriedLane, running: Running) -> tuple[Awaited, float | None]:
        if not lane.in_flight and running.outgoing[0].ticket > lane.flow.ledger.durable:
            return Awaited.LEDGER, self.writes.get(lane.flow)
        if running.append_stream is None:
            return Awaited.TARGET, None
        return Awaited.TARGET, self.appends.get(running.append_stream)


class Silences:
    """Owned by the shuttle, in its event loop."""

    def __init__(self, sources: SourceSide, targets: TargetSide, slot: Slot) -> None:
        self._sources = sources
        self._targets = targets
        self._slot = slot
        self._showed = False
        """Whether a lane waited at the last look."""

    def look(self, lanes: Collection[CarriedLane], flows: Iterable[Flow]) -> None:
        """Let lanes show what they wait for, and no longer what they do not."""
        at_s = monotonic_s()
        overdue = _Overdue(
            fetches=self._sources.overdue(at_s),
            appends=self._targets.overdue(at_s),
            writes=dict(_writes_overdue(flows, at_s)),
            places=dict(_places_overdue(self._slot.asked, at_s)),
            lacks_room=self._slot.room.is_short,
            at_s=at_s,
        )
        if overdue.is_nothing and not self._showed:
            return
        self._showed = False
        for lane in lanes:
            found = overdue.of(lane)
            self._showed |= found is not None
            if found is None:
                if lane.waiting is not None:
                    lane.waiting, lane.unreported = None, True
            elif lane.waiting is None or lane.waiting.awaited is not found[0]:
                awaited, since_s = found
                since_ms = now_ms() - int(1000 * (at_s - since_s))
                lane.waiting, lane.unreported = Waiting(awaited=awaited, since_ms=since_ms), True


def _places_overdue(
    asked: Mapping[CarriedLane, float], at_s: float
) -> Iterable[tuple[CarriedLane, float]]:
    return ((lane, since_s) for lane, since_s in asked.items() if at_s - since_s > _OVERDUE_S)


def _writes_overdue(flows: Iterable[Flow], at_s: float) -> Iterable[tuple[Flow, float]]:
    for flow in flows:
        since_s = flow.ledger.writing_since_s
        if since_s is not None and at_s - since_s > _OVERDUE_S:
            yield flow, since_s
