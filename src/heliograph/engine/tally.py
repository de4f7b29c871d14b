"""What slots have done since the driver began: counters that only grow. Runs on the driver's loop.

A slot that is lost and started anew counts from zero; what it had counted stays. What it did after
its last report, a second at most, is lost with it.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from heliograph.clock import monotonic_s, now_ms
from heliograph.model import (
    LATENCY_BUCKETS_MS,
    ClusterAlias,
    FlowFigures,
    FlowId,
    LaneId,
    LaneProgress,
    LinkFigures,
    SlotFigures,
    SlotId,
    TopicName,
)

_CLOCK_REPORTS: Final = 30
_CLOCK_S: Final = 30.0
"""A slot that was not heard of for so long has no clock."""
LARGEST_S: Final = 30.0
"""What was largest is told for so long, as Kafka's own clients tell it."""
_LINK_COUNTERS: Final = (
    "requests",
    "failed",
    "bytes",
    "batches",
    "retried_batches",
    "answer_ms",
    "throttle_ms",
)
_FLOW_COUNTERS: Final = ("lookups", "refused_batches", "corrections", "notes", "note_ms")
_SLOT_COUNTERS: Final = ("elapsed_s", "user_s", "system_s")

LinkKey = tuple[ClusterAlias, str]
"""The cluster, and `from` or `to`."""


@dataclass(slots=True)
class LinkTotal:
    """All slots together."""

    counters: Counter[str] = field(default_factory=Counter)
    """By the names of `LinkFigures`."""
    requests_in_flight: int = 0
    largest: deque[tuple[float, int, int, int]] = field(default_factory=deque)
    """When, and the largest request, batch and wait of one report."""

    def largest_now(self, now_s: float) -> tuple[int, int, int]:
        """Request, batch and wait of the last half minute."""
        while self.largest and self.largest[0][0] < now_s - LARGEST_S:
            self.largest.popleft()
        return (
            max((row[1] for row in self.largest), default=0),
            max((row[2] for row in self.largest), default=0),
            max((row[3] for row in self.largest), default=0),
        )


@dataclass(frozen=True, slots=True)
class LoopShares:
    """How a slot's thread spent the time between its last two reports."""

    io: float
    """In the kernel: reading from and writing to sockets."""
    io_wait: float
    """Waiting for sockets, or for its turn on a core."""


class SlotTally:
    def __init__(self) -> None:
        self._last: dict[SlotId, tuple[int, SlotFigures]] = {}
        self.links: defaultdict[LinkKey, LinkTotal] = defaultdict(LinkTotal)
        self.flows: defaultdict[FlowId, Counter[str]] = defaultdict(Counter)
        """By the names of `FlowFigures`."""
        self.stalls: defaultdict[FlowId, Counter[str]] = defaultdict(Counter)
        """By reason."""
        self.slots: defaultdict[SlotId, Counter[str]] = defaultdict(Counter)
        """`elapsed_s`, `user_s`, `system_s`."""
        self.shares: dict[SlotId, LoopShares] = {}
        self.lanes = LaneTally()
        self._behind: dict[SlotId, deque[tuple[float, int]]] = {}
        """When each of the last reports came, and by how many milliseconds it seemed late."""

    @property
    def latest(self) -> dict[SlotId, SlotFigures]:
        return {slot: figures for slot, (_, figures) in self._last.items()}

    def heard(self, slot: SlotId, generation: int, now: SlotFigures) -> None:
        known, before = self._last.get(slot, (generation, SlotFigures()))
        if known != generation:
            before = SlotFigures()
        self._last[slot] = (generation, now)
        self._hear_clock(slot, now, is_new=known != generation)
        _add(self.slots[slot], _SLOT_COUNTERS, before, now)
        elapsed_s = now.elapsed_s - before.elapsed_s
        if elapsed_s > 0:
            system_s, user_s = now.system_s - before.system_s, now.user_s - before.user_s
            io, busy = max(0.0, system_s / elapsed_s), (system_s + user_s) / elapsed_s
            self.shares[slot] = LoopShares(min(1.0, io), min(1.0, max(0.0, 1 - busy)))
        earlier = {(link.cluster, link.way): link for link in before.links}
        for link in now.links:
            key = (link.cluster, link.way)
            self._link(key, earlier.get(key, LinkFigures(cluster=key[0], way=link.way)), link)
        flows = {flow.flow: flow for flow in before.flows}
        for flow in now.flows:
            was = flows.get(flow.flow, FlowFigures(flow=flow.flow))
            _add(self.flows[flow.flow], _FLOW_COUNTERS, was, flow)
            for reason, count in flow.stalls.items():
                self.stalls[flow.flow][reason] += max(0, count - was.stalls.get(reason, 0))

    def clocks_s(self) -> dict[SlotId, float]:
        """How far the clock of each slot's machine is ahead of this driver's. A report that took
        long looks like a clock that is behind, so the quickest of the last ones counts."""
        since_s = monotonic_s() - _CLOCK_S
        return {
            slot: -min(late_ms for _, late_ms in heard) / 1000
            for slot, heard in self._behind.items()
            if heard[-1][0] >= since_s
        }

    def _hear_clock(self, slot: SlotId, now: SlotFigures, *, is_new: bool) -> None:
        if is_new:
            self._behind.pop(slot, None)
        if now.at_ms:
            heard = self._behind.setdefault(slot, deque(maxlen=_CLOCK_REPORTS))
            heard.append((monotonic_s(), now_ms() - now.at_ms))

    def _link(self, key: LinkKey, before: LinkFigures, now: LinkFigures) -> None:
        total = self.links[key]
        _add(total.counters, _LINK_COUNTERS, before, now)
        now_s = monotonic_s()
        total.largest.append((now_s, now.request_bytes_max, now.batch_bytes_max, now.answer_ms_max))
        total.largest_now(now_s)
        total.requests_in_flight = sum(
            link.requests_in_flight
            for _, figures in self._last.values()
            for link in figures.links
            if (link.cluster, link.way) == key
        )


