"""Fetched bytes into batches to append and the runs that explain them. Runs on executors.

No I/O, but the fetched buffer is restamped in place and the cursor moves. One branch for each kind
of batch: unopened, coalesced, re-encoded, dropped. Positions follow from the source alone; where
batches are cut does not matter, so a successor may cut differently and still be exact.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from heliograph.copy.origins import Origin, Origins, Producer
from heliograph.errors import CorruptBatch
from heliograph.ledger.kept import NOTHING_KEPT, left_out_until
from heliograph.ledger.positions import sequence_of
from heliograph.ledger.runs import Run
from heliograph.letters.letter import Letter
from heliograph.model import OffsetRange, StallReason
from heliograph.wire.batch import (
    LENGTH_END,
    MAGIC_AT,
    BatchHeader,
    Stamp,
    parse_header,
    restamp,
    verify_crc,
)
from heliograph.wire.control import AbortedTransactions, is_unknown_control
from heliograph.wire.legacy import legacy_extent, reencode_legacy
from heliograph.wire.records import (
    CoalescedWindow,
    ReencodedBatch,
    Stretch,
    coalesce_records,
    coalesce_window,
    reencode_records,
)

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8

TINY_BYTES_MAX: Final = 4096
"""A batch below this is cheaper to open than to send on its own, once many of them wait."""
TINY_BATCHES_MIN: Final = 8
COALESCED_BYTES_MAX: Final = 256 * 1024
COALESCED_BATCHES_MAX: Final = 4096
LEGACY_BYTES_MAX: Final = 512 * 1024
"""Old messages put into one v2 batch: well below the usual limit of 1 MB when compression does
worse."""


@dataclass(slots=True, kw_only=True)
class LaneCursor:
    """How far chunks were prepared; everything before is on its way or settled."""

    next_offset: int
    position: int
    target_offset: int
    """Where the next record will land if nobody else writes."""
    source_expected: int
    """The source offset that continues the last run; another one starts a new run."""
    leader_epoch: int = -1
    """Of the source's batch that ends at `next_offset`; -1 where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePoint:
    """All of the source before `next_offset` was mirrored, and its last batch is of this epoch.

    A source that has something else there lost what was mirrored, however long its log is now.
    """

    position: int
    next_offset: int
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class OutgoingBatch:
    """One batch, stamped for its position. Its view pins the buffer of the answer it came in."""

    position: int
    record_count: int
    view: memoryview
    source_offset: int
    """Of its first record."""
    source_next_offset: int
    """After this batch and all that was dropped before it."""
    max_timestamp_ms: int
    leader_epoch: int = -1
    """Of the source's batch that ends at `source_next_offset`."""
    ticket: int = 0
    """The ledger write that must be durable before this batch may leave."""


@dataclass(frozen=True, slots=True)
class TransformStop:
    """The cursor stands before the record, and all before it goes out."""

    offset: int
    why: str
    reason: StallReason = StallReason.TRANSFORM_FAILED


class SkippedRecord(NamedTuple):
    """A record that cannot be mirrored."""

    position: int
    """The one that it would have had."""
    offset: int
    reason: StallReason


@dataclass(frozen=True, slots=True)
class TransformWait:
    """The cursor stands before the record: what it needs is being asked for."""

    offset: int
    why: str
    waited_s: float
    """So far."""


@dataclass(slots=True, kw_only=True)
class PreparedChunk:
    """What one fetch brought of a lane, ready to append."""

    batches: list[OutgoingBatch] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    corrupt: CorruptBatch | None = None
    """What ended the chunk early; the batches before it are good."""
    unknown_control_records: int = 0
    """Dropped without knowing what they are for."""
    failed: TransformStop | None = None
    """The record that ended the chunk early: a transform cannot make anything of it."""
    waits: TransformWait | None = None
    """The record that ended the chunk early, for a moment."""
    skipped: list[SkippedRecord] = field(default_factory=list)
    """Records that are left out and noted as losses."""
    letters: list[Letter] = field(default_factory=list)
    """Records that are left out and become dead letters before anything of the chunk leaves."""
    unknown: Producer | None = None
    """Whose batch ended the chunk early: the ledgers must be asked whether a mirror wrote it. The
    cursor stands before it, and all before it goes out."""
    whole: bool = False
    """Whether at least one whole batch was seen, dropped ones included."""


