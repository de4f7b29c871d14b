"""How much lanes may copy beside critical ones, so that those keep their latency. Pure; driver.

Critical lanes and the others may share a broker, a link or a machine, and nothing of the mirror's
says which. What shows is how late critical records arrive. So the others begin slowly and grow
until critical records are late, go back at once, and stay below that for longer each time. Records
are late now and then for reasons of their own, and when others begin: that counts only where they
are late again as soon as as much is copied again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from heliograph.model import LATENCY_BUCKETS_MS, LaneId, LaneProgress

LATE_SHARE: Final = 0.01
"""Of the batches of critical lanes, so many may be late, of all that came in `JUDGED_S`: a pause
of a broker makes many of one second late, and means nothing."""
FIRST_BYTES_PER_S: Final = 8_000_000.0
LEAST_BYTES_PER_S: Final = 1_000_000.0
JUDGED: Final = 100
"""Batches after which more is tried, where so many come within the time below."""
JUDGED_S: Final = 5.0
LOOK_S: Final = 1.0
"""How often `Allowance.look` is asked."""
_SETTLE_S: Final = 1.5
"""After going back: what is late then waited behind what was copied before."""
_GROWTH: Final = 1.5
"""Each time, until critical records are late for the first time."""
_RETURN: Final = 1.25
"""Each time, up to what was good before."""
_PROBE: Final = 1.05
"""Each time, beyond it, where the same was too much `_SURE` times; once that went on until half as
much again was on time, by `_RETURN`."""
_SURE: Final = 2
_FAR: Final = 1.5
_NEAR: Final = 1.5
"""Rates that differ by no more are the same limit."""
_BACK: Final = 0.5
_BACK_AGAIN: Final = 0.25
"""Where critical records are late again within `_ALONE_S`: others are borne far less."""
_GOOD_SHARE: Final = 0.8
"""Of what was copied when critical records were late: taken for good from then on."""
_BEGUN_SHARE: Final = 0.5
"""Of what others might copy, so much at least counts as copied when critical records are late."""
_ALONE_S: Final = 3.0
"""Critical records that are late after so long without are suspected only to be so for others."""
_CLEARED: Final = 2
"""Judgements on time, at the rate that was suspected, after which it is not any more."""
_USED_SHARE: Final = 0.7
"""An allowance that is not used says nothing about a larger one."""
_PROBE_S: Final = 10.0
"""So long nothing was late before more is tried; twice as long each time the same was too much. A
limit that was met once may have been another's: a broker that begins to send what is old."""
_PROBE_S_MAX: Final = 600.0
HELPLESS_S: Final = 30.0
"""Critical records are late for so long though next to nothing else is copied: others are not
what delays them."""
LIFTED_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What happened between two looks."""

    counted: int = 0
    """Batches of critical lanes that arrived, at their live end."""
    late: int = 0
    """Of them, those over the bound."""
    bytes_per_s: float = 0.0
    """What all other lanes were sent by their sources."""


@dataclass(slots=True, kw_only=True)
class _Found:
    """What was found out about how much is too much, in bytes a second."""

    good: float | None = None
    """None until critical records were late again at the same rate."""
    limit: float | None = None
    """At which they were."""
    confirmed: int = 0
    """How often it was met since."""
    suspected: float | None = None
    """At which they were late once; it is tried again before it is believed."""
    cleared: int = 0
    """Judgements at that rate which were on time."""
    probed_from: float | None = None
    """While more than ever was good is tried."""


class Allowance:
    """Of all lanes that are not critical, together; `look` every `LOOK_S`."""

    def __init__(self) -> None:
        self.bytes_per_s: float | None = FIRST_BYTES_PER_S
        """None while nothing is held back."""
        self._found = _Found()
        self._late_at_s = -inf
        self._helpless_since_s: float | None = None
        self._lifted_until_s = 0.0
        self._counted = 0
        self._judged_at_s: float | None = None
        self._recent: deque[tuple[float, Seen]] = deque()
        """Looks of the last `JUDGED_S`, since others went back."""

    def look(self, now_s: float, seen: Seen) -> None:
        """Critical lanes that are silent count as being on time: a topic with a record an hour
        would hold the others up for ever."""
        if self.bytes_per_s is None:
            if now_s < self._lifted_until_s:
                return
            self.bytes_per_s, self._found = FIRST_BYTES_PER_S, _Found()
            self._helpless_since_s = self._judged_at_s = None
            self._recent.clear()
        if now_s - self._late_at_s < _SETTLE_S:
            return
        if self._judged_at_s is None:
            self._judged_at_s = now_s
        self._counted += seen.counted
        is_due = self._counted >= JUDGED or now_s - self._judged_at_s >= JUDGED_S
        is_late = self._is_late(now_s, seen)
        if not (is_late or is_due):
            return
        self._counted = 0
        self._judged_at_s = now_s
        if is_late:
            self._go_back(now_s, self.bytes_per_s, seen.bytes_per_s)
        else:
            self._helpless_since_s = None
            self._go_on(now_s, self.bytes_per_s, seen.bytes_per_s)

    def _is_late(self, now_s: float, seen: Seen) -> bool:
        """More than their share of the last looks; of fewer than there could be, as if those to
        come had as many batches, and none of them late."""
        recent = self._recent
        recent.append((now_s, seen))
        while recent[0][0] <= now_s - JUDGED_S:
            recent.popleft()
        counted = sum(each.counted for _, each in recent)
        late = sum(each.late for _, each in recent)
        share = len(recent) * LOOK_S / JUDGED_S
        return late > LATE_SHARE * (counted if share >= 1 else max(JUDGED, counted / share))

    def _go_back(self, now_s: float, allowed: float, used: float) -> None:
        if used < LEAST_BYTES_PER_S / 2 or allowed <= LEAST_BYTES_PER_S:
            # Next to nothing is copied beside them: the delay is another's.
            if self._helpless_since_s is None:
                self._helpless_since_s = now_s
            elif now_s - self._helpless_since_s >= HELPLESS_S:
                self.bytes_per_s, self._lifted_until_s = None, now_s + LIFTED_S
            return
        # Others that have only just begun do not say how much is too much.
        copied = max(min(allowed, used), _BEGUN_SHARE * allowed)
        found = self._found
        is_known = found.probed_from is not None and _is_near(copied, found.limit)
        is_alone = now_s - self._late_at_s >= _ALONE_S and not is_known
        if found.suspected is None and is_alone:
            found.suspected = copied
        else:
            limit = copied if found.suspected is None else min(copied, found.suspected)
            found.confirmed = found.confirmed + 1 if _is_near(limit, found.limit) else 0
            found.limit, found.suspected = limit, None
            found.good = max(LEAST_BYTES_PER_S, _GOOD_SHARE * limit)
        found.probed_from, found.cleared = None, 0
        self._recent.clear()
        back = _BACK if now_s - self._late_at_s >= _ALONE_S else _BACK_AGAIN
        self.bytes_per_s = max(LEAST_BYTES_PER_S, back * copied)
        self._late_at_s = now_s

    def _go_on(self, now_s: float, allowed: float, used: float) -> None:
        found = self._found
        if used < _USED_SHARE * allowed:
            return
        if found.suspected is not None and not self._is_cleared(allowed, found.suspected):
            return
        if found.good is None:
            self.bytes_per_s = allowed * _GROWTH
        elif allowed < found.good:
            self.bytes_per_s = min(found.good, allowed * _RETURN)
        elif now_s - self._late_at_s >= min(_PROBE_S * 2**found.confirmed, _PROBE_S_MAX):
            if found.probed_from is None:
                found.probed_from = allowed
            is_careful = found.confirmed >= _SURE and allowed <= _FAR * found.probed_from
            self.bytes_per_s = found.good = allowed * (_PROBE if is_careful else _RETURN)

    def _is_cleared(self, allowed: float, suspected: float) -> bool:
        """Whether as much is copied again as when critical records were late, and they are not:
        what delayed them was something else."""
        found = self._found
        if allowed < suspected:
            self.bytes_per_s = suspected
            return False
        found.cleared += 1
        if found.cleared < _CLEARED:
            return False
        found.suspected = None
        if found.good is not None:
            found.good = max(found.good, allowed)
        return True


def _is_near(rate: float, limit: float | None) -> bool:
    return limit is not None and limit / _NEAR <= rate <= limit * _NEAR


def late_from(bound_ms: int) -> int:
    """The first bucket of `LATENCY_BUCKETS_MS` whose batches are over the bound, or may be: a bound
    between two buckets counts as the lower."""
    return bisect_right(LATENCY_BUCKETS_MS, bound_ms)


def seen_between(
    before: Mapping[LaneId, LaneProgress],
    now: Mapping[LaneId, LaneProgress],
    critical: Mapping[LaneId, int],
    elapsed_s: float,
) -> Seen:
    """`critical` has the bound of each such lane, in ms. Lanes that another slot took meanwhile
    count from nothing."""
    counted = late = received = 0
    for lane, at in now.items():
        was = before.get(lane)
        if was is at:
            continue
        bound_ms = critical.get(lane)
        if bound_ms is None:
            received += _more(None if was is None else was.received_bytes, at.received_bytes)
            continue
        found = _counts(None if was is None else was.latency_counts, at.latency_counts)
        counted += sum(found)
        late += sum(found[late_from(bound_ms) :])
    return Seen(counted=counted, late=late, bytes_per_s=received / max(elapsed_s, 1e-3))


def _more(before: int | None, now: int) -> int:
    return now if before is None or now < before else now - before


def _counts(before: Iterable[int] | None, now: tuple[int, ...]) -> tuple[int, ...]:
    earlier = tuple(before or ())
    if len(earlier) != len(now) or sum(now) < sum(earlier):
        return now
    return tuple(b - a for a, b in zip(earlier, now, strict=True))
