"""Lanes for tests of the engine."""

from __future__ import annotations

from heliograph.model import (
    ClusterAlias,
    Copying,
    FlowId,
    Lane,
    LaneId,
    LaneProgress,
    TopicName,
    TopicPartition,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


def lane(partition: int, *, flow: FlowId = FLOW, topic: str = "orders") -> Lane:
    place = TopicPartition(topic=TopicName(topic), partition=partition)
    return Lane(id=LaneId(flow=flow, source=place), target=place, source_topic_id=None)


def progress(partition: int, *, records: int = 0, lag_records: int = 0) -> LaneProgress:
    return LaneProgress(
        lane=lane(partition).id,
        state=Copying(),
        position=records,
        source_next_offset=records,
        source_end_offset=records + lag_records,
        source_start_offset=0,
        target_next_offset=records,
        records=records,
        bytes=records * 100,
    )
