"""The first record a lane has yet to mirror: where it is and how old. Runs on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.broker.log import fetch_once
from heliograph.errors import BrokerError, CorruptBatch
from heliograph.model import TopicPartition
from heliograph.wire.batch import MAGIC_AT, parse_header
from heliograph.wire.control import AbortedTransactions
from heliograph.wire.fetch import FetchedPartition

_FETCH_BYTES: Final = 64 * 1024
_FETCHES_MAX: Final = 16
_MAGIC: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    offset: int
    """Equal to the end when only markers and aborted records lie before it."""
    timestamp_ms: int | None
    """None where nothing waits, or where the source does not tell."""


async def first_pending_record(
    source: Cluster,
    partition: TopicPartition,
    next_offset: int,
    end_offset: int,
    *,
    read_committed: bool,
) -> PendingRecord:
    """Look past what a lane drops, so that a topic that ends in markers does not seem to lag."""
    walk = _Walk(next_offset)
    for _ in range(_FETCHES_MAX):
        before = walk.offset
        if before >= end_offset:
            return PendingRecord(offset=end_offset, timestamp_ms=None)
        try:
            fetched = await fetch_once(
                source, partition, before, bytes_max=_FETCH_BYTES, read_committed=read_committed
            )
            found = walk.over(fetched)
        except (BrokerError, CorruptBatch):
            # Told elsewhere: an offset that is gone is a loss, bad bytes stall the lane.
            break
        if found is not None:
            return found
        if walk.offset == before:
            break
    return PendingRecord(offset=min(walk.offset, end_offset), timestamp_ms=None)


class _Walk:
    """Over batches a lane would drop, up to the first that it would not."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def over(self, fetched: FetchedPartition) -> PendingRecord | None:
        # Every answer names the aborted transactions of its own records, begun earlier or not.
        aborted, window = AbortedTransactions(fetched.aborted), fetched.records
        while len(window) > MAGIC_AT and window[MAGIC_AT] == _MAGIC:
            header = parse_header(window)
            if header is None:
                break
            batch, window = window[: header.size_bytes], window[header.size_bytes :]
            if header.next_offset <= self.offset:
                continue
            is_aborted = aborted.covers(header)
            if header.is_control:
                aborted.end(header, batch)
            elif not is_aborted:
                late = header.is_log_append_time
                return PendingRecord(
                    offset=max(self.offset, header.base_offset),
                    timestamp_ms=header.max_timestamp_ms if late else header.base_timestamp_ms,
                )
            self.offset = header.next_offset
        return None
