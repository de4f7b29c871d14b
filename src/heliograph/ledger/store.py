"""The ledger topic: read to its end, written with group commit. Runs on driver and executors.

One partition, compacted, on the target. Whoever writes an entry holds a *ticket*; what needs the
entry waits until its ticket is durable. Each process writes as an idempotent producer, one batch at
a time: a batch whose answer was lost is sent again byte for byte, and the broker drops whichever
copy comes second. Otherwise an attempt given up on could land after later entries and undo them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.log import read_batches
from heliograph.clock import now_ms
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    InvariantError,
    LeaderMoved,
    NotAuthorised,
    WireError,
)
from heliograph.ledger.entries import Entry, Tombstone, new_author
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName, TopicPartition
from heliograph.probe import (
    LEDGER_BATCH_TO_SEND,
    LEDGER_ENTRY_DURABLE,
    LEDGER_ENTRY_TO_WRITE,
    probe,
)
from heliograph.wire.batch import SEQUENCES, restamp
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_MAX,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)

_BATCH_BYTES_MAX: Final = 512 * 1024
_TIMEOUT_MS: Final = 30_000
_RETRY_PAUSE_S: Final = 0.1
_RETRY_PAUSE_S_MAX: Final = 2.0
_BOUND_TRIES: Final = 20
# The broker forgot the producer (idle for days), or the topic is another one (created again).
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
    }
)
_PRESENT: Final = frozenset({NONE, ErrorCode.duplicate_sequence_number})


class _ProducerForgotten(BrokerError):
    """The batch must be written as somebody else."""


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


class LedgerStore:
    """One flow's ledger in one process. `view` is as new as the last `catch_up`; own writes show
    only then."""

    def __init__(self, cluster: Cluster, topic: TopicName, author: str = "") -> None:
        self.view = LedgerView()
        self.author = author or new_author()
        """What this process's entries are signed with."""
        self.durable = 0
        """Every ticket up to this one is in the ledger."""
        self.on_durable: list[Callable[[], None]] = []
        self.problem: BrokerError | None = None
        """Why the ledger cannot be written at this moment; None while it can."""
        self._on_problem: list[Callable[[], None]] = []
        self._cluster = cluster
        self._partition = TopicPartition(topic=topic, partition=0)
        self._next_offset = 0
        self._garbage = 0
        self._tickets = 0
        self._pending: list[tuple[int, Entry | Tombstone]] = []
        self._producer: _Producer | None = None
        self._wake = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._bug: BaseException | None = None
        self._reading = asyncio.Lock()

    async def catch_up(self) -> None:
        """Read to where the ledger ends at this moment, so that all written before is in `view`."""
        async with self._reading:
            start, end = await self._bounds()
            # Below the start only what compaction or an operator removed; the records that count
            # remain.
            self._next_offset = max(self._next_offset, start)
            async for header, batch in read_batches(
                self._cluster, self._partition, self._next_offset, end
            ):
                if not header.is_control:
                    self._fold(bytes(batch))
                self._next_offset = header.next_offset

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
                self._writing.add_done_callback(self._ended)
        return self._tickets

    async def write(self, entries: Iterable[Entry | Tombstone]) -> None:
        """Write and wait until it is durable, however long the cluster takes."""
        await self._until_durable(self.write_soon(entries))

    async def write_or_refuse(self, entries: Iterable[Entry | Tombstone]) -> None:
        """As `write`, but raises `NotAuthorised` where only an operator can end the wait.

        The entries stay queued and are written once they may be: what is repeated is harmless.
        """
        await self._until_durable(self.write_soon(entries), unless_refused=True)

    async def flush(self, timeout_s: float) -> None:
        """Wait until all that was queued is durable; `BrokerError` if that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_durable(self._tickets)
        except TimeoutError as exc:
            where = f"cluster {self._cluster.alias}: {self._partition}"
            problem = self.problem or BrokerUnreachable(f"{where}: not written in {timeout_s:g} s")
            raise problem from exc

    async def _until_durable(self, ticket: int, *, unless_refused: bool = False) -> None:
        done = asyncio.Event()
        self.on_durable.append(done.set)
        self._on_problem.append(done.set)
        try:
            while self.durable < ticket:
                if self._bug is not None:
                    raise InvariantError(f"{self._partition}: the writer ended") from self._bug
                if unless_refused and isinstance(self.problem, NotAuthorised):
                    raise NotAuthorised(str(self.problem)) from self.problem
                done.clear()
                await done.wait()
        finally:
            self.on_durable.remove(done.set)
            self._on_problem.remove(done.set)

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
            self._writing = None

    async def _bounds(self) -> tuple[int, int]:
        for tries_left in reversed(range(_BOUND_TRIES)):
            await self._cluster.refresh([self._partition.topic])
            start, end = [
                (await self._cluster.list_offsets([self._partition], at))[self._partition]
                for at in (EARLIEST, LATEST)
            ]
            if isinstance(start, int) and isinstance(end, int):
                return start, end
            broken = next(each for each in (start, end) if isinstance(each, BrokerError))
            # A broker shows a ledger that was just created a moment before it leads it.
            if not (isinstance(broken, LeaderMoved) and tries_left):
                raise broken
            await asyncio.sleep(_RETRY_PAUSE_S)
        raise InvariantError("the ledger was not asked where it begins and ends")

    def _fold(self, batch: bytes) -> None:
        for record in DefaultRecordBatch(batch):
            try:
                self.view.apply_record(record.key or b"", record.value)
            except WireError:
                # Somebody else's bytes in our topic are counted and shown, never trusted.
                self._garbage += 1

    @property
    def garbage_records(self) -> int:
        return self._garbage

    async def _write_loop(self) -> None:
        pause_s = _RETRY_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                packed = _pack(self._pending)
                while not await self._tried(packed):
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _RETRY_PAUSE_S_MAX)
                pause_s = _RETRY_PAUSE_S
                self.durable = self._pending[packed.entry_count - 1][0]
                for _, entry in self._pending[: packed.entry_count]:
                    probe(LEDGER_ENTRY_DURABLE, entry)
                del self._pending[: packed.entry_count]
                for notify in tuple(self.on_durable):
                    notify()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._bug = task.exception()
        for notify in tuple(self.on_durable):
            notify()

    async def _tried(self, packed: _Packed) -> bool:
        """Whether the batch is in the ledger; `problem` has why not."""
        try:
            await self._stamp(packed)
            await self._append(packed.batch)
        except _ProducerForgotten as exc:
            self._producer, self.problem = None, exc
            return False
        except BrokerError as exc:
            self.problem = exc
            for notify in tuple(self._on_problem):
                notify()
            return False
        self.problem = None
        if packed.producer is not None:
            sequence = packed.producer.next_sequence + packed.entry_count
            packed.producer.next_sequence = sequence % SEQUENCES
        return True

    async def _stamp(self, packed: _Packed) -> None:
        if self._producer is None:
            self._producer = _Producer(*await self._cluster.new_producer_id())
        if packed.producer is not self._producer:
            packed.producer = self._producer
            restamp(
                memoryview(packed.batch),
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                sequence=self._producer.next_sequence,
            )

    async def _append(self, batch: bytearray) -> None:
        partition = self._partition
        if self.problem is not None or self._cluster.leader(partition) is None:
            await self._cluster.refresh([partition.topic])
        leader = self._cluster.leader(partition)
        where = f"cluster {self._cluster.alias}: {partition}"
        if leader is None:
            raise self._cluster.no_leader_error(partition)
        connection = await self._cluster.connection(leader.broker, "ledger")
        version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
        parts = produce_request(
            [(partition.topic, partition.partition, memoryview(batch))], timeout_ms=_TIMEOUT_MS
        )
        probe(LEDGER_BATCH_TO_SEND)
        body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
        for row in parse_produce_answer(body):
            if row.error_code in _FORGOTTEN:
                error = broker_error(where, row.error_code, row.message)
                raise _ProducerForgotten(str(error))
            if row.error_code not in _PRESENT:
                permission = f"WRITE on topic {partition.topic}"
                raise broker_error(where, row.error_code, row.message, permission=permission)


def _pack(pending: Sequence[tuple[int, Entry | Tombstone]]) -> _Packed:
    """As many entries as fit one batch, at least one."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_BATCH_BYTES_MAX,
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
