"""One lane's trouble on the source side stays its own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    StallReason,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.shuttle import sources
from heliograph.shuttle.flow import FetchLimits, Flow
from heliograph.shuttle.lane import CarriedLane
from heliograph.shuttle.layout import Stamp
from heliograph.shuttle.sources import SourceSide
from heliograph.wire.fetch import FetchedPartition

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


class Recorded:
    """Stands in for the shuttle: a broker cannot be made to trigger our own bug."""

    def __init__(self) -> None:
        self.stalls: list[tuple[StallReason, str, float | None]] = []

    def stall(
        self, lane: CarriedLane, reason: StallReason, detail: str, *, retry_s: float | None
    ) -> None:
        self.stalls.append((reason, detail, retry_s))


def test_a_bug_met_while_laying_out_stalls_the_lane_and_not_the_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(sources, "lay_out", broken)
    fates = Recorded()
    lane = carried_lane()
    side = SourceSide(fates, None, asyncio.Event())  # type: ignore[arg-type]

    with caplog.at_level(logging.ERROR):
        side._fetched(lane, FetchedPartition((b"", 0), 0, 9, 9, 0, (), -1, memoryview(b"x" * 80)))

    assert [(reason, detail) for reason, detail, _ in fates.stalls] == [
        (StallReason.BUG, "ZeroDivisionError: a bug of ours")
    ]
    assert fates.stalls[0][2] is not None


def carried_lane() -> CarriedLane:
    flow = Flow(FLOW, None, None, None, FetchLimits())  # type: ignore[arg-type]
    flow.stamp = Stamp(1, 0)
    partition = TopicPartition(topic=TopicName("orders"), partition=0)
    spec = Lane(
        id=LaneId(flow=FLOW, source=partition),
        target=partition,
        source_topic_id=TopicId("0c12b63f-6f93-41ba-bebd-37dfba57c4d4"),
    )
    return CarriedLane(spec, flow)
