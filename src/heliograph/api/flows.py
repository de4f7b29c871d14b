"""Flows as the API shows them, and the version a verb is checked against. Driver only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, assert_never

from heliograph.api.bodies import FenceBody, FlowBody, HolderBody, TopicFenceBody
from heliograph.api.etags import etag
from heliograph.api.lanes import Snapshot, flow_lag_of, lag_fields
from heliograph.api.state import ApiState
from heliograph.decisions.file import THE_FILE
from heliograph.health.running import judged as judged_of
from heliograph.health.sight import LedgerFacts
from heliograph.health.verdict import FlowVerdict
from heliograph.ledger.leadership import Fenced, Lapsed, Leadership, Leading, Standby
from heliograph.model import FlowId, LaneProgress

Facts = Mapping[FlowId, LedgerFacts]


def flow_bodies(
    state: ApiState, snapshot: Snapshot, flows: Iterable[FlowId], facts: Facts
) -> list[FlowBody]:
    """In the order of the names; may be called on a thread."""
    return [body for body, _ in judged_flows(state, snapshot, flows, facts)]


def judged_flows(
    state: ApiState, snapshot: Snapshot, flows: Iterable[FlowId], facts: Facts
) -> list[tuple[FlowBody, FlowVerdict | None]]:
    """The same, each with the verdict that its word is of; None where there is no word."""
    lanes: defaultdict[FlowId, list[LaneProgress]] = defaultdict(list)
    for at in snapshot.lanes:
        lanes[at.lane.flow].append(at)
    found: list[tuple[FlowBody, FlowVerdict | None]] = []
    for flow in sorted(flows):
        judged = _verdict(state, snapshot, flow, lanes[flow], facts.get(flow))
        found.append((_body(state, snapshot, flow, lanes[flow], judged), judged))
    return found


def flow_version(state: ApiState, flow: FlowId) -> str:
    """Changes with what was decided about a flow, not with its figures: its settings, who leads
    it, its fence, its decisions. What `If-Match` of a verb is compared with."""
    leadership = state.live.leaderships[flow]
    fence = leadership.fence if isinstance(leadership, Fenced) else None
    return etag(
        {
            "settings": state.live.config.flow(flow).model_dump(mode="json"),
            "state": _word(leadership),
            "fence": None if fence is None else [fence.at_ms, fence.why],
            "failed_over": sorted(state.live.leaderships.fenced_topics(flow)),
            "operation": _operation(state, flow),
            "decisions": sorted(decided_ids(state, flow)),
        }
    )


def decided_ids(state: ApiState, flow: FlowId) -> frozenset[str]:
    """Of the decisions that hold, as this driver last read them; the file's are none."""
    return frozenset(each.id for each in state.live.decided(flow).standing if each.who != THE_FILE)


def _body(
    state: ApiState,
    snapshot: Snapshot,
    flow: FlowId,
    lanes: Sequence[LaneProgress],
    judged: FlowVerdict | None,
) -> FlowBody:
    leadership, status = state.live.leaderships[flow], state.live.status()
    holder = leadership.holder if isinstance(leadership, Standby) else None
    fence = leadership.fence if isinstance(leadership, Fenced) else None
    lag = flow_lag_of(snapshot, flow, lanes)
    rate = sum(snapshot.loads[at.lane].bytes_per_s for at in lanes if at.lane in snapshot.loads)
    return FlowBody(
        flow=str(flow),
        source=flow.source,
        target=flow.target,
        state=_word(leadership),
        leader=None if holder is None else HolderBody(host=holder.host, pid=holder.pid),
        fence=None if fence is None else FenceBody(at_ms=fence.at_ms, why=fence.why),
        verdict=None if judged is None else judged.word.value,
        failed_over=[
            TopicFenceBody(topic=topic, at_ms=each.at_ms, why=each.why)
            for topic, each in sorted(state.live.leaderships.fenced_topics(flow).items())
        ],
        problem=None if status is None else status.problems.get(flow),
        lanes=len(lanes),
        states=dict(Counter(at.state.kind for at in lanes)),
        topics=len({at.lane.source.topic for at in lanes}),
        **lag_fields(lag),
        motions={motion.value: count for motion, count in lag.motions.items()},
        bytes_per_s=round(rate, 1),
        records=sum(at.records for at in lanes),
        bytes=sum(at.bytes for at in lanes),
        operation=_operation(state, flow),
        decisions=sorted(decided_ids(state, flow)),
    )


def _verdict(
    state: ApiState,
    snapshot: Snapshot,
    flow: FlowId,
    lanes: Sequence[LaneProgress],
    facts: LedgerFacts | None,
) -> FlowVerdict | None:
    """By what this driver sees: it does not read consumer groups."""
    if facts is None or state.live.status() is None:
        return None
    return judged_of(
        state.live.config.flow(flow),
        state.live.leaderships[flow],
        snapshot.decided[flow].stopped,
        lanes,
        snapshot.lag.lanes,
        facts,
        snapshot.at_ms,
    )


def _operation(state: ApiState, flow: FlowId) -> str | None:
    return next((one.id for one in state.operations.running if one.flow == str(flow)), None)


def _word(leadership: Leadership) -> Literal["leading", "standby", "lapsed", "fenced"]:
    match leadership:
        case Leading():
            return "leading"
        case Standby():
            return "standby"
        case Lapsed():
            return "lapsed"
        case Fenced():
            return "fenced"
        case _:
            assert_never(leadership)
