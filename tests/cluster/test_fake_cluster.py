"""What the fake cluster claims of a broker, asked of a real one: the same script, the same answers.

What takes several brokers, or one that soon forgets, is in `tests/soak/test_fake_brokers.py`.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Protocol

import pytest
from confluent_kafka import Producer

from heliograph.broker.cluster import LATEST, Cluster
from heliograph.broker.log import fetch_once
from heliograph.broker.seed import seed
from heliograph.clock import now_ms
from heliograph.errors import BrokerError
from heliograph.model import ClusterAlias, OffsetRange
from heliograph.wire.batch import SEQUENCES, Stamp, parse_header
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.batches import NOW_MS, Record, batch_of
from tests.kit.broker_script import PER_BATCH, Play, Script, played, played_in_sim
from tests.kit.clusters import TopicNames
from tests.kit.fake_brokers import FakeBrokers
from tests.kit.fake_cluster import FakeCluster
from tests.kit.fake_log import FakeLog
from tests.kit.fake_records import records_batch
from tests.kit.topics import create_topic
from tests.sim.records import TRANSACTIONAL, Made, marker_of
from tests.sim.records import batch_of as made_batch


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


SCRIPTS: list[Play] = [sequences, wrapping, deleting, seeding, fetching]


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


@pytest.mark.parametrize("play", [*SCRIPTS, sessions], ids=lambda play: play.__name__)
def test_the_simulated_network_answers_as_a_broker_does(
    play: Play, pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = topic("simulated")
    create_topic(pair["B"], name, config={"retention.ms": "-1"})
    real = Cluster(ClusterAlias("B"), [pair["B"].bootstrap], {})

    said = asyncio.run(played(Script(real, name), play))

    assert played_in_sim(name, play) == said


class Transactions(Protocol):
    """Of one producer, which a broker gives an id of its own."""

    async def write(self) -> None:
        """A batch of the transaction that is open; it opens one if there is none."""

    async def end(self, *, commits: bool) -> None:
        """Returns once its marker is in the log."""


class RealTransactions:
    def __init__(self, cluster: LocalCluster, script: Script, number: int) -> None:
        self._script, self._topic = script, script.at.topic
        settings: dict[str, str | int] = dict(cluster.librdkafka_config)
        # Late enough for one batch to have all its records.
        settings |= {"transactional.id": f"{self._topic}-{number}", "linger.ms": 50}
        self._producer = Producer(settings)
        self._is_open: bool | None = None

    async def write(self) -> None:
        await asyncio.to_thread(self._write)

    def _write(self) -> None:
        if self._is_open is None:
            self._producer.init_transactions(30)
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        for number in range(PER_BATCH):
            self._producer.produce(self._topic, str(number), partition=0)
        assert self._producer.flush(30) == 0

    async def end(self, *, commits: bool) -> None:
        before = await self._end()
        done = self._producer.commit_transaction if commits else self._producer.abort_transaction
        await asyncio.to_thread(done, 30)
        self._is_open = False
        # It is told before its marker is written, and that before it counts for readers.
        await self._script.until(lambda: self._is_longer_than(before))
        await self._script.until(self._is_read_to_the_stable_end)

    async def _is_longer_than(self, end: int) -> bool:
        return await self._end() > end

    async def _is_read_to_the_stable_end(self) -> bool:
        row = await fetch_once(self._script.cluster, self._script.at, 0, read_committed=True)
        end, window = 0, row.records
        while (header := parse_header(window)) is not None:
            end, window = header.next_offset, window[header.size_bytes :]
        return end == row.last_stable_offset

    async def _end(self) -> int:
        found = (await self._script.cluster.list_offsets([self._script.at], LATEST))[
            self._script.at
        ]
        assert isinstance(found, int)
        return found


class SimTransactions:
    def __init__(self, log: FakeLog, producer_id: int) -> None:
        self._log, self._producer_id, self._sequence = log, producer_id, 0

    async def write(self) -> None:
        made = list(enumerate(Made(n, 0, NOW_MS) for n in range(PER_BATCH)))
        producer = self._producer_id, 0, self._sequence
        self._log.append(made_batch(made, attributes=TRANSACTIONAL, producer=producer))
        self._sequence += PER_BATCH

    async def end(self, *, commits: bool) -> None:
        marker = marker_of(self._producer_id, 0, commits=commits, at_ms=NOW_MS)
        self._log.end_transaction(marker, commits=commits)


async def transacting(script: Script, one: Transactions, other: Transactions) -> None:
    """What is open holds back what comes behind it, and an answer names what was aborted."""
    ours = Stamp(*await script.cluster.new_producer_id())
    # The time of the transactions' records: a broker begins another segment behind much older ones,
    # and an answer to a Fetch is of one.
    script.at_ms = now_ms()
    await script.append("before all", ours, 0)
    await one.write()
    await script.append("behind what is open", ours, PER_BATCH)
    await script.fetch("only what is before the open one", 0)
    await one.write()
    await one.end(commits=False)
    await script.fetch("all, and what was aborted", 0)
    await script.fetch("from its second batch", 10)
    await script.fetch("from behind its last batch, before its marker", 12)
    await script.fetch("from behind its marker", 13)
    await one.write()
    await other.write()
    await one.end(commits=True)
    await script.fetch("what was committed waits for the one that is open", 13)
    await other.end(commits=False)
    await script.fetch("both have ended", 13)
    await script.look("markers count", ours)


def test_open_and_aborted_transactions_are_told_as_a_broker_tells_them(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name, brokers = topic("transacted"), FakeBrokers({1: "b1"})
    create_topic(pair["B"], name, config={"retention.ms": "-1"})
    real = Script(Cluster(ClusterAlias("B"), [pair["B"].bootstrap], {}), name)
    log = brokers.create(name)
    pairs = [RealTransactions(pair["B"], real, number) for number in range(2)]

    said = asyncio.run(played(real, lambda script: transacting(script, *pairs)))

    in_sim = SimTransactions(log, 8_001), SimTransactions(log, 8_002)
    assert played_in_sim(name, lambda script: transacting(script, *in_sim), brokers) == said
