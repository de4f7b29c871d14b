"""The floor: the same bytes only fetched, only produced, as the shuttle does. Runs on the driver.

Same connections, same frames, same bytes in flight, same stamps; no second half to wait for and
nothing to decide. A mirror has to do both on the same machine, so it cannot be faster than the
slower of the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.connection import Answer, Connection
from heliograph.clock import monotonic_s
from heliograph.copy.appending import IN_FLIGHT_BYTES
from heliograph.copy.flow import FetchLimits
from heliograph.errors import BenchError
from heliograph.model import ClusterAlias, TopicName
from heliograph.wire.batch import SEQUENCES, parse_header, restamp
from heliograph.wire.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchFrom,
    PartitionKey,
    fetch_request,
    parse_fetch_answer,
    topic_key,
)
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_MAX,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)
from heliograph_tools.bench.filling import BuiltBatch, build_batch
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow
from heliograph_tools.bench.stage import Stage
from heliograph_tools.localkafka.cluster import LocalCluster

_LIMITS: Final = FetchLimits()
_NO_SESSION_EPOCH: Final = -1
_FETCH_BYTES: Final = 16 * 1024 * 1024
_TIMEOUT_MS: Final = 30_000
_CONNECTIONS: Final = (1, 2)
"""A broker opens compressed batches on one thread a connection; which is better is measured."""


def floor_rate(stage: Stage, row: CopyRow, topic: str, landing: str) -> dict[str, float]:
    """Records per second of each half; the better number of connections counts for produce."""
    fetched = asyncio.run(floor_fetch(stage.source, row, topic))
    produced: list[float] = []
    for connections in _CONNECTIONS:
        name = f"{landing}.{connections}"
        stage.create_target_topic(name, row.partitions)
        produced.append(asyncio.run(floor_produce(stage.target, row, name, connections)))
        with RawConnection(stage.target_address) as connection:
            held = sum(connection.end_offsets(name, row.partitions))
        if held != row.records:
            raise BenchError(f"{name} holds {held} records, not {row.records}")
        stage.drop_topics(name)
    return {"fetch_only": fetched, "produce_only": max(produced)}


async def floor_fetch(cluster: LocalCluster, row: CopyRow, topic: str) -> float:
    """Read the topic from start to end over one connection, one request under way at a time."""
    async with _opened(cluster, topic) as opened:
        known = opened.topic(TopicName(topic))
        if known is None:
            raise BenchError(f"{topic} is not on {cluster.alias}")
        connection = await opened.connection(0, "floor")
        key = topic_key(known.id)
        cursors: dict[PartitionKey, int] = {(key, p): 0 for p in range(row.partitions)}
        clock = _Clock()
        while clock.records < row.records:
            body = fetch_request(
                wait_ms_max=_LIMITS.wait_ms_max,
                bytes_max=_FETCH_BYTES,
                read_committed=True,
                session_id=0,
                session_epoch=_NO_SESSION_EPOCH,
                wanted={
                    at: FetchFrom(n, -1, -1, _LIMITS.partition_bytes) for at, n in cursors.items()
                },
            )
            answer = parse_fetch_answer(await connection.request(FETCH_KEY, FETCH_VERSION, [body]))
            found = 0
            for part in answer.partitions:
                if part.error_code != NONE:
                    raise broker_error(f"fetch of {topic}", part.error_code)
                next_offset = _after(part.records, cursors[part.key])
                found += next_offset - cursors[part.key]
                cursors[part.key] = next_offset
            clock.tick(found)
        return clock.rate()


def _after(records: memoryview, next_offset: int) -> int:
    """The first offset after the whole batches; only headers are looked at."""
    at = 0
    while (header := parse_header(records[at:])) is not None:
        next_offset = header.next_offset
        at += header.size_bytes
    return next_offset


async def floor_produce(cluster: LocalCluster, row: CopyRow, topic: str, connections: int) -> float:
    """Write the row's records from memory, one batch of every partition to a request."""
    async with _opened(cluster, topic) as opened:
        producer_id, _ = await opened.new_producer_id()
        clock = _Clock()
        writers = [
            _Writer(
                connection=await opened.connection(0, f"floor-{index}"),
                topic=topic,
                partitions=tuple(range(index, row.partitions, connections)),
                producer_id=producer_id,
                clock=clock,
            )
            for index in range(connections)
        ]
        full = build_batch(0, row.record_bytes, row.batch_bytes, row.codec)
        whole, rest = divmod(row.records // row.partitions, full.records)
        sizes = [full] * whole
        if rest:
            sizes.append(
                build_batch(1, row.record_bytes, row.batch_bytes, row.codec, records_max=rest)
            )
        await asyncio.gather(*(writer.write(sizes) for writer in writers))
        return clock.rate()


class _Writer:
    """One connection's share of the partitions, within the shuttle's bound of bytes in flight."""

    def __init__(
        self,
        *,
        connection: Connection,
        topic: str,
        partitions: tuple[int, ...],
        producer_id: int,
        clock: _Clock,
    ) -> None:
        self._connection, self._topic, self._partitions = connection, topic, partitions
        self._producer_id, self._clock = producer_id, clock
        self._in_flight_bytes = 0
        self._answered = asyncio.Event()
        self._failure: BaseException | None = None

    async def write(self, batches: list[BuiltBatch]) -> None:
        position = 0
        for batch in batches:
            while self._in_flight_bytes >= IN_FLIGHT_BYTES:
                await self._next_answer()
            if not self._connection.writable.is_set():
                await self._connection.writable.wait()
            self._send(batch, position)
            position += batch.records
        while self._in_flight_bytes:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()
        if self._failure is not None:
            raise self._failure

    def _send(self, batch: BuiltBatch, position: int) -> None:
        rows: list[tuple[str, int, memoryview]] = []
        for partition in self._partitions:
            view = memoryview(bytearray(batch.payload))
            restamp(
                view,
                producer_id=self._producer_id,
                producer_epoch=0,
                sequence=position % SEQUENCES,
            )
            rows.append((self._topic, partition, view))
        request_bytes = len(batch.payload) * len(rows)
        self._in_flight_bytes += request_bytes
        connection = self._connection
        version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
        connection.send(
            PRODUCE_KEY,
            version,
            produce_request(rows, timeout_ms=_TIMEOUT_MS),
            lambda answer: self._settle(answer, request_bytes, batch.records * len(rows)),
        )

    def _settle(self, answer: Answer, request_bytes: int, records: int) -> None:
        self._in_flight_bytes -= request_bytes
        self._answered.set()
        if isinstance(answer, BaseException):
            self._failure = answer
            return
        for part in parse_produce_answer(answer):
            if part.error_code != NONE:
                where = f"produce to {self._topic}-{part.partition}"
                self._failure = broker_error(where, part.error_code, part.message)
        self._clock.tick(records)


@dataclass(slots=True, kw_only=True)
class _Clock:
    """From the first records to the last, as the watcher of the mirrors counts."""

    began_s: float = field(default_factory=monotonic_s)
    records: int = 0
    first_records: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    def tick(self, records: int) -> None:
        if not records:
            return
        self.records += records
        self.last_s = monotonic_s()
        if not self.first_records:
            self.first_records, self.first_s = self.records, self.last_s

    def rate(self) -> float:
        if self.records == self.first_records:
            # All in one answer, in a smoke run: only the asking can be timed.
            return self.records / (self.last_s - self.began_s)
        return (self.records - self.first_records) / (self.last_s - self.first_s)


@asynccontextmanager
async def _opened(cluster: LocalCluster, topic: str) -> AsyncIterator[Cluster]:
    opened = Cluster(ClusterAlias(cluster.alias), cluster.bootstrap.split(","), {})
    try:
        await opened.refresh([TopicName(topic)])
        yield opened
    finally:
        opened.close()
