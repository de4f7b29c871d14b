"""The offsets log in both layouts, as real queries wrote it, and what is not one."""

from __future__ import annotations

import pytest

from heliograph.errors import CheckpointError
from heliograph.model import TopicName, TopicPartition
from heliograph.spark_checkpoint.offsets_log import (
    Batches,
    choose_batches,
    read_batch,
    read_initial,
    read_positions,
    write_batch,
    write_initial,
    write_positions,
)

# Written by Spark 4.3.0 with its Kafka connector 4.2.0; the settings in the second line are fewer.
METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1794802724455,"conf":'
    '{"spark.sql.streaming.multipleWatermarkPolicy":"min","spark.sql.shuffle.partitions":"1"}'
)
V1 = f'v1\n{METADATA}}}\n{{"orders":{{"0":214,"1":212}}}}'.encode()
V2 = (
    f'v2\n{METADATA},"sourceMetadataInfo":{{}}}}\nincoming:{{"orders":{{"0":214,"1":212}}}}'
).encode()
INITIAL = b'\x00v1\n{"orders":{"0":0,"1":0}}'


def at(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=partition)


@pytest.mark.parametrize(("content", "source"), [(V1, "0"), (V2, "incoming")])
def test_both_layouts_say_where_the_query_is_after_the_batch(content: bytes, source: str) -> None:
    read = read_batch(content)

    (line,) = read.lines
    assert line.source == source
    assert line.positions == {at(0): 214, at(1): 212}


@pytest.mark.parametrize("content", [V1, V2])
def test_a_file_that_is_not_changed_is_written_byte_for_byte(content: bytes) -> None:
    read = read_batch(content)

    again = read.with_positions({line.source: line.positions or {} for line in read.lines})
    assert write_batch(read) == content
    assert write_batch(again) == content


def test_other_offsets_change_nothing_but_the_line_of_their_source() -> None:
    content = V1 + b'\n{"logOffset":3}\n-\n{"orders":{"0":9}}'

    changed = read_batch(content).with_positions({"3": {at(0, "A.orders"): 12}})

    assert write_batch(changed) == V1 + b'\n{"logOffset":3}\n-\n{"A.orders":{"0":12}}'


def test_a_name_of_a_source_may_be_followed_by_nothing_and_ends_at_the_first_colon() -> None:
    read = read_batch(V2 + b"\nother:-\nrate:12")

    assert [(line.source, line.positions) for line in read.lines[1:]] == [
        ("other", None),
        ("rate", None),
    ]
    assert read.lines[2].text == "12"


def test_the_line_break_an_editor_adds_is_not_a_source() -> None:
    assert len(read_batch(V1 + b"\n").lines) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin with the version"),
        (b"1\n{}", "does not begin with the version"),
        (b"v0\n{}", "does not begin with the version"),
        (b"v3\n{}\n0:{}", "newer"),
        (b"v1", "cut off"),
        (b"v2\n{}\nno-colon", "names no source"),
        (b"v2\n{}\na:-\na:-", "twice"),
        (b"v1\n\xff", "not text"),
    ],
)
def test_what_spark_does_not_write_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        read_batch(content)


@pytest.mark.parametrize(
    "text",
    [
        "12",
        "-",
        "{}",
        "[]",
        '{"logOffset":3}',
        '{"orders":{}}',
        '{"orders":{"zero":1}}',
        '{"orders":{"00":1}}',
        '{"orders":{"2147483648":1}}',
        '{"orders":{"0":true}}',
        '{"orders":{"0":1.0}}',
        '{"orders":{"0":9223372036854775808}}',
        '{"orders":{"0":1,"0":2}}',
        '{"orders":{"0":' + "9" * 5_000 + "}}",
        "[" * 100_000,
    ],
)
def test_what_is_no_offset_of_kafka_is_none(text: str) -> None:
    assert read_positions(text) is None


def test_positions_are_written_as_spark_writes_them() -> None:
    positions = {at(0, "b"): 1, at(10, "a"): 2**63 - 1, at(2, "b"): 0}

    text = write_positions(positions)

    assert text == '{"b":{"0":1,"2":0},"a":{"10":9223372036854775807}}'
    assert read_positions(text) == positions


def test_where_a_source_began_is_read_and_written_byte_for_byte() -> None:
    read = read_initial(INITIAL)

    assert read is not None
    assert read.positions == {at(0): 0, at(1): 0}
    assert write_initial(read) == INITIAL


def test_the_file_of_spark_2_1_has_no_version() -> None:
    read = read_initial(b'\x18{"orders":{"0":5}}')

    assert read is not None
    assert read.positions == {at(0): 5}


@pytest.mark.parametrize("content", [b"", b"\0", b'v1\n{"path":"a"}', b"\0v1\n12", b"\0{"])
def test_what_another_kind_of_source_noted_is_none(content: bytes) -> None:
    assert read_initial(content) is None


def test_a_newer_version_of_where_a_source_began_is_refused() -> None:
    with pytest.raises(CheckpointError, match="newer"):
        read_initial(b'\0v2\n{"orders":{"0":5}}')


@pytest.mark.parametrize(
    ("planned", "committed", "kept"),
    [
        ([0], [], Batches(latest=0, previous=None, is_committed=False, commits=())),
        ([0], [0], Batches(latest=0, previous=None, is_committed=True, commits=(0,))),
        ([0, 1, 2], [0, 1], Batches(latest=2, previous=1, is_committed=False, commits=(1,))),
        ([0, 1, 2], [0, 1, 2], Batches(latest=2, previous=1, is_committed=True, commits=(1, 2))),
        ([9, 10], [10], Batches(latest=10, previous=9, is_committed=True, commits=(10,))),
        ([7], [7], Batches(latest=7, previous=None, is_committed=True, commits=(7,))),
        # Progress tracked asynchronously: both logs have gaps.
        ([3, 7, 9], [3], Batches(latest=9, previous=7, is_committed=False, commits=(3,))),
    ],
)
def test_the_query_goes_on_from_its_last_two_batches(
    planned: list[int], committed: list[int], kept: Batches
) -> None:
    assert choose_batches(planned, committed) == kept


def test_a_query_that_planned_nothing_has_no_batches() -> None:
    assert choose_batches([], []) is None


@pytest.mark.parametrize(
    ("planned", "committed", "why"),
    [
        ([], [3], "nothing in offsets"),
        ([2], [3], "no offsets/3"),
        ([5], [3], "not the batch before it"),
        ([5], [], "not the batch before it"),
    ],
)
def test_logs_that_contradict_each_other_are_refused(
    planned: list[int], committed: list[int], why: str
) -> None:
    with pytest.raises(CheckpointError, match=why):
        choose_batches(planned, committed)
