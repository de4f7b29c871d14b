"""Why a topic is mirrored, or not: the rule, the line, and what is missing. No I/O; driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from heliograph.broker.view import ClusterView
from heliograph.config.explain import DEFAULT, TOP_LEVEL, Effective
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import DEFAULT_TOPIC_FILTER
from heliograph.decisions.words import decision_words
from heliograph.errors import BrokerError
from heliograph.inspect.flow_status import PAUSED, STOPPED, FlowStatus, LaneStatus
from heliograph.inspect.near import did_you_mean, near_patterns
from heliograph.inspect.waiting import FOR_ADOPT, FOR_TOPIC, NOT_EMPTY, WaitingLane
from heliograph.lag.folding import known_sum
from heliograph.ledger.entries import RELEASED
from heliograph.model import FlowId, TopicName
from heliograph.topics.selection import (
    TopicDecision,
    Verdict,
    select_between,
    select_topics,
)
from heliograph.words import counted

_DETAILS_MAX: Final = 5


class Standing(StrEnum):
    """What becomes of the topic in one flow; the first that holds, from the top."""

    DISABLED = "flow disabled"
    UNKNOWN = "unknown"
    NOT_MIRRORED = "not mirrored"
    HELD = "held"
    """Mirrored by the rules, and kept from it: fenced, stopped, paused, released."""
    STALLED = "stalled"
    WAITING = "waiting"
    """Mirrored by the rules, and not begun, or no driver does it."""
    MIRRORED = "mirrored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    text: str
    key: str = ""
    """The key of the configuration that says so; empty where none does."""
    line: int | None = None
    """Of the file; None where the key is not in it, or the file is not at hand."""
    is_default: bool = False
    """Whether the key is not in the file, and so has its default."""
    fix: str = ""

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.text} (line {self.line}: {self.key})"
        return f"{self.text} (default of {self.key})" if self.is_default else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowWhy:
    """One topic in one flow."""

    flow: FlowId
    standing: Standing
    reasons: tuple[Reason, ...]
    """The one that decides first."""
    target: TopicName | None = None
    """The name on the target; None unless the rules mirror the topic."""
    since_ms: int | None = None
    """When its first lane began; None where none has, or the ledger was not read."""
    states: Mapping[str, int] = field(default_factory=dict)
    """Lanes by state, those that have not begun included."""
    lag_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    """What was seen of one flow and its two clusters, as far as one topic is concerned."""

    flow: FlowConfig
    source: ClusterView | BrokerError
    target: ClusterView | BrokerError
    status: FlowStatus | None
    """None where the flow is not enabled, and nothing was asked."""
    hidden: str = ""
    """Why the source does not show the topic, in a sentence; nothing where it is not hidden."""
    since_ms: int | None = None
    values: Mapping[str, Effective] = field(default_factory=dict)
    """The flow's keys with their lines; nothing where the file is not at hand."""

    def reason(self, text: str, key: str = "", fix: str = "") -> Reason:
        value = self.values.get(key)
        if value is None:
            return Reason(text=text, key=key, fix=fix)
        is_default = value.source == DEFAULT
        name = key if is_default or value.source == TOP_LEVEL else value.source
        return Reason(text=text, key=name, line=value.line, is_default=is_default, fix=fix)


def why_of(facts: FlowFacts, topic: TopicName) -> FlowWhy:
    """What the flow does with the topic, and every reason there is for it."""
    flow, status = facts.flow, facts.status
    if not flow.enabled:
        fix = f"set {flow.id}.enabled = true"
        reason = facts.reason(f"{flow.id} mirrors nothing", "enabled", fix)
        return FlowWhy(flow=flow.id, standing=Standing.DISABLED, reasons=(reason,))
    if isinstance(facts.source, BrokerError):
        return _unknown(facts, str(facts.source))
    if topic not in facts.source.topics:
        return _absent(facts, facts.source, topic)
    decision = _decision(facts, facts.source, topic)
    if decision.target is None:
        return FlowWhy(
            flow=flow.id,
            standing=Standing.NOT_MIRRORED,
            reasons=(_left_out(facts, decision), *_hints(facts, decision)),
        )
    if isinstance(facts.target, BrokerError):
        return _unknown(facts, str(facts.target), decision)
    if status is None or not status.is_known:
        return _unknown(facts, "" if status is None else status.problem, decision)
    return _lanes_of(facts, status, decision, facts.source)


