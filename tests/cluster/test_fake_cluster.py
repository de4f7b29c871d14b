"""What the fake cluster claims of a broker, asked of a real one: the same script, the same answers.

Not in the script, since one broker has no followers and remembers a producer for a day: records
above the high watermark, and a producer that is forgotten. Of the latter there is what follows from
it: a producer that the broker does not know may begin with any sequence.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.delete_records.v2 import request as delete_request
from kio.schema.delete_records.v2 import response as delete_response

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import fetch_once, read_batches
from heliograph.broker.seed import seed
from heliograph.errors import BrokerError, OffsetGone
from heliograph.model import ClusterAlias, OffsetRange, TopicName, TopicPartition
from heliograph.wire.batch import SEQUENCES, Stamp
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_MAX,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.batches import Record, batch_of
from tests.kit.clusters import TopicNames
from tests.kit.fake_cluster import FakeCluster
from tests.kit.fake_records import records_batch
from tests.kit.topics import create_topic

PER_BATCH = 3
Said = list[tuple[str, object]]
"""A step of the script, and what came of it."""


class Script:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.at = TopicPartition(topic=TopicName(topic), partition=0)
        self.said: Said = []

    async def append(
        self, step: str, producer: Stamp, sequence: int, *, count: int = PER_BATCH
    ) -> None:
        batch = records_batch(
            count,
            producer_id=producer.producer_id,
            epoch=producer.producer_epoch,
            sequence=sequence,
        )
        await self.append_bytes(step, batch)

    async def append_bytes(self, step: str, batch: bytes) -> None:
        leader = self.cluster.leader(self.at)
        assert leader is not None
        connection = await self.cluster.connection(leader.broker, "script")
        version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
        parts = produce_request([(self.at.topic, self.at.partition, batch)], timeout_ms=10_000)
        body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
        (row,) = parse_produce_answer(body)
        self.said.append((step, (row.error_code, row.base_offset)))

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


async def sequences(script: Script) -> None:
    ours = Stamp(*await script.cluster.new_producer_id())
    theirs = Stamp(*await script.cluster.new_producer_id())
    await script.look("nobody is known", ours)
    await script.append("a producer that is not known begins anywhere", theirs, 77)
    for index in range(7):
        await script.append(f"in order {index}", ours, index * PER_BATCH)
    await script.look("both are known", ours, theirs)
    await script.append("the last batch again", ours, 6 * PER_BATCH)
    await script.append("the fifth last again", ours, 2 * PER_BATCH)
    await script.append("the sixth last again", ours, 1 * PER_BATCH)
    await script.append("the last, cut differently", ours, 6 * PER_BATCH, count=PER_BATCH - 1)
    await script.append("one too far", ours, 8 * PER_BATCH)
    next_epoch = Stamp(theirs.producer_id, theirs.producer_epoch + 1)
    await script.append("a new epoch in the middle", next_epoch, 80)
    await script.append("a new epoch from the start", next_epoch, 0)
    await script.append("an old epoch", theirs, 83)
    holes = batch_of(Record(offset=0), Record(offset=2))
    await script.append_bytes("with a hole", bytes(holes))
    torn = bytearray(records_batch(PER_BATCH))
    torn[-1] ^= 1
    await script.append_bytes("with a wrong checksum", bytes(torn))
    await script.append("without a producer", Stamp(-1, -1), -1)
    await script.look("after all that", ours, next_epoch)
    await script.read("all of it", 0, 30)
    await script.epochs("where epochs end, this one and one that is to come", 0, 7)


async def wrapping(script: Script) -> None:
    ours = Stamp(*await script.cluster.new_producer_id())
    await script.append("up to the last sequence", ours, SEQUENCES - PER_BATCH)
    await script.look("at the last sequence", ours)
    await script.append("from the first again", ours, 0)
    await script.look("after the first", ours)
    other = Stamp(*await script.cluster.new_producer_id())
    await script.append("two before the last", other, SEQUENCES - 2)
    await script.look("across the end", other)
    await script.append("goes on behind it", other, 1)


async def deleting(script: Script) -> None:
    ours = Stamp(*await script.cluster.new_producer_id())
    for index in range(4):
        await script.append(f"in order {index}", ours, index * PER_BATCH)
    await script.delete_before("in the middle of a batch", 4)
    await script.look("starts there", ours)
    await script.read("the batch is still whole", 4, 12)
    await script.read("before the start", 3, 12)
    await script.delete_before("again, further back", 2)
    await script.delete_before("past the end", 13)
    await script.delete_before("all of it", 12)
    await script.look("the producer is remembered", ours)
    await script.append("and goes on", ours, 4 * PER_BATCH)
    await script.append("the last that was deleted again", ours, 3 * PER_BATCH)
    try:
        await fetch_once(script.cluster, script.at, 99)
    except BrokerError as exc:
        script.said.append(("past the end", type(exc).__name__))


async def seeding(script: Script) -> None:
    ours = Stamp(*await script.cluster.new_producer_id())
    end = await seed(
        script.cluster,
        script.at,
        ours,
        log=OffsetRange(start=0, end=0),
        last_sequence=-1,
        wanted=250_000,
    )
    script.said.append(("seeded", end))
    await script.look("empty at the end", ours)
    await script.append("the lane's first record", ours, 0)
    await script.append("a seeder that wakes up late", ours, SEQUENCES - PER_BATCH)
    await script.look("as it was", ours)


Play = Callable[[Script], Awaitable[None]]
SCRIPTS: list[Play] = [sequences, wrapping, deleting, seeding]


async def played(script: Script, play: Play) -> Said:
    try:
        await script.cluster.refresh([script.at.topic])
        await play(script)
        return script.said
    finally:
        script.cluster.close()


@pytest.mark.parametrize("play", SCRIPTS, ids=["sequences", "wrapping", "deleting", "seeding"])
def test_the_fake_answers_as_a_broker_does(
    play: Play, pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = topic("script")
    create_topic(pair["B"], name, config={"retention.ms": "-1"})
    real = Cluster(ClusterAlias("B"), [pair["B"].bootstrap], {})
    fake = FakeCluster("B")
    fake.create(name)

    said = asyncio.run(played(Script(real, name), play))

    assert asyncio.run(played(Script(fake, name), play)) == said


def test_both_refuse_to_delete_from_a_topic_that_is_only_compacted(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = topic("compacted")
    create_topic(pair["B"], name, config={"cleanup.policy": "compact"})
    real = Cluster(ClusterAlias("B"), [pair["B"].bootstrap], {})
    fake = FakeCluster("B")
    fake.create(name, is_compacted=True)

    async def deleting_nothing(script: Script) -> None:
        await script.delete_before("nothing", 0)

    said = asyncio.run(played(Script(real, name), deleting_nothing))

    assert asyncio.run(played(Script(fake, name), deleting_nothing)) == said
