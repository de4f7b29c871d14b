"""Lanes that have not begun, found by what is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from heliograph.config.schema import FlowConfig
from heliograph.inspect.waiting import FOR_ADOPT, FOR_DRIVER, FOR_TOPIC, NOT_EMPTY, waiting_lanes
from heliograph.ledger.locations import all_topics
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, OnExisting, TopicName, TopicPartition
from tests.kit.batches import Record, batch_of
from tests.kit.fake_cluster import FakeCluster

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)


def filled(count: int) -> memoryview:
    return batch_of(*(Record(offset=at, value=b"x") for at in range(count)))


class Unadopted:
    def __init__(self, *partitions: TopicPartition) -> None:
        self.found = frozenset(partitions)
        self.target_topics: Collection[TopicName] = ()

    def partitions(
        self, target_topics: Collection[TopicName], view: LedgerView
    ) -> frozenset[TopicPartition]:
        self.target_topics = target_topics
        return self.found


@pytest.fixture
def source() -> FakeCluster:
    made = FakeCluster("A")
    made.create("orders")
    return made


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster("B")


def looked(
    source: FakeCluster,
    target: FakeCluster,
    *,
    adoption: Unadopted | None = None,
    on_existing: OnExisting = OnExisting.APPEND,
) -> list[tuple[str, str, int | None]]:
    flow = FlowConfig(id=FLOW, enabled=True, topics=("orders",), on_existing=on_existing)
    found = asyncio.run(
        waiting_lanes(flow, source, target, LedgerView(), all_topics(), adoption or Unadopted())
    )
    return [(str(lane.lane), lane.state, lane.lag_records) for lane in found]


def test_a_topic_the_target_does_not_have_waits_to_be_created_with_what_the_source_holds(
    source: FakeCluster, target: FakeCluster
) -> None:
    source.log(ORDERS).hold([filled(3)])

    assert looked(source, target) == [("A->B/orders-0", FOR_TOPIC, 3)]


def test_a_partition_that_is_there_waits_for_a_driver(
    source: FakeCluster, target: FakeCluster
) -> None:
    target.create("A.orders")

    assert looked(source, target) == [("A->B/orders-0", FOR_DRIVER, 0)]


def test_a_partition_with_other_records_is_stalled_where_they_are_refused(
    source: FakeCluster, target: FakeCluster
) -> None:
    target.create("A.orders").hold([filled(2)])

    assert looked(source, target, on_existing=OnExisting.REFUSE) == [
        ("A->B/orders-0", NOT_EMPTY, 0)
    ]
    assert looked(source, target) == [("A->B/orders-0", FOR_DRIVER, 0)]


def test_what_mirrormaker_2_has_mirrored_waits_for_adopt_and_its_lag_is_unknown(
    source: FakeCluster, target: FakeCluster
) -> None:
    target.create("A.orders").hold([filled(2)])
    adoption = Unadopted(ORDERS)

    assert looked(source, target, adoption=adoption) == [("A->B/orders-0", FOR_ADOPT, None)]
    assert "A.orders" in adoption.target_topics