def _add(totals: Counter[str], names: tuple[str, ...], before: object, now: object) -> None:
    for name in names:
        totals[name] += max(0, getattr(now, name) - getattr(before, name))


LANE_COUNTERS: Final = (
    "records",
    "bytes",
    "received_bytes",
    "sent_bytes",
    "foreign_records",
    "unknown_control_records",
    "latency_ms_sum",
)
_BUCKETS: Final = len(LATENCY_BUCKETS_MS) + 1


class LaneTotal(NamedTuple):
    """Counters of lanes since the driver began, whichever slots had them."""

    counts: tuple[int, ...] = (0,) * len(LANE_COUNTERS)
    """In the order of `LANE_COUNTERS`."""
    latency: tuple[int, ...] = (0,) * _BUCKETS

    def plus(self, other: LaneTotal) -> LaneTotal:
        return LaneTotal(
            tuple(map(operator.add, self.counts, other.counts)),
            tuple(map(operator.add, self.latency, other.latency)),
        )


_NOTHING: Final = LaneTotal()


class LaneTally:
    """Totals of lanes. Lanes that left stay in the totals of their topics.

    A lane's own counters are its totals until a slot takes it anew and counts from zero, so each
    second only that is looked for; sums are made when they are asked for.
    """

    def __init__(self) -> None:
        self._before: Mapping[LaneId, LaneProgress] = {}
        self._carried: dict[LaneId, LaneTotal] = {}
        """Of lanes that were begun anew, what they had counted before."""
        self._gone: dict[tuple[FlowId, TopicName], LaneTotal] = {}

    def sample(self, progress: Mapping[LaneId, LaneProgress]) -> None:
        """Count what happened since the last call; `progress` is not changed afterwards."""
        before, stayed = self._before, 0
        if progress is before:
            return
        for lane, now in progress.items():
            earlier = before.get(lane)
            if earlier is None:
                continue
            stayed += 1
            if now.records < earlier.records or now.bytes < earlier.bytes:
                self._carried[lane] = _total(earlier, self._carried.get(lane))
        if stayed < len(before):
            for lane in before.keys() - progress.keys():
                key = (lane.flow, lane.source.topic)
                total = _total(before[lane], self._carried.pop(lane, None))
                self._gone[key] = self._gone.get(key, _NOTHING).plus(total)
        self._before = progress

    def totals(self) -> LaneTotals:
        """As of now; may be looked at on a thread."""
        return LaneTotals(self._before, dict(self._carried), dict(self._gone))


@dataclass(frozen=True, slots=True)
class LaneTotals:
    """Of one moment: what it is made of is replaced and not changed."""

    progress: Mapping[LaneId, LaneProgress] = field(default_factory=dict)
    carried: Mapping[LaneId, LaneTotal] = field(default_factory=dict)
    gone: Mapping[tuple[FlowId, TopicName], LaneTotal] = field(default_factory=dict)
    """Of lanes that are carried no more."""

    def lane(self, lane: LaneId) -> LaneTotal | None:
        at = self.progress.get(lane)
        return None if at is None else _total(at, self.carried.get(lane))

    def topics(self) -> dict[tuple[FlowId, TopicName], LaneTotal]:
        """Of all lanes there were."""
        found = dict(self.gone)
        for lane, at in self.progress.items():
            key = (lane.flow, lane.source.topic)
            found[key] = _total(at, self.carried.get(lane)).plus(found.get(key, _NOTHING))
        return found


_counts: Final = operator.attrgetter(*LANE_COUNTERS)


def _total(at: LaneProgress, carried: LaneTotal | None) -> LaneTotal:
    total = LaneTotal(_counts(at), at.latency_counts or _NOTHING.latency)
    return total if carried is None else total.plus(carried)
