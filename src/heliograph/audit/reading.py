"""One side of an audit: a partition's records in order, opened only on demand. Runs anywhere.

The next fetch is under way while what came is compared. Transaction markers and aborted records
are left out where only committed ones count, as a mirror does.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from heliograph.broker.cluster import EARLIEST, Cluster
from heliograph.broker.log import fetch_once
from heliograph.errors import (
    BrokerError,
    CorruptBatch,
    MirrorError,
    OffsetGone,
)
from heliograph.model import TopicPartition
from heliograph.wire.batch import MAGIC_AT, BatchHeader, parse_header, verify_crc
from heliograph.wire.control import AbortedTransactions
from heliograph.wire.fetch import FetchedPartition
from heliograph.wire.legacy import legacy_extent, reencode_legacy
from heliograph.wire.opened import Content, OpenedColumns, open_columns, open_records

FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_BYTES_MIN: Final = 128 * 1024
_FETCH_BYTES_MAX: Final = 256 * 1024 * 1024
_LEGACY_BYTES_MAX: Final = 512 * 1024
_ATTEMPTS_MAX: Final = 10
_RETRY_S: Final = 0.1
_RETRY_S_MAX: Final = 4.0
_MAGIC: Final = 2
_DAMAGED_RECORDS_MAX: Final = 1_000_000


class Damaged:
    """Stands for a record of a batch whose bytes are not the ones its writer sealed."""

    __slots__ = ()


Record = Content | Damaged


class BatchView:
    """Records whose offsets follow one another: a batch as it is, or what an opened one held.

    Belongs to its side, which takes records off its front.
    """

    __slots__ = ("_at", "_contents", "count", "header", "is_append_time", "offset", "view")

    def __init__(
        self,
        offset: int,
        count: int,
        header: BatchHeader | None,
        view: memoryview | None,
        contents: Sequence[Record] | None,
        *,
        is_append_time: bool = False,
    ) -> None:
        self.offset, self.count = offset, count
        self.is_append_time = is_append_time or (header is not None and header.is_log_append_time)
        """Whether its timestamps are the broker's, and not the producers'."""
        self.header = header
        """Of the batch it came from; None for messages older than batches."""
        self.view = view
        """The whole batch; None when it is not, or not as a whole, one batch's bytes."""
        self._contents = contents
        self._at = 0

    def contents(self, count: int) -> Sequence[Record]:
        """Its next records; `CorruptBatch` was ruled out or becomes `Damaged` records here."""
        if self._contents is None:
            self._contents = self._opened()
        return self._contents[self._at : self._at + count]

    def columns(self) -> OpenedColumns | None:
        """Its records field by field, faster than `contents`; None where it is not one batch's
        bytes, or those are damaged."""
        if self._contents is not None or self.view is None or self.header is None:
            return None
        try:
            return open_columns(self.view, self.header)
        except CorruptBatch:
            return None

    def take(self, count: int) -> None:
        """Pass some of its records, but not all."""
        self.contents(0)  # while there still is a whole batch to open
        self._at += count
        self.offset += count
        self.count -= count
        self.view = None

    def _opened(self) -> Sequence[Record]:
        if self.view is None or self.header is None:
            return ()
        try:
            ((_, contents),) = open_records(self.view, self.header)
        except CorruptBatch:
            # A good CRC over bytes that contradict themselves: nobody can read these records.
            return [Damaged() for _ in range(self.count)]
        return contents


class RecordReader(ABC):
    """Records of one partition in order. Used by one task; `close` when done with it."""

    def __init__(self) -> None:
        self.log_start = 0
        """What lies before is gone; known once something was read."""
        self.bytes = 0
        self.left_out = 0
        """Records that transforms drop (`source_side`)."""
        self.others = 0
        """Records that the flow does not carry, for who wrote them."""
        self.is_timeless = False
        """Whether timestamps are left out, because the other side has only its own."""
        self._pieces: deque[BatchView] = deque()
        self._is_over = False

    async def head(self) -> BatchView | None:
        """The piece with the next record; None at the end of the log."""
        while not self._pieces:
            if self._is_over:
                return None
            await self._fill()
        return self._pieces[0]

    def take(self, count: int) -> None:
        """Pass the next `count` records, which have been seen."""
        while count:
            piece = self._pieces[0]
            taken = min(count, piece.count)
            count -= taken
            if taken == piece.count:
                self._pieces.popleft()
            else:
                piece.take(taken)

    def contents(self, piece: BatchView, count: int) -> Sequence[Record]:
        """The next records of a piece of this side."""
        found = piece.contents(count)
        if not self.is_timeless:
            return found
        return [one if isinstance(one, Damaged) else (0, *one[1:]) for one in found]

    async def window(self, count: int) -> tuple[list[int], list[Record]]:
        """Offsets and contents of the next records, which stay; fewer at the end of the log."""
        while not self._is_over and sum(piece.count for piece in self._pieces) < count:
            await self._fill()
        offsets: list[int] = []
        contents: list[Record] = []
        for piece in self._pieces:
            wanted = min(piece.count, count - len(offsets))
            if not wanted:
                break
            offsets.extend(range(piece.offset, piece.offset + wanted))
            contents.extend(self.contents(piece, wanted))
        return offsets, contents

    @property
    def is_drained(self) -> bool:
        """Whether all that was brought so far has been passed."""
        return not self._pieces

    async def close(self) -> None:
        self._is_over = True

    @abstractmethod
    async def _fill(self) -> None:
        """Bring at least one more batch, or find that there is none."""


