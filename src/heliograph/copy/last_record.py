"""Whether the source still has the record that was mirrored last, by content. Runs on executors.

For what leader epochs leave open: a slot that was killed has mirrored more than its head says, and
the source had another leader since. Either the slot read from that one too, or what it read last is
gone and others have its offsets. So it is too where the slot was killed before its first head.
"""

from __future__ import annotations

import asyncio
from typing import Final

from heliograph.broker.cluster import LATEST, Cluster
from heliograph.broker.log import fetch_once, read_batches
from heliograph.clock import monotonic_s
from heliograph.copy.flow import Flow
from heliograph.copy.found import Blocked, Found, Resumable, ResumePoint, SourceTrouble
from heliograph.copy.phases import log_parted
from heliograph.copy.source_check import SourceCheck
from heliograph.errors import BrokerError, NotYetKnown, OffsetGone, TransformUnusable, WireError
from heliograph.ledger.view import LaneRecord
from heliograph.model import StallReason, TopicPartition
from heliograph.wire.opened import Content, open_records

_TRANSFORM_S_MAX: Final = 3.0
"""How long a transform is asked what it makes of one record."""
_AGAIN_S: Final = 0.05


def is_in_doubt(record: LaneRecord, at: ResumePoint, source: SourceCheck | None) -> bool:
    """Whether the lane came further than the epoch of its last known place reaches now, or than its
    start where nothing was noted since."""
    if source is None:
        noted = -1 if record.head is None else record.head.position
        return at.cursor.position > max(noted, record.starts[-1].position)
    point, end = source
    return (
        not isinstance(end, BrokerError)
        and end.epoch == point.leader_epoch
        and point.next_offset <= end.end_offset < at.cursor.next_offset
        and point.position < at.cursor.position
    )


async def as_last_record_says(
    flow: Flow,
    lane: Resumable,
    record: LaneRecord,
    at: ResumePoint,
    source: SourceCheck | None,
) -> Found:
    """Stalls the lane where the source has another record at the offset mirrored last, or ends
    before it."""
    last = at.cursor.position - 1
    last_offset = parted_at = record.runs.source_offset_at(last)
    epoch = -1
    if source is not None and not isinstance(source[1], BrokerError):
        parted_at, epoch = source[1].end_offset, source[0].leader_epoch
    try:
        original = await _record_at(flow.source, lane.spec.id.source, last_offset)
    except BrokerError as exc:
        if await _ends_before(flow.source, lane.spec.id.source, last_offset + 1):
            return _parted(lane, at, parted_at, epoch)
        return SourceTrouble(error=exc)
    copy = await _record_at(flow.target, lane.spec.target, record.runs.target_offset_at(last))
    if original is None or copy is None or _is_copy(original, copy):
        return at
    if flow.limits.transforms and not await _is_left_alone(flow, lane, last_offset, original[0]):
        return at
    return _parted(lane, at, parted_at, epoch)


async def _is_left_alone(flow: Flow, lane: Resumable, offset: int, original: Content) -> bool:
    """Whether the lane's transforms let the record through as it is. Where they change it nobody
    can tell: they may be others than those that the record was mirrored through."""
    try:
        transform = flow.new_transform_of(lane.spec)
    except TransformUnusable:
        return False  # the lane says so itself when it goes on
    due_s = monotonic_s() + _TRANSFORM_S_MAX
    while transform is not None:
        try:
            return transform.apply([offset], [original]).contents[0] == original
        except NotYetKnown:
            if monotonic_s() >= due_s:
                return False
            await asyncio.sleep(_AGAIN_S)
    return True


def _parted(lane: Resumable, at: ResumePoint, parted_at: int, epoch: int) -> Blocked:
    next_offset = at.cursor.next_offset
    return Blocked(
        reason=StallReason.LOG_TRUNCATED,
        detail=log_parted(lane.spec.id.source, parted_at, next_offset),
        position=at.cursor.position,
        source_next_offset=next_offset,
        source_leader_epoch=epoch,
        target_next_offset=at.cursor.target_offset,
    )


async def _ends_before(cluster: Cluster, partition: TopicPartition, end: int) -> bool:
    """Whether the leader's log, what its followers do not have yet included, does not reach there.

    One that lacks just the last record looks as if it had only to catch up.
    """
    try:
        await fetch_once(cluster, partition, end, bytes_max=1)
    except OffsetGone:
        pass
    except BrokerError:
        return False
    else:
        return False
    latest = (await cluster.list_offsets([partition], LATEST))[partition]
    return not isinstance(latest, BrokerError) and latest < end


async def _record_at(
    cluster: Cluster, partition: TopicPartition, offset: int
) -> tuple[Content, bool] | None:
    """With whether it has the time of its append; None where it is gone, or cannot be read."""
    try:
        async for header, batch in read_batches(cluster, partition, offset, offset + 1):
            for first, records in open_records(batch, header):
                if first <= offset < first + len(records):
                    return records[offset - first], header.is_log_append_time
    except (OffsetGone, WireError):
        return None
    return None


def _is_copy(original: tuple[Content, bool], copy: tuple[Content, bool]) -> bool:
    if copy[1]:
        return original[0][1:] == copy[0][1:]  # a target that stamps its own times
    return original[0] == copy[0]
