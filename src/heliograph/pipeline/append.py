"""Sealed batches into a target partition, each once. Runs on executors.

A batch carries the sequence of its position, so the broker takes each once and in order
(compare-and-append). Whoever appends first asks the log how many of the rows are there: a task that
is tried again, a query that was killed and a copy of it that still runs find each other's work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Sequence,
)
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from crc32c import crc32c

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.codes import NONE, OUT_OF_PLACE, broker_error
from heliograph.broker.log import read_batches
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, LeaderMoved, OffsetGone, PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import Sealed
from heliograph.pipeline.staging import Folder, Piece
from heliograph.probe import PIPELINE_APPENDED, probe
from heliograph.wire.batch import (
    HEADER_BYTES,
    SEQUENCES,
    BatchHeader,
    Stamp,
    parse_header,
    restamp,
    verify_crc,
)
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_MAX,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)

T = TypeVar("T")
_IN_FLIGHT: Final = 5
"""Batches of a partition; a broker remembers the last five of a producer."""
_REMEMBERED_MS: Final = 3_600_000
_TIMEOUT_MS: Final = 30_000
_GIVE_UP_S: Final = 120.0
_RETRY_S: Final = 0.2
_RETRY_S_MAX: Final = 3.0
_AHEAD_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartToAppend:
    """All records of one batch for one target partition."""

    start: PartEnd
    pieces: tuple[Piece, ...]

    @property
    def end_position(self) -> int:
        return self.start.position + sum(piece.record_count for piece in self.pieces)


class Seen(NamedTuple):
    """What a log holds of a batch: enough to tell it from another."""

    record_count: int
    compression: int
    checksum: int
    """Of its records, without the header."""


def seen_of(header: BatchHeader, batch: memoryview) -> Seen:
    return Seen(header.record_count, header.compression, crc32c(batch[HEADER_BYTES:]))


async def append_part(target: Cluster, stamp: Stamp, folder: Folder, part: PartToAppend) -> PartEnd:
    """Append what is not there yet; where the partition is then.

    Safe to repeat after a crash at any line, and beside another that does the same. Raises
    `PipelineRefused` where the log holds something else, `BrokerError` when the target does not
    take records for two minutes.
    """

    async def appended() -> PartEnd:
        found = await find_end(target, stamp, part.start)
        if found.position == part.end_position:
            return found
        missing = list(_missing(part, found))
        async with aclosing(_staged(folder, missing)) as batches:
            return await append_batches(target, stamp, found, batches)

    return await retried(target, {part.start.target.topic}, appended)


async def retried(
    target: Cluster, topics: Collection[TopicName], work: Callable[[], Awaitable[T]]
) -> T:
    """What `work` finds, tried for two minutes while leaders move or do not answer."""
    give_up_s, tries = monotonic_s() + _GIVE_UP_S, 0
    while True:
        try:
            return await work()
        except BrokerError as exc:
            if not exc.retriable or monotonic_s() > give_up_s:
                raise
            tries += 1
            await before_retry(target, topics, tries)


async def before_retry(target: Cluster, topics: Collection[TopicName], tries: int) -> None:
    await asyncio.sleep(min(_RETRY_S * 2**tries, _RETRY_S_MAX))
    try:
        await target.refresh(topics)
    except BrokerError as exc:
        if not exc.retriable:
            raise


async def find_end(
    target: Cluster, stamp: Stamp, start: PartEnd, seen: dict[int, Seen] | None = None
) -> PartEnd:
    """How far the log is, from `start` on. Raises `LeaderMoved` while that is not certain.

    `seen` is given the producer's batches there, by the position of their first record.

    The log up to the high watermark is believed. What the leader remembers of the producer may be
    further: records that its followers do not have can still be lost.
    """
    at = start.target
    if target.leader(at) is None:
        await target.refresh([at.topic])
    deadline_s = monotonic_s() + _AHEAD_S_MAX
    while True:
        end = await _offset_at(target, at, LATEST)
        found = await _scanned(target, stamp, start, end, seen)
        answer = (await target.last_sequences([at], stamp.producer_id))[at]
        if isinstance(answer, BrokerError):
            raise answer
        if answer < 0 or _position_after(answer, start.position) <= found.position:
            return found
        if monotonic_s() > deadline_s:
            raise LeaderMoved(
                f"cluster {target.alias}: {at}: the leader has records that its followers lack"
            )
        await asyncio.sleep(_RETRY_S)


async def _scanned(
    target: Cluster,
    stamp: Stamp,
    start: PartEnd,
    end: int,
    seen: dict[int, Seen] | None,
) -> PartEnd:
    position, offset = start.position, max(start.offset, 0)
    try:
        async for header, batch in read_batches(target, start.target, offset, end):
            if header.producer_id == stamp.producer_id and not header.is_control:
                position = _position_after(header.last_sequence, start.position)
                offset = header.next_offset
                if seen is not None:
                    seen[position - header.last_offset_delta - 1] = seen_of(header, batch)
    except OffsetGone as exc:
        earliest = await _offset_at(target, start.target, EARLIEST)
        if earliest <= offset:
            raise LeaderMoved(f"cluster {target.alias}: {exc}") from exc
        raise PipelineRefused(
            f"cluster {target.alias}: {start.target}: records from offset {offset} on were deleted "
            f"(the log starts at {earliest}), so how much was appended cannot be told"
        ) from exc
    return replace(start, position=position, offset=offset)


def _position_after(last_sequence: int, floor: int) -> int:
    """The position that follows a record of this sequence: the first that is not before `floor`,
    since no batch has two thousand million records."""
    return floor + (last_sequence + 1 - floor) % SEQUENCES


def _missing(part: PartToAppend, found: PartEnd) -> Iterator[Piece]:
    """The pieces behind what was found. Raises `PipelineRefused` where that ends within one."""
    position = part.start.position
    for piece in part.pieces:
        if position >= found.position:
            yield piece
        elif position + piece.record_count > found.position:
            break
        position += piece.record_count
    else:
        if found.position <= position:
            return
    raise PipelineRefused(
        f"{part.start.target}: {found.position} records of this pipeline are in the log, and no "
        f"staged batch ends there: another copy of the query has written others"
    )


async def _staged(folder: Folder, pieces: Sequence[Piece]) -> AsyncGenerator[Sealed]:
    with closing(StagedFiles(folder)) as files:
        for piece in pieces:
            yield files.batch(piece)


async def append_batches(
    target: Cluster,
    stamp: Stamp,
    found: PartEnd,
    batches: AsyncIterator[Sealed],
    settled: Callable[[int], None] = lambda _: None,
) -> PartEnd:
    """Append behind what was found; `settled` hears the position after each batch that is there."""
    at, position, end = found.target, found.position, found
    under_way: deque[tuple[asyncio.Task[int], int]] = deque()
    index = newest_ms = 0

    async def settle() -> None:
        nonlocal end
        sent, count = under_way[0]
        offset = await sent
        under_way.popleft()
        end = replace(end, position=end.position + count, offset=offset + count)
        settled(end.position)
        probe(PIPELINE_APPENDED)

    try:
        async for sealed in batches:
            # A broker that forgot the producer takes any sequence of it, and would take the
            # batch behind one that it refused. So the first travels alone, and so does each
            # behind records so old that brokers forget their producer.
            is_alone = index <= 1 or newest_ms < now_ms() - _REMEMBERED_MS
            while under_way and (is_alone or len(under_way) >= _IN_FLIGHT):
                await settle()
            restamp(
                memoryview(sealed.batch),
                producer_id=stamp.producer_id,
                producer_epoch=stamp.producer_epoch,
                sequence=position % SEQUENCES,
            )
            sent = asyncio.create_task(_produce(target, at, sealed.batch))
            under_way.append((sent, sealed.record_count))
            position += sealed.record_count
            index, newest_ms = index + 1, sealed.newest_ms
            await asyncio.sleep(0)  # the request leaves in this order
        while under_way:
            await settle()
    finally:
        for sent, _ in under_way:
            sent.cancel()
    return end


class StagedFiles:
    """Batches of a folder's files; one is open at a time."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._name = ""
        self._open: Any = None

    def batch(self, piece: Piece) -> Sealed:
        """The staged bytes. Raises `PipelineRefused`."""
        if piece.file != self._name:
            self.close()
            self._name, self._open = piece.file, self._folder.open(piece.file)
        batch = bytearray(self._open.read_at(piece.size_bytes, piece.at))
        header = parse_header(memoryview(batch)) if len(batch) == piece.size_bytes else None
        if header is None or header.record_count != piece.record_count:
            raise PipelineRefused(f"staged file {piece.file} in {self._folder.uri} is damaged")
        verify_crc(memoryview(batch), header)
        return Sealed(batch, piece.record_count, header.max_timestamp_ms)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


async def _produce(target: Cluster, at: TopicPartition, batch: bytearray) -> int:
    where = f"cluster {target.alias}: {at}"
    leader = target.leader(at)
    if leader is None:
        raise target.no_leader_error(at)
    connection = await target.connection(leader.broker, "append")
    version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
    parts = produce_request([(at.topic, at.partition, bytes(batch))], timeout_ms=_TIMEOUT_MS)
    body = await connection.request(PRODUCE_KEY, version, [bytes(part) for part in parts])
    (row,) = parse_produce_answer(body)
    if row.error_code in OUT_OF_PLACE:
        raise LeaderMoved(f"{where}: the log went on meanwhile")
    if row.error_code != NONE:
        permission = f"WRITE on topic {at.topic}"
        raise broker_error(where, row.error_code, row.message, permission=permission)
    return row.base_offset


async def _offset_at(target: Cluster, at: TopicPartition, time: int) -> int:
    answer = (await target.list_offsets([at], time))[at]
    if isinstance(answer, BrokerError):
        raise answer
    return answer
