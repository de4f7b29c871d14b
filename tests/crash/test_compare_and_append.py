"""What the design rests on, asked of a live broker: one producer id shared by many writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from heliograph.broker.cluster import Cluster
from heliograph.broker.connection import Connection
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.batch import SEQUENCES, restamp
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
from tests.kit.records import read_all
from tests.kit.topics import create_topic

OUT_OF_ORDER = 45
INVALID_RECORD = 87
PER_BATCH = 3

Answer = tuple[int, int]
"""Error code and base offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A fresh topic, a producer id, and connections to its leader."""

    cluster: Cluster
    topic: str
    producer_id: int
    epoch: int
    connections: tuple[Connection, ...]

    async def append(self, sequence: int, *, writer: int = 0, count: int = PER_BATCH) -> Answer:
        return await self.append_bytes(sealed(self, sequence, count), writer=writer)

    async def append_bytes(self, batch: memoryview, *, writer: int = 0) -> Answer:
        connection = self.connections[writer]
        version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
        parts = produce_request([(self.topic, 0, batch)], timeout_ms=10_000)
        body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
        (row,) = parse_produce_answer(body)
        return row.error_code, row.base_offset


def sealed(bench: Bench, sequence: int, count: int = PER_BATCH) -> memoryview:
    """The batch that belongs at `sequence`: its values are its sequences."""
    batch = batch_of(
        *(Record(offset=n, value=b"%d" % (sequence + n), key=None) for n in range(count))
    )
    restamp(batch, producer_id=bench.producer_id, producer_epoch=bench.epoch, sequence=sequence)
    return batch


@asynccontextmanager
async def open_bench(target: LocalCluster, topic: str, writers: int) -> AsyncIterator[Bench]:
    cluster = Cluster(ClusterAlias("B"), target.bootstrap.split(","), {})
    await cluster.refresh([TopicName(topic)])
    leader = cluster.leader(TopicPartition(topic=TopicName(topic), partition=0))
    assert leader is not None
    connections = [await cluster.connection(leader.broker, f"w{n}") for n in range(writers)]
    producer_id, epoch = await cluster.new_producer_id()
    try:
        yield Bench(
            cluster=cluster,
            topic=topic,
            producer_id=producer_id,
            epoch=epoch,
            connections=tuple(connections),
        )
    finally:
        cluster.close()


Play = Callable[[Bench], Coroutine[Any, Any, None]]


@pytest.fixture
def stage(pair: dict[str, LocalCluster], topic: TopicNames) -> Callable[[Play], list[int]]:
    """Plays against a fresh topic and returns the sequences its records say, in log order."""

    def play_it(play: Play) -> list[int]:
        name = create_topic(pair["B"], topic("append"))

        async def run() -> None:
            async with open_bench(pair["B"], name, writers=2) as bench:
                await play(bench)

        asyncio.run(run())
        return [int(rec.value or b"-1") for rec in read_all(pair["B"], name)[0]]

    return play_it


def test_a_batch_already_appended_is_answered_with_its_first_offset(
    stage: Callable[[Play], list[int]],
) -> None:
    answers: list[Answer] = []

    async def play(bench: Bench) -> None:
        locations = range(0, 5 * PER_BATCH, PER_BATCH)
        for writer in (0, 1):
            answers.extend([await bench.append(place, writer=writer) for place in locations])

    log = stage(play)

    assert answers[:5] == [(0, offset) for offset in range(0, 5 * PER_BATCH, PER_BATCH)]
    assert answers[5:] == answers[:5]
    assert log == list(range(5 * PER_BATCH))


@pytest.mark.parametrize(("sequence", "count"), [(7, 3), (6, 2), (3, 6), (0, 3), (2**31 - 1, 1)])
def test_any_other_batch_out_of_place_is_refused(
    stage: Callable[[Play], list[int]], sequence: int, count: int
) -> None:
    """Behind a gap; cut otherwise than what is there; older than what the broker remembers."""
    answers: list[Answer] = []
    appended = 6 * PER_BATCH if sequence == 0 else 2 * PER_BATCH

    async def play(bench: Bench) -> None:
        for place in range(0, appended, PER_BATCH):
            await bench.append(place)
        wanted = sequence if sequence != 6 else appended - 2
        answers.append(await bench.append(wanted, writer=1, count=count))

    log = stage(play)

    assert [code for code, _ in answers] == [OUT_OF_ORDER]
    assert log == list(range(appended))


def test_two_writers_racing_on_the_same_ten_batches_leave_exactly_ten(
    stage: Callable[[Play], list[int]],
) -> None:
    async def play(bench: Bench) -> None:
        async def writer(number: int) -> None:
            # All in flight at once, no answer read in between.
            locations = range(0, 10 * PER_BATCH, PER_BATCH)
            await asyncio.gather(*(bench.append(place, writer=number) for place in locations))

        await asyncio.gather(writer(0), writer(1))

    assert stage(play) == list(range(10 * PER_BATCH))


def test_a_batch_with_holes_is_refused(stage: Callable[[Play], list[int]]) -> None:
    answers: list[Answer] = []

    async def play(bench: Bench) -> None:
        batch = batch_of(Record(offset=0, value=b"0"), Record(offset=2, value=b"2"))
        restamp(batch, producer_id=bench.producer_id, producer_epoch=bench.epoch, sequence=0)
        answers.append(await bench.append_bytes(batch))

    log = stage(play)

    assert [code for code, _ in answers] == [INVALID_RECORD]
    assert log == []


def test_a_producer_the_broker_does_not_know_may_begin_anywhere(
    stage: Callable[[Play], list[int]],
) -> None:
    """Why the head matters, and why a lane's first batch travels alone."""
    answers: list[Answer] = []

    async def play(bench: Bench) -> None:
        answers.append(await bench.append(600))
        answers.append(await bench.append(0, writer=1))
        answers.append(await bench.append(603, writer=1))

    log = stage(play)

    assert answers == [(0, 0), (OUT_OF_ORDER, -1), (0, 3)]
    assert log == [600, 601, 602, 603, 604, 605]


def test_after_the_last_sequence_comes_zero(stage: Callable[[Play], list[int]]) -> None:
    answers: list[Answer] = []

    async def play(bench: Bench) -> None:
        answers.append(await bench.append(SEQUENCES - 2, count=2))
        answers.append(await bench.append(0, writer=1))
        answers.append(await bench.append(SEQUENCES - 2, writer=1, count=2))

    log = stage(play)

    assert answers == [(0, 0), (0, 2), (0, 0)]
    assert log == [SEQUENCES - 2, SEQUENCES - 1, 0, 1, 2]
