"""Records of every kind arrive equal, in order and once; what carries them is a slot's own code."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewPartitions

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import (
    CODECS,
    Codec,
    NewRec,
    Transaction,
    end_offsets,
    numbered,
    open_transaction,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import admin_of, force_compaction, wait_until

_LARGE_BYTES = 1_000_000


@pytest.fixture(scope="module")
def east(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Route]:
    """A running mirror `east->west`; topics that begin with `rec-` are mirrored."""
    config = write_config(
        tmp_path_factory.mktemp("records") / "mm2.properties",
        {"east": pair["A"], "west": pair["B"]},
        {"east->west": {"topics": "rec-.*"}},
    )
    with running_inside(config):
        yield route(config, ("east", pair["A"]), ("west", pair["B"]))


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_arrive_equal(east: Route, topic: TopicNames, codec: Codec) -> None:
    name = lasting_topic(east.source, topic(f"rec-{codec}"), partitions=3)
    produce(east.source, name, numbered(3_000, partitions=3, value_bytes=100), codec=codec)

    count = east.assert_arrives(name)

    assert count == 3_000
    east.assert_exact_map(name)


def test_null_empty_and_repeated_fields_arrive_as_they_were(east: Route, topic: TopicNames) -> None:
    name = lasting_topic(east.source, topic("rec-fields"))
    keys = (None, b"", b"key")
    values = (None, b"", b"value")
    headers = (
        (),
        (("h", b"1"),),
        (("h", b"1"), ("h", b"2"), ("h", None), ("", b""), ("ü", b"\x00\xff")),
    )
    records = [
        NewRec(key=key, value=value, headers=some, timestamp_ms=1_600_000_000_000 + number)
        for number, (key, value, some) in enumerate(
            (key, value, some) for key in keys for value in values for some in headers
        )
    ]
    produce(east.source, name, records)

    count = east.assert_arrives(name)

    assert count == len(records)
    (mirrored,) = read_all(east.target, east.renamed(name)).values()
    wanted = [(rec.key, rec.value, rec.headers, rec.timestamp_ms) for rec in records]
    assert [rec.content for rec in mirrored] == wanted


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_just_below_the_broker_limit_arrive(
    east: Route, topic: TopicNames, codec: Codec
) -> None:
    name = lasting_topic(east.source, topic("rec-large"), partitions=2)
    records = [
        NewRec(value=bytes([number]) * _LARGE_BYTES, partition=number % 2) for number in range(8)
    ]
    produce(east.source, name, records, codec=codec, batch_bytes_max=1_048_000)

    count = east.assert_arrives(name)

    assert count == 8


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_thousands_of_batches_of_one_record_arrive(
    east: Route, topic: TopicNames, codec: Codec
) -> None:
    name = lasting_topic(east.source, topic("rec-single"), partitions=2)
    produce(
        east.source,
        name,
        numbered(5_000, partitions=2),
        codec=codec,
        batch_records_max=1,
        linger_ms=0,
    )

    count = east.assert_arrives(name)

    assert count == 5_000
    east.assert_exact_map(name)


def test_batches_of_mixed_sizes_and_codecs_arrive_in_order(east: Route, topic: TopicNames) -> None:
    name = lasting_topic(east.source, topic("rec-mixed"))
    sizes: tuple[tuple[Codec, int, int], ...] = (
        ("none", 1, 200),
        ("gzip", 1_000, 1_000),
        ("lz4", 1, 50),
        ("none", 7, 300),
        ("zstd", 1, 100),
        ("snappy", 400, 2_000),
        ("none", 1, 30),
    )
    start = 0
    for codec, batch_records, count in sizes:
        produce(
            east.source,
            name,
            numbered(count, start=start, value_bytes=start % 700),
            codec=codec,
            batch_records_max=batch_records,
        )
        start += count

    arrived = east.assert_arrives(name)

    assert arrived == start
    east.assert_exact_map(name)


def test_timestamps_of_long_ago_and_out_of_order_are_kept(east: Route, topic: TopicNames) -> None:
    name = lasting_topic(east.source, topic("rec-old"))
    times = [1, 2, 86_400_000, 1_000_000_000_000, 5, 1_700_000_000_000, 1]
    produce(east.source, name, [NewRec(value=b"x", timestamp_ms=at_ms) for at_ms in times])

    east.assert_arrives(name)

    (mirrored,) = read_all(east.target, east.renamed(name)).values()
    assert [rec.timestamp_ms for rec in mirrored] == times


def test_aborted_transactions_never_appear_on_the_target(east: Route, topic: TopicNames) -> None:
    name = lasting_topic(east.source, topic("rec-transactions"), partitions=2)
    for number in range(3):
        transactions = [
            Transaction(
                records=numbered(20, partitions=2, start=1_000 * number + 100 * part),
                commit=(part + number) % 3 != 0,
            )
            for part in range(8)
        ]
        produce_transactions(
            east.source, name, transactions, transactional_id=f"{name}-{number}", codec="lz4"
        )
        produce(east.source, name, numbered(15, partitions=2, start=9_000 + 100 * number))

    count = east.assert_arrives(name)

    # Uncommitted reading of the target finds no more than committed reading does.
    uncommitted = read_all(east.target, east.renamed(name), read_committed=False)
    assert sum(map(len, uncommitted.values())) == count
    assert sum(end_offsets(east.target, east.renamed(name)).values()) == count
    east.assert_exact_map(name)


def test_an_open_transaction_holds_its_partition_back_until_it_commits(
    east: Route, topic: TopicNames
) -> None:
    name = lasting_topic(east.source, topic("rec-open"))
    produce(east.source, name, numbered(10))
    with open_transaction(
        east.source, name, numbered(5, start=100), transactional_id=f"{name}-open"
    ):
        produce(east.source, name, numbered(10, start=200))
        east.await_records(name, 10, read_committed=False)
        time.sleep(1.0)
        held = end_offsets(east.target, east.renamed(name))

    count = east.assert_arrives(name)

    assert held == {0: 10}
    assert count == 25
    east.assert_exact_map(name)


def test_what_compaction_removes_later_stays_and_the_map_stays_exact(
    east: Route, topic: TopicNames
) -> None:
    name = lasting_topic(east.source, topic("rec-compacted"), config={"cleanup.policy": "compact"})
    for round_number in range(2):
        produce(east.source, name, numbered(300, keys=40, start=1_000 * round_number))
        produce(east.source, name, [NewRec(key=b"k%d" % n, value=None) for n in range(5)])
        _await_newest(east, name)
        force_compaction(east.source, name)

    _await_newest(east, name)

    east.assert_exact_map(name, gaps=False)


def _await_newest(east: Route, name: str) -> None:
    """Until the last record of each key is the same on both sides."""
    (wanted,) = read_all(east.source, name).values()
    newest = {rec.key: rec.content for rec in wanted}

    def same() -> bool:
        mirrored = read_all(east.target, east.renamed(name)).get(0, [])
        return {rec.key: rec.content for rec in mirrored} == newest

    wait_until(same, f"the newest records of {name}")


def test_append_times_of_the_source_arrive_as_the_records_times(
    east: Route, topic: TopicNames
) -> None:
    name = lasting_topic(
        east.source, topic("rec-appendtime"), config={"message.timestamp.type": "LogAppendTime"}
    )
    before_ms = int(time.time() * 1000)
    produce(east.source, name, numbered(500), codec="gzip", batch_records_max=100)

    wanted = read_all(east.source, name)
    east.await_records(name, 500)

    mirrored = read_all(east.target, east.renamed(name))
    assert [rec.content for rec in mirrored[0]] == [rec.content for rec in wanted[0]]
    assert all(rec.timestamp_ms >= before_ms for rec in mirrored[0])


def test_partitions_added_while_running_are_mirrored(east: Route, topic: TopicNames) -> None:
    name = lasting_topic(east.source, topic("rec-grown"), partitions=1)
    produce(east.source, name, numbered(100))
    east.assert_arrives(name)
    admin = admin_of(east.source)
    admin.create_partitions([NewPartitions(name, 4)])[name].result(30)
    wait_until(lambda: len(end_offsets(east.source, name)) == 4, "brokers to show them")
    produce(east.source, name, numbered(400, partitions=4, start=1_000))

    count = east.assert_arrives(name)

    assert count == 500


def test_an_empty_topic_is_created_with_its_partitions_and_stays_empty(
    east: Route, topic: TopicNames
) -> None:
    name = lasting_topic(east.source, topic("rec-empty"), partitions=5)

    wait_until(
        lambda: east.renamed(name) in admin_of(east.target).list_topics(timeout=10).topics,
        "the topic on the target",
    )

    assert end_offsets(east.target, east.renamed(name)) == dict.fromkeys(range(5), 0)
