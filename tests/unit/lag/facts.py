"""Lanes for tests about lag."""

from __future__ import annotations

from typing import Any

from heliograph.lag.history import LaneHistory, Sample, observed
from heliograph.lag.lanes import LaneFacts
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
NOW_MS = 1_000_000_000


def lane(partition: int = 0, topic: str = "orders") -> LaneId:
    return LaneId(flow=FLOW, source=TopicPartition(topic=TopicName(topic), partition=partition))


def facts(acknowledged: int = 0, end: int | None = 0, **more: Any) -> LaneFacts:
    return LaneFacts(
        lane=more.pop("lane", lane()), acknowledged=acknowledged, source_end=end, **more
    )


def history(*samples: tuple[float, int, int | None], oldest_ms: int | None = None) -> LaneHistory:
    """Of `(at_s, acknowledged, end)`."""
    found = None
    for at_s, acknowledged, end in samples:
        found = observed(found, Sample(at_s, acknowledged, end, oldest_ms))
    assert found is not None
    return found
