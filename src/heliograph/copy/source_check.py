"""Whether the source still has what was mirrored of it, asked at every resume. Runs on executors.

While a lane runs each Fetch carries the epoch of the last batch read, and the leader says where its
log parts from that (KIP-595). This is the same question for the time in which nobody read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from heliograph.broker.cluster import EpochEnd
from heliograph.copy.chunk import SourcePoint
from heliograph.copy.flow import Flow
from heliograph.copy.found import Blocked, Found, L, Resumable, ResumePoint, SourceTrouble
from heliograph.copy.phases import log_parted
from heliograph.errors import BrokerError
from heliograph.ledger.locate import is_other_topic
from heliograph.ledger.view import LaneRecord
from heliograph.model import StallReason

S = TypeVar("S")
SourceCheck = tuple[SourcePoint, EpochEnd | BrokerError]
"""Up to where the source was mirrored, and what its leader says of that epoch now."""


def by_leader(flow: Flow, lanes: Mapping[L, S]) -> list[dict[L, S]]:
    """The lanes in groups that one source broker leads."""
    groups: defaultdict[int, dict[L, S]] = defaultdict(dict)
    for lane, state in lanes.items():
        leader = flow.source.leader(lane.spec.id.source)
        groups[-1 if leader is None else leader.broker][lane] = state
    return list(groups.values())


async def check_source(flow: Flow, begun: Mapping[L, LaneRecord]) -> dict[L, SourceCheck]:
    points = {
        lane: point
        for lane, record in begun.items()
        if (point := _source_point(lane, record)) is not None
    }
    ends = await flow.source.epoch_ends(
        {lane.spec.id.source: point.leader_epoch for lane, point in points.items()}
    )
    return {lane: (point, ends[lane.spec.id.source]) for lane, point in points.items()}


def _source_point(lane: Resumable, record: LaneRecord) -> SourcePoint | None:
    """What was mirrored since the lane's last start; a start means to go on elsewhere."""
    start, head, own = record.starts[-1], record.head, lane.source_point
    known = [own] if own is not None else []
    if (
        head is not None
        and head.source_leader_epoch is not None
        and not is_other_topic(head.source_topic_id, lane.spec.source_topic_id)
    ):
        known.append(
            SourcePoint(
                position=head.position,
                next_offset=head.source_next_offset,
                leader_epoch=head.source_leader_epoch,
            )
        )
    last = max(known, key=lambda point: point.position, default=None)
    return last if last is not None and last.position > start.position else None


def as_source_says(lane: Resumable, at: ResumePoint, source: SourceCheck) -> Found:
    """Stalls a lane whose source lost what was mirrored, though its log may be longer now."""
    point, end = source
    if isinstance(end, BrokerError):
        return SourceTrouble(error=end)
    if 0 <= end.end_offset < point.next_offset:
        return Blocked(
            reason=StallReason.LOG_TRUNCATED,
            detail=log_parted(lane.spec.id.source, end.end_offset, point.next_offset),
            position=point.position,
            source_next_offset=point.next_offset,
            source_leader_epoch=point.leader_epoch,
            target_next_offset=at.cursor.target_offset,
        )
    is_known = end.epoch == point.leader_epoch
    if is_known and point.next_offset <= at.cursor.next_offset <= end.end_offset:
        return replace(at, cursor=replace(at.cursor, leader_epoch=point.leader_epoch))
    # The epoch of what was read last is not known, so the first fetch names none: a leader that
    # has forgotten an epoch, all of whose records were compacted, would take it for a cut log.
    return at
