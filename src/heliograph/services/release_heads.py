"""The head of a lane that is settled: what its next carrier goes by. Driver only; no I/O."""

from __future__ import annotations

from heliograph.clock import now_ms
from heliograph.ledger.entries import HeadEntry
from heliograph.services.places import LanePlace


def settled_head(
    place: LanePlace, last: HeadEntry | None, *, state: str | None = None, detail: str = ""
) -> HeadEntry:
    """Where the lane is, as the log says; as its last head but for that."""
    source, start = place.lane.source, place.record.starts[-1]
    end = last.source_end_offset if last is not None else 0
    return HeadEntry(
        topic=source.topic,
        partition=source.partition,
        position=place.position,
        source_next_offset=place.source_next_offset,
        source_end_offset=max(end, place.source_next_offset),
        target_next_offset=place.target_next_offset,
        source_topic_id=start.source_topic_id,
        target_topic_id=start.target_topic_id,
        at_ms=now_ms(),
        state=state or (last.state if last is not None else "idle"),
        detail=detail,
    )
