from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.errors import ConfigError
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.source_options import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtWord,
    columns_of,
    source_options,
)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n", "utf-8"
    )
    return {"config": str(file), "cluster": "A", "subscribe": "orders, clicks"}


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning(given: dict[str, str]) -> None:
    assert source_options(given, is_stream=True).start == AtWord(word="latest")
    batch = source_options(given, is_stream=False)
    assert (batch.start, batch.end) == (AtWord(word="earliest"), AtWord(word="latest"))
    assert batch.topics == {"orders", "clicks"}
    assert batch.read_committed and batch.fails_on_loss and batch.with_headers


def test_names_count_in_any_case_as_spark_gives_them(given: dict[str, str]) -> None:
    for name in ("maxrecordspertrigger", "maxOffsetsPerTrigger", "trigger.records.max"):
        assert source_options({**given, name: "5"}, is_stream=True).records_max == 5


@pytest.mark.parametrize(
    ("option", "value", "start"),
    [
        ("startingTimestamp", "1700000000000", AtTime(at_ms=1_700_000_000_000)),
        ("startingGroup", "billing", AtGroup(group="billing")),
        (
            "startingOffsets",
            '{"orders": {"0": 23}}',
            AtOffsets(offsets={TopicPartition(topic=TopicName("orders"), partition=0): 23}),
        ),
    ],
)
def test_places_to_start_from(
    given: dict[str, str], option: str, value: str, start: object
) -> None:
    assert source_options({**given, option: value}, is_stream=True).start == start


def test_a_pattern_and_single_partitions(given: dict[str, str]) -> None:
    del given["subscribe"]
    by_pattern = source_options({**given, "subscribePattern": "ord.*"}, is_stream=True)
    assigned = source_options({**given, "assign": '{"orders": [1]}'}, is_stream=True)

    assert by_pattern.wants(TopicName("orders")) and not by_pattern.wants(TopicName("x-orders"))
    assert assigned.takes(TopicPartition(topic=TopicName("orders"), partition=1))
    assert not assigned.takes(TopicPartition(topic=TopicName("orders"), partition=0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": "C"}, "cluster C is not in"),
        ({"config": "/nowhere"}, "cannot be read"),
        ({"subscribePattern": "x"}, "one of subscribe, subscribePattern and assign"),
        ({"startingOffsets": "soon"}, "startingOffsets is not earliest"),
        ({"startingTimestamp": "noon"}, "not milliseconds since 1970"),
        ({"startingTimestamp": "1", "startingGroup": "g"}, "two places to start from"),
        ({"endingOffsets": "latest"}, "a stream does not end"),
        ({"maxBytesPerTrigger": "0"}, "not a number above 0"),
        ({"failOnDataLoss": "maybe"}, "not true or false"),
        ({"isolation.level": "none"}, "isolation.level is none"),
        ({"kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config is unknown"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_options({**given, **change}, is_stream=True)

    assert words in str(caught.value)


def test_credentials_do_not_show_in_the_repr(given: dict[str, str]) -> None:
    assert "cluster" not in repr(source_options(given, is_stream=True))


def test_only_the_columns_that_are_asked_for_are_read_in_an_order_of_their_own() -> None:
    assert columns_of({})[-1] == "headers"
    assert columns_of({"includeHeaders": "False", "columns": "value, key,headers"}) == [
        "key",
        "value",
    ]
    with pytest.raises(ConfigError, match="there is no color"):
        columns_of({"columns": "color"})
