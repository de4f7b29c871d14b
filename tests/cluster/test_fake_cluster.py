"""What the fake cluster claims of a broker, asked of a real one: the same script, the same answers.

Not in the script, since one broker has no followers and remembers a producer for a day: records
above the high watermark, and a producer that is forgotten. Of the latter there is what follows from
it: a producer that the broker does not know may begin with any sequence.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest
from kio.schema.delete_records.v2 import request as delete_request
from kio.schema.delete_records.v2 import response as delete_response

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import fetch_once, read_batches
from heliograph.broker.seed import seed
from heliograph.errors import BrokerError, OffsetGone
from heliograph.model import ClusterAlias, OffsetRange, TopicName, TopicPartition
from heliograph.wire.batch import SEQUENCES, Stamp, parse_header
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
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.batches import Record, batch_of
from tests.kit.clusters import TopicNames
from tests.kit.fake_brokers import FakeBrokers
from tests.kit.fake_cluster import FakeCluster
from tests.kit.fake_records import records_batch
from tests.kit.topics import create_topic
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
    ) -> int:
        """Its answer in the numbers that a lane looks at; returns the session's id."""
        leader, topic = self.cluster.leader(self.at), self.cluster.topic(self.at.topic)
        assert leader is not None
        assert topic is not None
        connection = await self.cluster.connection(leader.broker, "script")
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
            rows.append((row.error_code, ends, row.diverging_end_offset, batches))
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


async def fetching(script: Script) -> None:
    """A leader tells who asks as of another epoch, and where logs part (KIP-320, KIP-595)."""
    ours = Stamp(*await script.cluster.new_producer_id())
    await script.fetch("nothing yet", 0)
    for index in range(3):
        await script.append(f"in order {index}", ours, index * PER_BATCH)
    await script.fetch("from the middle of a batch", 4)
    await script.fetch("at the end", 9)
    await script.fetch("past the end", 10)
    await script.fetch("of the leader's own epoch", 3, leader_epoch=0, last_epoch=0)
    await script.fetch("of an epoch that is to come", 3, leader_epoch=1)
    await script.fetch("behind records of an epoch nobody knows", 3, leader_epoch=0, last_epoch=7)
    await script.fetch("of a topic that is not there", 0, topic_id=str(uuid.UUID(int=4_711)))
    await script.delete_before("the first two batches", 6)
    await script.fetch("before the start", 3, last_epoch=0)


async def sessions(script: Script) -> None:
    """A session hears of what is new only (KIP-227)."""
    ours = Stamp(*await script.cluster.new_producer_id())
    await script.append("one batch", ours, 0)
    session = await script.fetch("a new session is told everything", 0, session=(0, 0))
    script.said.append(("it has an id", session > 0))
    await script.fetch("further on", PER_BATCH, session=(session, 1))
    await script.fetch("nothing new", PER_BATCH, session=(session, 2), says=False)
    await script.append("another batch", ours, PER_BATCH)
    await script.fetch("that is news", PER_BATCH, session=(session, 3), says=False)
    await script.fetch("an epoch that was used", PER_BATCH, session=(session, 3), says=False)
    await script.fetch("a session nobody knows", 0, session=(session + 1_000, 1))


Play = Callable[[Script], Awaitable[None]]
SCRIPTS: list[Play] = [sequences, wrapping, deleting, seeding, fetching]


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


@pytest.mark.parametrize(
    "play", SCRIPTS, ids=["sequences", "wrapping", "deleting", "seeding", "fetching"]
)
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


def sim_script(name: str) -> tuple[VirtualLoop, Net, Script]:
    """The script's other side: the real `Cluster` over the network of `tests.sim`."""
    loop, brokers = VirtualLoop(), FakeBrokers({1: "b1"})
    brokers.create(name)
    net = Net(loop, {ClusterAlias("B"): brokers}, lambda *_: None)
    cluster = Cluster(ClusterAlias("B"), ["b1:9092"], {"process": Process(loop, "script")})
    return loop, net, Script(cluster, name)


def played_in_sim(name: str, play: Play) -> Said:
    loop, net, script = sim_script(name)
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
            if not net.moves() and not playing.done():
                due_s = [each for each in (loop.next_timer_s(), net.next_due_s()) if each]
                loop.advance(min(due_s, default=loop.now_s))
                net.poke()
        return playing.result()


@pytest.mark.parametrize("play", [*SCRIPTS, sessions], ids=lambda play: play.__name__)
def test_the_simulated_network_answers_as_a_broker_does(
    play: Play, pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = topic("simulated")
    create_topic(pair["B"], name, config={"retention.ms": "-1"})
    real = Cluster(ClusterAlias("B"), [pair["B"].bootstrap], {})

    said = asyncio.run(played(Script(real, name), play))

    assert played_in_sim(name, play) == said
