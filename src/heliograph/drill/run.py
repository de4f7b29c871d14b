"""Rehearse a failover on live clusters and touch nothing that is real. Runs on the driver.

Everything a failover would do is done from the target alone, but in the name of shadow groups; then
what those read is compared with what the real groups would have read on the source.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from heliograph.broker.groups import GroupAdmin
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.drill.reading import Sampled, Sampler
from heliograph.drill.report import (
    DrillOptions,
    DrillReport,
    DrillStep,
    GroupDrill,
    LaneExposure,
    SkippedRecords,
    UnplacedPartition,
)
from heliograph.drill.sample import Compared, source_position, target_position
from heliograph.drill.shadow_groups import (
    Shadows,
    commit_shadows,
    look_for_shadows,
    new_tag,
    remove_shadows,
    require_free,
    shadow_of,
)
from heliograph.errors import BrokerError, MirrorError
from heliograph.groups.placement import (
    GroupMove,
    GroupPlan,
    Strategy,
    groups_of,
    plan_group_offsets,
)
from heliograph.groups.reading import GroupOffsets, read_followed, read_offsets
from heliograph.groups.snapshot import FlowSnapshot, read_snapshot
from heliograph.inspect.flow_status import FlowStatus
from heliograph.inspect.status import ANSWER_S_MAX, StatusReader
from heliograph.ledger.locations import LaneLocation
from heliograph.model import FlowId, TopicPartition
from heliograph.topics.filters import group_filter, topic_filter
from heliograph.words import counted

Say = Callable[[str], None]
Places = Mapping[str, Mapping[TopicPartition, int]]
"""Committed offsets, by group and partition."""
_NOTES_MAX: Final = 5
_NEVER: Final = "no checkpoint tells where it stands"


async def drill(
    config: MirrorConfig, flow: FlowId, options: DrillOptions, say: Say = lambda _: None
) -> DrillReport:
    """One drill. Raises `MirrorError` where it cannot be done, `BrokerError` among them."""
    return await _Drill(config, config.flow(flow), options, say).run()


async def sweep(config: MirrorConfig, flow: FlowId) -> tuple[str, ...]:
    """Remove what drills that were killed have left behind; their names. Raises `BrokerError`."""
    groups = GroupAdmin(config.target_of(flow), timeout_s=ANSWER_S_MAX)

    def clear() -> tuple[str, ...]:
        found = look_for_shadows(groups).stale
        remove_shadows(groups, found)
        return found

    return await asyncio.to_thread(clear)


def wanted_groups(pattern: str | None) -> Callable[[str], bool]:
    """Raises `re.error`."""
    wanted = re.compile(".*" if pattern is None else pattern, re.DOTALL)
    return lambda group: wanted.fullmatch(group) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """How things are at the moment the source is taken for lost."""

    status: FlowStatus
    groups: Places


@dataclass(slots=True)
class _Told:
    text: str = ""


@dataclass(slots=True)
class _Steps:
    say: Say
    done: list[DrillStep] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, *, in_rto: bool = True) -> Iterator[_Told]:
        self.say(name)
        told, began_s = _Told(), monotonic_s()
        yield told
        self.add(name, monotonic_s() - began_s, told.text, in_rto=in_rto)

    def add(self, name: str, seconds: float, told: str, *, in_rto: bool = True) -> None:
        self.done.append(DrillStep(name=name, seconds=seconds, told=told, in_rto=in_rto))


class _Drill:
    def __init__(
        self, config: MirrorConfig, flow: FlowConfig, options: DrillOptions, say: Say
    ) -> None:
        self._config, self._flow, self._options = config, flow, options
        self._wanted = wanted_groups(options.group)
        self._steps = _Steps(say)
        self._notes: list[str] = []
        self._source = GroupAdmin(config.source_of(flow.id), timeout_s=ANSWER_S_MAX)
        self._target = GroupAdmin(config.target_of(flow.id), timeout_s=ANSWER_S_MAX)

    async def run(self) -> DrillReport:
        began_ms = now_ms()
        with self._steps.step("look at the source", in_rto=False) as told:
            live = await self._look()
            told.text = (
                f"{counted(len(live.status.lanes), 'lane')}, {counted(len(live.groups), 'group')}"
            )
        with self._steps.step("clear away old shadows", in_rto=False) as told:
            told.text = await asyncio.to_thread(self._make_room, live.groups)
        try:
            groups = await self._rehearse(live, began_ms)
        finally:
            with self._steps.step("remove the shadows", in_rto=False) as told:
                told.text = await asyncio.to_thread(self._clear, live.groups)
        holder = live.status.holder
        if holder is None:
            self._notes.append("no driver mirrors the flow at this moment")
        return DrillReport(
            flow=self._flow.id,
            began_ms=began_ms,
            ended_ms=now_ms(),
            host=socket.gethostname(),
            carried_by="" if holder is None else f"{holder.host} pid {holder.pid}",
            options=self._options,
            steps=tuple(self._steps.done),
            lanes=tuple(
                LaneExposure(
                    source=lane.lane.source,
                    state=lane.state,
                    detail=lane.detail,
                    lag_records=lane.lag_records,
                    lag_s=lane.lag_s,
                )
                for lane in live.status.lanes
            ),
            groups=groups,
            notes=tuple(self._notes),
        )

    async def _look(self) -> _Live:
        # The places first: groups that are listed later are at worst ahead of what is mirrored.
        reader = StatusReader(self._config.model_copy(update={"pairs": (self._flow,)}))
        try:
            (status,) = (await reader.read()).flows
        finally:
            await reader.close()
        fence = status.fence
        if fence is not None:
            at = datetime.fromtimestamp(fence.at_ms / 1000, tz=UTC)
            raise MirrorError(
                f"{self._flow.id} is fenced since {at:%Y-%m-%d %H:%M} UTC: "
                f"{fence.why}; there is nothing to rehearse"
            )
        if status.problem:
            needs = "; a drill needs both clusters, to compare them" if status.lanes else ""
            raise BrokerError(f"{status.problem}{needs}")
        mirrored = {lane.lane.source for lane in status.lanes}
        return _Live(status=status, groups=await asyncio.to_thread(self._live, mirrored))

    def _live(self, mirrored: set[TopicPartition]) -> Places:
        """Where the real groups stand on the source, on what the flow mirrors."""
        mirrors = topic_filter(self._flow)
        seen = read_followed(self._source, group_filter(self._flow).should_follow, self._wanted)
        if self._options.group is not None and not (seen.offsets or seen.hidden):
            listed = list(seen.listed)
            known = ", ".join(listed[:_NOTES_MAX]) or "none"
            more = f" and {len(listed) - _NOTES_MAX} more" if len(listed) > _NOTES_MAX else ""
            raise MirrorError(
                f"no group that {self._flow.id} follows matches {self._options.group!r}; "
                f"it follows {known}{more}"
            )
        self._notes.extend(
            f"{why}: group {group} is not drilled" for group, why in seen.hidden.items()
        )
        found = _offsets_only(
            seen.offsets_on(lambda at: at in mirrored or mirrors.should_mirror(at.topic))
        )
        if not found:
            self._notes.append(
                "no group has committed anything on what is mirrored: "
                "only lanes and ledger were drilled"
            )
        return found

    def _make_room(self, groups: Places) -> str:
        shadows: Shadows = look_for_shadows(self._target)
        require_free(shadows, groups)
        if not shadows.stale:
            return "none were left behind"
        problems = remove_shadows(self._target, shadows.stale)
        self._notes.extend(problems)
        removed = len(shadows.stale) - len(problems)
        return f"removed {removed:,} that a drill had left behind"

    def _clear(self, groups: Places) -> str:
        made = [shadow_of(group) for group in groups]
        try:
            problems = remove_shadows(self._target, made)
        except BrokerError as exc:
            # What was found out is worth more than a tidy end; the next drill removes them.
            problems = (f"shadow groups may be left behind: {exc}",)
        self._notes.extend(problems[:_NOTES_MAX])
        return "some are left behind" if problems else counted(len(made), "group")

    async def _rehearse(self, live: _Live, began_ms: int) -> tuple[GroupDrill, ...]:
        with self._steps.step("reach the target") as told:
            # As a tool that was just started: with a connection of its own.
            fresh = GroupAdmin(self._config.target_of(self._flow.id), timeout_s=ANSWER_S_MAX)
            there = await asyncio.to_thread(fresh.list_groups)
            told.text = f"it answers: {counted(len(there), 'group')} there"
        with self._steps.step("read the ledger and the checkpoints") as told:
            known = await read_snapshot(self._config, self._flow.id, self._wanted, ask_source=False)
            told.text = (
                f"{counted(len(known.locations), 'lane')}, "
                f"{counted(len(known.checkpoints), 'checkpoint')}"
            )
            self._notes.extend(known.problems[:_NOTES_MAX])
        with self._steps.step("place the groups by the map") as told:
            placing = plan_group_offsets(known, Strategy.MAP)
            moves = {
                group: each
                for group, each in groups_of(placing.moves).items()
                if group in live.groups
            }
            told.text = (
                f"{counted(sum(map(len, moves.values())), 'place')} of "
                f"{counted(len(moves), 'group')}"
            )
        if not moves:
            return tuple(self._results(live, live.groups, known, placing, {}, {}))
        with self._steps.step("commit the groups") as told:
            wanted = {g: {m.target: m.target_offset for m in each} for g, each in moves.items()}
            tag = new_tag(self._flow.id)
            await asyncio.to_thread(commit_shadows, self._target, wanted, tag)
            told.text = counted(len(wanted), "shadow group")
        sampler = Sampler(
            config=self._config,
            known=known,
            records_max=self._options.sample_records,
            turn=began_ms // 1000,
        )
        self._steps.say("go on reading")
        reading = await asyncio.to_thread(sampler.read_target, moves)
        slowest = f"the slowest of {counted(reading.groups, 'consumer')}, one after the other"
        self._steps.add("go on reading", reading.slowest_s, slowest)
        with self._steps.step("compare with the source", in_rto=False) as told:
            sampled = await sampler.compare()
            later = await asyncio.to_thread(self._offsets_again, live.groups)
            told.text = counted(sampler.compared_records, "record")
        self._notes.extend(sampler.notes)
        return tuple(self._results(live, later, known, placing, moves, sampled))

    def _offsets_again(self, groups: Places) -> Places:
        """A group that goes on reading while we look must not seem to have been skipped ahead."""
        found, _ = read_offsets(self._source, groups)
        return _offsets_only(found)

    def _results(
        self,
        live: _Live,
        later: Places,
        known: FlowSnapshot,
        placing: GroupPlan,
        moves: Mapping[str, Sequence[GroupMove]],
        sampled: Mapping[str, Sampled],
    ) -> Iterator[GroupDrill]:
        starts = {lane.lane.source: lane.source_start_offset or 0 for lane in live.status.lanes}
        why = {(one.group, one.source): one.why for one in placing.unplaced}
        for group, stood in sorted(live.groups.items()):
            own = {move.source: move for move in moves.get(group, ())}
            repeated, skipped = 0, []
            for source, move in own.items():
                if source not in stood:
                    continue
                now_at = max(stood[source], starts.get(source, 0))
                later_at = max(now_at, later.get(group, {}).get(source, 0))
                again, never = _cost(known.locations[source], move, now_at, later_at)
                repeated += again
                if never:
                    skipped.append(
                        SkippedRecords(source=source, from_offset=later_at, records=never)
                    )
            found = sampled.get(group)
            compared = Compared() if found is None else found.compared
            yield GroupDrill(
                group=group,
                partitions=len(own),
                repeated_records=repeated,
                skipped=tuple(skipped),
                unplaced=tuple(
                    UnplacedPartition(source=source, why=why.get((group, source), _NEVER))
                    for source in sorted(stood)
                    if source not in own and _has_records(known, source)
                ),
                notes=tuple(dict.fromkeys(move.note for move in own.values() if move.note)),
                sampled_partitions=0 if found is None else found.partitions,
                equal_records=compared.equal_records,
                others_records=compared.others_records,
                findings=compared.findings,
            )


def _offsets_only(groups: GroupOffsets) -> Places:
    return {
        group: {at: stood.offset for at, stood in each.items()} for group, each in groups.items()
    }


def _cost(location: LaneLocation, move: GroupMove, now_at: int, later_at: int) -> tuple[int, int]:
    """Records read again, and records never read, compared with where the real group stands."""
    goes_on = target_position(location, move.target_offset)
    return (
        max(0, source_position(location, now_at) - goes_on),
        max(0, goes_on - source_position(location, later_at)),
    )


def _has_records(known: FlowSnapshot, source: TopicPartition) -> bool:
    """Before a lane's first record there is nothing on the target that a place could mean."""
    place = known.locations.get(source)
    return place is None or place.position > 0