class HeldRecords(RecordReader):
    """Records that somebody has read already, from an offset on; there is nothing behind them."""

    def __init__(
        self, records: Iterable[tuple[int, Content]], start: int, *, is_append_time: bool = False
    ) -> None:
        super().__init__()
        self._is_over = True
        held: list[Content] = []
        first = start
        for offset, content in records:
            if offset < start:
                continue
            if held and offset != first + len(held):
                self._hold(first, held, is_append_time)
                held = []
            first = first if held else offset
            held.append(content)
        if held:
            self._hold(first, held, is_append_time)

    def _hold(self, offset: int, held: list[Content], is_append_time: bool) -> None:
        self._pieces.append(
            BatchView(offset, len(held), None, None, held, is_append_time=is_append_time)
        )

    async def _fill(self) -> None:
        return


class LogReader(RecordReader):
    """Reads one partition from an offset on."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: int,
        *,
        read_committed: bool,
        likely_end: int | None = None,
        fetch_bytes_max: int = FETCH_BYTES,
        left_out_until: Callable[[BatchHeader], int] | None = None,
    ) -> None:
        """`left_out_until`: before which offset a batch is passed unopened, its records counted."""
        super().__init__()
        self._cluster, self._partition = cluster, partition
        self._left_out_until = left_out_until
        self._read_committed = read_committed
        self._likely_end = likely_end
        self._next = self._first = max(0, start)
        self._ahead: asyncio.Task[FetchedPartition | None] | None = None
        self._fetch_bytes = self._fit_max = fetch_bytes_max
        self._suspect = -1

    async def close(self) -> None:
        await super().close()
        if self._ahead is not None:
            self._ahead.cancel()
            with contextlib.suppress(asyncio.CancelledError, MirrorError):
                await self._ahead
            self._ahead = None

    @property
    def next_offset(self) -> int:
        """The first one that was not fetched."""
        return self._next

    async def _fill(self) -> None:
        ahead, self._ahead = self._ahead, None
        fetched = await (ahead if ahead is not None else self._fetch(self._next))
        if fetched is None:
            self._is_over = True
            return
        self.log_start = max(self.log_start, fetched.log_start_offset)
        # A batch may reach over the start of the log; what it holds before that is gone.
        self._first = max(self._first, self.log_start)
        self.bytes += len(fetched.records)
        before = self._next
        self._parse(fetched)
        if self._next == before and self._suspect != before:
            end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
            if end <= max(before, self.log_start):
                self._is_over = True
                return
            if self._fetch_bytes >= _FETCH_BYTES_MAX:
                raise CorruptBatch(before, f"{self._partition}: no whole batch in sight")
            self._fetch_bytes *= 2
            return
        self._fit_fetches(len(fetched.records), self._next - before)
        if self._likely_end is None or self._next < self._likely_end:
            self._ahead = asyncio.create_task(self._fetch(self._next))
            # Lets the request leave before what just came is worked on.
            await asyncio.sleep(0)

    def _fit_fetches(self, size_bytes: int, offsets: int) -> None:
        """Do not ask for more than is left: what lies behind would be fetched to be thrown away."""
        if self._likely_end is None or offsets <= 0:
            return
        left_bytes = (self._likely_end - self._next) * size_bytes * 21 // (offsets * 20)
        self._fetch_bytes = min(self._fit_max, max(_FETCH_BYTES_MIN, left_bytes))

    async def _fetch(self, offset: int) -> FetchedPartition | None:
        """What is there from `offset` on, or from where the log starts; None past its end."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                return await self._fetched(max(offset, self.log_start))
            except OffsetGone:
                found = await self._cluster.list_offsets([self._partition], EARLIEST)
                earliest = found[self._partition]
                if isinstance(earliest, BrokerError):
                    raise earliest from None
                if earliest <= max(offset, self.log_start):
                    return None
                self.log_start = earliest
            except BrokerError as exc:
                if not exc.retriable or attempt == _ATTEMPTS_MAX - 1:
                    raise
                await asyncio.sleep(min(_RETRY_S * (1 << attempt), _RETRY_S_MAX))
                with contextlib.suppress(BrokerError):
                    await self._cluster.refresh([self._partition.topic])
        raise OffsetGone(str(self._partition), offset, self.log_start)

    async def _fetched(self, offset: int) -> FetchedPartition:
        return await fetch_once(
            self._cluster,
            self._partition,
            offset,
            bytes_max=self._fetch_bytes,
            read_committed=self._read_committed,
        )

    def _parse(self, fetched: FetchedPartition) -> None:
        chunk, at = fetched.records, 0
        aborts = AbortedTransactions(fetched.aborted) if self._read_committed else None
        while len(chunk) - at > MAGIC_AT:
            window = chunk[at:]
            if window[MAGIC_AT] < _MAGIC:
                extent = legacy_extent(window, bytes_max=_LEGACY_BYTES_MAX)
                if not extent.size_bytes:
                    return
                at += extent.size_bytes
                self._add_legacy(window[: extent.size_bytes], extent.next_offset)
                continue
            header = parse_header(window)
            if header is None:
                return
            at += header.size_bytes
            if header.next_offset <= self._next:
                continue
            batch = window[: header.size_bytes]
            if not self._add(header, batch, aborts):
                return

    def _add(
        self, header: BatchHeader, batch: memoryview, aborts: AbortedTransactions | None
    ) -> bool:
        """Whether to go on; not when the batch must be fetched again."""
        try:
            verify_crc(batch, header)
        except CorruptBatch:
            if self._suspect != self._next:
                self._suspect = self._next
                return False
            self._put_damaged(header, self._first)
            self._next = header.next_offset
            return True
        is_aborted = aborts is not None and aborts.covers(header)
        if header.is_control or is_aborted:
            if header.is_control and aborts is not None:
                aborts.end(header, batch)
        elif header.record_count:
            ask = self._left_out_until
            until = header.base_offset if ask is None else ask(header)
            if until < header.next_offset:
                self._put(header, batch, max(self._first, until))
            elif self._likely_end is None or header.base_offset < self._likely_end:
                self.others += header.record_count
        self._next = header.next_offset
        return True

    def _put(self, header: BatchHeader, batch: memoryview, first: int) -> None:
        begins_before = header.base_offset < first
        if header.is_dense and not header.is_log_append_time and not begins_before:
            self._pieces.append(
                BatchView(header.base_offset, header.record_count, header, batch, None)
            )
            return
        try:
            stretches = open_records(batch, header)
        except CorruptBatch:
            self._put_damaged(header, first)
            return
        for offset, contents in stretches:
            piece = BatchView(offset, len(contents), header, None, contents)
            passed = min(max(0, first - offset), piece.count)
            if passed:
                piece.take(passed)
            if piece.count:
                self._pieces.append(piece)

    def _put_damaged(self, header: BatchHeader, first: int) -> None:
        start = max(header.base_offset, first)
        count = header.next_offset - start
        if count > _DAMAGED_RECORDS_MAX:
            raise CorruptBatch(header.base_offset, f"{self._partition}: claims {count} records")
        damaged = [Damaged() for _ in range(count)]
        self._pieces.append(BatchView(start, count, header, None, damaged))

    def _add_legacy(self, messages: memoryview, next_offset: int) -> None:
        if next_offset <= self._next:
            return
        reencoded = reencode_legacy(messages, from_offset=self._next)
        if reencoded is not None:
            view = memoryview(reencoded.batch)
            header = parse_header(view)
            if header is None:
                raise CorruptBatch(
                    self._next, f"{self._partition}: a message of format 0 or 1 cannot be read"
                )
            ((_, contents),) = open_records(view, header)
            for stretch in reencoded.stretches:
                part = contents[stretch.first_record : stretch.first_record + stretch.record_count]
                self._pieces.append(BatchView(stretch.source_offset, len(part), None, None, part))
        self._next = next_offset
