"""A script for brokers, real or simulated: what each step came to, in numbers a lane looks at."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from unittest import mock

from kio.schema.delete_records.v2 import request as delete_request
from kio.schema.delete_records.v2 import response as delete_response

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import read_batches
from heliograph.errors import OffsetGone
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.batch import Stamp, parse_header
from heliograph.wire.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchFrom,
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
from tests.kit.batches import NOW_MS
from tests.kit.fake_brokers import FakeBrokers
from tests.kit.fake_records import records_batch
from tests.sim.loop import Clock, Process, VirtualLoop
from tests.sim.net import Net

PER_BATCH = 3
Said = list[tuple[str, object]]
"""A step of the script, and what came of it."""


class Script:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.at = TopicPartition(topic=TopicName(topic), partition=0)
        self.said: Said = []
        self.at_ms = NOW_MS
        """The time of all records."""

    async def append(
        self, step: str, producer: Stamp, sequence: int, *, count: int = PER_BATCH, to: int = -1
    ) -> None:
        """`to` is a broker that need not lead."""
        batch = records_batch(
            count,
            producer_id=producer.producer_id,
            epoch=producer.producer_epoch,
            sequence=sequence,
            timestamp_ms=self.at_ms,
        )
        await self.append_bytes(step, batch, to=to)

    async def append_bytes(self, step: str, batch: bytes, *, to: int = -1) -> None:
        # Of its own: a broker answers nothing else on a connection before what is not replicated.
        connection = await self.cluster.connection(self._broker(to), "appends")
        version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
        parts = produce_request([(self.at.topic, self.at.partition, batch)], timeout_ms=10_000)
        body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
        (row,) = parse_produce_answer(body)
        self.said.append((step, (row.error_code, row.base_offset)))

    def _broker(self, to: int) -> int:
        leader = self.cluster.leader(self.at)
        assert leader is not None
        return leader.broker if to < 0 else to

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await is_so():
                await asyncio.sleep(0.05)

    async def last_sequence(self, producer: Stamp) -> int:
        found = (await self.cluster.last_sequences([self.at], producer.producer_id))[self.at]
        return found if isinstance(found, int) else -1

    async def delete_before(self, step: str, offset: int) -> None:
        leader = self.cluster.leader(self.at)
        assert leader is not None
        connection = await self.cluster.connection(leader.broker, "script")
        answer = await connection.call(
            _delete_request(self.at, offset), delete_response.DeleteRecordsResponse
        )
        (row,) = answer.topics[0].partitions
        self.said.append((step, (int(row.error_code), int(row.low_watermark))))

    async def look(self, step: str, *producers: Stamp) -> None:
        starts = await self.cluster.list_offsets([self.at], EARLIEST)
        ends = await self.cluster.list_offsets([self.at], LATEST)
        last = [
            (await self.cluster.last_sequences([self.at], each.producer_id))[self.at]
            for each in producers
        ]
        self.said.append((step, (starts[self.at], ends[self.at], last)))

    async def epochs(self, step: str, *epochs: int) -> None:
        ends = [(await self.cluster.epoch_ends({self.at: epoch}))[self.at] for epoch in epochs]
        self.said.append((step, ends))

    async def fetch(
        self,
        step: str,
        offset: int,
        *,
        leader_epoch: int = -1,
        last_epoch: int = -1,
        topic_id: str | None = None,
        session: tuple[int, int] = (0, -1),
        says: bool = True,
        to: int = -1,
    ) -> int:
        """Its answer in the numbers that a lane looks at; returns the session's id. `to` is a
        broker that need not lead."""
        topic = self.cluster.topic(self.at.topic)
        assert topic is not None
        connection = await self.cluster.connection(self._broker(to), "script")
        key = topic_key(topic_id or topic.id), self.at.partition
        body = fetch_request(
            wait_ms_max=0,
            bytes_max=1_000_000,
            read_committed=True,
            session_id=session[0],
            session_epoch=session[1],
            wanted={key: FetchFrom(offset, leader_epoch, last_epoch, 1_000_000)} if says else {},
        )
        answer = parse_fetch_answer(await connection.request(FETCH_KEY, FETCH_VERSION, [body]))
        rows: list[object] = []
        for row in answer.partitions:
            batches, window = [], row.records
            while (header := parse_header(window)) is not None:
                batches.append(header.base_offset)
                window = window[header.size_bytes :]
            ends = row.high_watermark, row.last_stable_offset, row.log_start_offset
            aborted = sorted(first for _, first in row.aborted)
            rows.append((row.error_code, ends, row.diverging_end_offset, batches, aborted))
        self.said.append((step, (answer.error_code, rows)))
        return answer.session_id

    async def read(self, step: str, start: int, end: int) -> None:
        try:
            found = [
                (header.base_offset, header.record_count, header.base_sequence)
                async for header, _ in read_batches(self.cluster, self.at, start, end)
            ]
            self.said.append((step, found))
        except OffsetGone:
            self.said.append((step, "offset gone"))


def _delete_request(at: TopicPartition, offset: int) -> delete_request.DeleteRecordsRequest:
    return delete_request.DeleteRecordsRequest(
        topics=(
            delete_request.DeleteRecordsTopic(
                name=at.topic,  # type: ignore[arg-type]
                partitions=(
                    delete_request.DeleteRecordsPartition(
                        partition_index=at.partition,  # type: ignore[arg-type]
                        offset=offset,  # type: ignore[arg-type]
                    ),
                ),
            ),
        ),
        timeout=datetime.timedelta(seconds=10),  # type: ignore[arg-type]
    )


Play = Callable[[Script], Awaitable[None]]


async def played(script: Script, play: Play) -> Said:
    try:
        await script.cluster.refresh([script.at.topic])
        while not isinstance(
            (await script.cluster.list_offsets([script.at], LATEST))[script.at], int
        ):
            # The metadata names a leader a moment before that one knows of it.
            await script.cluster.refresh([script.at.topic])
        await play(script)
        return script.said
    finally:
        script.cluster.close()


def played_in_sim(name: str, play: Play, brokers: FakeBrokers | None = None) -> Said:
    """On the script's other side: the real `Cluster` over the network of `tests.sim`, to brokers
    that have the topic already, or to one that gets it."""
    loop = VirtualLoop()
    if brokers is None:
        brokers = FakeBrokers({1: "b1"})
        brokers.create(name)
    net = Net(loop, {ClusterAlias("B"): brokers}, lambda *_: None)
    hosts = [f"{host}:9092" for host in brokers.hosts.values()]
    cluster = Cluster(ClusterAlias("B"), hosts, {"process": Process(loop, "script")})
    script = Script(cluster, name)
    with (
        loop,
        mock.patch("heliograph.broker.cluster.open_connection", net.open),
        mock.patch("heliograph.clock.time", Clock(loop)),
    ):
        playing: asyncio.Task[Said] = Process(loop, "play").start(played(script, play))
        while not playing.done():
            loop.settle()
            for wire, is_answer in net.moves():
                net.move(wire, is_answer)
                loop.settle()
            net.poke()
            if not net.moves() and not playing.done():
                due_s = [each for each in (loop.next_timer_s(), net.next_due_s()) if each]
                loop.advance(min(due_s, default=loop.now_s))
                net.poke()
        return playing.result()
