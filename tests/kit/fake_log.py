"""One partition in memory that obeys the broker's rules for producers, deletion and visibility.

`tests/cluster/test_fake_cluster.py` runs the same script against this and against a real broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import SEQUENCES, BatchHeader, parse_header, verify_crc

_REMEMBERED_BATCHES: Final = 5
_NO_PRODUCER: Final = -1


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES)
    )
    """First and last sequence and base offset of the last batches."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One that has ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    commits: bool


@dataclass(slots=True)
class _Batch:
    header: BatchHeader
    """As the log has it: with its offset."""
    content: bytes


class Refusal(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class FakeLog:
    def __init__(self, *, is_compacted: bool = False) -> None:
        self.start = 0
        self.end = 0
        """Of the leader's log; followers may not have it all."""
        self.unreplicated = 0
        """Offsets at the end that followers do not have yet."""
        self.is_compacted = is_compacted
        """Only: such a topic refuses to delete records."""
        self.epoch = 0
        """Of the leader."""
        self.lags = False
        """Whether followers take up what is appended only when they are told to."""
        self.is_settling = False
        """Whether the leader is so new that it does not know yet how far its followers are."""
        self._epoch_starts: dict[int, int] = {0: 0}
        self.aborted: list[tuple[int, int]] = []
        """Producer id and first offset of each transaction that was aborted."""
        self.producers: dict[int, _Producer] = {}
        self.transactions: dict[int, int] = {}
        """Those that are open: first offset by producer id."""
        self._ended: list[Transaction] = []
        self._batches: list[_Batch] = []

    @property
    def high_watermark(self) -> int:
        return max(self.start, self.end - self.unreplicated)

    @property
    def last_stable_offset(self) -> int:
        """A transaction holds it back until its marker is below the high watermark."""
        high = self.high_watermark
        held = [each.first_offset for each in self._ended if each.marker_offset >= high]
        return min([high, *self.transactions.values(), *held])

    def append(self, batch: bytes) -> int:
        """Its base offset; of a batch that is there already, the first one's."""
        header = parse_header(memoryview(batch))
        if header is None:
            raise Refusal(ErrorCode.corrupt_message)
        try:
            verify_crc(memoryview(batch), header)
        except CorruptBatch:
            raise Refusal(ErrorCode.corrupt_message) from None
        if header.record_count != header.last_offset_delta + 1:
            raise Refusal(ErrorCode.invalid_record)
        if header.producer_id != _NO_PRODUCER:
            earlier = self._earlier(header)
            if earlier is not None:
                return earlier
        return self._add(header, batch)

    def end_transaction(self, batch: bytes, *, commits: bool) -> int:
        """The marker's offset; `batch` is a control batch of the producer, as a broker writes it.

        Ending what is not open writes a marker all the same.
        """
        header = parse_header(memoryview(batch))
        assert header is not None and header.is_control
        offset = self._add(header, batch)
        first = self.transactions.pop(header.producer_id, None)
        if first is not None:
            self._ended.append(Transaction(header.producer_id, first, offset, commits))
        return offset

    def _add(self, header: BatchHeader, batch: bytes) -> int:
        base_offset = self.end
        self._remember(header, base_offset)
        if header.is_transactional and not header.is_control:
            self.transactions.setdefault(header.producer_id, base_offset)
        content = base_offset.to_bytes(8, "big") + batch[8:12]
        content += self.epoch.to_bytes(4, "big") + batch[16:]
        placed = header._replace(base_offset=base_offset, leader_epoch=self.epoch)
        self._batches.append(_Batch(placed, content))
        self.end += header.last_offset_delta + 1
        if self.lags:
            self.unreplicated += header.last_offset_delta + 1
        return base_offset

    def aborted_between(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Aborted transactions with anything in `[offset, end)`, as an answer to a Fetch names
        them."""
        return self.aborted + [
            (each.producer_id, each.first_offset)
            for each in self._ended
            if not each.commits and each.marker_offset >= offset and each.first_offset < end
        ]

    def hold(self, batches: Iterable[bytes | memoryview], start: int = 0) -> None:
        """Take these as they are, offsets, holes and damage included, instead of what was there."""
        self.start = self.end = start
        self.producers.clear()
        self.transactions.clear()
        self._ended.clear()
        self._batches.clear()
        for batch in batches:
            header = parse_header(memoryview(batch))
            assert header is not None, "cut short"
            self._batches.append(_Batch(header, bytes(batch)))
            self._remember(header, header.base_offset)
            self.end = header.next_offset

    def delete_before(self, offset: int) -> int:
        """Where the log starts then. The broker goes on remembering producers."""
        if self.is_compacted:
            raise Refusal(ErrorCode.policy_violation)
        if offset > self.high_watermark:
            raise Refusal(ErrorCode.offset_out_of_range)
        self.start = max(self.start, offset)
        self._batches = [each for each in self._batches if each.header.next_offset > self.start]
        return self.start

    def read(self, offset: int, bytes_max: int, until: int | None = None) -> bytes:
        """Whole batches from the one that holds `offset` on; at least one if there is one.

        `until` is the high watermark unless told.
        """
        if not self.start <= offset <= self.end:
            raise Refusal(ErrorCode.offset_out_of_range)
        until = self.high_watermark if until is None else until
        found = bytearray()
        first = bisect_right(self._batches, offset, key=_next_offset)
        for index in range(first, len(self._batches)):
            each = self._batches[index]
            is_full = found and len(found) + len(each.content) > bytes_max
            if is_full or each.header.next_offset > until:
                break
            found += each.content
        return bytes(found)

    def compact(self, keep: Callable[[BatchHeader, bytes], bytes | None]) -> None:
        """As the cleaner leaves it: each batch as `keep` gives it, None for one that is gone.

        What is not replicated, or of an open transaction, stays, and the last batch before that.
        """
        until, left = self.last_stable_offset, list[_Batch]()
        below = [each.header.next_offset for each in self._batches]
        last = max((offset for offset in below if offset <= until), default=0)
        for each in self._batches:
            content: bytes | None = each.content
            if each.header.next_offset < last:
                content = keep(each.header, each.content)
            if content is not None:
                header = each.header
                if content is not each.content:
                    parsed = parse_header(memoryview(content))
                    assert parsed is not None
                    header = parsed
                left.append(_Batch(header, content))
        self._batches = left

    def offset_at(self, at_ms: int) -> int:
        """The first batch with a record of that time or later; -1 if there is none."""
        found = (each.header for each in self._batches if each.header.max_timestamp_ms >= at_ms)
        return next((header.base_offset for header in found), -1)

    def truncate(self, end: int) -> None:
        """As an unclean election leaves it; the new leader knows what the log tells it."""
        self._batches = [each for each in self._batches if each.header.next_offset <= end]
        ends = (each.header.next_offset for each in self._batches)
        self.end = max(self.start, max(ends, default=self.start))
        self.unreplicated = min(self.unreplicated, self.end - self.start)
        self.producers.clear()
        undone = [each for each in self._ended if each.marker_offset >= self.end]
        self._ended = [each for each in self._ended if each.marker_offset < self.end]
        # The first of a producer's that is open again: what came after it is gone.
        self.transactions.update({each.producer_id: each.first_offset for each in reversed(undone)})
        self.transactions = {
            producer_id: first
            for producer_id, first in self.transactions.items()
            if first < self.end
        }
        for each in self._batches:
            self._remember(each.header, each.header.base_offset)
        self.elect()

    def elect(self) -> None:
        """Another leader, or the same one anew: its first record begins an epoch."""
        self.epoch += 1
        known = {epoch: start for epoch, start in self._epoch_starts.items() if start < self.end}
        self._epoch_starts = {**known, self.epoch: self.end}

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """As a leader answers OffsetForLeaderEpoch; -1 for both where it cannot tell."""
        if epoch == self.epoch:
            return epoch, self.end
        later = [start for known, start in self._epoch_starts.items() if known > epoch]
        if not later:
            return -1, -1
        upto = [known for known in self._epoch_starts if known <= epoch]
        return max(upto, default=epoch), min(later)

    def expire_producers(self) -> None:
        """As after `producer.id.expiration.ms`, a day unless configured."""
        self.producers.clear()

    def last_sequences(self) -> dict[int, tuple[int, int]]:
        """Epoch and last sequence by producer id."""
        return {
            producer_id: (known.epoch, known.last_sequence)
            for producer_id, known in self.producers.items()
        }

    def contents(self, start: int = 0) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch that reaches behind `start`."""
        for index in range(
            bisect_right(self._batches, start, key=_next_offset), len(self._batches)
        ):
            yield self._batches[index].header, self._batches[index].content

    def headers(self) -> list[BatchHeader]:
        return [each.header for each in self._batches]

    def _earlier(self, header: BatchHeader) -> int | None:
        """The base offset of the same batch; refuses what is out of place."""
        known = self.producers.get(header.producer_id)
        if known is None:
            # A producer the broker does not know may begin anywhere.
            return None
        if header.producer_epoch < known.epoch:
            raise Refusal(ErrorCode.invalid_producer_epoch)
        first, last = header.base_sequence, _last_sequence(header)
        if header.producer_epoch > known.epoch:
            if first != 0:
                raise Refusal(ErrorCode.out_of_order_sequence_number)
            return None
        for there_first, there_last, base_offset in known.batches:
            if (there_first, there_last) == (first, last):
                return base_offset
        if first != (known.last_sequence + 1) % SEQUENCES:
            raise Refusal(ErrorCode.out_of_order_sequence_number)
        return None

    def _remember(self, header: BatchHeader, base_offset: int) -> None:
        if header.producer_id == _NO_PRODUCER or header.is_control:
            return
        known = self.producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self.producers[header.producer_id] = _Producer(header.producer_epoch)
        known.batches.append((header.base_sequence, _last_sequence(header), base_offset))


def _next_offset(batch: _Batch) -> int:
    return batch.header.next_offset


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.record_count - 1) % SEQUENCES
