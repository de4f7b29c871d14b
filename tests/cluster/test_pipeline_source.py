"""The source's answers to Spark, against real brokers and without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Committed
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from heliograph.errors import OffsetGone, PipelineRefused
from heliograph.pipeline import reading
from heliograph.pipeline.source import StreamReader
from heliograph.pipeline.source_options import source_options
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.mirror import write_config
from tests.kit.records import NewRec, produce
from tests.kit.topics import create_topic, delete_records_before, delete_topic

Open = Callable[..., StreamReader]
SCHEMA = StructType(
    [StructField("offset", LongType(), True), StructField("value", BinaryType(), True)]
)


@pytest.fixture
def opened(pair: dict[str, LocalCluster], tmp_path: Path) -> Iterator[Open]:
    config = write_config(tmp_path / "mm2.properties", pair, {"A->B": {}})
    made: list[StreamReader] = []

    def open_reader(**options: str) -> StreamReader:
        given = {"config": str(config), "cluster": "A", **options}
        made.append(StreamReader(source_options(given, is_stream=True), SCHEMA))
        return made[-1]

    yield open_reader
    for each in made:
        each.stop()


def at(topic: str, *offsets: int) -> dict[str, dict[str, int]]:
    return {topic: {str(partition): offset for partition, offset in enumerate(offsets)}}


def rows(reader: StreamReader, start: Any, end: Any) -> list[tuple[int, bytes]]:
    return sorted(
        (row["offset"], row["value"])
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    )


def test_a_stream_begins_where_it_is_told_reads_so_much_and_sees_what_appears(
    pair: dict[str, LocalCluster], opened: Open, topic: Any
) -> None:
    name = topic("in")
    create_topic(pair["A"], name, partitions=2)
    produce(
        pair["A"],
        name,
        [
            NewRec(value=b"%03d" % n + b"x" * 997, partition=n % 2, timestamp_ms=1_000_000 + n)
            for n in range(100)
        ],
    )
    group = Consumer({**pair["A"].librdkafka_config, "group.id": name, "enable.auto.commit": False})
    group.commit(offsets=[Committed(name, 1, 7)], asynchronous=False)
    group.close()

    assert opened(subscribe=name).initialOffset() == at(name, 50, 50)
    by_time = opened(subscribe=name, startingTimestamp=str(1_000_021))
    assert by_time.initialOffset() == at(name, 11, 10)
    assert opened(subscribe=name, startingTimestamp="2000000").initialOffset() == at(name, 50, 50)
    assert opened(subscribe=name, startingGroup=name).initialOffset() == at(name, 0, 7)
    exact = opened(subscribe=name, startingOffsets=f'{{"{name}": {{"0": 3, "1": -1}}}}')
    assert exact.initialOffset() == at(name, 3, 50)

    limited = opened(subscribe=name, startingOffsets="earliest", maxBytesPerTrigger="20000")
    end = limited.latestOffset(at(name, 0, 0), None)
    assert 6 <= end[name]["0"] <= 12 and 6 <= end[name]["1"] <= 12
    some = opened(subscribe=name, startingOffsets="earliest", maxRecordsPerTrigger="10")
    assert some.latestOffset(at(name, 0, 0), None) == at(name, 5, 5)
    assert [offset for offset, _ in rows(some, at(name, 0, 0), at(name, 2, 1))] == [0, 0, 1]

    every = opened(subscribePattern=f"{name}.*", startingOffsets="latest")
    begun = every.initialOffset()
    admin = AdminClient(pair["A"].librdkafka_config)
    for made in admin.create_partitions([NewPartitions(name, 3)]).values():
        made.result(30)
    create_topic(pair["A"], f"{name}-new")
    produce(pair["A"], name, [NewRec(value=b"new partition", partition=2)])
    produce(pair["A"], f"{name}-new", [NewRec(value=b"new topic")])
    latest = every.latestOffset(begun, None)
    assert latest == {**at(name, 50, 50, 1), **at(f"{name}-new", 1)}
    assert [value for _, value in rows(every, begun, latest)] == [b"new partition", b"new topic"]


def test_records_that_are_gone_end_the_query_or_are_left_out(
    pair: dict[str, LocalCluster], opened: Open, topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic("in")
    create_topic(pair["A"], name)
    produce(pair["A"], name, [NewRec(value=b"%d" % n) for n in range(10)])
    delete_records_before(pair["A"], name, {0: 4})

    with pytest.raises(OffsetGone, match="4 offsets"):
        opened(subscribe=name).partitions(at(name, 0), at(name, 10))
    lenient = opened(subscribe=name, failOnDataLoss="false")
    found = rows(lenient, at(name, 0), at(name, 10))

    assert [offset for offset, _ in found] == [4, 5, 6, 7, 8, 9]
    assert "4 offsets from 0 on are gone" in caplog.text


def test_a_log_that_ends_before_what_was_planned_is_waited_for_and_then_refused(
    pair: dict[str, LocalCluster],
    opened: Open,
    topic: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As behind a new leader that does not know yet how far its followers are."""
    name, later = topic("in"), reading._later
    create_topic(pair["A"], name)
    produce(pair["A"], name, [NewRec(value=b"%d" % n) for n in range(10)])

    async def grown(*given: Any) -> None:
        produce(pair["A"], name, [NewRec(value=b"late")])
        await later(*given)

    with monkeypatch.context() as patched:
        patched.setattr(reading, "_later", grown)
        found = rows(opened(subscribe=name), at(name, 0), at(name, 12))
    monkeypatch.setattr(reading, "_BEHIND_S_MAX", 0.5)
    with pytest.raises(PipelineRefused, match="ends at offset 12, and it had records up to 20"):
        rows(opened(subscribe=name), at(name, 0), at(name, 20))
    lenient = rows(opened(subscribe=name, failOnDataLoss="false"), at(name, 9), at(name, 20))

    assert [offset for offset, _ in found] == list(range(12))
    assert [offset for offset, _ in lenient] == [9, 10, 11]
    assert "ends at offset 12" in caplog.text


