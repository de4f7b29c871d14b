"""Which topics a flow mirrors, and why each of the others is left out. No I/O; driver."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from heliograph.broker.view import ClusterView
from heliograph.config.schema import FlowConfig
from heliograph.errors import PluginFailed
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.topics.filters import (
    PatternTopicFilter,
    PythonFilter,
    Ruling,
    topic_filter,
    topic_ruling,
)
from heliograph.topics.naming import (
    LEDGER_PREFIX,
    NamingPolicy,
    canary_source,
    is_cycle,
    is_heartbeats,
    naming_policy,
    target_alias,
)

BROKER_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Topics brokers write for themselves; a copy under the same name would corrupt their state."""

HEARTBEATS: Final = "heartbeats"
CANARY: Final = "canary"
"""Why a topic is mirrored that nothing in `topics` asks for."""
HEARTBEATS_KEY: Final = "heartbeats.replication.enabled"
CANARY_KEY: Final = "canary.enabled"
Choice = Callable[[TopicName], tuple[bool, str] | None]
"""What operators decided about a topic: whether it is mirrored, and why; None leaves it to the
configuration, which is weaker."""
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_LITERAL: Final = re.compile(r"(?:[\w.-]|\\[.\-])+")


class Verdict(StrEnum):
    MIRRORED = "mirrored"
    EXCLUDED = "excluded"
    INTERNAL = "internal"
    CYCLE = "cycle"
    NOT_MATCHED = "not matched"
    FAILED = "failed"
    """The policy or filter raised, or no broker would take the name; a problem, not a choice."""
    CLASH = "name clash"
    """Another topic of the flow would have the same name; a problem, not a choice."""
    ITSELF = "itself"
    """Source and target are one topic of one cluster; a problem, not a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDecision:
    topic: TopicName
    verdict: Verdict
    why: str
    target: TopicName | None = None
    """The name on the target; None unless mirrored."""
    key: str = ""
    """The key of the configuration that decides; empty where none does: a decision, or its name."""

    @property
    def is_problem(self) -> bool:
        """Whether the topic was asked for and cannot be mirrored."""
        return self.verdict in (Verdict.FAILED, Verdict.CLASH, Verdict.ITSELF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a flow does with every topic of its source, in order of name."""

    flow: FlowId
    decisions: tuple[TopicDecision, ...]
    absent: tuple[str, ...]
    """Topics that the flow asks for by name and that are not there, or not shown to us."""
    unmatched: tuple[str, ...] = ()
    """Patterns of `topics` that match no topic of the source."""

    @property
    def mirrored(self) -> tuple[tuple[TopicName, TopicName], ...]:
        """Source and target name of every topic that is mirrored."""
        return tuple((d.topic, d.target) for d in self.decisions if d.target is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What decides about the topics of one flow."""

    names: PatternTopicFilter | PythonFilter
    policy: NamingPolicy
    heartbeats: bool
    """KIP-1089: whether heartbeats are mirrored whatever the filter says."""
    canaries: bool
    """The same of canaries."""
    in_full: frozenset[str]
    """Topics that `topics` spells out."""
    choice: Choice
    target: ClusterAlias


def select_topics(
    flow: FlowConfig,
    source_topics: Iterable[TopicName],
    choice: Choice = lambda _: None,
) -> Selection:
    """Decide about every topic of the source; raises `ConfigError` for an unusable class."""
    spelled = (_literal_name(pattern) for pattern in flow.topics)
    rules = _Rules(
        names=topic_filter(flow),
        policy=naming_policy(flow),
        heartbeats=flow.heartbeats.replicated,
        canaries=flow.canary.enabled,
        in_full=frozenset(name for name in spelled if name is not None),
        target=target_alias(flow),
        choice=choice,
    )
    seen = sorted(source_topics)
    # A filter of the operator's own replaces the list, so nothing in it was asked for.
    asked = rules.in_full if isinstance(rules.names, PatternTopicFilter) else frozenset[str]()
    return Selection(
        flow=flow.id,
        decisions=_without_clashes([_decide(topic, rules) for topic in seen]),
        absent=tuple(sorted(asked - set(seen))),
        unmatched=_unmatched(rules.names, seen),
    )


def select_between(
    flow: FlowConfig,
    source: ClusterView,
    target: ClusterView,
    choice: Choice = lambda _: None,
) -> Selection:
    """As `select_topics`, without topics that would be copied onto themselves for ever: both
    aliases may be names of one cluster."""
    selection = select_topics(flow, source.topics, choice)
    if source.cluster_id is None or source.cluster_id != target.cluster_id:
        return selection
    why = f"{source.alias} and {target.alias} are one cluster, and the name stays the same"
    return replace(
        selection,
        decisions=tuple(
            TopicDecision(topic=each.topic, verdict=Verdict.ITSELF, why=why)
            if each.target == each.topic
            else each
            for each in selection.decisions
        ),
    )


def words_on_twins(views: Iterable[ClusterView]) -> tuple[str, ...]:
    """A sentence for every cluster that has more than one alias."""
    by_id: defaultdict[str, list[str]] = defaultdict(list)
    for view in views:
        if view.cluster_id is not None:
            by_id[view.cluster_id].append(view.alias)
    return tuple(
        f"{', '.join(sorted(aliases)[:-1])} and {max(aliases)} are aliases of one cluster, {id_}: "
        "what flows mirror between them stays in it, and names tell them apart as if they were two"
        for id_, aliases in by_id.items()
        if len(aliases) > 1
    )


def _unmatched(
    names: PatternTopicFilter | PythonFilter, seen: Iterable[TopicName]
) -> tuple[str, ...]:
    """Those that spell a topic out apart, which are `absent`."""
    if isinstance(names, PythonFilter):
        return ()
    patterns = [p for p in names.patterns.include if _literal_name(p.pattern) is None]
    topics = tuple(seen)
    return tuple(p.pattern for p in patterns if not any(p.fullmatch(topic) for topic in topics))


def _decide(topic: TopicName, rules: _Rules) -> TopicDecision:
    left_out: Verdict | None = None
    try:
        ruling = _ruling(topic, rules)
        left_out = _left_out(ruling, rules.choice(topic) is not None)
        return _named(topic, rules, left_out, ruling)
    except PluginFailed as exc:
        # A name nobody asked for is no problem, whatever the policy makes of it.
        if left_out is None:
            return TopicDecision(topic=topic, verdict=Verdict.FAILED, why=str(exc))
        return TopicDecision(topic=topic, verdict=left_out, why=ruling.why, key=ruling.key)


def _named(
    topic: TopicName, rules: _Rules, left_out: Verdict | None, ruling: Ruling
) -> TopicDecision:
    heartbeats = rules.heartbeats and is_heartbeats(rules.policy, topic)
    canary = canary_source(rules.policy, topic)
    target = rules.policy.target_topic(topic)

    internal = _internal_because(topic, target, rules)
    if internal is not None:
        return TopicDecision(topic=topic, verdict=Verdict.INTERNAL, why=internal)
    by_itself = heartbeats or (canary is not None and rules.canaries)
    if left_out is not None and not by_itself:
        return TopicDecision(topic=topic, verdict=left_out, why=ruling.why, key=ruling.key)
    # An identity policy has no hops in its names, and would bring canaries home.
    if canary == rules.target or is_cycle(rules.policy, topic, rules.target):
        why = f"its name says it came from {rules.target}"
        return TopicDecision(topic=topic, verdict=Verdict.CYCLE, why=why)
    illegal = _illegal_because(target)
    if illegal is not None:
        return TopicDecision(topic=topic, verdict=Verdict.FAILED, why=illegal)
    if left_out is not None:
        ruling = (
            Ruling(wanted=True, why=HEARTBEATS, key=HEARTBEATS_KEY)
            if heartbeats
            else Ruling(wanted=True, why=CANARY, key=CANARY_KEY)
        )
    return TopicDecision(
        topic=topic, verdict=Verdict.MIRRORED, why=ruling.why, target=target, key=ruling.key
    )


def _ruling(topic: TopicName, rules: _Rules) -> Ruling:
    """Of a decision, or else of the filter alone."""
    chosen = rules.choice(topic)
    if chosen is not None:
        return Ruling(wanted=chosen[0], why=chosen[1], key="")
    return topic_ruling(rules.names, topic)


def _left_out(ruling: Ruling, is_decided: bool) -> Verdict | None:
    if ruling.wanted:
        return None
    return Verdict.EXCLUDED if is_decided or ruling.is_excluded else Verdict.NOT_MATCHED


def _internal_because(topic: TopicName, target: TopicName, rules: _Rules) -> str | None:
    """Why the topic may not be mirrored though the filter wants it; None where it may.

    MirrorMaker 2 never mirrors a topic that looks internal. Here naming it is asking for it; a
    wildcard that happens to match is not.
    """
    if target in BROKER_TOPICS:
        return "brokers of the target write it themselves"
    if target.startswith(LEDGER_PREFIX):
        return "a mirror's own bookkeeping"
    if rules.policy.is_mirror_bookkeeping(topic):
        return "a mirror's own bookkeeping"
    if topic in rules.in_full or not rules.policy.is_internal(topic):
        return None
    return "internal by its name; mirrored only if topics names it in full"


def _illegal_because(target: TopicName) -> str | None:
    """Why no broker would take the name; one that is too long is left to provisioning."""
    if target in (".", "..") or _LEGAL_NAME.fullmatch(target) is None:
        return f"its name on the target would be `{target}`, which Kafka does not take"
    return None


def _without_clashes(decisions: list[TopicDecision]) -> tuple[TopicDecision, ...]:
    """Two topics under one name would mix their records: neither is mirrored.

    Not the first of them either, since which one is first changes when a topic appears.
    """
    by_target: dict[TopicName, list[TopicName]] = {}
    for decision in decisions:
        if decision.target is not None:
            by_target.setdefault(decision.target, []).append(decision.topic)
    return tuple(_or_clash(decision, by_target) for decision in decisions)


def _or_clash(
    decision: TopicDecision, by_target: Mapping[TopicName, list[TopicName]]
) -> TopicDecision:
    if decision.target is None or len(by_target[decision.target]) == 1:
        return decision
    others = [topic for topic in by_target[decision.target] if topic != decision.topic]
    listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    why = f"would be `{decision.target}` on the target, and so would {listed}"
    return TopicDecision(topic=decision.topic, verdict=Verdict.CLASH, why=why)


def _literal_name(pattern: str) -> str | None:
    """The topic the pattern spells out, a bare dot read as a dot; None for a real regex."""
    if _LITERAL.fullmatch(pattern) is None:
        return None
    return pattern.replace("\\", "")


def shared_targets(
    selections: Iterable[Selection],
) -> Mapping[tuple[ClusterAlias, TopicName], tuple[FlowId, ...]]:
    """Target topics that more than one flow into the same cluster would write to."""
    writers: dict[tuple[ClusterAlias, TopicName], list[FlowId]] = {}
    for selection in selections:
        for _, target in selection.mirrored:
            writers.setdefault((selection.flow.target, target), []).append(selection.flow)
    return {place: tuple(flows) for place, flows in writers.items() if len(flows) > 1}
