"""What of a lane outlives its phase, by what it is about. Runs on executors."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from heliograph.broker.codes import TOO_LARGE
from heliograph.clock import monotonic_s, now_ms
from heliograph.copy.chunk import OutgoingBatch, SourcePoint
from heliograph.model import LATENCY_BUCKETS_MS, OffsetRange, TopicId
from heliograph.transform.record import Failure

LIVE_MS_MAX: Final = 60_000
"""Older records are a backlog; their age says nothing about latency."""
SIZE_S: Final = 10.0
"""How long a target is believed how large a batch may be."""
_BACKOFF_S: Final = 0.05
_BACKOFF_S_MAX: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Reached:
    """How far the target has come, as last acknowledged or looked up."""

    position: int = 0
    source_next_offset: int = 0
    source_leader_epoch: int = -1
    """Of the source's batch that ends at `source_next_offset`; -1 where that is not known."""
    target_next_offset: int = -1
    """-1 until the target's log said where the lane is."""
    identical: bool = False
    foreign_records: int = 0
    source_topic_id: TopicId | None = None
    """Whose offsets these are: the driver may name another topic meanwhile."""
    target_topic_id: TopicId | None = None
    """None until the lane has run here, and while it must not."""
    target_key: bytes = b""
    """The same in the wire's form."""
    acked_s: float = 0.0
    """When the last batch was acknowledged."""
    acked_timestamp_ms: int = -1
    """The newest timestamp in it."""
    sent_position: int = 0
    """Behind all that was sent, answered or not, since the target's log said where the lane is."""

    @property
    def source_point(self) -> SourcePoint | None:
        """The last of the source that this slot knows to be mirrored."""
        if self.source_leader_epoch < 0:
            return None
        return SourcePoint(
            position=self.position,
            next_offset=self.source_next_offset,
            leader_epoch=self.source_leader_epoch,
        )

    @property
    def sure_position(self) -> int | None:
        """Where the lane stands, unless something that was sent is unanswered."""
        is_known = self.target_topic_id is not None and self.sent_position <= self.position
        return self.position if is_known else None

    def read_to(self, next_offset: int, leader_epoch: int) -> None:
        """All of the source before this offset is in the target, or was dropped."""
        self.source_next_offset, self.source_leader_epoch = next_offset, leader_epoch


@dataclass(slots=True, kw_only=True)
class SourceSeen:
    """The source's log as the last fetch showed it."""

    start_offset: int = 0
    end_offset: int = -1
    """-1 until the source was heard."""


@dataclass(slots=True, kw_only=True)
class Learned:
    """What earlier tries taught; the next one heeds it."""

    fetch_bytes: int
    coalesce: bool = True
    corrupt_offset: int = -1
    failures: int = 0
    """In a row, until the target takes a batch or nothing waits for it."""
    mismatches: int = 0
    """Of them, answers that the sequence is not the next one."""
    unanswered: int = 0
    """Of them, connections that the target closed on a batch of the lane."""

    unwritable: dict[int, Failure] = field(default_factory=dict)
    """By source offset: records that the target refused each by itself."""
    suspects: OffsetRange | None = None
    """Source offsets of batches that the target refused, whatever record it was for."""
    asks_size: bool = False
    """Whether a batch was too large since the target was last asked how large they may be."""
    hides_size: bool = False
    """Whether the target does not say it to us."""
    _size_bytes: int = 0
    _size_s: float = 0.0
    _are_large: bool = True
    """Whether all suspects are so for their batch's size."""

    @property
    def size_bytes_max(self) -> int | None:
        """The largest batch the target takes, as it said a moment ago."""
        is_known = self._size_bytes and monotonic_s() - self._size_s < SIZE_S
        return self._size_bytes if is_known else None

    def take_size(self, size_bytes: int) -> None:
        """Batches are made to fit, and what does not fit alone is known without a try."""
        is_news = self.size_bytes_max != size_bytes
        self._size_bytes, self._size_s = size_bytes, monotonic_s()
        # Batches that were made to fit and were refused all the same are tried one by one.
        if self._are_large and is_news:
            self.suspects = None

    def blame(self, batch: OutgoingBatch, code: str, why: str) -> bool:
        """The target refuses a record of the batch for what it is; whether that is news."""
        start, end = batch.source_offset, batch.source_next_offset
        is_large = code == TOO_LARGE
        self.asks_size = (self.asks_size or is_large) and not self.hides_size
        if batch.record_count == 1:
            is_new = start not in self.unwritable
            self.unwritable[start] = Failure("target", code, why, "KAFKA_PRODUCE")
            return is_new
        self._are_large = is_large and (self._are_large or self.suspects is None)
        if self.suspects is not None and start <= self.suspects.end:
            start, end = min(start, self.suspects.start), max(end, self.suspects.end)
        before, self.suspects = self.suspects, OffsetRange(start=start, end=end)
        return self.suspects != before

    def passed(self, next_offset: int) -> None:
        """All before is in the target, or left out for good."""
        if self.suspects is not None and self.suspects.end <= next_offset:
            self.suspects = None
        if self.unwritable:
            self.unwritable = {at: why for at, why in self.unwritable.items() if at >= next_offset}

    def backoff_s(self) -> float:
        """How long to wait before the next try; grows with each failure in a row."""
        self.failures += 1
        return min(_BACKOFF_S * (1 << min(self.failures, 10)), _BACKOFF_S_MAX)

    def mismatch_backoff_s(self) -> float:
        """None the first time: the log will say what is in it."""
        delay_s = self.backoff_s() if self.failures else 0.0
        self.failures = max(self.failures, 1)
        return delay_s

    def forget_failures(self) -> None:
        self.failures = self.mismatches = self.unanswered = 0


@dataclass(slots=True, kw_only=True)
class Counted:
    """Since the slot took the lane."""

    records: int = 0
    bytes: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    last_timestamp_ms: int = -1
    unknown_control_records: int = 0
    latency_counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_MS) + 1))
    latency_ms_sum: int = 0

    def count(self, batch: OutgoingBatch) -> None:
        self.records += batch.record_count
        self.bytes += len(batch.view)
        timestamp_ms = batch.max_timestamp_ms
        if timestamp_ms < 0:
            return
        self.last_timestamp_ms = max(self.last_timestamp_ms, timestamp_ms)
        age_ms = now_ms() - timestamp_ms
        if age_ms > LIVE_MS_MAX:
            return
        self.latency_ms_sum += max(0, age_ms)
        self.latency_counts[bisect_left(LATENCY_BUCKETS_MS, age_ms)] += 1


@dataclass(slots=True, kw_only=True)
class HeadWritten:
    """What the ledger's head of the lane shows."""

    position: int = -1
    badge: str = ""
    _durable_offset: int = -1
    _queued_offset: int = -1
    _ticket: int = 0
    """Of the write that brings `_queued_offset`."""

    def wrote(self, source_next_offset: int, ticket: int) -> None:
        """A head is on its way; what the one before it said is durable or will not matter."""
        self._queued_offset, self._ticket = source_next_offset, ticket

    def is_behind(self, source_next_offset: int) -> bool:
        """Whether the ledger shows less of the source as read than that."""
        return self._queued_offset < source_next_offset

    def is_on_its_way(self, durable: int) -> bool:
        return self._ticket > durable

    def noted_offset(self, durable: int) -> int:
        """The source's offset up to which the ledger shows the lane as mirrored; -1 for none."""
        if not self.is_on_its_way(durable):
            self._durable_offset = self._queued_offset
        return self._durable_offset
