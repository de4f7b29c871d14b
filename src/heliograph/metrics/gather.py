"""Look at a running mirror for figures, and keep what was found. Runs on the driver's loop.

However often it is asked, making figures takes at most `COST_SHARE` of a core: what took long to
make is kept for longer, and never for less than a second. Nothing here is on the way of a record.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.audit.plan import AuditEndNote, last_audit
from heliograph.broker.blocking import blocking
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig
from heliograph.decisions.decision import Decision
from heliograph.driver.live import LiveMirror, RunStatus
from heliograph.driver.periodic import JobFigures
from heliograph.engine.jvm import JvmFigures
from heliograph.engine.tally import LaneTotals, LinkKey, LoopShares
from heliograph.errors import MirrorError
from heliograph.health.listing import Kept, kept_in
from heliograph.health.note import AlarmsNote
from heliograph.health.sight import LedgerFacts as HealthFacts
from heliograph.health.sight import facts_of
from heliograph.lag.figures import LagReport
from heliograph.ledger.drill_note import LastDrill, last_of
from heliograph.ledger.leadership import Fenced, Lapsed, Leadership, Leading
from heliograph.ledger.pipeline_note import PipelineFigures
from heliograph.ledger.standby_note import standbys_of
from heliograph.ledger.view import LedgerView
from heliograph.letters.notes import letters_by_topic
from heliograph.model import FlowId, LaneId, SlotFigures, SlotId

COST_SHARE: Final = 0.01
"""Of a core, at most, for making figures, as long as two different ones are asked for."""
_KEPT_S_MIN: Final = 1.0
_LEDGER_S: Final = 15.0
_JVM_S: Final = 10.0
_KEPT_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFacts:
    """What is counted of one flow's ledger."""

    losses: int
    lost_records: int
    letters: int
    lanes: int
    entries: int
    unreadable_records: int
    standbys: int
    drill: LastDrill | None
    audit: AuditEndNote | None
    health: HealthFacts = field(default_factory=HealthFacts)
    """What a verdict takes from the ledger, the canary among it."""
    alarms: Kept = field(default_factory=lambda: (AlarmsNote(), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLook:
    """What a driver is told, and decided, about a flow: what a verdict needs beside its lanes."""

    settings: FlowConfig
    leadership: Leadership
    stopped: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLook:
    counters: Mapping[str, int]
    requests_in_flight: int
    largest: tuple[int, int, int]
    """Request and batch in bytes, wait in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A running mirror at one moment; nothing in it changes."""

    at_ms: int
    began_ms: int
    flows: tuple[FlowId, ...]
    """Those that may be told of."""
    status: RunStatus | None
    lag: LagReport
    placed: Mapping[LaneId, SlotId] = field(default_factory=dict)
    totals: LaneTotals = field(default_factory=LaneTotals)
    links: Mapping[LinkKey, LinkLook] = field(default_factory=dict)
    slot_counters: Mapping[SlotId, Mapping[str, float]] = field(default_factory=dict)
    slot_latest: Mapping[SlotId, SlotFigures] = field(default_factory=dict)
    slot_shares: Mapping[SlotId, LoopShares] = field(default_factory=dict)
    flow_counters: Mapping[FlowId, Mapping[str, int]] = field(default_factory=dict)
    stalls: Mapping[FlowId, Mapping[str, int]] = field(default_factory=dict)
    ledgers: Mapping[FlowId, LedgerFacts] = field(default_factory=dict)
    leaderships: Mapping[FlowId, str] = field(default_factory=dict)
    of_flows: Mapping[FlowId, FlowLook] = field(default_factory=dict)
    decisions: Mapping[FlowId, Mapping[str, int]] = field(default_factory=dict)
    jobs: Sequence[JobFigures] = ()
    pipelines: Mapping[tuple[FlowId, str], PipelineFigures] = field(default_factory=dict)
    jvm: JvmFigures | None = None
    cpu_s: float = 0.0
    made: int = 0
    took_s: float = 0.0


Make = Callable[[Looked], bytes]


class Gatherer:
    """Of one running mirror. Belongs to its loop."""

    def __init__(self, live: LiveMirror, began_ms: int | None = None) -> None:
        self._live = live
        self._began_ms = now_ms() if began_ms is None else began_ms
        self._ledgers: tuple[float, dict[FlowId, LedgerFacts]] = (0.0, {})
        self._asking: dict[FlowId, asyncio.Future[LedgerFacts]] = {}
        self._jvm: tuple[float, JvmFigures | None] = (0.0, None)
        self._kept: OrderedDict[object, tuple[float, bytes]] = OrderedDict()
        self._making = asyncio.Lock()
        self._made, self._took_s = 0, 0.0

    async def made(
        self, key: object, flows: frozenset[FlowId], make: Make, *, jvm: bool = False
    ) -> bytes:
        """What `make` makes of a look, on a thread; or what it made for the same key before."""
        async with self._making:
            kept = self._kept.get(key)
            if kept is not None and monotonic_s() < kept[0]:
                return kept[1]
            looked = await self.look(flows, jvm=jvm)
            began_s = monotonic_s()
            body = await blocking(make, looked)
            self._took_s, self._made = monotonic_s() - began_s, self._made + 1
            self._kept[key] = (
                monotonic_s() + max(_KEPT_S_MIN, self._took_s / COST_SHARE),
                body,
            )
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
            return body

    async def look(self, flows: frozenset[FlowId], *, jvm: bool = False) -> Looked:
        """With `jvm` Spark's JVM is asked too."""
        live = self._live
        status, tally = live.status(), live.tally()
        chosen = tuple(flow.id for flow in live.config.flows if flow.id in flows)
        used, now_s = resource.getrusage(resource.RUSAGE_SELF), monotonic_s()
        return Looked(
            at_ms=now_ms(),
            began_ms=self._began_ms,
            flows=chosen,
            status=status,
            lag=await live.lag(),
            placed={} if status is None else live.placed(),
            totals=tally.lanes.totals(),
            links={
                key: LinkLook(
                    counters=dict(total.counters),
                    requests_in_flight=total.requests_in_flight,
                    largest=total.largest_now(now_s),
                )
                for key, total in tally.links.items()
            },
            slot_counters={slot: dict(each) for slot, each in tally.slots.items()},
            slot_latest=tally.latest,
            slot_shares=dict(tally.shares),
            flow_counters={flow: dict(each) for flow, each in tally.flows.items()},
            stalls={flow: dict(each) for flow, each in tally.stalls.items()},
            ledgers=await self._ledger_facts(),
            leaderships={flow: _word(live.leaderships[flow]) for flow in chosen},
            of_flows={
                flow: FlowLook(
                    settings=live.config.flow(flow),
                    leadership=live.leaderships[flow],
                    stopped=live.decided(flow).stopped,
                )
                for flow in chosen
            },
            decisions={
                flow: Counter(each.verb.value for each in live.decided(flow).standing)
                for flow in chosen
            },
            jobs=tuple(live.jobs()),
            pipelines=live.pipelines(),
            jvm=await self._jvm_figures() if jvm else None,
            cpu_s=used.ru_utime + used.ru_stime,
            made=self._made,
            took_s=self._took_s,
        )

    async def _ledger_facts(self) -> dict[FlowId, LedgerFacts]:
        """A ledger that does not answer keeps nobody waiting for long, and is left out."""
        due_s, found = self._ledgers
        if monotonic_s() < due_s:
            return found
        asked = [flow.id for flow in self._live.config.flows]
        answers = await asyncio.gather(*map(self._facts_of, asked))
        known = {
            flow: facts for flow, facts in zip(asked, answers, strict=True) if facts is not None
        }
        self._ledgers = (monotonic_s() + _LEDGER_S, known)
        return known

    async def _facts_of(self, flow: FlowId) -> LedgerFacts | None:
        # Never cancelled: others read the same ledger, and half of a read must not count.
        asking = self._asking.get(flow)
        if asking is None:
            asking = self._asking[flow] = asyncio.ensure_future(
                self._live.ledgers.ask(flow, _facts)
            )
        await asyncio.wait({asking}, timeout=_KEPT_S_MIN)
        if not asking.done():
            return None
        del self._asking[flow]
        try:
            return asking.result()
        except MirrorError:
            return None

    async def _jvm_figures(self) -> JvmFigures | None:
        due_s, found = self._jvm
        if monotonic_s() >= due_s:
            self._jvm = (monotonic_s() + _JVM_S, None)
            try:
                async with asyncio.timeout(_KEPT_S_MIN):
                    found = await blocking(self._live.jvm)
            except TimeoutError:
                found = None
            self._jvm = (monotonic_s() + _JVM_S, found)
        return found


def _facts(view: LedgerView) -> LedgerFacts:
    losses = view.losses
    return LedgerFacts(
        losses=len(losses),
        lost_records=sum(loss.lost.count for loss in losses),
        letters=sum(each.records for each in letters_by_topic(view).values()),
        lanes=view.lane_count,
        entries=view.entry_count,
        unreadable_records=view.unreadable_records,
        standbys=len(standbys_of(view, now_ms())),
        drill=last_of(view),
        audit=last_audit(view),
        health=facts_of(view, now_ms()),
        alarms=kept_in(view),
    )


def _word(leadership: Leadership) -> str:
    if isinstance(leadership, Leading):
        return "leading"
    if isinstance(leadership, Fenced):
        return "fenced"
    return "lapsed" if isinstance(leadership, Lapsed) else "standby"
