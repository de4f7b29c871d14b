"""Take over from a MirrorMaker 2: look at what it left, find where each lane goes on. Driver only.

Nothing is changed here; `takeover.write` does that with what was found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.view import ClusterView
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, MirrorError
from heliograph.groups.reading import read_followed
from heliograph.ledger.access import open_ledger, require_unled
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.heads import is_released
from heliograph.ledger.locate import is_other_topic
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.model import FlowId, Lane, OffsetRange, TopicPartition
from heliograph.takeover.alignment import OffsetSyncAnchor
from heliograph.takeover.fingerprints import FingerprintReader
from heliograph.takeover.mm2_state import (
    Mm2State,
    connect_group,
    read_mm2_state,
    reads_committed,
    running_workers,
)
from heliograph.takeover.stranded import notes_on_stranded
from heliograph.takeover.verdict import (
    LaneFinding,
    Verdict,
    held,
    impossible,
    judge,
    refused,
)
from heliograph.takeover.walk import LaneLogs, Walker, WalkFrom
from heliograph.topics.filters import group_filter
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.observe import with_settings
from heliograph.topics.selection import Selection, select_topics
from heliograph.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFinding:
    flow: FlowId
    connector: str = ""
    offsets_topic: str = ""
    lanes: tuple[LaneFinding, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why nothing of the flow can be adopted."""
    source_cluster_id: str | None = None

    @property
    def adoptable(self) -> tuple[LaneFinding, ...]:
        if self.problem:
            return ()
        return tuple(lane for lane in self.lanes if lane.verdict is Verdict.ADOPT)

    @property
    def has_problems(self) -> bool:
        return bool(self.problem) or any(lane.problem for lane in self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Called with how many records will be read, then with how many more were."""

    total: Callable[[int], None]
    read: Callable[[int], None]


SILENT = Progress(total=lambda _: None, read=lambda _: None)


def look(
    config: MirrorConfig, flow_id: FlowId, begin: WalkFrom, progress: Progress = SILENT
) -> FlowFinding:
    """What adopting the flow would come to; what stands in the way is a value, not an exception."""
    try:
        return _look(config, config.flow(flow_id), begin, progress)
    except MirrorError as exc:
        return FlowFinding(flow=flow_id, problem=str(exc))


def _look(
    config: MirrorConfig, flow: FlowConfig, begin: WalkFrom, progress: Progress
) -> FlowFinding:
    if flow.transforms:
        raise MirrorError(
            f"{flow.id}: its transforms change records, so what MirrorMaker 2 mirrored cannot be "
            "compared with the source; adopt it without them, and set them afterwards"
        )
    _require_stopped(config, flow)
    source_admin = ClusterAdmin(config.source_of(flow.id))
    target_admin = ClusterAdmin(config.target_of(flow.id))
    source, target = source_admin.describe(), target_admin.describe()
    selection = select_topics(flow, source.topics)
    mirrored = [name for _, name in selection.mirrored if name in target.topics]
    target = with_settings(target_admin, target, mirrored)
    lanes = plan_lanes(flow, selection, source, target)
    carried: Mapping[TopicPartition, LaneLocation] = {}
    if ledger_topic(flow.id.source) in target.topics:
        carried = asyncio.run(_carried(config, flow, must_be_unled=True))
    mm2 = read_mm2_state(config, flow.id)
    bounds = _Bounds(source_admin, target_admin, flow, lanes)
    findings: dict[TopicPartition, LaneFinding] = {}
    logs = list[LaneLogs]()
    for lane in lanes:
        seen = _lane(lane, mm2, carried, bounds, target)
        if isinstance(seen, LaneFinding):
            findings[lane.id.source] = seen
        else:
            logs.append(seen)
    findings |= _walked(config, flow, logs, begin, progress, carried, target)
    bounds.require_still(target_admin, logs)
    _require_stopped(config, flow)
    return FlowFinding(
        flow=flow.id,
        connector=mm2.connector,
        offsets_topic=mm2.offsets_topic,
        lanes=tuple(findings[at] for at in sorted(findings)),
        notes=(
            *_notes(flow, mm2, selection, findings),
            *_notes_on_groups(config, flow, findings.values(), begin),
        ),
        source_cluster_id=source.cluster_id,
    )


def _notes_on_groups(
    config: MirrorConfig, flow: FlowConfig, lanes: Iterable[LaneFinding], begin: WalkFrom
) -> Iterable[str]:
    cluster, follows = GroupAdmin(config.source_of(flow.id)), group_filter(flow).should_follow
    try:
        found = read_followed(cluster, follows)
    except BrokerError as exc:
        return [f"whether groups keep their place is unknown: {exc}"]
    return notes_on_stranded(found.offsets, lanes, begin)


def _require_stopped(config: MirrorConfig, flow: FlowConfig) -> None:
    workers = asyncio.run(running_workers(config, flow.id))
    if workers:
        group = connect_group(flow, config.target_of(flow.id))
        raise MirrorError(
            f"MirrorMaker 2 is running: group {group} on {flow.id.target} has the members "
            f"{', '.join(workers)}; stop it first. A killed worker leaves the group after its "
            "session timeout (10 s by default)"
        )


async def _carried(
    config: MirrorConfig, flow: FlowConfig, *, must_be_unled: bool
) -> Mapping[TopicPartition, LaneLocation]:
    """Lanes that the ledger knows."""
    async with open_ledger(config, flow.id) as ledger:
        locations = await locate_lanes(flow, ledger.target, ledger.store, all_topics())
        if must_be_unled:
            await require_unled(ledger.store, flow.id)
        return {location.lane.source: location for location in locations}


class _Bounds:
    """Where the logs of all lanes begin and end."""

    def __init__(
        self,
        source: ClusterAdmin,
        target: ClusterAdmin,
        flow: FlowConfig,
        lanes: Sequence[Lane],
    ) -> None:
        sources, targets = [lane.id.source for lane in lanes], [lane.target for lane in lanes]
        committed = reads_committed(flow)
        self.source_start = source.list_offsets(sources, "earliest")
        self.source_end = source.list_offsets(sources, "latest", read_committed=committed)
        self.target_start = target.list_offsets(targets, "earliest")
        self.target_end = target.list_offsets(targets, "latest")
        self.target_stable = target.list_offsets(targets, "latest", read_committed=True)

    def require_still(self, target: ClusterAdmin, logs: Iterable[LaneLogs]) -> None:
        """Raises `MirrorError` if records were written to the target meanwhile."""
        watched = [each.lane.target for each in logs]
        ends = target.list_offsets(watched, "latest")
        grown = [at for at in watched if ends.get(at) != self.target_end.get(at)]
        if grown:
            raise MirrorError(
                f"records were written to {grown[0]} during the comparison: stop its writer, and "
                "rerun this command"
            )


def _lane(
    lane: Lane,
    mm2: Mm2State,
    carried: Mapping[TopicPartition, LaneLocation],
    bounds: _Bounds,
    target: ClusterView,
) -> LaneLogs | LaneFinding:
    at, to = lane.id.source, lane.target
    location = carried.get(at)
    if location is not None and not is_released(location.record):
        return held(lane.id, to)
    known = (bounds.source_start, bounds.source_end)
    if any(at not in some for some in known) or to not in bounds.target_end:
        return refused(
            lane.id, to, "its source or target partition has no leader; rerun when it has one"
        )
    if bounds.target_stable.get(to) != bounds.target_end[to]:
        return refused(
            lane.id,
            to,
            "a transaction on the target is still open; it times out by itself, rerun in a minute",
        )
    last = mm2.positions.get(at)
    resumed = None
    if location is not None:
        changed = _changed_topic(location, lane, target)
        if changed:
            return refused(lane.id, to, changed)
        resumed = OffsetSyncAnchor(
            source_offset=location.source_next_offset, target_offset=location.target_next_offset
        )
    source_start = bounds.source_start[at]
    logs = LaneLogs(
        lane=lane,
        stored_next=None if last is None else last + 1,
        anchors=mm2.anchors.get(at, ()),
        source=OffsetRange(start=source_start, end=max(source_start, bounds.source_end[at])),
        target=OffsetRange(start=bounds.target_start[to], end=bounds.target_end[to]),
        is_compacted="compact" in (target.topics[to.topic].setting("cleanup.policy") or ""),
        resumed=resumed,
    )
    problem = impossible(logs)
    return refused(lane.id, to, problem) if problem else logs


def _changed_topic(location: LaneLocation, lane: Lane, target: ClusterView) -> str:
    """Whether one of the topics is another than the lane was released with."""
    start = location.record.starts[-1]
    if is_other_topic(start.source_topic_id, lane.source_topic_id):
        return "the source topic was recreated since the lane was released"
    if is_other_topic(start.target_topic_id, target.topics[lane.target.topic].id):
        return "the target topic was recreated since the lane was released"
    return ""


def _walked(
    config: MirrorConfig,
    flow: FlowConfig,
    logs: Sequence[LaneLogs],
    begin: WalkFrom,
    progress: Progress,
    carried: Mapping[TopicPartition, LaneLocation],
    target: ClusterView,
) -> dict[TopicPartition, LaneFinding]:
    if not logs:
        return {}
    progress.total(sum(2 * each.target.count for each in logs))
    findings: dict[TopicPartition, LaneFinding] = {}
    source_reader = FingerprintReader(
        config.source_of(flow.id), read_committed=reads_committed(flow)
    )
    try:
        target_reader = FingerprintReader(
            config.target_of(flow.id), read_committed=True, is_copy=True
        )
        try:
            walker = Walker(source_reader, target_reader, progress.read)
            for walked in walker.walk(logs, begin):
                lane = walked.logs.lane
                location = carried.get(lane.id.source)
                findings[lane.id.source] = judge(
                    walked,
                    target.topics[lane.target.topic].id,
                    None if location is None else location.position,
                )
        finally:
            target_reader.close()
    finally:
        source_reader.close()
    return findings


def _notes(
    flow: FlowConfig,
    mm2: Mm2State,
    selection: Selection,
    findings: Mapping[TopicPartition, LaneFinding],
) -> Iterable[str]:
    chosen = {name for name, _ in selection.mirrored}
    absent = sorted(at for at in mm2.positions if at.topic in chosen and at not in findings)
    if absent:
        yield (
            f"{counted(len(absent), 'stored offset')} of partitions that one cluster does not "
            f"have: {', '.join(map(str, absent[:3]))}"
        )
    others = {at.topic for at in mm2.positions if at.topic not in chosen}
    if others:
        yield (
            f"stored offsets of {counted(len(others), 'topic')} that this file does not mirror "
            "stay as they are"
        )
    if mm2.garbage_records:
        records = counted(mm2.garbage_records, "record")
        yield f"{records} in MirrorMaker 2's topics could not be read"
    if flow.read_committed and not reads_committed(flow):
        yield (
            "with this file MirrorMaker 2 also copies records of aborted transactions; Heliograph "
            "does not (read.committed)"
        )
