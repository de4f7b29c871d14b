"""Stretches of a source that are copied whoever wrote them there. No I/O; runs anywhere.

    memo|kept/<topic>     ends of a topic's partitions, as a failback found them, and where the
                          stretch begins where that is not with the log

A flow that leaves out what came from its target would, after a failover, also leave out what its
target has lost since: the old primary's own records, of which only the copy is left. So a failback
notes where the copy ended when it compared the two. What is before that, and behind the divergence,
goes back whoever wrote it; what comes later is judged again, and so is what comes before where the
way back goes on by its own map and not at the divergence (`failback.both_written`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.memo import Memo
from heliograph.ledger.view import LedgerView
from heliograph.model import OffsetRange, TopicId, TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader

NOTHING_KEPT: Final = OffsetRange(start=0, end=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    topic_id: str
    """Of the source; a topic that was created again has nothing of it."""
    ends: Mapping[int, int]
    """By partition."""
    starts: Mapping[int, int] | None = None
    """By partition, of those that are not kept from the beginning."""


_MEMO: Final[Memo[_Kept]] = Memo(_Kept, writes_null=False)


def kept_entry(topic: TopicName, topic_id: TopicId, kept: Mapping[int, OffsetRange]) -> MemoEntry:
    """`kept` is by partition."""
    ends = {number: part.end for number, part in kept.items()}
    starts = {number: part.start for number, part in kept.items() if part.start}
    return _MEMO.entry(f"kept/{topic}", _Kept(topic_id=topic_id, ends=ends, starts=starts or None))


def kept_of(view: LedgerView, source: TopicPartition, topic_id: TopicId) -> OffsetRange:
    """The offsets at which no batch's writer counts; empty where all of them do."""
    try:
        kept = _MEMO.read(view, f"kept/{source.topic}")
    except WireError:
        # Written by nobody of ours. To copy less could lose records; nothing else says more.
        return NOTHING_KEPT
    if kept is None or kept.topic_id != topic_id:
        return NOTHING_KEPT
    end = kept.ends.get(source.partition, 0)
    start = (kept.starts or {}).get(source.partition, 0)
    return OffsetRange(start=min(start, end), end=end)


def left_out_until(header: BatchHeader, mirrors: Collection[int], kept: OffsetRange) -> int:
    """Before which offset a flow leaves out the records of a batch of its source: those of mirrors,
    but for what is kept, which may begin within. The one answer for all that ask."""
    first = header.base_offset
    if header.producer_id not in mirrors:
        return first
    return max(first, kept.start) if is_kept(header, kept) else header.next_offset


def is_kept(header: BatchHeader, kept: OffsetRange) -> bool:
    """Whether some of it is."""
    return bool(kept.count) and header.base_offset < kept.end and header.next_offset > kept.start
