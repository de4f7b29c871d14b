"""One moment for all topics of a failover, so that an application finds them consistent. Driver.

Lanes are copied side by side, so at a failover one topic may have come further than another. With a
cut no group goes on behind the first record of the target that is not older than that moment: what
it had read of later ones it reads again, and so all its topics stand at the same time. A group that
had not come so far goes on where it stood, since nothing may be left out. Later records stay in the
log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from heliograph.broker.admin import ClusterAdmin
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.errors import NotAuthorised, RecoveryRefused
from heliograph.groups.placement import GroupPlan, Strategy, plan_group_offsets
from heliograph.groups.snapshot import FlowSnapshot, offsets_at
from heliograph.model import FlowId, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPoint:
    """One partition at the cut."""

    source: TopicPartition
    target: TopicPartition
    offset: int
    """Of the first record that is not older than the cut; the end where none is."""
    later_records: int
    """Offsets from there to the end: what groups read again, or for the first time."""
    is_gone: bool
    """Whether the log begins at the cut or later, and held something before."""


def cut_words(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


async def placed_at_cut(
    config: MirrorConfig, flow: FlowId, known: FlowSnapshot, at_ms: int
) -> tuple[GroupPlan, tuple[CutPoint, ...]]:
    """Groups by the map, and none of them behind the cut. Raises `RecoveryRefused` where the cut
    says nothing."""
    if at_ms > now_ms():
        raise RecoveryRefused(f"the cut is in the future: {cut_words(at_ms)}")
    targets = {source: lane.target for source, lane in sorted(known.locations.items())}
    await _require_times(config, flow, {target.topic for target in targets.values()})
    offsets = await offsets_at(config, flow, targets.values(), at_ms)
    silent = sorted(str(target) for target in targets.values() if target not in offsets)
    if silent:
        raise RecoveryRefused(
            f"cluster {flow.target} does not tell which records of {_some(silent)} are "
            "not older than the cut"
        )
    points = cut_points(known, targets, offsets)
    placing = plan_group_offsets(known, Strategy.MAP, cut_offsets=offsets)
    require_before(plan_group_offsets(known, Strategy.MAP), placing, points, at_ms)
    return placing, points


def cut_points(
    known: FlowSnapshot,
    targets: Mapping[TopicPartition, TopicPartition],
    offsets: Mapping[TopicPartition, int],
) -> tuple[CutPoint, ...]:
    """Of every partition; `offsets` has -1 where no record is that new."""
    points: list[CutPoint] = []
    for source, target in targets.items():
        start, end = known.target_starts.get(target, 0), known.target_ends.get(target, 0)
        at = end if offsets[target] < 0 else offsets[target]
        points.append(
            CutPoint(
                source=source,
                target=target,
                offset=at,
                later_records=max(0, end - at),
                is_gone=start > 0 and at <= start and at < end,
            )
        )
    return tuple(points)


def require_before(
    without: GroupPlan, placing: GroupPlan, points: Sequence[CutPoint], at_ms: int
) -> None:
    """A group that is set back to the beginning of a log may miss what the log no longer has."""
    gone = {point.target for point in points if point.is_gone}
    stood = {(move.group, move.target): move.target_offset for move in without.moves}
    missed = sorted(
        {
            str(move.target)
            for move in placing.moves
            if move.target in gone and move.target_offset < stood[move.group, move.target]
        }
    )
    if missed:
        raise RecoveryRefused(
            f"the cut, {cut_words(at_ms)}, is before the first record that is left of "
            f"{_some(missed)}: choose a later one"
        )


async def _require_times(config: MirrorConfig, flow: FlowId, topics: set[TopicName]) -> None:
    """Times of brokers tell when a record was copied, not when it was written."""
    admin = ClusterAdmin(config.target_of(flow))
    found = await asyncio.to_thread(admin.topic_configs, sorted(topics))
    stamped: list[str] = []
    for topic, settings in sorted(found.items()):
        if isinstance(settings, NotAuthorised):
            raise RecoveryRefused(f"{settings}: a cut needs to know whose timestamps {topic} has")
        kind = settings.get("message.timestamp.type")
        if kind is not None and kind.value == "LogAppendTime":
            stamped.append(topic)
    if stamped:
        raise RecoveryRefused(
            f"cluster {flow.target} puts its own times on {_some(stamped)} "
            "(message.timestamp.type=LogAppendTime): a cut by time would mean nothing"
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more:,} more" if more > 0 else "")
