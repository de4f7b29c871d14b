"""All that is known of a flow and its groups, without needing the source. Runs on the driver.

Lanes, the map, checkpoints and the groups that were put there are on the target. The source is
asked only for where its groups stand now, which is fresher, and not for long: who fails over has
no source that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.broker.group_view import GroupOffset
from heliograph.broker.groups import GroupAdmin
from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, LeaderMoved, MirrorError, NotAuthorised
from heliograph.groups.checkpoint_plan import CheckpointKey
from heliograph.groups.checkpoints_topic import NOTHING_TOLD, WrittenCheckpoints, fetch_checkpoints
from heliograph.groups.placement import CommittedOffset
from heliograph.groups.reading import GroupOffsets, WantedGroup, list_groups, read_offsets
from heliograph.ledger.access import OpenLedger, open_ledger, require_ledger, within
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId, TopicPartition
from heliograph.topics.filters import group_filter, topic_filter
from heliograph.topics.naming import naming_policy, source_alias
from heliograph.wire.mirror_records import Checkpoint

SOURCE_WAIT_S: Final = 1.5
"""How long a source that says nothing is waited for."""
_TARGET_S_MAX: Final = 15.0
_GROUPS_S_MAX: Final = 10.0
_SOURCE_GROUPS_S_MAX: Final = 5.0
"""A source that answered once and then falls silent holds nobody up for longer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlowSnapshot:
    """Without a `repr`: it may hold a hundred thousand positions, and asyncio asks for one."""

    flow: FlowConfig
    locations: Mapping[TopicPartition, LaneLocation]
    """By source partition."""
    view: LedgerView
    groups: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    """Wanted groups that stand somewhere, by source partition; the freshest that is known."""
    source_problem: str
    """Why the source did not answer; nothing if it did."""
    target_starts: Mapping[TopicPartition, int]
    target_ends: Mapping[TopicPartition, int]
    checkpoints: Mapping[CheckpointKey, Checkpoint]
    checkpoint_times_ms: Mapping[CheckpointKey, int]
    committed: GroupOffsets
    """Where the target's own groups stand, on target partitions."""
    seen_groups: frozenset[str]
    """Every group the flow follows that either cluster or a checkpoint names, wanted or not."""
    garbage_checkpoints: int
    problems: tuple[str, ...] = ()
    """What else could not be read, in sentences; the rest is whole."""
    back: LedgerView | None = None
    """The ledger of the way back, where the target takes writes under the same names and the source
    let it be read."""
    is_both_ways: bool = False


async def read_snapshot(
    config: MirrorConfig,
    flow: FlowId,
    wanted: WantedGroup,
    *,
    ask_source: bool = True,
    source_wait_s: float = SOURCE_WAIT_S,
    ledger: OpenLedger | None = None,
) -> FlowSnapshot:
    """Never needs the source; raises `BrokerError` where the target does not answer.

    Only groups the flow follows count. A `ledger` that has read the ledger saves reading it again.
    """
    settings = config.flow(flow)
    look = _Reader(config, settings, wanted)
    async with _target_hand(config, flow, ledger) as opened:
        await _require_ledger(opened, flow)
        # Groups before the way back, which may have brought more since: see `unread_from`.
        source, told, committed, _ = await asyncio.gather(
            look.source(ask_source, source_wait_s),
            look.told(),
            asyncio.to_thread(look.committed),
            _bounded(opened.store.catch_up(), opened.target),
        )
        # Groups before positions: what was mirrored in between can only make answers exact.
        locations = await _bounded(
            locate_lanes(settings, opened.target, opened.store, all_topics()), opened.target
        )
        targets = [location.target for location in locations]
        starts = await _bounded(opened.target.list_offsets(targets, EARLIEST), opened.target)
        ends = await _bounded(opened.target.list_offsets(targets, LATEST), opened.target)
        view = opened.store.view
    back = None if source.problem else await look.way_back(config)
    by_source = {location.lane.source: location for location in locations}
    return FlowSnapshot(
        flow=settings,
        locations=by_source,
        view=view,
        groups=look.merged(by_source, source, told, committed),
        source_problem=source.problem,
        target_starts=_numbers(starts),
        target_ends=_numbers(ends),
        checkpoints=told.checkpoints,
        checkpoint_times_ms=told.times_ms,
        committed=committed,
        seen_groups=frozenset(look.seen),
        garbage_checkpoints=told.garbage_records,
        problems=tuple(dict.fromkeys(look.problems)),
        back=back,
        is_both_ways=config.way_back(flow) is not None,
    )


