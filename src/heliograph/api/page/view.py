"""What the page shows a caller of a look: only flows that the caller may see. Driver only.

No I/O, so that it may be made on a thread. The templates hold the words, this module the choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.api.access import Caller, Role
from heliograph.api.bodies import FlowBody
from heliograph.api.lanes import LaneRow, Rows
from heliograph.api.operations import OperationBody
from heliograph.api.page.drawing import Arrow, Drawing, Spark, drawing, spark
from heliograph.api.page.look import Look, Remembered, Since
from heliograph.config.pipelines import topic_of_pipeline
from heliograph.decisions.decision import Decision
from heliograph.decisions.words import HOLDS, decision_words
from heliograph.health.listing import AlarmRow
from heliograph.health.note import Silence
from heliograph.health.verdict import FlowVerdict
from heliograph.lag.history import LaneHistory
from heliograph.ledger.entries import LossEntry
from heliograph.ledger.pipeline_note import PipelineFigures
from heliograph.ledger.trail import Change
from heliograph.model import FlowId, LaneId, LaneProgress

PAGE_LANES: Final = 50
OPERATIONS_MAX: Final = 10
HISTORY_MAX: Final = 50
STATES: Final = ("stalled", "waiting", "starting", "copying", "paused", "idle")
UNKNOWN_WORD: Final = "unknown"
_WORST: Final = ("losing", "stalled", UNKNOWN_WORD, "behind", "healthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lanes are asked for."""

    search: str = ""
    flow: str = ""
    state: str = ""
    page: int = 1

    @property
    def is_all(self) -> bool:
        return not (self.search or self.flow or self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One page of the lanes that are asked for."""

    lanes: Sequence[LaneProgress]
    total: int
    page: int
    pages: int

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE_LANES + 1 if self.lanes else 0

    @property
    def last(self) -> int:
        return self.first + len(self.lanes) - 1 if self.lanes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowView:
    id: FlowId
    body: FlowBody
    verdict: FlowVerdict | None
    since: Since
    remembered: Remembered
    may_operate: bool
    may_recover: bool

    @property
    def word(self) -> str:
        return UNKNOWN_WORD if self.verdict is None else self.verdict.word.value

    @property
    def is_led(self) -> bool:
        """Only then this driver knows the figures of its lanes."""
        return self.body.state == "leading"

    @property
    def has_canary(self) -> bool:
        return self.remembered.canary is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    key: str
    row: LaneRow
    spark: Spark | None
    decided: tuple[str, ...]
    may_operate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    flow: str
    figures: PipelineFigures
    as_topic: str
    """What a decision names it by."""
    may_operate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    flow: str
    decision: Decision
    words: str
    may_operate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """Everything that changes by itself."""

    at_ms: int
    phase: str
    problem: str
    caller: str
    word: str
    """The worst of all flows."""
    flows: tuple[FlowView, ...]
    drawing: Drawing | None
    wanted: Wanted
    chosen: Chosen
    lanes: tuple[LaneView, ...]
    pipelines: tuple[PipelineView, ...]
    losses: tuple[tuple[str, LossEntry], ...]
    losses_total: int
    alarms: tuple[tuple[FlowView, AlarmRow], ...]
    silences: tuple[tuple[FlowView, Silence], ...]
    decisions: tuple[DecisionView, ...]
    operations: tuple[OperationBody, ...]
    history: tuple[tuple[str, Change], ...]
    not_read: tuple[str, ...]
    """Flows whose ledger this driver has not read: what it holds is not known."""

    @property
    def may_act(self) -> bool:
        return any(flow.may_operate for flow in self.flows)

    def of(self, arrow: Arrow) -> FlowView:
        return next(
            flow
            for flow in self.flows
            if (flow.body.source, flow.body.target) == (arrow.source, arrow.target)
        )


def choose(look: Look, visible: frozenset[FlowId], wanted: Wanted) -> Chosen:
    """Lanes whose source topic has the text in it, the worst first."""
    flows = frozenset(flow for flow in visible if wanted.flow in ("", str(flow)))
    text = wanted.search.strip().lower()
    found: Sequence[LaneProgress] = [
        at
        for at in look.lanes
        if at.lane.flow in flows
        and (not wanted.state or at.state.kind == wanted.state)
        and (not text or text in at.lane.source.topic.lower() or text == str(at.lane.source))
    ]
    pages = max(1, -(-len(found) // PAGE_LANES))
    page = min(wanted.page, pages)
    begin = (page - 1) * PAGE_LANES
    part = found[begin : begin + PAGE_LANES]
    return Chosen(lanes=part, total=len(found), page=page, pages=pages)


def live_view(
    look: Look,
    caller: Caller,
    wanted: Wanted,
    chosen: Chosen,
    histories: Mapping[LaneId, LaneHistory | None],
    operations: Sequence[OperationBody],
) -> LiveView:
    flows = tuple(
        _flow(look, flow, caller) for flow in sorted(look.flows) if caller.may(Role.LOOK, flow)
    )
    names = {str(flow.id) for flow in flows}
    changes = [(str(flow.id), each) for flow in flows for each in flow.remembered.history]
    losses = [(str(flow.id), each) for flow in flows for each in flow.remembered.losses]
    alarms = [(flow, row) for flow in flows for row in flow.remembered.alarms.alarms]
    return LiveView(
        at_ms=look.snapshot.at_ms,
        phase=look.phase,
        problem=look.problem if len(flows) == len(look.flows) else "",
        caller=caller.name,
        word=min((flow.word for flow in flows), key=_WORST.index, default=UNKNOWN_WORD),
        flows=flows,
        drawing=drawing([(flow.body.source, flow.body.target) for flow in flows]),
        wanted=wanted,
        chosen=chosen,
        lanes=_lanes(look, caller, chosen, histories),
        pipelines=tuple(_pipelines(look, flows)),
        losses=tuple(sorted(losses, key=lambda each: -each[1].at_ms)),
        losses_total=sum(flow.remembered.losses_total for flow in flows),
        alarms=tuple(sorted(alarms, key=_alarm_order)),
        silences=tuple((flow, each) for flow in flows for each in flow.remembered.alarms.silences),
        decisions=tuple(_decisions(flows)),
        operations=tuple(each for each in operations if each.flow in names)[:OPERATIONS_MAX],
        history=tuple(sorted(changes, key=lambda each: -each[1].at_ms))[:HISTORY_MAX],
        not_read=tuple(str(flow.id) for flow in flows if not flow.remembered.is_known),
    )


def _flow(look: Look, flow: FlowId, caller: Caller) -> FlowView:
    return FlowView(
        id=flow,
        body=look.flows[flow],
        verdict=look.verdicts.get(flow),
        since=look.since[flow],
        remembered=look.remembered[flow],
        may_operate=caller.may(Role.OPERATE, flow),
        may_recover=caller.may(Role.RECOVER, flow),
    )


def _lanes(
    look: Look,
    caller: Caller,
    chosen: Chosen,
    histories: Mapping[LaneId, LaneHistory | None],
) -> tuple[LaneView, ...]:
    rows = Rows(look.snapshot)
    operable = {flow for flow in look.flows if caller.may(Role.OPERATE, flow)}
    return tuple(
        LaneView(
            key=f"lane {at.lane.flow} {at.lane.source}",
            row=rows.lane(at),
            spark=spark(histories.get(at.lane)),
            decided=_decided(look, at),
            may_operate=at.lane.flow in operable,
        )
        for at in chosen.lanes
    )


def _pipelines(look: Look, flows: Sequence[FlowView]) -> Sequence[PipelineView]:
    seen = {flow.id: flow for flow in flows}
    return [
        PipelineView(
            flow=str(flow),
            figures=figures,
            as_topic=topic_of_pipeline(name),
            may_operate=seen[flow].may_operate,
        )
        for (flow, name), figures in sorted(look.pipelines.items())
        if flow in seen
    ]


def _decided(look: Look, at: LaneProgress) -> tuple[str, ...]:
    orders = look.snapshot.decided.get(at.lane.flow)
    if orders is None:
        return ()
    return tuple(decision_words(each) for each in orders.lane(at.lane.source).decisions)


def _decisions(flows: Sequence[FlowView]) -> Sequence[DecisionView]:
    return [
        DecisionView(
            flow=str(flow.id),
            decision=decision,
            words=decision_words(decision),
            may_operate=flow.may_operate,
        )
        for flow in flows
        for decision, state in flow.remembered.decisions
        if state == HOLDS
    ]


def _alarm_order(each: tuple[FlowView, AlarmRow]) -> tuple[bool, bool, int]:
    """Open ones that are heard, those that are silenced, those that ended; the newest first."""
    row = each[1]
    return row.ended_ms is not None, not row.is_heard, -row.raised_ms
