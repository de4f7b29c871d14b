"""The kit that other tests trust: what is written is what is read, and differences are told."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer

from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from heliograph_tools.proxy import TcpProxy
from tests.kit.clusters import ClusterFactory, TopicNames
from tests.kit.records import (
    CODECS,
    Codec,
    NewRec,
    Transaction,
    assert_same_records,
    end_offsets,
    numbered,
    open_transaction,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import ROLL_KEY, create_topic, force_compaction, produce_raw, wait_until

Pair = dict[str, LocalCluster]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_exactly_as_written(pair: Pair, topic: TopicNames, codec: Codec) -> None:
    name = create_topic(pair["A"], topic("exact"), partitions=2)
    written = [
        NewRec(key=None, value=b"no key", timestamp_ms=1_000),
        NewRec(key=b"gone", value=None, timestamp_ms=2_000, partition=1),
        NewRec(key=b"", value=b"", timestamp_ms=3_000),
        NewRec(
            key=b"k",
            value=b"x" * 500_000,
            headers=(("h", b"1"), ("h", b"2"), ("empty", b""), ("none", None)),
            timestamp_ms=4_000,
        ),
    ]

    produce(pair["A"], name, written, codec=codec)

    found = read_all(pair["A"], name)
    for partition in (0, 1):
        wanted = [rec for rec in written if rec.partition == partition]
        assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in found[partition]] == [
            (r.key, r.value, r.headers, r.timestamp_ms) for r in wanted
        ]


def test_only_committed_transactions_are_read_unless_told_otherwise(
    pair: Pair, topic: TopicNames
) -> None:
    name = create_topic(pair["A"], topic("tx"))
    kept, dropped = numbered(10), numbered(5, start=10)

    produce_transactions(
        pair["A"],
        name,
        [Transaction(records=dropped, commit=False), Transaction(records=kept)],
        transactional_id=name,
    )

    assert [rec.value for rec in read_all(pair["A"], name)[0]] == [rec.value for rec in kept]
    everything = read_all(pair["A"], name, read_committed=False)[0]
    assert [rec.value for rec in everything] == [rec.value for rec in dropped + kept]
    assert end_offsets(pair["A"], name) == {0: 17}


def test_an_open_transaction_hides_its_records_until_it_commits(
    pair: Pair, topic: TopicNames
) -> None:
    name = create_topic(pair["A"], topic("open"))

    with open_transaction(pair["A"], name, numbered(3), transactional_id=name):
        before = len(read_all(pair["A"], name)[0])
    after = len(read_all(pair["A"], name)[0])

    assert (before, after) == (0, 3)


def test_compaction_leaves_the_newest_record_of_each_key_and_holes(
    pair: Pair, topic: TopicNames
) -> None:
    name = create_topic(pair["A"], topic("compacted"))
    produce(pair["A"], name, numbered(100, keys=10), batch_records_max=7)

    force_compaction(pair["A"], name)

    found = [rec for rec in read_all(pair["A"], name)[0] if rec.key != ROLL_KEY]
    assert [rec.offset for rec in found] == list(range(90, 100))


def test_a_raw_batch_is_appended_and_a_broken_one_refused(pair: Pair, topic: TopicNames) -> None:
    name = create_topic(pair["A"], topic("raw"))
    # One record "k" -> "v", CreateTime 0, no compression; recorded from kafka-clients' layout.
    batch = bytearray.fromhex(
        "0000000000000000" "0000003a" "ffffffff" "02" "00000000" "0000" "00000000"
        "0000000000000000" "0000000000000000" "ffffffffffffffff" "ffff" "ffffffff" "00000001"
        "10" "00" "00" "00" "02" "6b" "02" "76" "00"
    )  # fmt: skip

    broken = produce_raw(pair["A"], name, bytes(batch))
    batch[17:21] = _crc32c(bytes(batch[21:])).to_bytes(4, "big")
    whole = produce_raw(pair["A"], name, bytes(batch))

    assert (broken.error_code, whole.error_code, whole.base_offset) == (2, 0, 0)
    assert [(rec.key, rec.value) for rec in read_all(pair["A"], name)[0]] == [(b"k", b"v")]


def _crc32c(content: bytes) -> int:
    import crc32c

    return int(crc32c.crc32c(content))


def test_equal_topics_are_equal_and_a_lost_record_is_told(pair: Pair, topic: TopicNames) -> None:
    name = create_topic(pair["A"], topic("same"), partitions=2)
    create_topic(pair["B"], name, partitions=2)
    records = numbered(50, partitions=2)
    produce(pair["A"], name, records)
    produce(pair["B"], name, records[:-2])

    with pytest.raises(AssertionError) as caught:
        assert_same_records(pair["A"], pair["B"], name)
    produce(pair["B"], name, records[-2:])

    assert "1 lost, 0 repeated, 0 never at the source" in str(caught.value)
    assert "first difference at record 24" in str(caught.value)
    assert assert_same_records(pair["A"], pair["B"], name) == 50


def test_a_proxy_delays_cuts_and_refuses_what_goes_through_it(clusters: ClusterFactory) -> None:
    with TcpProxy() as proxy:
        cluster = clusters(ClusterSpec(alias="P", advertised_ports=(proxy.port,)))["P"]
        proxy.target_port = cluster.broker(0).ports.proxied
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.proxied_bootstrap,
                "group.id": "g",
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.list_topics(timeout=10)

        proxy.delay_ms = 150
        started_s = time.monotonic()
        consumer.list_topics(timeout=10)
        delayed_s = time.monotonic() - started_s
        proxy.delay_ms = 0
        proxy.refuse()
        proxy.cut()
        wait_until(lambda: proxy.connections == 0, "every connection cut")
        proxy.accept()
        again = consumer.list_topics(timeout=20)
        consumer.close()

    assert delayed_s >= 0.3
    assert list(again.brokers) == [0]
    assert next(iter(again.brokers.values())).port == proxy.port
