"""Heads of lanes that are settled or handed on: what the next carrier goes by. Driver only; no
I/O."""

from __future__ import annotations

from heliograph.clock import now_ms
from heliograph.ledger.entries import RELEASED, HeadEntry
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicPartition


def is_released(record: LaneRecord) -> bool:
    """Whether MirrorMaker 2 carries the lane since; whoever goes on here would repeat its work."""
    return record.head is not None and record.head.state == RELEASED


def released_lanes(view: LedgerView) -> frozenset[TopicPartition]:
    """Lanes, by source partition, that must be adopted before they are carried again."""
    return frozenset(
        lane
        for lane in view.lanes
        if (record := view.lane(lane.topic, lane.partition)) is not None and is_released(record)
    )


def settled_head(
    location: LaneLocation, last: HeadEntry | None, *, state: str | None = None, detail: str = ""
) -> HeadEntry:
    """Where the lane is, as the log says; as its last head but for that."""
    source, start = location.lane.source, location.record.starts[-1]
    end = last.source_end_offset if last is not None else 0
    epoch = None
    if last is not None and last.source_next_offset == location.source_next_offset:
        epoch = last.source_leader_epoch
    return HeadEntry(
        topic=source.topic,
        partition=source.partition,
        position=location.position,
        source_next_offset=location.source_next_offset,
        source_end_offset=max(end, location.source_next_offset),
        target_next_offset=location.target_next_offset,
        source_topic_id=start.source_topic_id,
        target_topic_id=start.target_topic_id,
        at_ms=now_ms(),
        state=state or (last.state if last is not None else "idle"),
        detail=detail,
        source_leader_epoch=epoch,
        begun_at=start.source_offset if _is_before_first(location) else None,
    )


def _is_before_first(location: LaneLocation) -> bool:
    """Whether the lane has read on from its last start, and mirrored nothing of that."""
    start = location.record.starts[-1]
    return location.position == start.position and location.source_next_offset > start.source_offset
