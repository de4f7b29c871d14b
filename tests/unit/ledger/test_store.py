"""The ledger as one process reads it, on a broker in memory: what is kept, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from heliograph.errors import LeaderMoved, LedgerUnusable
from heliograph.ledger import store as store_module
from heliograph.ledger.entries import HeadKey, Tombstone
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicName, TopicPartition
from tests.kit.entries import head_entry
from tests.kit.fake_cluster import Asked, FakeCluster

NAME = TopicName("heliograph-ledger.A.internal")
ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
BILLS = TopicPartition(topic=TopicName("bills"), partition=0)


def on_ledger(act: Callable[[FakeCluster, LedgerStore], Awaitable[None]], **kept: object) -> None:
    async def run() -> None:
        cluster = FakeCluster()
        cluster.create(NAME)
        store = LedgerStore(cluster, NAME, **kept)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(30):
                await act(cluster, store)
        finally:
            await store.close()

    asyncio.run(run())


def lanes_of(store: LedgerStore) -> list[str]:
    return [str(lane) for lane in store.view.lanes]


def test_a_store_keeps_the_lanes_it_was_given_and_reads_back_for_those_it_gets_later() -> None:
    async def act(_: FakeCluster, store: LedgerStore) -> None:
        store.carry([ORDERS])
        await store.write([head_entry("orders", records=1), head_entry("bills", records=2)])
        await store.catch_up()
        assert lanes_of(store) == ["orders-0"]

        store.carry([BILLS])
        await store.write([head_entry("bills", records=3)])
        await store.catch_up()

        found = store.view.lane(BILLS.topic, 0)
        assert found is not None
        assert found.head == head_entry("bills", records=3)
        store.drop([ORDERS])
        await store.write([head_entry("orders", records=4)])
        await store.catch_up()
        assert lanes_of(store) == ["bills-0"]

    on_ledger(act, lanes=())


def test_a_ledger_that_ends_before_what_was_read_is_refused() -> None:
    async def act(cluster: FakeCluster, store: LedgerStore) -> None:
        await store.write([head_entry("orders", records=n) for n in range(3)])
        await store.catch_up()
        cluster.log(TopicPartition(topic=NAME, partition=0)).unreplicated = 1

        with pytest.raises(LedgerUnusable, match="ends at offset 2, but 3 was read before"):
            await store.catch_up()

    on_ledger(act)


def test_a_write_that_takes_too_long_says_why_and_is_written_later_all_the_same() -> None:
    """A lane that was to begin showed `starting` for as long as its ledger could not be written."""

    async def act(cluster: FakeCluster, store: LedgerStore) -> None:
        await store.write([head_entry("orders", records=1)])
        cluster.topics[NAME].leaderless.add(0)

        with pytest.raises(LeaderMoved, match="no leader"):
            await store.write_or_refuse([head_entry("orders", records=2)], 0.3)

        cluster.topics[NAME].leaderless.clear()
        await store.flush(10.0)
        await store.catch_up()
        found = store.view.lane(ORDERS.topic, 0)
        assert found is not None
        assert found.head == head_entry("orders", records=2)

    on_ledger(act)


def test_a_leader_that_does_not_show_all_records_yet_is_waited_for() -> None:
    """Elected between the look at the end and the read: lanes that were given back to a slot at
    that moment passed for lanes that had never begun."""

    async def act(cluster: FakeCluster, store: LedgerStore) -> None:
        await store.write([head_entry("orders", records=1), head_entry("bills", records=2)])
        await store.catch_up()
        log = cluster.log(TopicPartition(topic=NAME, partition=0))

        def elect(asked: Asked) -> None:
            log.unreplicated = 2 if asked.name == "fetch" else 0

        cluster.before = elect
        store.carry([BILLS])
        with pytest.raises(LeaderMoved, match="records up to 0, not yet up to 2"):
            await store.catch_up()
        assert store.view.lane(BILLS.topic, 0) is None

        cluster.before = lambda _: None
        log.unreplicated = 0
        await store.catch_up()
        assert lanes_of(store) == ["bills-0", "orders-0"]

    on_ledger(act, lanes=[ORDERS])


def test_a_ledger_created_again_is_refused_before_anything_of_it_is_read() -> None:
    async def act(cluster: FakeCluster, store: LedgerStore) -> None:
        await store.write([head_entry("orders", records=1)])
        await store.catch_up()
        cluster.create(NAME)

        with pytest.raises(LedgerUnusable, match="deleted and created again"):
            await store.catch_up()
        assert lanes_of(store) == ["orders-0"]

    on_ledger(act)


def test_a_reader_that_did_not_look_for_long_forgets_what_it_saw_removed_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its tombstone came and went while the reader did not look: `delete.retention.ms` is over."""
    seconds = 1_000.0
    monkeypatch.setattr(store_module, "monotonic_s", lambda: seconds)

    async def act(cluster: FakeCluster, store: LedgerStore) -> None:
        nonlocal seconds
        await store.write([head_entry("orders", records=1), head_entry("bills", records=1)])
        await store.catch_up()
        await store.write([Tombstone(key=HeadKey(topic=ORDERS.topic, partition=0))])
        log = cluster.log(TopicPartition(topic=NAME, partition=0))
        # As compaction would leave it in the end: neither the record nor its tombstone.
        compacted = FakeCluster()
        compacted.create(NAME)
        other = LedgerStore(compacted, NAME)
        await other.write([head_entry("bills", records=1), head_entry("bills", records=1)])
        await other.write([head_entry("bills", records=1)])
        await other.close()
        kept = compacted.log(TopicPartition(topic=NAME, partition=0))
        assert kept.end == log.end
        cluster.topics[NAME].logs[0] = kept

        await store.catch_up()
        assert lanes_of(store) == ["bills-0", "orders-0"]
        seconds += 601
        await store.catch_up()
        assert lanes_of(store) == ["bills-0"]

    on_ledger(act)
