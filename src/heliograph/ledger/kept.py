"""Stretches of a source that are copied whoever wrote them there. No I/O; runs anywhere.

    memo|kept/<topic>     ends of a topic's partitions, as a failback found them

A flow that leaves out what came from its target would, after a failover, also leave out what its
target has lost since: the old primary's own records, of which only the copy is left. So a failback
notes where the copy ended when it compared the two. What is before that, and behind the divergence,
goes back whoever wrote it; what comes later is judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.memo import Memo
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicId, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    topic_id: str
    """Of the source; a topic that was created again has nothing of it."""
    ends: Mapping[int, int]
    """By partition."""


_MEMO: Final[Memo[_Kept]] = Memo(_Kept)


def kept_entry(topic: TopicName, topic_id: TopicId, ends: Mapping[int, int]) -> MemoEntry:
    return _MEMO.entry(f"kept/{topic}", _Kept(topic_id=topic_id, ends=ends))


def kept_until(view: LedgerView, source: TopicPartition, topic_id: TopicId) -> int:
    """The first offset at which a batch's writer counts; 0 where all of them do."""
    try:
        kept = _MEMO.read(view, f"kept/{source.topic}")
    except WireError:
        # Written by nobody of ours. To copy less could lose records; nothing else says more.
        return 0
    return kept.ends.get(source.partition, 0) if kept and kept.topic_id == topic_id else 0
