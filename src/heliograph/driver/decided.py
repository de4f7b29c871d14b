"""What operators decided, as the driver follows it. State of the driver's loop.

The driver that leads a flow reads its decisions with every plan, before it hands out the first
lane, and about every second in between: so a driver that takes over follows what was decided before
it came.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.view import ClusterView
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig
from heliograph.decisions.decision import THROTTLES, Decision, Verb
from heliograph.decisions.file import THE_FILE, orders_for
from heliograph.decisions.orders import FREE, FlowOrders, LaneOrders
from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import decision_words
from heliograph.driver.assignment import Places
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.model import GIVES_WAY, WRITTEN, FlowId, Lane, LaneId, SlotId
from heliograph.words import rate_words

log = logging.getLogger("heliograph")

NOTHING: Final = FlowOrders()


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is different since the last look at a flow's decisions."""

    changed: bool
    replans: bool
    """Whether other topics are mirrored than before, or the flow was stopped or started."""


class DecidedFlows:
    """By flow, what was decided and what that means for its lanes."""

    def __init__(self, flows: Mapping[FlowId, FlowConfig]) -> None:
        self._flows = flows
        self._orders: dict[FlowId, FlowOrders] = {}
        self.held_back: int | None = None
        """Bytes a second that all lanes together may copy that are not critical; None is no limit
        (`driver.critical_first`)."""

    def orders(self, flow: FlowId) -> FlowOrders:
        if flow not in self._flows:
            return NOTHING  # a pair that only has heartbeats
        return self._orders.get(flow) or orders_for(self._flows[flow], (), now_ms())

    def forget(self, flow: FlowId) -> None:
        """The flow has ended."""
        self._orders.pop(flow, None)

    def is_stopped(self, flow: FlowId) -> bool:
        return self.orders(flow).stopped is not None

    def learn(self, flow: FlowId, decisions: Sequence[Decision]) -> News:
        """Decisions as the ledger has them; what ended by the clock counts as changed too."""
        before, orders = self.orders(flow), orders_for(self._flows[flow], decisions, now_ms())
        if flow in self._orders and orders.standing == before.standing:
            return News(changed=False, replans=False)
        self._orders[flow] = orders
        _say(flow, before.standing, orders.standing)
        replans = _chosen(before) != _chosen(orders)
        return News(changed=True, replans=replans)

    def planned(self, flow: FlowId, decisions: Sequence[Decision], *, is_first: bool) -> bool:
        """Whether a plan made by these decisions still holds; the first one is learned from."""
        if is_first:
            self.learn(flow, decisions)
        return _chosen(orders_for(self._flows[flow], decisions, now_ms())) == _chosen(
            self.orders(flow)
        )

    def carried(self, lanes: Iterable[Lane]) -> list[Lane]:
        """Those that a slot is to carry, each as it was decided."""
        found: list[Lane] = []
        has_critical = self.has_critical
        for lane in lanes:
            orders = self.orders(lane.id.flow).lane(lane.id.source)
            if orders is FREE and not has_critical:
                found.append(lane)
            elif orders.is_carried:
                limits = tuple(limit_name(lane.id.flow, each) for each in orders.limits)
                if has_critical and not _is_apart(orders):
                    limits = (*limits, GIVES_WAY)
                is_paused = orders.paused is not None
                found.append(replace(lane, paused=is_paused, limits=limits))
        return found

    @property
    def has_critical(self) -> bool:
        """Whether a flow has lanes that others are to give way to."""
        return any(flow.critical_latency_ms is not None for flow in self._flows.values())

    def critical(self, lanes: Iterable[LaneId]) -> dict[LaneId, int]:
        """Those that others give way to: with slots of their own, of a flow that says how late
        their records may be, in ms."""
        found: dict[LaneId, int] = {}
        for lane in lanes:
            flow = self._flows.get(lane.flow)
            bound_ms = None if flow is None else flow.critical_latency_ms
            if bound_ms is not None and _is_apart(self.orders(lane.flow).lane(lane.source)):
                found[lane] = bound_ms
        return found

    def is_limited(self, lane: LaneId) -> bool:
        """Whether the lane may have to wait for its turn."""
        orders = self.orders(lane.flow).lane(lane.source)
        return bool(orders.limits) or (self.held_back is not None and not _is_apart(orders))

    def words(self) -> dict[FlowId, tuple[str, ...]]:
        """What holds, for the eye; the file's own is in the file."""
        found = {
            flow: tuple(
                f"{each.scope}: {decision_words(each)}"
                for each in orders.standing
                if each.who != THE_FILE
            )
            for flow, orders in self._orders.items()
        }
        if self.held_back is not None:
            for flow in found.keys() & self._flows.keys():
                bound_ms = self._flows[flow].critical_latency_ms
                if bound_ms is not None:
                    rate = rate_words(self.held_back)
                    held = f"other lanes: at most {rate}, to keep critical ones at {bound_ms} ms"
                    found[flow] = (*found[flow], held)
        return found

    def limits(self) -> dict[str, int]:
        """In bytes a second, by the names that lanes have for them."""
        found: dict[str, int] = {}
        if self.held_back is not None:
            found[GIVES_WAY] = self.held_back
        for flow, orders in self._orders.items():
            for each in orders.standing:
                if each.verb in THROTTLES and each.bytes_per_s is not None:
                    # Of a cluster the flows may have heard different things: the least is safe.
                    name = limit_name(flow, each)
                    found[name] = min(each.bytes_per_s, found.get(name, each.bytes_per_s))
        return found

    def places(self, lanes: Iterable[LaneId]) -> Places:
        """Which slots lanes may be in, for `assignment.assign`."""
        pinned: dict[LaneId, frozenset[SlotId]] = {}
        moved: dict[LaneId, frozenset[SlotId]] = {}
        for lane in lanes:
            placed = self.orders(lane.flow).lane(lane.source).placed
            if placed is not None:
                (pinned if placed.verb is Verb.PIN else moved)[lane] = placed.slot_ids
        drained = {flow: orders.drained for flow, orders in self._orders.items() if orders.drained}
        return Places(pinned=pinned, moved=moved, drained=drained)

    def set_apart(self) -> frozenset[SlotId]:
        """Slots that lanes are pinned to, also where there is no such slot or lane yet."""
        return frozenset(
            slot
            for flow in self._flows
            for each in self.orders(flow).standing
            if each.verb is Verb.PIN
            for slot in each.slot_ids
        )

    def drained(self, flows: Iterable[FlowId]) -> frozenset[SlotId]:
        """Slots that carry no lane of any of these flows."""
        every = [self.orders(flow).drained for flow in flows]
        return frozenset.intersection(*every) if every else frozenset()