def _decision(facts: FlowFacts, source: ClusterView, topic: TopicName) -> TopicDecision:
    """With all topics of the source: two may want one name."""
    choice = facts.status.orders.choice if facts.status is not None else (lambda _: None)
    if isinstance(facts.target, BrokerError):
        selection = select_topics(facts.flow, source.topics, choice)
    else:
        selection = select_between(facts.flow, source, facts.target, choice)
    return next(each for each in selection.decisions if each.topic == topic)


def _unknown(facts: FlowFacts, why: str, decision: TopicDecision | None = None) -> FlowWhy:
    reasons = [Reason(text=why or "the flow could not be read")]
    if decision is not None:
        reasons.append(_ruled(facts, decision))
    return FlowWhy(
        flow=facts.flow.id,
        standing=Standing.UNKNOWN,
        reasons=tuple(reasons),
        target=None if decision is None else decision.target,
        since_ms=facts.since_ms,
    )


def _absent(facts: FlowFacts, source: ClusterView, topic: TopicName) -> FlowWhy:
    flow, alias = facts.flow, facts.flow.id.source
    if facts.hidden:
        first = Reason(text=facts.hidden, fix="grant it, or ask as a user that may")
    elif facts.since_ms is not None:
        key = "on.topic.deleted"
        first = facts.reason(
            f"it was mirrored, and is no longer on cluster {alias}; "
            f"its copy is {'deleted' if flow.on_topic_deleted == 'delete' else 'kept'}",
            key,
        )
    else:
        first = Reason(
            text=f"it is not on cluster {alias}{did_you_mean(topic, source.topics)}",
            fix=f"create it on {alias}",
        )
    (decision,) = select_topics(flow, [topic]).decisions
    if decision.target is not None:
        later = facts.reason(f"once it is there: {decision.why}", decision.key)
    else:
        left_out = _left_out(facts, decision)
        later = replace(left_out, text=f"even if it were there: {left_out.text}")
    return FlowWhy(
        flow=flow.id,
        standing=Standing.NOT_MIRRORED,
        reasons=(first, later, *(() if decision.target else _hints(facts, decision))),
        since_ms=facts.since_ms,
    )


def _left_out(facts: FlowFacts, decision: TopicDecision) -> Reason:
    """Why the rules leave the topic out, and what would change that."""
    flow, topic = facts.flow.id, decision.topic
    match decision.verdict:
        case Verdict.EXCLUDED if not decision.key:
            return Reason(
                text=decision.why,
                fix=f"`heliograph include FILE --flow '{flow}' --topic {topic}`, or withdraw the "
                "decision (`heliograph decisions`)",
            )
        case Verdict.EXCLUDED:
            text, fix = decision.why, f"take the pattern out of {flow}.{decision.key}"
        case Verdict.NOT_MATCHED:
            text, fix = decision.why, f"add it to {flow}.{decision.key}"
            if decision.key == "topics":
                text = f"no pattern of topics matches it: {_shown(facts.flow.topics)}"
        case Verdict.INTERNAL:
            text, fix = decision.why, ""
        case Verdict.CYCLE:
            text = f"{decision.why}: mirrored back it would go round endlessly"
            fix = "nothing to do; its original is on that cluster"
        case _:
            text, fix = decision.why, "rename one of them, or change replication.policy.class"
    return facts.reason(text, decision.key, fix)


