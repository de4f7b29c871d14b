"""The ledger on a real broker: what is written is there once, whatever became of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import read_batches
from heliograph.errors import BrokerUnreachable
from heliograph.ledger.entries import HeadEntry
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.entries import head_entry
from tests.kit.topics import create_topic, delete_topic

Pair = dict[str, LocalCluster]


def head(position: int) -> HeadEntry:
    return head_entry("orders", records=position, state="copying")


def on_ledger(
    broker: LocalCluster,
    name: str,
    act: Callable[[LedgerStore], Awaitable[None]],
) -> tuple[list[BatchHeader], HeadEntry | None]:
    """Act on a store, then read with another: its batches and the head they fold to."""

    async def run() -> tuple[list[BatchHeader], HeadEntry | None]:
        cluster = Cluster(ClusterAlias("A"), [broker.bootstrap], {})
        partition = TopicPartition(topic=TopicName(name), partition=0)
        store = LedgerStore(cluster, TopicName(name))
        try:
            async with asyncio.timeout(60):
                await act(store)
                reader = LedgerStore(cluster, TopicName(name))
                await reader.catch_up()
                bounds = [
                    (await cluster.list_offsets([partition], at))[partition]
                    for at in (EARLIEST, LATEST)
                ]
                start, end = (bound for bound in bounds if isinstance(bound, int))
                headers = [
                    header async for header, _ in read_batches(cluster, partition, start, end)
                ]
        finally:
            await store.close()
            cluster.close()
        lane = reader.view.lane(TopicName("orders"), 0)
        return headers, lane.head if lane else None

    return asyncio.run(run())


def test_a_store_writes_as_one_producer_in_sequence(pair: Pair, topic: TopicNames) -> None:
    name = create_topic(pair["A"], topic("ledger"))

    async def act(store: LedgerStore) -> None:
        await store.write([head(1), head(2)])
        await store.write([head(3)])
        await store.write([head(4)])

    headers, found = on_ledger(pair["A"], name, act)

    assert [header.base_sequence for header in headers] == [0, 2, 3]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0
    assert found == head(4)


def test_a_batch_whose_answer_was_lost_is_in_the_ledger_once(
    pair: Pair, topic: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = create_topic(pair["A"], topic("ledger"))
    append = LedgerStore._append
    lost: list[bytes] = []

    async def append_and_lose_the_answer(self: LedgerStore, batch: bytearray) -> None:
        await append(self, batch)
        if len(lost) < 3:
            lost.append(bytes(batch))
            raise BrokerUnreachable("no answer")

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        monkeypatch.setattr(LedgerStore, "_append", append_and_lose_the_answer)
        await store.write([head(2), head(3)])
        await store.write([head(4)])
        assert store.problem is None

    headers, found = on_ledger(pair["A"], name, act)

    assert len(lost) == 3
    assert len(set(lost)) == 1
    assert [header.base_sequence for header in headers] == [0, 1, 3]
    assert found == head(4)


def test_a_store_whose_sequence_the_broker_does_not_expect_goes_on_as_another_producer(
    pair: Pair, topic: TopicNames
) -> None:
    name = create_topic(pair["A"], topic("ledger"))

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        assert store._producer is not None
        store._producer.next_sequence += 7
        await store.write([head(2), head(3)])
        await store.write([head(4)])

    headers, found = on_ledger(pair["A"], name, act)

    assert [header.base_sequence for header in headers] == [0, 0, 2]
    assert headers[0].producer_id != headers[1].producer_id == headers[2].producer_id
    assert found == head(4)


def test_a_store_goes_on_in_a_topic_that_was_created_again(pair: Pair, topic: TopicNames) -> None:
    name = create_topic(pair["A"], topic("ledger"))

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        await asyncio.to_thread(delete_topic, pair["A"], name)
        await asyncio.to_thread(create_topic, pair["A"], name)
        await store.write([head(2)])

    headers, found = on_ledger(pair["A"], name, act)

    assert len(headers) == 1
    assert found == head(2)
