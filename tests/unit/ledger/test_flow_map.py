"""What is asked of a flow at one moment is answered from one look at its progress and ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from heliograph.config.schema import FlowConfig
from heliograph.ledger.flow_map import RunningMap
from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import Exact
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    Awaited,
    ClusterAlias,
    Copying,
    FlowId,
    LaneId,
    LaneProgress,
    LaneState,
    Stalled,
    StallReason,
    Starting,
    TopicName,
    TopicPartition,
    Waiting,
)
from tests.kit.entries import start_entry

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
LANE = LaneId(flow=FLOW, source=ORDERS)


class Ledgers:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.view = LedgerView()
        self.view.apply(start_entry(ORDERS.topic, author="me", source_offset=100, target_offset=7))

    def ask(self, _: FlowId, question: Callable[[LedgerView], Any]) -> Any:
        self.reads += 1
        return question(self.view)


def _at(state: LaneState, *, target_next_offset: int = 57) -> LaneProgress:
    return LaneProgress(
        lane=LANE,
        state=state,
        position=50,
        source_next_offset=150,
        source_end_offset=150,
        source_start_offset=0,
        target_next_offset=target_next_offset,
    )


def _stalled(reason: StallReason) -> Stalled:
    return Stalled(reason=reason, detail="", since_ms=1)


@pytest.mark.parametrize(
    ("at", "has_map"),
    [
        (_at(_stalled(StallReason.RETENTION_OVERRUN)), True),
        (_at(_stalled(StallReason.TOPIC_RECREATED)), False),
        (_at(_stalled(StallReason.NOT_AUTHORISED), target_next_offset=-1), False),
        (_at(Starting()), False),
        (_at(Waiting(awaited=Awaited.PLACE, since_ms=1)), False),
        (replace(_at(Waiting(awaited=Awaited.SOURCE, since_ms=1)), source_end_offset=-1), False),
        (_at(Waiting(awaited=Awaited.SOURCE, since_ms=1)), True),
    ],
    ids=[
        "overrun",
        "source recreated",
        "never placed",
        "starting",
        "not told its place",
        "waits for its first fetch",
        "waits for another fetch",
    ],
)
def test_a_lane_whose_place_or_source_topic_is_another_translates_nothing(
    at: LaneProgress, has_map: bool
) -> None:
    flow_map = RunningMap(
        FlowConfig(id=FLOW, enabled=True), cast("LedgerService", Ledgers()), lambda: {LANE: at}
    )

    lanes, answers = flow_map.translate({(ORDERS, 120)})

    assert (ORDERS in lanes, bool(answers)) == (has_map, has_map)


def test_lanes_and_translations_come_from_one_look() -> None:
    ledgers, looks = Ledgers(), 0

    def progress() -> dict[LaneId, LaneProgress]:
        nonlocal looks
        looks += 1
        return {LANE: _at(Copying())}

    flow_map = RunningMap(
        FlowConfig(id=FLOW, enabled=True), cast("LedgerService", ledgers), progress
    )
    absent = TopicPartition(topic=TopicName("returns"), partition=0)

    lanes, answers = flow_map.translate({(ORDERS, 120), (absent, 3)})

    assert (looks, ledgers.reads) == (1, 1)
    assert lanes[ORDERS].last_source_offset == 149
    assert answers == {(ORDERS, 120): Exact(offset=27)}


def test_only_a_lane_with_news_is_looked_up_again() -> None:
    ledgers = Ledgers()
    told: dict[LaneId, LaneProgress] = {LANE: _at(Copying())}
    flow_map = RunningMap(
        FlowConfig(id=FLOW, enabled=True), cast("LedgerService", ledgers), lambda: dict(told)
    )

    first, seen = flow_map.moved({})
    second, seen = flow_map.moved(seen)
    reads = ledgers.reads
    told[LANE] = replace(told[LANE], records=told[LANE].records + 1)
    third, _ = flow_map.moved(seen)

    assert list(first) == list(third) == [ORDERS]
    assert (second, reads) == ({}, 1)
