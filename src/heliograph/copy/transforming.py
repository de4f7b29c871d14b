"""Fetched batches opened, transformed and sealed anew. Runs on executors.

In the place of `chunk.Writer`, for lanes of which a transform is asked: the only code that looks
into the records of a lane for their content. A record that is dropped is a gap, and gaps are runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Final

from heliograph.broker.codes import TOO_LARGE
from heliograph.config.transforms import Fate
from heliograph.copy.chunk import (
    TINY_BYTES_MAX,
    LaneCursor,
    PreparedChunk,
    SkippedRecord,
    TransformStop,
    TransformWait,
    Writer,
)
from heliograph.errors import CorruptBatch, InvariantError, NotYetKnown
from heliograph.ledger.replay_guard import Ahead
from heliograph.letters.letter import Letter
from heliograph.model import OffsetRange, StallReason
from heliograph.transform.lane import LaneTransform, Transformed
from heliograph.transform.record import Failure
from heliograph.wire.batch import BatchHeader, Stamp, parse_header
from heliograph.wire.dense import ReencodedBatch
from heliograph.wire.legacy import reencode_legacy
from heliograph.wire.opened import Content, open_records
from heliograph.wire.patching import patch_heads
from heliograph.wire.rows import encode_records
from heliograph.wire.sifting import sift

GATHERED_BYTES_MAX: Final = 256 * 1024
"""Batches that are opened together: a function on columns is the faster the more it gets."""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Plain records put into one batch: below the usual limit of 1 MB, also where they have grown."""
BATCH_BYTES_CAREFUL: Final = 64 * 1024
"""The same once the target refused a batch as too large."""
_REFUSED: Final = StallReason.REFUSED_BY_TARGET
_OVERHEAD_BYTES: Final = 1024
"""More than a batch with one record has beside its content, whatever the codec makes of it."""
_HEADER_OVERHEAD_BYTES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What becomes of records of a lane that cannot be mirrored."""

    on_transform_error: Fate = "stall"
    on_unwritable: Fate = "stall"
    decided: Mapping[int, Failure] = field(default_factory=dict)
    """By source offset: those that are dead letters already."""
    unwritable: Mapping[int, Failure] = field(default_factory=dict)
    """Those that the target refused each by itself."""
    suspects: OffsetRange | None = None
    """Source offsets of a batch that the target refused: to be sent one by one."""
    batch_bytes_max: int | None = None
    """More than that in a batch the target refuses."""

    def of(self, failure: Failure) -> Fate:
        if failure.stage == "KAFKA_PRODUCE":
            return self.on_unwritable
        return self.on_transform_error


class TransformingWriter(Writer):
    """Adds to one chunk what a lane's transform makes of fetched records."""

    def __init__(
        self,
        chunk: PreparedChunk,
        cursor: LaneCursor,
        stamp: Stamp,
        coalesce: bool,
        *,
        transform: LaneTransform,
        fates: Fates,
        ahead: Ahead | None,
    ) -> None:
        super().__init__(chunk, cursor, stamp, coalesce)
        self._transform, self._fates, self._ahead = transform, fates, ahead
        self._gathered: list[tuple[BatchHeader, memoryview]] = []
        self._gathered_bytes = 0
        self._bytes_max = BATCH_BYTES_MAX if coalesce else BATCH_BYTES_CAREFUL
        if fates.batch_bytes_max is not None:
            # What does not compress grows a little.
            fits = fates.batch_bytes_max - fates.batch_bytes_max // 16
            self._bytes_max = max(1, min(self._bytes_max, fits))

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        if self._gathered and (
            not self._coalesce
            or self._gathered[0][0].compression != header.compression
            or self._gathered_bytes + header.size_bytes > GATHERED_BYTES_MAX
        ):
            self.flush()
        self._gathered.append((header, batch))
        self._gathered_bytes += header.size_bytes

    def add_legacy(self, messages: memoryview, next_offset: int) -> None:
        self.flush()
        if self._has_failed():
            return
        reencoded = reencode_legacy(messages, from_offset=self._cursor.next_offset)
        if reencoded is not None:
            batch = memoryview(reencoded.batch)
            header = parse_header(batch)
            if header is None:
                raise InvariantError("a batch made here cannot be read")
            contents = [each for _, some in open_records(batch, header) for each in some]
            offsets = [
                stretch.source_offset + number
                for stretch in reencoded.stretches
                for number in range(stretch.record_count)
            ]
            try:
                done = self._transformed(offsets, contents, header.compression)
            except NotYetKnown as exc:
                self._wait(offsets[0], exc)
                return
            self._put_rows(offsets, contents, done, header.compression, next_offset, -1)
        if not self._has_failed():
            self._cursor.next_offset, self._cursor.leader_epoch = next_offset, -1

    def drop(self, header: BatchHeader) -> None:
        self.flush()
        if not self._has_failed():
            self._passed(header)

    def skip_to(self, offset: int) -> None:
        self.flush()
        if not self._has_failed():
            self._cursor.next_offset = offset

    def flush(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered and not self._has_failed():
            gathered = self._sifted(self._patched(gathered))
        if not gathered or self._has_failed():
            return
        offsets: list[int] = []
        contents: list[Content] = []
        from_offset, corrupt = self._cursor.next_offset, None
        for number, (header, batch) in enumerate(gathered):
            try:
                stretches = open_records(batch, header)
            except CorruptBatch as exc:
                # Those before it are good; the cursor then stands before the bad one.
                corrupt, gathered = exc, gathered[:number]
                break
            for first, some in stretches:
                skipped = max(0, from_offset - first)
                offsets.extend(range(first + skipped, first + len(some)))
                contents.extend(some[skipped:] if skipped else some)
        if gathered:
            last = gathered[-1][0]
            self._put_group(gathered, offsets, contents)
            if self._has_failed():
                return
            self._passed(last)
        if corrupt is not None:
            raise corrupt

    def _patched(
        self, gathered: list[tuple[BatchHeader, memoryview]]
    ) -> list[tuple[BatchHeader, memoryview]]:
        """Puts the first of these whose records need no more than other first bytes; returns the
        rest."""
        step = self._transform.heads
        if step is None or not self._is_all_undecided:
            return gathered
        for number, (header, batch) in enumerate(gathered):
            is_suspect = self._has_suspects(range(header.base_offset, header.next_offset))
            if is_suspect or not _may_stay([(header, batch)], self._cursor.next_offset):
                return gathered[number:]
            made = patch_heads(
                batch,
                header,
                step.heads,
                head_bytes=step.head_bytes,
                parts=step.parts,
                marks=step.marks,
            )
            if made is None:
                return gathered[number:]
            self._put_unopened(header, made)
            self._passed(header)
        return []

    @property
    def _is_all_undecided(self) -> bool:
        """Whether nothing is known of any record but what its transforms say."""
        fates = self._fates
        return self._ahead is None and not (
            fates.decided or fates.unwritable or fates.batch_bytes_max
        )

    def _sifted(
        self, gathered: list[tuple[BatchHeader, memoryview]]
    ) -> list[tuple[BatchHeader, memoryview]]:
        """Puts what a filter by header leaves of these; returns them where they must be opened."""
        sieve = self._transform.sieve
        if not gathered or sieve is None or not self._is_all_undecided:
            return gathered
        next_offset = self._cursor.next_offset
        if self._fates.suspects is not None or not _are_as_produced(gathered, next_offset):
            return gathered
        found = sift(gathered, sieve, bytes_max=self._bytes_max)
        if found is None or (found.is_all and not _may_stay(gathered, next_offset)):
            return gathered
        if found.is_all:
            for header, batch in gathered:
                self._put_unopened(header, batch)
            return []
        last = gathered[-1][0]
        for number, made in enumerate(found.batches, 1):
            is_last = number == len(found.batches)
            self._put_reencoded(
                made,
                last.next_offset if is_last else made.source_next_offset,
                last.leader_epoch if is_last else -1,
            )
        self._passed(last)
        return []

    def _put_group(
        self,
        gathered: list[tuple[BatchHeader, memoryview]],
        offsets: list[int],
        contents: list[Content],
    ) -> None:
        last, codec = gathered[-1][0], gathered[0][0].compression
        try:
            done = self._transformed(offsets, contents, codec) if contents else Transformed([])
        except NotYetKnown as exc:
            self._wait(offsets[0], exc)
            return
        if (
            all(map(is_, done.contents, contents))
            and _may_stay(gathered, self._cursor.next_offset)
            and self._fit(gathered)
            and not self._has_suspects(offsets)
        ):
            # What no transform touched travels as it came.
            for header, batch in gathered:
                self._put_unopened(header, batch)
            return
        self._put_rows(offsets, contents, done, codec, last.next_offset, last.leader_epoch)

    def _has_failed(self) -> bool:
        """Whether the chunk ends before what comes: the cursor stands before a bad record."""
        return self._chunk.failed is not None or self._chunk.waits is not None

    def _wait(self, offset: int, exc: NotYetKnown) -> None:
        self._cursor.next_offset, self._cursor.leader_epoch = offset, -1
        self._chunk.waits = TransformWait(offset, exc.why, exc.waited_s)

    def _has_suspects(self, offsets: Sequence[int]) -> bool:
        suspects = self._fates.suspects
        return bool(
            suspects and offsets and offsets[0] < suspects.end and offsets[-1] >= suspects.start
        )

    def _put_rows(
        self,
        offsets: list[int],
        contents: Sequence[Content],
        done: Transformed,
        codec: int,
        source_next_offset: int,
        leader_epoch: int,
    ) -> None:
        end = len(offsets)
        if done.failed:
            end = self._end_at_failure(offsets, contents, done)
        if end < len(offsets):
            source_next_offset, leader_epoch = offsets[end], -1
        rows = [row for row in range(end) if done.contents[row] is not None]
        left = [offsets[row] for row in rows] if len(rows) < len(offsets) else offsets
        kept: list[Content] = [each for each in done.contents[:end] if each is not None]
        for batch in self._encoded(left, kept, codec):
            is_last = batch.source_next_offset > left[-1]
            self._put_reencoded(
                batch,
                source_next_offset if is_last else batch.source_next_offset,
                leader_epoch if is_last else -1,
            )
        if end < len(offsets):
            self._cursor.next_offset, self._cursor.leader_epoch = source_next_offset, -1

    def _encoded(
        self, offsets: list[int], contents: list[Content], codec: int
    ) -> Iterator[ReencodedBatch]:
        """Those that may be what the target refuses each in a batch of its own."""
        suspects = self._fates.suspects
        if suspects is None or not self._has_suspects(offsets):
            yield from encode_records(offsets, contents, codec, bytes_max=self._bytes_max)
            return
        first = bisect_left(offsets, suspects.start)
        last = bisect_left(offsets, suspects.end)
        for start, end, bytes_max in (
            (0, first, self._bytes_max),
            (first, last, 1),
            (last, len(offsets), self._bytes_max),
        ):
            if start < end:
                some = slice(start, end)
                yield from encode_records(offsets[some], contents[some], codec, bytes_max=bytes_max)

    def _fit(self, gathered: Sequence[tuple[BatchHeader, memoryview]]) -> bool:
        most = self._fates.batch_bytes_max
        return most is None or all(header.size_bytes <= most for header, _ in gathered)

    def _transformed(
        self, offsets: Sequence[int], contents: Sequence[Content], codec: int
    ) -> Transformed:
        done = self._asked(offsets, contents)
        fates = self._fates
        if fates.batch_bytes_max is not None:
            _refuse_too_large(done, offsets, codec, fates.batch_bytes_max)
        if fates.decided or fates.unwritable:
            for row, offset in enumerate(offsets):
                failure = fates.decided.get(offset) or fates.unwritable.get(offset)
                # A record that was dropped needs no fate.
                if failure is not None and (offset in fates.decided or done.contents[row]):
                    done.contents[row], done.failed[row] = None, failure
        return done

    def _asked(self, offsets: Sequence[int], contents: Sequence[Content]) -> Transformed:
        ahead = self._ahead
        if ahead is None:
            return self._transform.apply(offsets, contents)
        if ahead.has(offsets[0]) is None and ahead.has(offsets[-1]) is None:
            return self._transform.apply(offsets, contents)
        kept = [ahead.has(offset) for offset in offsets]
        return self._transform.apply_as_decided(offsets, contents, kept)

    def _end_at_failure(
        self, offsets: list[int], contents: Sequence[Content], done: Transformed
    ) -> int:
        """How many records go on: all, where those that failed are left out."""
        position, chunk = self._cursor.position, self._chunk
        for row, content in enumerate(done.contents):
            failure, offset = done.failed.get(row), offsets[row]
            if failure is not None and offset not in self._fates.decided:
                is_refused = failure.stage == "KAFKA_PRODUCE"
                reason = _REFUSED if is_refused else StallReason.TRANSFORM_FAILED
                match self._fates.of(failure):
                    case "stall":
                        chunk.failed = TransformStop(offset, str(failure), reason)
                        return row
                    case "skip":
                        chunk.skipped.append(SkippedRecord(position, offset, reason))
                    case "dead-letter":
                        chunk.letters.append(Letter(position, offset, contents[row], failure))
            position += content is not None
        return len(offsets)


def _refuse_too_large(
    done: Transformed, offsets: Sequence[int], codec: int, bytes_max: int
) -> None:
    """Records of which a batch of its own would not be taken."""
    for row, content in enumerate(done.contents):
        if content is None or _plain_bytes(content) + _OVERHEAD_BYTES <= bytes_max:
            continue
        (alone,) = encode_records([offsets[row]], [content], codec, bytes_max=1)
        size_bytes = len(alone.batch)
        if size_bytes > bytes_max:
            why = f"a batch of {size_bytes} bytes, and max.message.bytes is {bytes_max}"
            done.contents[row] = None
            done.failed[row] = Failure("target", TOO_LARGE, why, "KAFKA_PRODUCE")


def _plain_bytes(content: Content) -> int:
    _, key, value, headers = content
    size = len(key or b"") + len(value or b"")
    for name, text in headers:
        size += _HEADER_OVERHEAD_BYTES + 3 * len(name) + len(text or b"")
    return size


def _may_stay(batches: Sequence[tuple[BatchHeader, memoryview]], from_offset: int) -> bool:
    """Whether the target takes these batches as they are, and they are worth sending so."""
    return _are_as_produced(batches, from_offset) and all(
        header.size_bytes > TINY_BYTES_MAX for header, _ in batches
    )


def _are_as_produced(batches: Sequence[tuple[BatchHeader, memoryview]], from_offset: int) -> bool:
    """Whether no record lacks, none is from before, and all have the time they were given."""
    return all(
        header.is_dense and not header.is_log_append_time and header.base_offset >= from_offset
        for header, _ in batches
    )
