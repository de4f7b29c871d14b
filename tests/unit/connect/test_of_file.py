"""Altered offsets of a driver's own connectors, as rewinds."""

from __future__ import annotations

from heliograph.connect.of_file import rewinds_of
from heliograph.decisions.decision import TOPICS_MAX, Scope, Verb
from heliograph.model import TopicName, TopicPartition


def at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=partition)


def test_offsets_are_the_next_ones_and_lanes_that_go_to_the_same_are_together() -> None:
    wanted = {
        at("orders", 1): 41,
        at("orders", 0): 41,
        at("logs", 0): 41,
        at("logs", 1): 41,
        at("other", 0): None,
        at("other", 1): 0,
    }

    made = list(rewinds_of(wanted))

    assert {each.verb for each in made} == {Verb.REWIND}
    assert [(each.scope, each.offset) for each in made] == [
        (Scope(topics=("logs", "orders"), partitions=(0, 1)), 42),
        (Scope(topics=("other",), partitions=(0,)), None),
        (Scope(topics=("other",), partitions=(1,)), 1),
    ]


def test_more_topics_than_a_decision_may_name_are_several() -> None:
    wanted = {at(f"t{number:04}", 0): 7 for number in range(TOPICS_MAX + 3)}

    made = list(rewinds_of(wanted))

    assert [len(each.scope.topics) for each in made] == [TOPICS_MAX, 3]
