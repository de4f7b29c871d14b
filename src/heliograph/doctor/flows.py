"""What each flow mirrors, how its lanes are, and what its clients may do. Does I/O; driver."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.broker.blocking import blocking
from heliograph.broker.groups import GroupAdmin
from heliograph.compat.own_topics import OwnTopic, own_topics
from heliograph.config.schema import ClientRole, ClusterConfig, FlowConfig, MirrorConfig
from heliograph.doctor.allowed import ask_allowed
from heliograph.doctor.facts import ClusterFacts, Untold
from heliograph.doctor.permissions import Allowed, AllowedClients, Need, needs_of
from heliograph.errors import MirrorError
from heliograph.groups.reading import list_groups
from heliograph.inspect.dry_run import FlowPlan, plan_flows
from heliograph.inspect.flow_status import FlowStatus
from heliograph.inspect.status import StatusReader
from heliograph.inspect.waiting import Adoption
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.topics.filters import group_filter

_GROUPS_MAX: Final = 50
"""Groups whose permissions are asked for, of those that a flow follows."""
_ANSWER_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSeen:
    flow: FlowConfig
    plan: FlowPlan
    status: FlowStatus | None
    """None where the lanes could not be looked at."""
    mirrored: Mapping[TopicName, TopicName]
    """Topics of the source and their names on the target."""
    own: tuple[OwnTopic, ...]
    needs: tuple[Need, ...]

    def topics_on(self, cluster: ClusterAlias) -> set[TopicName]:
        """That the flow reads or writes there."""
        names: set[TopicName] = {own.name for own in self.own if own.cluster == cluster}
        if cluster == self.flow.id.source:
            names |= self.mirrored.keys()
        if cluster == self.flow.id.target:
            names |= set(self.mirrored.values())
        return names


async def seen_flows(
    config: MirrorConfig,
    facts: Mapping[ClusterAlias, ClusterFacts],
    adoptions: Mapping[FlowId, Adoption],
) -> Mapping[FlowId, FlowSeen]:
    """Of every flow of the configuration."""
    plans, statuses, groups = await asyncio.gather(
        blocking(plan_flows, config, adoptions),
        _statuses(config),
        asyncio.gather(
            *(blocking(_followed, config.source_of(flow.id), flow) for flow in config.flows)
        ),
    )
    found: dict[FlowId, FlowSeen] = {}
    for flow, plan, ids in zip(config.flows, plans, groups, strict=True):
        mirrored = dict(plan.selection.mirrored) if plan.selection is not None else {}
        pairs = [pair for pair in config.chosen_pairs if pair.id == flow.id]
        found[flow.id] = FlowSeen(
            flow=flow,
            plan=plan,
            status=statuses.get(flow.id),
            mirrored=mirrored,
            own=tuple(own for pair in pairs for own in own_topics(pair)),
            needs=tuple(needs_of(config, flow, mirrored, ids)),
        )
    return found


async def _statuses(config: MirrorConfig) -> Mapping[FlowId, FlowStatus]:
    reader = StatusReader(config)
    try:
        return {each.flow: each for each in (await reader.read()).flows}
    finally:
        await reader.close()


def _followed(source: ClusterConfig, flow: FlowConfig) -> Collection[str]:
    """Groups that a list shows; one that may not be described is not in it."""
    try:
        cluster = GroupAdmin(source, timeout_s=_ANSWER_S_MAX)
        return list(list_groups(cluster, group_filter(flow).should_follow))[:_GROUPS_MAX]
    except MirrorError:
        return ()  # what keeps groups from being listed is found among the permissions


async def read_permissions(
    config: MirrorConfig, flows: Mapping[FlowId, FlowSeen], *, answer_s_max: float
) -> AllowedClients:
    """What each client may do that a flow needs; each is asked as itself."""
    wanted: dict[tuple[ClusterAlias, ClientRole], list[Need]] = {}
    for flow in flows.values():
        for need in flow.needs:
            wanted.setdefault((need.cluster, need.role), []).append(need)

    async def ask(alias: ClusterAlias, role: ClientRole, needs: list[Need]) -> Allowed | Untold:
        return await ask_allowed(config.clusters[alias], role, needs, answer_s_max=answer_s_max)

    answers = await asyncio.gather(*(ask(*client, needs) for client, needs in wanted.items()))
    return dict(zip(wanted, answers, strict=True))
