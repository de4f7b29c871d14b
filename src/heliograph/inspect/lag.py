"""What a source shows of what a lane has yet to mirror: its first record, how long it is kept.

Runs on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import Cluster
from heliograph.broker.log import fetch_once
from heliograph.broker.view import TopicSetting
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, CorruptBatch, NotAuthorised
from heliograph.lag.retention import Retention, retention_of
from heliograph.model import TopicName, TopicPartition
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


def read_retentions(
    source: ClusterConfig, topics: Iterable[TopicName]
) -> dict[TopicName, Retention]:
    """What the source deletes of these topics; those it does not tell about are left out. Blocks,
    and raises `BrokerError`."""
    return retentions_of(ClusterAdmin(source).topic_configs(topics))


def retentions_of(
    answers: Mapping[TopicName, Mapping[str, TopicSetting] | NotAuthorised],
) -> dict[TopicName, Retention]:
    found: dict[TopicName, Retention] = {}
    for topic, settings in answers.items():
        if isinstance(settings, NotAuthorised):
            continue
        known = {name: one.value for name, one in settings.items() if one.value is not None}
        retention = retention_of(known)
        if retention is not None:
            found[topic] = retention
    return found


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