def _shown(patterns: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{each}`" for each in patterns[:_DETAILS_MAX])
    more = len(patterns) - _DETAILS_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _hints(facts: FlowFacts, decision: TopicDecision) -> Iterator[Reason]:
    is_list = facts.flow.topic_filter_class == DEFAULT_TOPIC_FILTER
    if decision.verdict is Verdict.NOT_MATCHED and is_list:
        for sentence in near_patterns(decision.topic, facts.flow.topics):
            yield facts.reason(sentence, "topics")


def _ruled(facts: FlowFacts, decision: TopicDecision) -> Reason:
    return facts.reason(decision.why, decision.key)


def _lanes_of(
    facts: FlowFacts, status: FlowStatus, decision: TopicDecision, source: ClusterView
) -> FlowWhy:
    lanes = [lane for lane in status.lanes if lane.lane.source.topic == decision.topic]
    waiting = [lane for lane in status.waiting if lane.lane.source.topic == decision.topic]
    every: tuple[LaneStatus | WaitingLane, ...] = (*lanes, *waiting)
    standing, reasons = Standing.MIRRORED, list[Reason]()
    for found, reason in (
        *_held(facts.flow.id, status, lanes),
        *_stalled(every),
        *_waits(facts, status, waiting),
        *_without_leader(source, decision.topic),
        *_without_driver(facts.flow.id, status, every),
    ):
        standing = min(standing, found, key=list(Standing).index)
        reasons.append(reason)
    return FlowWhy(
        flow=facts.flow.id,
        standing=standing,
        reasons=(*reasons, _ruled(facts, decision)),
        target=decision.target,
        since_ms=facts.since_ms,
        states=dict(Counter(lane.state for lane in every)),
        lag_records=known_sum([lane.lag_records for lane in every]),
    )


_Found = Iterator[tuple[Standing, Reason]]


def _held(flow: FlowId, status: FlowStatus, lanes: Iterable[LaneStatus]) -> _Found:
    if status.fence is not None:
        fix = "`heliograph failback` lifts it, when the time has come"
        yield Standing.HELD, Reason(text=f"{flow} is fenced: {status.fence.why}", fix=fix)
        return
    if status.orders.stopped is not None:
        words = decision_words(status.orders.stopped)
        fix = f"`heliograph start FILE --flow '{flow}'`"
        yield Standing.HELD, Reason(text=f"{flow} is {words}", fix=fix)
        return
    told = Counter((lane.state, lane.detail) for lane in lanes if lane.decided.paused is not None)
    for (state, detail), count in told.items():
        if state == PAUSED:
            fix = f"`heliograph resume FILE --flow '{flow}'`"
            yield Standing.HELD, Reason(text=f"{counted(count, 'lane')} {detail}", fix=fix)
    released = sum(lane.state == RELEASED for lane in lanes)
    if released:
        fix = "`heliograph adopt` takes it back"
        text = f"{counted(released, 'lane')} handed to MirrorMaker 2"
        yield Standing.HELD, Reason(text=text, fix=fix)


def _stalled(lanes: Iterable[LaneStatus | WaitingLane]) -> _Found:
    told = Counter((lane.state, lane.detail) for lane in lanes if lane.state.startswith("stalled"))
    for (state, detail), count in told.most_common(_DETAILS_MAX):
        text = f"{counted(count, 'lane')} {state}: {detail}" if detail else state
        fix = "see the reason in docs/GUARANTEES.md"
        if state == NOT_EMPTY:
            fix = "set on.existing = append, or empty the target topic"
        yield Standing.STALLED, Reason(text=text, fix=fix)


def _waits(facts: FlowFacts, status: FlowStatus, waiting: Iterable[WaitingLane]) -> _Found:
    flow = facts.flow
    for state, count in Counter(lane.state for lane in waiting).items():
        lanes = counted(count, "lane")
        if state == FOR_ADOPT:
            yield (
                Standing.WAITING,
                facts.reason(
                    f"{lanes} mirrored by MirrorMaker 2 until now",
                    "on.unadopted",
                    "`heliograph adopt FILE` takes over at the next record",
                ),
            )
        elif state == NOT_EMPTY:
            continue
        elif not flow.refresh_enabled:
            text = f"{lanes} not begun: new topics are found only when a driver starts"
            yield Standing.WAITING, facts.reason(text, "refresh.topics.enabled")
        elif status.holder is not None:
            what = "the target topic is not there yet" if state == FOR_TOPIC else "not begun"
            text = f"{lanes} {what}; the driver looks for new topics every "
            text += f"{flow.refresh_interval_s} s"
            yield Standing.WAITING, facts.reason(text, "refresh.topics.interval.seconds")
        else:
            yield Standing.WAITING, Reason(text=f"{lanes} not begun")


def _without_leader(source: ClusterView, topic: TopicName) -> _Found:
    found = source.topics[topic]
    missing = found.partition_count - found.led_partition_count
    if missing:
        text = f"{counted(missing, 'partition')} without a leader on cluster {source.alias}"
        fix = f"bring the brokers of {source.alias} back that hold its replicas"
        yield Standing.STALLED, Reason(text=text, fix=fix)


def _without_driver(
    flow: FlowId, status: FlowStatus, every: tuple[LaneStatus | WaitingLane, ...]
) -> _Found:
    is_idle = not every or all(lane.state.startswith((STOPPED, "waiting")) for lane in every)
    if status.orders.stopped is None and status.lacks_driver and is_idle:
        text = f"no driver mirrors {flow}"
        yield Standing.WAITING, Reason(text=text, fix="start `heliograph run FILE`")