def test_a_spark_that_tells_no_start_reads_each_record_once_or_is_refused(
    pair: dict[str, LocalCluster],
    opened: Open,
    topic: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What PySpark before 4.2 asks, in its order: the end before the start, without a start."""
    name = topic("in")
    create_topic(pair["A"], name, partitions=2)
    produce(pair["A"], name, [NewRec(value=b"%d" % n, partition=n % 2) for n in range(10)])

    first = opened(subscribe=name)
    end = first.latestOffset()
    produce(pair["A"], name, [NewRec(value=b"late", partition=n) for n in range(2)])
    start = first.initialOffset()
    begun = rows(first, start, end)
    later = first.latestOffset()
    assert (start, end, begun) == (at(name, 5, 5), at(name, 5, 5), [])
    assert [value for _, value in rows(first, end, later)] == [b"late", b"late"]

    again = opened(subscribe=name)
    again.partitions(at(name, 7, 6), at(name, 7, 6))  # where its checkpoint stands
    with pytest.raises(PipelineRefused, match="ends at offset 6, and 7 were read"):
        again.latestOffset()
    told = opened(subscribe=name).latestOffset()
    for beyond in (at(name, 7, 6), {**at(name, 6, 6), **at("gone", 3)}):
        with pytest.raises(PipelineRefused, match="ends at offset"):
            opened(subscribe=name).partitions(beyond, told)
    lenient = opened(subscribe=name, failOnDataLoss="false")
    assert rows(lenient, at(name, 7, 5), told) == [(5, b"late")]
    assert "ends at offset 6, and 7 were read" in caplog.text


def test_a_topic_that_is_not_the_one_that_was_read_is_refused(
    pair: dict[str, LocalCluster], opened: Open, topic: Any
) -> None:
    name = topic("in")
    create_topic(pair["A"], name)
    produce(pair["A"], name, [NewRec(value=b"%d" % n) for n in range(10)])
    reader = opened(subscribe=name)
    assert reader.latestOffset(at(name, 0), None) == at(name, 10)

    with pytest.raises(PipelineRefused, match="ends at offset 10, and 11 were read"):
        reader.latestOffset(at(name, 11), None)
    with pytest.raises(PipelineRefused, match="which ends at 10"):
        opened(subscribe=name, startingOffsets=f'{{"{name}": {{"0": 11}}}}').initialOffset()
    delete_topic(pair["A"], name)
    create_topic(pair["A"], name)
    produce(pair["A"], name, [NewRec(value=b"%d" % n) for n in range(20)])

    with pytest.raises(PipelineRefused, match="was deleted and created again"):
        reader.latestOffset(at(name, 10), None)