def prepare_chunk(
    fetched: memoryview,
    cursor: LaneCursor,
    stamp: Stamp,
    *,
    aborted: Sequence[tuple[int, int]] = (),
    read_committed: bool = True,
    coalesce: bool = True,
    make_writer: MakeWriter | None = None,
    origins: Origins | None = None,
    kept: OffsetRange = NOTHING_KEPT,
) -> PreparedChunk:
    """Move `cursor` over the whole batches of `fetched`; what is left of a cut batch is fetched
    again. `make_writer`: for lanes whose records are looked into (`transforming`). With `origins`
    what a mirror brought is left out, but for what is `kept`."""
    chunk = PreparedChunk()
    is_opened, make_writer = make_writer is not None, make_writer or Writer
    coalesces_windows = coalesce and not is_opened and origins is None
    writer = make_writer(chunk, cursor, stamp, coalesce)
    aborts = AbortedTransactions(aborted) if read_committed else None
    at = 0
    try:
        while len(fetched) - at > MAGIC_AT:
            window = fetched[at:]
            if window[MAGIC_AT] < 2:
                extent = legacy_extent(window, bytes_max=LEGACY_BYTES_MAX)
                if not extent.size_bytes:
                    break
                at += extent.size_bytes
                chunk.whole = True
                if extent.next_offset > cursor.next_offset:
                    writer.add_legacy(window[: extent.size_bytes], extent.next_offset)
                continue
            if coalesces_windows and (coalesced := _coalesce_tiny(window, cursor)) is not None:
                at += coalesced.size_bytes
                chunk.whole = True
                writer.add_coalesced(coalesced)
                continue
            header = parse_header(window)
            if header is None:
                break
            at += header.size_bytes
            chunk.whole = True
            if header.next_offset <= cursor.next_offset:
                continue
            batch = window[: header.size_bytes]
            verify_crc(batch, header)
            origin = Origin.LOCAL
            if origins is not None:
                origin = origins.of(header, kept)
                if origin is Origin.UNKNOWN and not header.is_control:
                    chunk.unknown = Producer(header.producer_id, header.producer_epoch)
                    break
            # Asked of control batches too: a fetch may begin at the marker that ends a transaction
            # whose records came with an earlier one, and that transaction must not stay open here.
            is_aborted = aborts is not None and aborts.covers(header)
            if header.is_control or is_aborted or origin is Origin.MIRRORED:
                if header.is_control:
                    chunk.unknown_control_records += is_unknown_control(batch, header)
                    if aborts is not None:
                        aborts.end(header, batch)
                writer.drop(header)
            else:
                until = left_out_until(header, origins.mirrored, kept) if origins is not None else 0
                if until > max(header.base_offset, cursor.next_offset):
                    writer.skip_to(until)
                writer.add(header, batch)
        writer.flush()
    except CorruptBatch as exc:
        # A batch that waits for coalescing is good; the cursor stands before the bad one.
        chunk.corrupt = exc
        writer.flush()
    return chunk


def _coalesce_tiny(window: memoryview, cursor: LaneCursor) -> CoalescedWindow | None:
    """The tiny plain batches `window` starts with, as one, without a header object for each."""
    if len(window) < LENGTH_END or _LENGTH.unpack_from(window, _LENGTH_AT)[0] > TINY_BYTES_MAX:
        return None
    return coalesce_window(
        window,
        from_offset=cursor.next_offset,
        tiny_bytes_max=TINY_BYTES_MAX,
        bytes_max=COALESCED_BYTES_MAX,
        batches_min=TINY_BATCHES_MIN,
    )