def _is_apart(orders: LaneOrders) -> bool:
    return orders.placed is not None and orders.placed.verb is Verb.PIN


def limit_name(flow: FlowId, throttle: Decision) -> str:
    """Lanes with the same name share the limit; those of a cluster do across flows."""
    match throttle.verb:
        case Verb.THROTTLE_SOURCE:
            return f"read from {flow.source}"
        case Verb.THROTTLE_TARGET:
            return f"{WRITTEN}{flow.target}"
        case _:
            return f"{flow}/{throttle.id}"


def read_decisions(
    ledgers: LedgerService, flow: FlowId, target: ClusterView
) -> tuple[Decision, ...]:
    """Blocks. Without a ledger nothing was decided; to read one that is not there would wait."""
    if ledger_topic(flow.source) not in target.topics:
        return ()
    return ledgers.ask(flow, decisions_of)


def _chosen(orders: FlowOrders) -> list[Decision]:
    whole = (Verb.EXCLUDE.aspect, Verb.STOP.aspect)
    return [each for each in orders.standing if each.verb.aspect in whole]


def _say(flow: FlowId, before: Sequence[Decision], after: Sequence[Decision]) -> None:
    for each in after:
        if each not in before:
            why = f": {each.why}" if each.why else ""
            log.info("%s: %s %s, decided by %s%s", flow, each.verb, each.scope, each.who, why)
    for each in before:
        if each not in after:
            log.info("%s: %s %s, decided by %s, is over", flow, each.verb, each.scope, each.who)