async def offsets_at(
    config: MirrorConfig, flow: FlowId, targets: Iterable[TopicPartition], at_ms: int
) -> Mapping[TopicPartition, int]:
    """The first offset of each target partition whose record is not older; -1 where none is.

    Everything before the answer is older, in whatever order timestamps come. Partitions that the
    target does not tell about are left out.
    """
    partitions = list(targets)
    async with open_ledger(config, flow) as ledger:
        await _bounded(ledger.target.refresh({at.topic for at in partitions}), ledger.target)
        # Negative times are other questions to a broker, and no record is older than these.
        found = await _bounded(ledger.target.list_offsets(partitions, max(0, at_ms)), ledger.target)
    return _numbers(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    at_ms: int
    offsets: GroupOffsets
    problem: str = ""


class _Reader:
    """One look at both clusters; the parts run side by side, each writes what is its own."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, wanted: WantedGroup) -> None:
        self._flow = flow
        self._source = config.source_of(flow.id)
        self._target = config.target_of(flow.id)
        self._wanted = wanted
        self._follows = group_filter(flow).should_follow
        self._mirrors = topic_filter(flow).should_mirror
        self.seen: set[str] = set()
        self.problems: list[str] = []

    async def source(self, ask: bool, wait_s: float) -> _Source:
        at_ms = now_ms()
        if not ask:
            return _Source(at_ms=at_ms, offsets={}, problem="not asked")
        try:
            # librdkafka's threads cannot be called off, so the first word is our own.
            await _probe(self._source, wait_s)
            offsets = await asyncio.to_thread(
                self._offsets, GroupAdmin(self._source, timeout_s=_SOURCE_GROUPS_S_MAX)
            )
        except BrokerError as exc:
            return _Source(at_ms=at_ms, offsets={}, problem=str(exc))
        return _Source(at_ms=at_ms, offsets=offsets)

    async def way_back(self, config: MirrorConfig) -> LedgerView | None:
        """None also where the way back has not begun; where it cannot be read, that is told."""
        back = config.way_back(self._flow.id)
        if back is None:
            return None
        reader = open_cluster(self._source, "consumer", only_reads=True)
        name = ledger_topic(back.source)
        store = LedgerStore(reader, name)
        try:
            await within(reader.refresh([name]), _TARGET_S_MAX, f"cluster {reader.alias}")
            if reader.topic(name) is None:
                gone = reader.no_leader_error(TopicPartition(topic=name, partition=0))
                if isinstance(gone, LeaderMoved):
                    return LedgerView()
                raise gone
            await within(store.catch_up(), _TARGET_S_MAX, f"cluster {reader.alias}")
        except MirrorError as exc:
            self.problems.append(
                f"{exc}; which records of {self._flow.id.target} groups have read on "
                f"{reader.alias} is not known"
            )
            return None
        finally:
            await store.close()
            reader.close()
        return store.view

    async def told(self) -> WrittenCheckpoints:
        topic = naming_policy(self._flow).checkpoints_topic(source_alias(self._flow))
        # As a consumer, who reads them back after a restart too: see the guide to permissions.
        reader = open_cluster(self._target, "consumer")
        try:
            found = await _bounded(fetch_checkpoints(reader, topic), reader)
        except NotAuthorised as exc:
            self.problems.append(f"{exc}; checkpoints are not known")
            return NOTHING_TOLD
        finally:
            reader.close()
        self.seen.update(group for group, _ in found.checkpoints if self._follows(group))
        return found

    def committed(self) -> GroupOffsets:
        return self._offsets(GroupAdmin(self._target, timeout_s=_GROUPS_S_MAX))

    def merged(
        self,
        locations: Mapping[TopicPartition, LaneLocation],
        source: _Source,
        told: WrittenCheckpoints,
        committed: GroupOffsets,
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """The freshest of what the source, the checkpoints and the target's groups say."""
        by_target = {location.target: location for location in locations.values()}
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for group, offsets in source.offsets.items():
            for at, there in offsets.items():
                if at in locations or self._mirrors(at.topic):
                    found.setdefault(group, {})[at] = CommittedOffset(
                        offset=there.offset,
                        as_of_ms=source.at_ms,
                        origin="source",
                        metadata=there.metadata,
                    )
        wanted = {group for group, _ in told.checkpoints if self._wants(group)}
        for (group, target), checkpoint in told.checkpoints.items():
            location = by_target.get(target)
            if location is not None and group in wanted:
                known = found.setdefault(group, {})
                if location.lane.source not in known:
                    known[location.lane.source] = _told_position(
                        checkpoint, told.times_ms[group, target]
                    )
        # A group that only the target knows, while the source answers, is none of this flow's.
        for group, offsets in committed.items() if source.problem else ():
            for target, there in offsets.items():
                location = by_target.get(target)
                if location is None or location.lane.source in found.get(group, {}):
                    continue
                if (stands := _standing(location, there)) is not None:
                    found.setdefault(group, {})[location.lane.source] = stands
        return found

    def _wants(self, group: str) -> bool:
        return self._wanted(group) and self._follows(group)

    def _offsets(self, groups: GroupAdmin) -> GroupOffsets:
        listed = list_groups(groups, self._follows)
        self.seen.update(listed)
        found, hidden = read_offsets(groups, filter(self._wanted, listed))
        self.problems.extend(map(str, hidden.values()))
        return found


def _told_position(checkpoint: Checkpoint, at_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=checkpoint.upstream_offset,
        as_of_ms=at_ms if at_ms >= 0 else None,
        origin="checkpoint",
        metadata=checkpoint.metadata,
    )


def _standing(location: LaneLocation, there: GroupOffset) -> CommittedOffset | None:
    if location.offset_map.unsafe is not None:
        return None
    return CommittedOffset(
        offset=there.offset, as_of_ms=None, origin="target", metadata=there.metadata
    )


async def _probe(cluster: ClusterConfig, wait_s: float) -> None:
    probe = open_cluster(cluster, "consumer")
    try:
        await within(probe.refresh([]), wait_s, f"cluster {cluster.alias}")
    finally:
        probe.close()


@asynccontextmanager
async def _target_hand(
    config: MirrorConfig, flow: FlowId, ledger: OpenLedger | None
) -> AsyncIterator[OpenLedger]:
    if ledger is not None:
        yield ledger
        return
    async with open_ledger(config, flow) as opened:
        yield opened


async def _require_ledger(ledger: OpenLedger, flow: FlowId) -> None:
    """Also the first word of the target: threads that ask one that is away outlast this call."""
    topic = ledger_topic(flow.source)
    await _bounded(ledger.target.refresh([topic]), ledger.target)
    if ledger.target.topic(topic) is None:
        hidden = ledger.target.no_leader_error(TopicPartition(topic=topic, partition=0))
        if not isinstance(hidden, LeaderMoved):
            raise hidden
        require_ledger(ledger.target, flow, hidden)


async def _bounded(work: Awaitable[T], target: Cluster) -> T:
    return await within(work, _TARGET_S_MAX, f"cluster {target.alias}")


def _numbers(
    answers: Mapping[TopicPartition, int | BrokerError],
) -> dict[TopicPartition, int]:
    return {at: answer for at, answer in answers.items() if isinstance(answer, int)}
