"""Ask both clusters of every flow what becomes of one topic. Does I/O; runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.view import ClusterView
from heliograph.clock import now_ms
from heliograph.config.explain import Effective
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised
from heliograph.groups.reading import list_groups
from heliograph.inspect.flow_status import FlowStatus
from heliograph.inspect.groups import FlowGroups, read_groups
from heliograph.inspect.status import StatusReader
from heliograph.inspect.waiting import Adoption
from heliograph.inspect.why import FlowFacts, FlowWhy, Reason, Standing, why_of
from heliograph.inspect.why_group import GroupWhy, why_of_group
from heliograph.ledger.locations import all_topics
from heliograph.model import FlowId, TopicName
from heliograph.topics.filters import group_ruling
from heliograph.topics.observe import observe
from heliograph.topics.selection import select_topics

_ANSWER_S_MAX: Final = 10.0

Values = Callable[[FlowId], Mapping[str, Effective]]
"""The keys of a flow with their lines, where the file is at hand."""


def no_values(_: FlowId) -> Mapping[str, Effective]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    at_ms: int
    topic: TopicName
    flows: tuple[FlowWhy, ...]
    groups: tuple[GroupWhy, ...] = ()
    """One for each flow, where a group was asked for."""
    hints: tuple[str, ...] = ()
    """Worth knowing of the name as a whole, such as that it is a copy."""

    @property
    def is_known(self) -> bool:
        return all(each.standing is not Standing.UNKNOWN for each in self.flows)

    @property
    def is_mirrored(self) -> bool:
        return any(each.standing is Standing.MIRRORED for each in self.flows)


async def read_why(
    config: MirrorConfig,
    topic: TopicName,
    *,
    pairs: Sequence[FlowId],
    group: str | None = None,
    adoptions: Mapping[FlowId, Adoption] | None = None,
    values: Values = no_values,
) -> Why:
    """What each of `pairs` does with the topic; a cluster that does not answer is a reason."""
    flows = [config.flow(pair) for pair in pairs]
    enabled = frozenset(flow.id for flow in flows if flow.enabled)
    chosen = config.model_copy(update={"chosen": enabled})
    reader = StatusReader(chosen, all_topics([topic]), adoptions or {})
    try:
        status = await reader.read()
        statuses = {each.flow: each for each in status.flows}
        facts = await asyncio.gather(
            *(_facts(config, flow, topic, statuses.get(flow.id), reader) for flow in flows)
        )
    finally:
        await reader.close()
    told = [replace(each, values=values(each.flow.id)) for each in facts]
    return Why(
        at_ms=now_ms(),
        topic=topic,
        flows=tuple(why_of(each, topic) for each in told),
        groups=await _groups(config, told, topic, group) if group is not None else (),
        hints=tuple(_copies(told, topic)),
    )


async def _facts(
    config: MirrorConfig,
    flow: FlowConfig,
    topic: TopicName,
    status: FlowStatus | None,
    reader: StatusReader,
) -> FlowFacts:
    nothing = BrokerUnreachable("not asked")
    if status is None:
        return FlowFacts(flow=flow, source=nothing, target=nothing, status=None)
    source, target = config.source_of(flow.id), config.target_of(flow.id)
    (read, hidden), (written, _) = await asyncio.gather(_look(source, topic), _look(target, None))
    starts = [
        record.starts[0].at_ms
        for lane, record in reader.ledger(flow.id).view.begun().items()
        if lane.topic == topic
    ]
    return FlowFacts(
        flow=flow,
        source=read,
        target=written,
        status=status,
        hidden=hidden,
        since_ms=min(starts, default=None),
    )


async def _look(
    cluster: ClusterConfig, topic: TopicName | None
) -> tuple[ClusterView | BrokerError, str]:
    """The cluster, and why it does not show the topic though it may be there."""
    try:
        admin = ClusterAdmin(cluster, timeout_s=_ANSWER_S_MAX)
    except BrokerError as exc:
        return exc, ""
    seen = await observe([admin])
    if cluster.alias in seen.unseen:
        return seen.unseen[cluster.alias], ""
    view = seen.views[cluster.alias]
    if topic is None or topic in view.topics:
        return view, ""
    try:
        # A list leaves out what may not be described; asked by name, the broker says so.
        found = (await blocking(admin.describe_each, [topic])).get(topic)
    except BrokerError as exc:
        return exc, ""
    return view, str(found) if isinstance(found, NotAuthorised) else ""


def _copies(facts: Sequence[FlowFacts], topic: TopicName) -> list[str]:
    """Flows whose copy of another topic has the name that was asked for."""
    found: list[str] = []
    for each in facts:
        if not each.flow.enabled or isinstance(each.source, BrokerError):
            continue
        for source, target in select_topics(each.flow, each.source.topics).mirrored:
            if target == topic and source != topic:
                found.append(
                    f"{topic} on cluster {each.flow.id.target} is the copy of {source}, by "
                    f"{each.flow.id}: `heliograph why FILE {source}` tells about it"
                )
    return found


async def _groups(
    config: MirrorConfig, facts: Sequence[FlowFacts], topic: TopicName, group: str
) -> tuple[GroupWhy, ...]:
    return tuple(
        await asyncio.gather(
            *(_group(config, each, topic, group) for each in facts if each.flow.enabled)
        )
    )


async def _group(config: MirrorConfig, facts: FlowFacts, topic: TopicName, group: str) -> GroupWhy:
    ruling = group_ruling(facts.flow, group)
    found: FlowGroups | None = None
    known: frozenset[str] = frozenset()
    if ruling.wanted:
        try:
            known = await blocking(_known, config.source_of(facts.flow.id))
        except BrokerError as exc:
            return GroupWhy(
                flow=facts.flow.id,
                group=group,
                followed=True,
                rows=(),
                reasons=(Reason(text=str(exc)),),
            )
        status = await read_groups(config, [facts.flow.id], lambda name: name == group)
        (found,) = status.flows
    return why_of_group(facts, topic, group, ruling, found, known)


def _known(cluster: ClusterConfig) -> frozenset[str]:
    return frozenset(list_groups(GroupAdmin(cluster, timeout_s=_ANSWER_S_MAX)))
