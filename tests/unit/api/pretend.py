"""A mirror that only seems to run, for the routes to show."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.decisions.decision import Decision, Verb, scope_of
from heliograph.decisions.orders import orders_of
from heliograph.decisions.record import decision_entry, decisions_of
from heliograph.driver.lag_book import facts_of
from heliograph.driver.live import LiveMirror, RunStatus
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.errors import BrokerUnreachable
from heliograph.lag.figures import LagReport
from heliograph.lag.folding import lag_report
from heliograph.lag.lanes import lane_lag
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.entries import Entry, LossEntry, StartEntry, Tombstone
from heliograph.ledger.leadership import Leaderships, Leading
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    ClusterAlias,
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneLoad,
    LaneProgress,
    LaneState,
    OffsetRange,
    SlotId,
    Stalled,
    StallReason,
    TopicName,
    TopicPartition,
)

T = TypeVar("T")
A, B = ClusterAlias("A"), ClusterAlias("B")
AB, BA = FlowId(source=A, target=B), FlowId(source=B, target=A)
PASSWORD = "hunter2"
CONFIG = MirrorConfig(
    clusters={
        alias: ClusterConfig(
            alias=alias,
            bootstrap_servers=("127.0.0.1:1",),
            consumer={"sasl.password": PASSWORD},
        )
        for alias in (A, B)
    },
    pairs=(FlowConfig(id=AB, enabled=True), FlowConfig(id=BA, enabled=True)),
)
DECISIONS = (
    Decision(
        id="0123456789", verb=Verb.PAUSE, scope=scope_of(("orders",), (0,)), who="ann", at_ms=1
    ),
)
STALLED = Stalled(reason=StallReason.CORRUPT_BATCH, detail="bad CRC", since_ms=5)


def at(
    partition: int,
    state: LaneState | None = None,
    *,
    flow: FlowId = AB,
    topic: str = "orders",
    lag: int = 0,
) -> LaneProgress:
    lane = LaneId(flow=flow, source=TopicPartition(topic=TopicName(topic), partition=partition))
    return LaneProgress(
        lane=lane,
        state=state or (Copying() if lag else Idle()),
        position=10,
        source_next_offset=10,
        source_end_offset=10 + lag,
        source_start_offset=0,
        target_next_offset=10,
        records=10,
        bytes=100,
    )


LANES = (at(0), at(1, lag=3), at(2, STALLED), at(3, lag=7), at(0, flow=BA, topic="back"))


def _start(partition: int) -> StartEntry:
    return StartEntry(
        topic=TopicName("orders"),
        partition=partition,
        position=0,
        author="here",
        source_offset=0,
        target_offset=0,
        source_topic_id=None,
        target_topic_id=None,
        at_ms=1,
    )


class PretendLedgers:
    """One loss and four lanes on A->B; B does not tell about B->A."""

    async def ask(self, flow: FlowId, question: Callable[[LedgerView], T]) -> T:
        await asyncio.sleep(0)
        if flow in self.silent:
            raise BrokerUnreachable("cluster A: no answer in time")
        return question(self._read(flow))

    async def ask_recent(
        self, flow: FlowId, question: Callable[[LedgerView], T], age_s_max: float
    ) -> T:
        return question(self._read(flow))

    def age_s(self, flow: FlowId) -> float:
        return math.inf if flow in self.silent else 0.5

    def decided(self, flow: FlowId) -> tuple[Decision, ...]:
        return decisions_of(self._read(flow))

    def _read(self, flow: FlowId) -> LedgerView:
        view = LedgerView()
        if flow != AB:
            return view
        loss = LossEntry(
            topic=TopicName("orders"),
            partition=1,
            position=4,
            lost=OffsetRange(start=4, end=9),
            reason=StallReason.RETENTION_OVERRUN,
            at_ms=1_000,
        )
        view.apply(loss)
        for each in DECISIONS:
            view.apply(decision_entry(each))
        for partition in range(4):
            view.apply(_start(partition))
        for entry in self.noted:
            if isinstance(entry, Tombstone):
                view.remove(entry.key)
            else:
                view.apply(entry)
        return view

    async def view(self, flow: FlowId) -> LedgerView:
        return await self.ask(flow, lambda view: view)

    async def note(self, flow: FlowId, entries: Iterable[Entry | Tombstone]) -> None:
        if flow in self.silent:
            raise BrokerUnreachable("cluster A: no answer in time")
        self.noted.extend(entries)

    def __init__(self) -> None:
        self.noted: list[Entry | Tombstone] = []
        self.silent = {BA}


def live(
    lanes: tuple[LaneProgress, ...] | None = LANES, *, problems: Any = None, **more: Any
) -> LiveMirror:
    """`lanes` None: the slots were not started yet."""
    ledgers = more.get("ledgers") or PretendLedgers()
    leaderships = Leaderships([AB, BA])
    leaderships[AB] = leaderships[BA] = Leading()
    slot = SlotHealth(
        slot=SlotId(0),
        state=SlotState.RUNNING,
        generation=1,
        replaced=0,
        attempt="1",
        pid=4711,
        lanes=5,
        silent_ms=10,
        detail="",
    )
    status = (
        None
        if lanes is None
        else RunStatus(
            progress={each.lane: each for each in lanes}, slots=(slot,), problems=problems or {}
        )
    )
    return LiveMirror(
        config=CONFIG,
        ledgers=cast(LedgerAccess, ledgers),
        leaderships=more.get("leaderships", leaderships),
        status=lambda: status,
        phase=lambda: "Spark is up",
        placed=lambda: {each.lane: SlotId(0) for each in lanes or ()},
        decided=lambda flow: orders_of(ledgers.decided(flow), now_ms()),
        loads=lambda: {each.lane: LaneLoad(bytes_per_s=12.34, lag_bytes=0) for each in lanes or ()},
        resume=more.get("resume", lambda _: None),
        lag=_lag_of(lanes or ()),
    )


def _lag_of(lanes: tuple[LaneProgress, ...]) -> Callable[[], Awaitable[LagReport]]:
    """As a driver would tell that has looked once."""
    report = lag_report(
        (
            lane_lag(facts_of(each, None, heard=True), None, None, at_s=0.0, now_ms=now_ms())
            for each in lanes
        ),
        now_ms(),
    )

    async def lag() -> LagReport:
        return report

    return lag
