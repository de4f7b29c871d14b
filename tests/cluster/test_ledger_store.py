"""The ledger on a real broker: what is written is there once, whatever became of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import read_batches
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerUnreachable, LedgerUnusable
from heliograph.ledger.entries import HeadEntry, RunsEntry
from heliograph.ledger.runs import Run
from heliograph.ledger.settings import LEDGER_SETTINGS, ensure_ledger_topic
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.writer import LedgerWriter
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader, restamp
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.entries import head_entry
from tests.kit.records import NewRec, produce
from tests.kit.topics import (
    create_topic,
    delete_records_before,
    delete_topic,
    topic_config,
    wait_until,
)

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
    append = LedgerWriter._append
    lost: list[bytes] = []

    async def append_and_lose_the_answer(self: LedgerWriter, batch: bytearray) -> None:
        await append(self, batch)
        if len(lost) < 3:
            lost.append(bytes(batch))
            raise BrokerUnreachable("no answer")

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        monkeypatch.setattr(LedgerWriter, "_append", append_and_lose_the_answer)
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
        assert store._writer._producer is not None
        store._writer._producer.next_sequence += 7
        await store.write([head(2), head(3)])
        await store.write([head(4)])

    headers, found = on_ledger(pair["A"], name, act)

    assert [header.base_sequence for header in headers] == [0, 0, 2]
    assert headers[0].producer_id != headers[1].producer_id == headers[2].producer_id
    assert found == head(4)


def test_a_ledger_that_was_created_again_is_refused_and_nothing_is_written_to_it(
    pair: Pair, topic: TopicNames
) -> None:
    name = create_topic(pair["A"], topic("ledger"))

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        await store.catch_up()
        await asyncio.to_thread(delete_topic, pair["A"], name)
        await asyncio.to_thread(create_topic, pair["A"], name)
        with pytest.raises(LedgerUnusable, match="deleted and created again"):
            await store.write_or_refuse([head(2)])
        with pytest.raises(LedgerUnusable, match="deleted and created again"):
            await store.catch_up()

    headers, found = on_ledger(pair["A"], name, act)

    assert headers == []
    assert found is None


def test_a_ledger_whose_beginning_was_deleted_is_refused(pair: Pair, topic: TopicNames) -> None:
    name = create_topic(pair["A"], topic("ledger"))

    async def act(store: LedgerStore) -> None:
        await store.write([head(1), head(2)])
        await asyncio.to_thread(delete_records_before, pair["A"], name, {0: 1})

    with pytest.raises(LedgerUnusable, match="before offset 1 were deleted"):
        on_ledger(pair["A"], name, act)


def test_records_of_others_in_the_ledger_are_counted_and_stop_no_reader(
    pair: Pair, topic: TopicNames
) -> None:
    """A header key that is not UTF-8 stopped every reader for good."""
    name = create_topic(pair["A"], topic("ledger"))
    counted: list[int] = []
    foreign = [
        NewRec(key=b"head|orders|0|0", value=b"{}"),
        NewRec(key=b"\xff\x00", value=b"\xfe"),
        NewRec(key=None, value=b""),
    ]

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        await asyncio.to_thread(produce, pair["A"], name, foreign, batch_records_max=1)
        await store._writer._append(batch_with_a_header_key_that_is_not_utf8())
        await store.write([head(2)])
        await store.catch_up()
        counted.append(store.garbage_records)

    _, found = on_ledger(pair["A"], name, act)

    assert counted == [4]
    assert found == head(2)


def batch_with_a_header_key_that_is_not_utf8() -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000,
    )
    builder.append(0, 1, b"head|orders|0", b"{}", [("\u00e9", b"")])
    batch = bytearray(bytes(builder.build()).replace(b"\xc3\xa9", b"\xff\xfe"))
    restamp(memoryview(batch), producer_id=-1, producer_epoch=-1, sequence=-1)
    return batch


def test_a_record_of_a_newer_version_is_named_and_nothing_is_concluded_from_the_ledger(
    pair: Pair, topic: TopicNames
) -> None:
    name = create_topic(pair["A"], topic("ledger"))
    newer = NewRec(key=b"head|orders|0", value=b'{"v":7,"position":1}')

    async def act(store: LedgerStore) -> None:
        await store.write([head(1)])
        await asyncio.to_thread(produce, pair["A"], name, [newer])
        with pytest.raises(LedgerUnusable, match="record of version 7"):
            await store.catch_up()

    with pytest.raises(LedgerUnusable, match="record of version 7"):
        on_ledger(pair["A"], name, act)


def test_what_is_too_large_for_the_topic_is_written_in_pieces(
    pair: Pair, topic: TopicNames
) -> None:
    """A target with a low message.max.bytes: lanes with gaps waited for ever and said nothing."""
    name = create_topic(pair["A"], topic("ledger"), config={"max.message.bytes": "10000"})
    runs = tuple(
        Run(position=n, source_offset=2**40 + 3 * n, target_offset=2**40 + n) for n in range(9_000)
    )
    entry = RunsEntry(
        topic=TopicName("orders"), partition=0, author="0" * 32, runs=runs, end_position=9_000
    )
    folded: list[list[Run]] = []

    async def act(store: LedgerStore) -> None:
        # As few as are not compressed: one too large for itself, then some that are so together.
        await store.write([entry])
        await store.write([replace(entry, partition=n, runs=runs[:2_000]) for n in range(1, 7)])
        await store.write([head(n) for n in range(200)])
        await store.catch_up()
        for number in range(7):
            lane = store.view.lane(TopicName("orders"), number)
            assert lane is not None
            folded.append(list(lane.runs))

    headers, found = on_ledger(pair["A"], name, act)

    assert max(header.size_bytes for header in headers) <= 10_000
    assert folded == [list(runs), *(6 * [list(runs[:2_000])])]
    assert found == head(199)


def test_a_ledger_has_its_settings_and_one_of_an_earlier_version_gets_those_nobody_chose(
    pair: Pair, topic: TopicNames
) -> None:
    admin = ClusterAdmin(
        ClusterConfig(alias=ClusterAlias("A"), bootstrap_servers=(pair["A"].bootstrap,))
    )
    fresh, old = TopicName(topic("fresh")), TopicName(topic("old"))
    chosen = {"cleanup.policy": "compact", "segment.bytes": str(2**30)}
    create_topic(pair["A"], old, config=chosen)

    made = ensure_ledger_topic(admin, fresh, replication_factor=1)
    found = ensure_ledger_topic(admin, old, replication_factor=1)

    assert made.remarks == ()
    assert [remark for remark in found.remarks if "segment.bytes" in remark] == list(found.remarks)
    assert len(found.remarks) == 1
    wanted = {key: setting.value for key, setting in LEDGER_SETTINGS.items()}
    wait_until(lambda: wanted.items() <= topic_config(pair["A"], fresh).items(), "new settings")
    wait_until(
        lambda: (wanted | chosen).items() <= topic_config(pair["A"], old).items(), "old settings"
    )
