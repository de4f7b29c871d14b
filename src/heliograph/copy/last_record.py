"""Whether the source still has the record that was mirrored last, by content. Runs on executors.

For what leader epochs leave open: a slot that was killed has mirrored more than its head says, and
the source had another leader since. Either the slot read from that one too, or what it read last is
gone and others have its offsets. So it is too where the slot was killed before its first head.
"""

from __future__ import annotations

from heliograph.broker.cluster import Cluster
from heliograph.broker.log import read_batches
from heliograph.copy.flow import Flow
from heliograph.copy.found import Blocked, Found, Resumable, ResumePoint, SourceTrouble
from heliograph.copy.phases import log_parted
from heliograph.copy.source_check import SourceCheck
from heliograph.errors import BrokerError, NotYetKnown, OffsetGone, TransformUnusable, WireError
from heliograph.ledger.view import LaneRecord
from heliograph.model import StallReason, TopicPartition
from heliograph.wire.opened import Content, open_records


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
    """Stalls the lane where the source has another record at the offset mirrored last."""
    last = at.cursor.position - 1
    try:
        original = await _record_at(
            flow.source, lane.spec.id.source, record.runs.source_offset_at(last)
        )
    except BrokerError as exc:
        return SourceTrouble(error=exc)
    copy = await _record_at(flow.target, lane.spec.target, record.runs.target_offset_at(last))
    if original is not None and flow.limits.transforms:
        original = _transformed(flow, lane, record.runs.source_offset_at(last), original)
    if original is None or copy is None or _is_copy(original, copy):
        return at
    parted_at, epoch = record.runs.source_offset_at(last), -1
    if source is not None and not isinstance(source[1], BrokerError):
        parted_at, epoch = source[1].end_offset, source[0].leader_epoch
    return _parted(lane, at, parted_at, epoch)


def _transformed(
    flow: Flow, lane: Resumable, offset: int, original: tuple[Content, bool]
) -> tuple[Content, bool] | None:
    """What the lane's transforms make of the record; None where nobody can tell."""
    try:
        transform = flow.transform_of(lane.spec)
    except TransformUnusable:
        return None  # the lane says so itself when it goes on
    if transform is None:
        return original
    try:
        once, again = (transform.apply([offset], [original[0]]).contents[0] for _ in range(2))
    except NotYetKnown:
        return None
    return None if once is None or once != again else (once, original[1])


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