class Writer:
    """Adds to one chunk; tiny batches wait here until it is clear whether many follow."""

    def __init__(
        self, chunk: PreparedChunk, cursor: LaneCursor, stamp: Stamp, coalesce: bool
    ) -> None:
        self._chunk, self._cursor, self._stamp = chunk, cursor, stamp
        self._coalesce = coalesce
        self._tiny: list[tuple[BatchHeader, memoryview]] = []
        self._tiny_bytes = 0

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        cursor = self._cursor
        # Waiting tiny batches have not moved the cursor; only the first wanted batch of a chunk can
        # begin before it, and then nothing waits.
        begins_before = not self._tiny and header.base_offset < cursor.next_offset
        if not header.is_dense or header.is_log_append_time or begins_before:
            self.flush()
            reencoded = reencode_records(batch, from_offset=cursor.next_offset)
            if reencoded is not None:
                self._put_reencoded(reencoded, header.next_offset, header.leader_epoch)
            self._passed(header)
        elif self._coalesce and header.size_bytes <= TINY_BYTES_MAX:
            self._put_tiny(header, batch)
        else:
            self.flush()
            self._put_unopened(header, batch)

    def add_coalesced(self, coalesced: CoalescedWindow) -> None:
        self.flush()
        if coalesced.next_offset <= self._cursor.next_offset:
            return
        if coalesced.batch is not None:
            self._put_reencoded(coalesced.batch, coalesced.next_offset, coalesced.leader_epoch)
        self._cursor.next_offset = coalesced.next_offset
        self._cursor.leader_epoch = coalesced.leader_epoch

    def add_legacy(self, messages: memoryview, next_offset: int) -> None:
        self.flush()
        reencoded = reencode_legacy(messages, from_offset=self._cursor.next_offset)
        if reencoded is not None:
            self._put_reencoded(reencoded, next_offset, -1)
        self._cursor.next_offset = next_offset
        # Old messages do not say in which epoch they were written.
        self._cursor.leader_epoch = -1

    def drop(self, header: BatchHeader) -> None:
        """Control batches, aborted ones, those of mirrors; the next record then starts a run."""
        self.flush()
        self._passed(header)

    def skip_to(self, offset: int) -> None:
        """Within the next batch, which is only partly left out."""
        self.flush()
        self._cursor.next_offset = offset

    def flush(self) -> None:
        if not self._tiny:
            return
        tiny, self._tiny, self._tiny_bytes = self._tiny, [], 0
        if len(tiny) < TINY_BATCHES_MIN:
            for header, batch in tiny:
                self._put_unopened(header, batch)
            return
        coalesced = coalesce_records([batch for _, batch in tiny])
        if coalesced is not None:
            last = tiny[-1][0]
            self._put_reencoded(coalesced, last.next_offset, last.leader_epoch)
        self._passed(tiny[-1][0])

    def _put_tiny(self, header: BatchHeader, batch: memoryview) -> None:
        if self._tiny and (
            self._tiny[0][0].compression != header.compression
            or self._tiny_bytes + header.size_bytes > COALESCED_BYTES_MAX
            or len(self._tiny) >= COALESCED_BATCHES_MAX
        ):
            self.flush()
        self._tiny.append((header, batch))
        self._tiny_bytes += header.size_bytes

    def _put_unopened(self, header: BatchHeader, batch: memoryview) -> None:
        self._start_run_if_gap(header.base_offset, 0)
        self._put(
            batch,
            header.record_count,
            source_offset=header.base_offset,
            source_next_offset=header.next_offset,
            max_timestamp_ms=header.max_timestamp_ms,
            leader_epoch=header.leader_epoch,
        )
        self._cursor.source_expected = header.next_offset
        self._passed(header)

    def _put_reencoded(
        self, batch: ReencodedBatch, source_next_offset: int, leader_epoch: int
    ) -> None:
        stretch: Stretch
        for stretch in batch.stretches:
            self._start_run_if_gap(stretch.source_offset, stretch.first_record)
            self._cursor.source_expected = stretch.source_offset + stretch.record_count
        self._put(
            memoryview(batch.batch),
            batch.record_count,
            source_offset=batch.stretches[0].source_offset,
            source_next_offset=source_next_offset,
            max_timestamp_ms=batch.max_timestamp_ms,
            leader_epoch=leader_epoch,
        )

    def _put(
        self,
        view: memoryview,
        record_count: int,
        *,
        source_offset: int,
        source_next_offset: int,
        max_timestamp_ms: int,
        leader_epoch: int,
    ) -> None:
        cursor, stamp = self._cursor, self._stamp
        restamp(
            view,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            sequence=sequence_of(cursor.position),
        )
        self._chunk.batches.append(
            OutgoingBatch(
                position=cursor.position,
                record_count=record_count,
                view=view,
                source_offset=source_offset,
                source_next_offset=source_next_offset,
                max_timestamp_ms=max_timestamp_ms,
                leader_epoch=leader_epoch,
            )
        )
        cursor.position += record_count
        cursor.target_offset += record_count

    def _start_run_if_gap(self, source_offset: int, first_record: int) -> None:
        cursor = self._cursor
        if source_offset != cursor.source_expected:
            self._chunk.runs.append(
                Run(
                    cursor.position + first_record,
                    source_offset,
                    cursor.target_offset + first_record,
                )
            )

    def _passed(self, header: BatchHeader) -> None:
        self._cursor.next_offset = header.next_offset
        self._cursor.leader_epoch = header.leader_epoch


MakeWriter = Callable[[PreparedChunk, LaneCursor, Stamp, bool], Writer]
