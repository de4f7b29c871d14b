"""Which topics a flow mirrors, and why each of the others is left out. Pure; runs anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heliograph.config.schema import FlowConfig
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.plan.naming import NamingPolicy, is_cycle, is_heartbeats, naming_policy

BROKER_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Topics brokers write for themselves; a copy under the same name would corrupt their state."""

_LITERAL: Final = re.compile(r"(?:[\w.-]|\\[.\-])+")


class Verdict(StrEnum):
    MIRRORED = "mirrored"
    EXCLUDED = "excluded"
    INTERNAL = "internal"
    CYCLE = "cycle"
    NOT_MATCHED = "not matched"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDecision:
    topic: TopicName
    verdict: Verdict
    why: str
    target: TopicName | None = None
    """The name on the target; None unless mirrored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a flow does with every topic of its source, in order of name."""

    flow: FlowId
    decisions: tuple[TopicDecision, ...]
    absent: tuple[str, ...]
    """Topics that the flow asks for by name and that are not there, or not shown to us."""

    @property
    def mirrored(self) -> tuple[tuple[TopicName, TopicName], ...]:
        """Source and target name of every topic that is mirrored."""
        return tuple((d.topic, d.target) for d in self.decisions if d.target is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """`include` patterns are OR-ed, `exclude` wins; a pattern must match the whole name."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()
    heartbeats: bool = True
    """KIP-1089: whether heartbeats are mirrored whatever the patterns say."""

    @classmethod
    def of(
        cls, include: Iterable[str], exclude: Iterable[str] = (), *, heartbeats: bool = True
    ) -> TopicFilter:
        return cls(
            include=tuple(re.compile(pattern) for pattern in include),
            exclude=tuple(re.compile(pattern) for pattern in exclude),
            heartbeats=heartbeats,
        )


def select_topics(flow: FlowConfig, source_topics: Iterable[TopicName]) -> Selection:
    """Decide about every topic of the source."""
    names = TopicFilter.of(flow.topics, flow.topics_exclude, heartbeats=flow.heartbeats.replicated)
    policy = naming_policy(flow)
    seen = sorted(source_topics)
    asked = (_literal_name(pattern) for pattern in names.include)
    return Selection(
        flow=flow.id,
        decisions=tuple(_decide(topic, flow.id, names, policy) for topic in seen),
        absent=tuple(sorted({name for name in asked if name is not None} - set(seen))),
    )


def _decide(
    topic: TopicName, flow: FlowId, names: TopicFilter, policy: NamingPolicy
) -> TopicDecision:
    target = policy.target_topic(topic)
    included = _first_match(names.include, topic)
    excluded = _first_match(names.exclude, topic)
    heartbeats = names.heartbeats and is_heartbeats(policy, topic)

    internal = _internal_because(topic, target, policy, names)
    if internal is not None:
        return TopicDecision(topic=topic, verdict=Verdict.INTERNAL, why=internal)
    if not heartbeats and excluded is not None:
        why = f"matches topics.exclude `{excluded.pattern}`"
        return TopicDecision(topic=topic, verdict=Verdict.EXCLUDED, why=why)
    if not heartbeats and included is None:
        return TopicDecision(topic=topic, verdict=Verdict.NOT_MATCHED, why="no pattern of topics")
    if is_cycle(policy, topic, flow.target):
        why = f"its name says it came from {flow.target}"
        return TopicDecision(topic=topic, verdict=Verdict.CYCLE, why=why)
    why = "heartbeats" if included is None else f"matches topics `{included.pattern}`"
    return TopicDecision(topic=topic, verdict=Verdict.MIRRORED, why=why, target=target)


def _internal_because(
    topic: TopicName, target: TopicName, policy: NamingPolicy, names: TopicFilter
) -> str | None:
    """Why the topic may not be mirrored though a pattern matches; None where it may.

    MirrorMaker 2 never mirrors a topic that looks internal, so a user's `orders.internal` is out of
    its reach. Here naming it is asking for it; a wildcard that happens to match is not.
    """
    if not policy.is_internal(topic):
        return None
    if policy.is_mirror_bookkeeping(topic):
        return "a mirror's own bookkeeping"
    if target in BROKER_TOPICS:
        return "brokers of the target write it themselves"
    if any(_literal_name(pattern) == topic for pattern in names.include):
        return None
    return "internal by its name; mirrored only if topics names it in full"


def _first_match(patterns: tuple[re.Pattern[str], ...], topic: str) -> re.Pattern[str] | None:
    return next((pattern for pattern in patterns if pattern.fullmatch(topic)), None)


def _literal_name(pattern: re.Pattern[str]) -> str | None:
    """The topic the pattern spells out, a bare dot read as a dot; None for a real regex."""
    if _LITERAL.fullmatch(pattern.pattern) is None:
        return None
    return pattern.pattern.replace("\\", "")


def shared_targets(
    selections: Iterable[Selection],
) -> Mapping[tuple[ClusterAlias, TopicName], tuple[FlowId, ...]]:
    """Target topics that more than one flow into the same cluster would write to."""
    writers: dict[tuple[ClusterAlias, TopicName], list[FlowId]] = {}
    for selection in selections:
        for _, target in selection.mirrored:
            writers.setdefault((selection.flow.target, target), []).append(selection.flow)
    return {place: tuple(flows) for place, flows in writers.items() if len(flows) > 1}
