from __future__ import annotations

import pytest

from heliograph.errors import PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.offsets import admitted, as_json, from_json, lost, stretches


def at(partition: int, topic: str = "in") -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=partition)


def test_offsets_are_written_as_sparks_own_source_writes_them() -> None:
    offsets = {at(0): 23, at(1): 7, at(0, "b"): 1}

    assert as_json(offsets) == {"b": {"0": 1}, "in": {"0": 23, "1": 7}}
    assert from_json(as_json(offsets)) == offsets


@pytest.mark.parametrize("value", [None, 3, {"a": 3}, {"a": {"x": 1}}, {"a": {"0": "y"}}])
def test_offsets_of_another_source_are_refused(value: object) -> None:
    with pytest.raises(PipelineRefused, match="another query"):
        from_json(value)


def test_without_a_limit_all_there_is_is_read() -> None:
    assert admitted({at(0): 5}, {at(0): 50}, None) == {at(0): 50}


def test_a_limit_is_shared_by_what_waits_and_leaves_no_partition_out() -> None:
    start, ends = {at(0): 0, at(1): 0, at(2): 0}, {at(0): 900, at(1): 99, at(2): 1}

    assert admitted(start, ends, 100) == {at(0): 90, at(1): 9, at(2): 1}


def test_a_log_that_ends_before_the_start_is_not_read_backwards() -> None:
    assert admitted({at(0): 10}, {at(0): 4}, None) == {at(0): 10}
    assert admitted({at(0): 10, at(1): 0}, {at(0): 4, at(1): 100}, 10) == {at(0): 10, at(1): 10}


def test_a_long_stretch_is_cut_into_tasks_of_one_size() -> None:
    found = stretches({at(0): 0, at(1): 5}, {at(0): 10, at(1): 5}, 4)

    assert [(each.range.start, each.range.end) for each in found] == [(0, 4), (4, 8), (8, 10)]


def test_what_is_gone_is_counted() -> None:
    assert lost({at(0): 5, at(1): 5}, {at(0): 9, at(1): 5}) == {at(0): 4}
