"""Which lanes there are, given what both sides have."""

from __future__ import annotations

from heliograph.broker.view import ClusterView
from heliograph.model import (
    Lane,
    LaneId,
    Offsets,
    OnExisting,
    StartAt,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.selection import select_topics
from tests.unit.topics.views import FLOW_ID, SOURCE, TARGET, cluster, flow_with, topic

TOPIC_ID = "0b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"
OTHER_ID = "1b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"


def lanes_of(source: ClusterView, target: ClusterView) -> list[tuple[str, str]]:
    flow = flow_with()
    lanes = plan_lanes(flow, select_topics(flow, source.topics), source, target)
    return [(str(lane.id.source), str(lane.target)) for lane in lanes]


def test_a_lane_carries_the_rules_of_its_flow_and_the_ids_of_its_topics() -> None:
    flow = flow_with(
        start_at=StartAt.LATEST,
        offsets=Offsets.PRESERVE,
        on_existing=OnExisting.REFUSE,
        read_committed=False,
    )
    source = cluster(SOURCE, topic("orders", topic_id=TOPIC_ID))
    target = cluster(TARGET, topic("source.orders", topic_id=OTHER_ID))

    lanes = plan_lanes(flow, select_topics(flow, source.topics), source, target)

    assert lanes == (
        Lane(
            id=LaneId(flow=FLOW_ID, source=TopicPartition(topic=TopicName("orders"), partition=0)),
            target=TopicPartition(topic=TopicName("source.orders"), partition=0),
            source_topic_id=TopicId(TOPIC_ID),
            target_topic_id=TopicId(OTHER_ID),
            start_at=StartAt.LATEST,
            offsets=Offsets.PRESERVE,
            on_existing=OnExisting.REFUSE,
            read_committed=False,
        ),
    )


def test_every_partition_goes_to_the_one_with_its_number_in_order() -> None:
    source = cluster(SOURCE, topic("b", 1), topic("a", 2))
    target = cluster(TARGET, topic("source.a", 2), topic("source.b", 1))

    assert lanes_of(source, target) == [
        ("a-0", "source.a-0"),
        ("a-1", "source.a-1"),
        ("b-0", "source.b-0"),
    ]


def test_partitions_and_topics_that_the_target_lacks_wait() -> None:
    source = cluster(SOURCE, topic("grown", 3), topic("new", 1))
    target = cluster(TARGET, topic("source.grown", 2))

    assert lanes_of(source, target) == [
        ("grown-0", "source.grown-0"),
        ("grown-1", "source.grown-1"),
    ]


def test_partitions_that_only_the_target_has_give_no_lane() -> None:
    source, target = cluster(SOURCE, topic("orders", 1)), cluster(TARGET, topic("source.orders", 4))

    assert lanes_of(source, target) == [("orders-0", "source.orders-0")]


def test_a_topic_that_is_not_mirrored_gives_no_lane() -> None:
    source = cluster(SOURCE, topic("target.orders", 1))
    target = cluster(TARGET, topic("source.target.orders", 1))

    assert lanes_of(source, target) == []
