"""What is written to the ledger: in order, group by group, once. Runs on driver and executors.

Each process writes as an idempotent producer, one batch at a time: a batch whose answer was lost is
sent again byte for byte, and the broker drops whichever copy comes second. Otherwise an attempt
given up on could land after later entries and undo them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode

from heliograph.broker.codes import NONE, broker_error
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, InvariantError, MirrorError
from heliograph.ledger.entries import Entry, Tombstone, in_halves
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.topic import LedgerTopic
from heliograph.probe import (
    LEDGER_BATCH_TO_SEND,
    LEDGER_ENTRY_DURABLE,
    LEDGER_ENTRY_TO_WRITE,
    probe,
)
from heliograph.wire.batch import SEQUENCES, restamp
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_BY_ID,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)

_BATCH_BYTES_MAX: Final = 512 * 1024
_BATCH_BYTES_MIN: Final = 1024
_COMPRESSED_ENTRIES_MIN: Final = 8
"""Heads of many lanes are much alike; what one chunk needs is a few bytes and in a hurry."""
_TIMEOUT_MS: Final = 30_000
_RETRY_PAUSE_S: Final = 0.1
_RETRY_PAUSE_S_MAX: Final = 2.0
# The broker forgot the producer (idle for days), or the topic is another one (created again).
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
    }
)
_TOO_LARGE: Final = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})
_PRESENT: Final = frozenset({NONE, ErrorCode.duplicate_sequence_number})

Pending = tuple[int, Entry | Tombstone]


class _ProducerForgotten(BrokerError):
    """The batch must be written as somebody else."""

    retriable = True


class _TooLarge(BrokerError):
    """The batch is larger than the topic takes."""


@dataclass(slots=True)
class _Producer:
    id: int
    epoch: int
    next_sequence: int = 0


@dataclass(slots=True)
class _Packed:
    """One batch, the same bytes until it is acknowledged."""

    entry_count: int
    batch: bytearray
    producer: _Producer | None = None
    """Whom it is stamped with."""


class LedgerWriter:
    """One process's writes to one ledger; whoever writes holds a ticket until it is durable."""

    def __init__(self, topic: LedgerTopic) -> None:
        self.durable = 0
        """Every ticket up to this one is in the ledger."""
        self.on_durable: list[Callable[[], None]] = []
        self.problem: MirrorError | None = None
        """Why the ledger cannot be written at this moment; None while it can."""
        self.problem_since_ms = 0
        """When the problem came up that there is."""
        self.on_problem: list[Callable[[], None]] = []
        self.writing_since_s: float | None = None
        """Since when the batch that is written now waits to be durable."""
        self._topic = topic
        self._tickets = 0
        self._pending: list[Pending] = []
        self._bytes_max = _BATCH_BYTES_MAX
        self._producer: _Producer | None = None
        self._wake = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._bug: BaseException | None = None
        self._ended = asyncio.Event()

    @property
    def tickets(self) -> int:
        """The ticket of what was queued last."""
        return self._tickets

    def write_soon(self, entries: Iterable[Entry | Tombstone]) -> int:
        """Queue entries in order; the ticket returned is durable once all of them are."""
        for entry in entries:
            probe(LEDGER_ENTRY_TO_WRITE, entry)
            self._tickets += 1
            self._pending.append((self._tickets, entry))
        if self._pending:
            self._wake.set()
            if self._writing is None:
                self._writing = asyncio.create_task(self._write_loop())
                self._writing.add_done_callback(self._note_end)
        return self._tickets

    async def until_durable(self, ticket: int, *, unless_refused: bool = False) -> None:
        """Wait for the ticket; with `unless_refused` raises what only an operator can change."""
        done = asyncio.Event()
        self.on_durable.append(done.set)
        self.on_problem.append(done.set)
        try:
            while self.durable < ticket:
                if self._bug is not None:
                    raise InvariantError(f"{self._topic}: the writer ended") from self._bug
                if unless_refused and self.problem is not None and not self.problem.retriable:
                    raise type(self.problem)(*self.problem.args) from self.problem
                done.clear()
                await done.wait()
        finally:
            self.on_durable.remove(done.set)
            self.on_problem.remove(done.set)

    async def fail_with_writer(self) -> None:
        """Waits as long as the writer works; raises what ended it, which is a bug of ours."""
        await self._ended.wait()
        if self._bug is not None:
            raise InvariantError(f"{self._topic}: the writer ended: {self._bug}") from self._bug

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
            self._writing = None

    async def _write_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                self.writing_since_s = monotonic_s()
                count = await self._write_next()
                self.writing_since_s = None
                self.durable = self._pending[count - 1][0]
                for _, entry in self._pending[:count]:
                    probe(LEDGER_ENTRY_DURABLE, entry)
                del self._pending[:count]
                for notify in tuple(self.on_durable):
                    notify()

    async def _write_next(self) -> int:
        """Write the next batch, however long that takes; how many entries it had."""
        pause_s = _RETRY_PAUSE_S
        packed = _pack(self._pending, self._bytes_max)
        while True:
            try:
                await self._stamp(packed)
                await self._append(packed.batch)
            except InvariantError:
                raise
            except _TooLarge as exc:
                if self._shrink(packed):
                    packed = _pack(self._pending, self._bytes_max)
                    continue
                self._trouble(exc)
            except _ProducerForgotten as exc:
                self._producer = None
                self._trouble(exc)
            except MirrorError as exc:
                self._trouble(exc)
            else:
                self.problem = None
                if packed.producer is not None:
                    sequence = packed.producer.next_sequence + packed.entry_count
                    packed.producer.next_sequence = sequence % SEQUENCES
                return packed.entry_count
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_PAUSE_S_MAX)

    def _shrink(self, packed: _Packed) -> bool:
        """Whether the next batch can be smaller than this one."""
        if packed.entry_count > 1:
            self._bytes_max = max(_BATCH_BYTES_MIN, min(self._bytes_max, len(packed.batch)) // 2)
            return True
        ticket, entry = self._pending[0]
        halves = None if isinstance(entry, Tombstone) else in_halves(entry)
        if halves is None:
            return False
        # All before this ticket is durable: only the last part may make it so.
        self._pending[:1] = [*((ticket - 1, part) for part in halves[:-1]), (ticket, halves[-1])]
        self._bytes_max = max(_BATCH_BYTES_MIN, min(self._bytes_max, len(packed.batch)) // 2)
        return True

    def _trouble(self, error: MirrorError) -> None:
        if self.problem is None:
            self.problem_since_ms = now_ms()
        self.problem = error
        for notify in tuple(self.on_problem):
            notify()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._bug = task.exception()
            self._ended.set()
        for notify in tuple(self.on_durable):
            notify()

    async def _stamp(self, packed: _Packed) -> None:
        if self._producer is None:
            self._producer = _Producer(*await self._topic.cluster.new_producer_id())
        if packed.producer is not self._producer:
            packed.producer = self._producer
            restamp(
                memoryview(packed.batch),
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                sequence=self._producer.next_sequence,
            )

    async def _append(self, batch: bytearray) -> None:
        cluster, partition = self._topic.cluster, self._topic.partition
        if self.problem is not None or cluster.leader(partition) is None:
            await self._topic.refresh()
        self._topic.require_same()
        leader = cluster.leader(partition)
        if leader is None:
            raise cluster.no_leader_error(partition)
        connection = await cluster.connection(leader.broker, "ledger")
        version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_BY_ID)
        # By its id where the broker can: a topic that took the ledger's place refuses it.
        by_id = version == PRODUCE_VERSION_BY_ID
        topic = self._topic.key if by_id else partition.topic
        parts = produce_request(
            [(topic, partition.partition, memoryview(batch))], timeout_ms=_TIMEOUT_MS
        )
        probe(LEDGER_BATCH_TO_SEND)
        body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
        for row in parse_produce_answer(body, by_id=by_id):
            if row.error_code in _PRESENT:
                continue
            permission = f"WRITE on topic {partition.topic}"
            error = broker_error(
                str(self._topic), row.error_code, row.message, permission=permission
            )
            if row.error_code in _FORGOTTEN:
                raise _ProducerForgotten(str(error))
            if row.error_code in _TOO_LARGE:
                raise _TooLarge(str(error))
            raise error


def _pack(pending: Sequence[Pending], bytes_max: int) -> _Packed:
    """As many entries as fit one batch, at least one."""
    is_compressed = len(pending) >= _COMPRESSED_ENTRIES_MIN
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=DefaultRecordBatch.CODEC_ZSTD if is_compressed else 0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=bytes_max,
    )
    at_ms = now_ms()
    count = 0
    for _, entry in pending:
        key, value = _record(entry)
        if builder.append(count, at_ms, key, value, []) is None:
            break
        count += 1
    return _Packed(count, bytearray(builder.build()))


def _record(entry: Entry | Tombstone) -> tuple[bytes, bytes | None]:
    return (encode_key(entry.key), None) if isinstance(entry, Tombstone) else encode(entry)
