"""Where consumer groups stand on both sides, read by a process of its own. Runs on the driver.

Nothing here asks the driver that mirrors, nor trusts what it told: offsets come from the groups of
both clusters, and the translation from the ledger and the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.group_view import GroupOffset, GroupState, GroupType, GroupView
from heliograph.broker.groups import GroupAdmin
from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.groups.reading import (
    GroupOffsets,
    Refusals,
    WantedGroup,
    read_followed,
    read_offsets,
    read_states,
)
from heliograph.inspect.status import ANSWER_S_MAX, StatusReader
from heliograph.ledger.translate import Translated, translated
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.topics.filters import group_filter, topic_filter
from heliograph.topics.naming import naming_policy

T = TypeVar("T")


class Verdict(StrEnum):
    IN_STEP = "in step"
    BEHIND = "behind"
    AHEAD = "ahead"
    COARSE = "not exactly known"
    """At or after the last offset that the ledger knows before the group's own."""
    ACTIVE = "active on target"
    NOT_TRANSLATABLE = "not translatable"
    NOT_WRITTEN = "not written: sync.group.offsets.enabled is false"
    UNKNOWN = "unknown"
    """The target does not tell us about the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group on one partition; offsets are the next ones to be read, a share group's start."""

    group: str
    type: GroupType
    source: TopicPartition
    target: TopicPartition
    source_offset: int
    translated: Translated | None
    """Where that is on the target; None where nothing mirrored answers to it."""
    committed_offset: int | None
    """Where the target's own group stands."""
    target_end_offset: int | None
    source_state: GroupState | None
    target_state: GroupState | None
    verdict: Verdict

    @property
    def lag_records(self) -> int | None:
        """Offsets the group has yet to read on the target, if it went on there now."""
        if self.committed_offset is None or self.target_end_offset is None:
            return None
        return max(0, self.target_end_offset - self.committed_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGroups:
    flow: FlowId
    writes_offsets: bool
    """Whether the flow is set to write group offsets to the target."""
    rows: tuple[GroupRow, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatus:
    at_ms: int
    flows: tuple[FlowGroups, ...]


async def read_groups(
    config: MirrorConfig, flows: Sequence[FlowId], wanted: WantedGroup
) -> GroupsStatus:
    """What a cluster will not tell is a problem of its flow; the others are read all the same."""
    reader = StatusReader(config)
    admins = _Admins()
    try:
        found = await asyncio.gather(
            *(_flow_groups(reader, admins, config, config.flow(flow), wanted) for flow in flows)
        )
    finally:
        await reader.close()
    return GroupsStatus(at_ms=now_ms(), flows=tuple(found))


async def _flow_groups(
    reader: StatusReader,
    admins: _Admins,
    config: MirrorConfig,
    flow: FlowConfig,
    wanted: WantedGroup,
) -> FlowGroups:
    problems: list[str] = []
    rows: tuple[GroupRow, ...] = ()
    try:
        # Groups before positions: what was mirrored in between can only make answers exact.
        source = await asyncio.to_thread(
            _source_side, admins.groups(config.source_of(flow.id)), flow, wanted, problems
        )
        translated = await _translated(reader, flow, source.offsets)
        target_config = config.target_of(flow.id)
        target = await asyncio.to_thread(
            _target_side,
            admins.groups(target_config),
            admins.topics(target_config),
            source.offsets,
            _targets(flow, source.offsets),
            problems,
        )
        rows = _rows(flow, source, translated, target)
    except BrokerError as exc:
        problems.append(str(exc))
    return FlowGroups(
        flow=flow.id,
        writes_offsets=flow.groups.sync_offsets_enabled,
        rows=rows,
        problems=tuple(problems),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    offsets: GroupOffsets
    views: Mapping[str, GroupView]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    offsets: GroupOffsets
    views: Mapping[str, GroupView]
    ends: Mapping[TopicPartition, int]
    hidden: frozenset[str]
    """Groups of which the target tells us nothing."""


def _source_side(
    source: GroupAdmin, flow: FlowConfig, wanted: WantedGroup, problems: list[str]
) -> _Source:
    mirrors = topic_filter(flow)
    found = read_followed(source, group_filter(flow).should_follow, wanted)
    _add(problems, found.hidden)
    return _Source(
        offsets=found.offsets_on(lambda at: mirrors.should_mirror(at.topic)), views=found.listed
    )


async def _translated(
    reader: StatusReader, flow: FlowConfig, offsets: GroupOffsets
) -> Mapping[tuple[TopicPartition, int], Translated]:
    locations = await reader.locations(flow)
    # Before its first record a lane has nothing on the target that an offset could mean.
    maps = {place.lane.source: place.offset_map for place in locations if place.position > 0}
    return {
        (source, at.offset): found
        for each in offsets.values()
        for source, at in each.items()
        if source in maps and (found := translated(maps[source].to_target(at.offset))) is not None
    }


def _target_side(
    groups: GroupAdmin,
    topics: ClusterAdmin,
    wanted: GroupOffsets,
    targets: Mapping[TopicPartition, TopicPartition],
    problems: list[str],
) -> _Target:
    views, unseen = read_states(groups, wanted)
    _add(problems, unseen)
    offsets, unread = read_offsets(groups, views)
    _add(problems, unread)
    return _Target(
        offsets=offsets,
        views=views,
        ends=topics.list_offsets(set(targets.values()), "latest"),
        hidden=frozenset(wanted) - offsets.keys(),
    )


def _targets(flow: FlowConfig, offsets: GroupOffsets) -> dict[TopicPartition, TopicPartition]:
    policy = naming_policy(flow)
    return {
        source: TopicPartition(
            topic=TopicName(policy.target_topic(source.topic)), partition=source.partition
        )
        for each in offsets.values()
        for source in each
    }


def _rows(
    flow: FlowConfig,
    source: _Source,
    translated: Mapping[tuple[TopicPartition, int], Translated],
    target: _Target,
) -> tuple[GroupRow, ...]:
    targets = _targets(flow, source.offsets)
    rows: list[GroupRow] = []
    for group, each in sorted(source.offsets.items()):
        view = target.views.get(group)
        for at, place in sorted(each.items()):
            committed = target.offsets.get(group, {}).get(targets[at])
            answer = translated.get((at, place.offset))
            rows.append(
                GroupRow(
                    group=group,
                    type=source.views[group].type,
                    source=at,
                    target=targets[at],
                    source_offset=place.offset,
                    translated=answer,
                    committed_offset=None if committed is None else committed.offset,
                    target_end_offset=target.ends.get(targets[at]),
                    source_state=source.views[group].state,
                    target_state=None if view is None else view.state,
                    verdict=Verdict.UNKNOWN
                    if group in target.hidden
                    else verdict_of(
                        answer,
                        committed,
                        is_active=view is not None and not view.is_idle,
                        writes_offsets=flow.groups.sync_offsets_enabled,
                    ),
                )
            )
    return tuple(rows)


def verdict_of(
    translated: Translated | None,
    committed: GroupOffset | None,
    *,
    is_active: bool,
    writes_offsets: bool,
) -> Verdict:
    """How a group on the target compares with where it stands on the source."""
    if translated is None:
        return Verdict.NOT_TRANSLATABLE
    if is_active:
        return Verdict.ACTIVE
    if committed is not None and committed.offset == translated.offset:
        return Verdict.IN_STEP
    if committed is not None and committed.offset > translated.offset:
        if translated.side == "coarse":
            return Verdict.COARSE
        return Verdict.AHEAD
    return Verdict.BEHIND if writes_offsets else Verdict.NOT_WRITTEN


def _add(problems: list[str], hidden: Refusals) -> None:
    """What a cluster does not show becomes a sentence, said once."""
    problems.extend(
        text for text in dict.fromkeys(map(str, hidden.values())) if text not in problems
    )


class _Admins:
    """One client per cluster and settings, with the patience of a command line."""

    def __init__(self) -> None:
        self._groups: list[tuple[ClusterConfig, GroupAdmin]] = []
        self._topics: list[tuple[ClusterConfig, ClusterAdmin]] = []

    def groups(self, cluster: ClusterConfig) -> GroupAdmin:
        return _one(self._groups, cluster, partial(GroupAdmin, timeout_s=ANSWER_S_MAX))

    def topics(self, cluster: ClusterConfig) -> ClusterAdmin:
        return _one(self._topics, cluster, partial(ClusterAdmin, timeout_s=ANSWER_S_MAX))


def _one(
    made: list[tuple[ClusterConfig, T]], cluster: ClusterConfig, make: Callable[[ClusterConfig], T]
) -> T:
    for settings, client in made:
        if settings == cluster:
            return client
    client = make(cluster)
    made.append((cluster, client))
    return client
