"""What is asked of a flow at one moment is answered from one look at its progress and ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from heliograph.config.schema import FlowConfig
from heliograph.ledger.flow_map import RunningMap
from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import Exact
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    ClusterAlias,
    Copying,
    FlowId,
    LaneId,
    LaneProgress,
    TopicName,
    TopicPartition,
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


def test_lanes_and_translations_come_from_one_look() -> None:
    ledgers, looks = Ledgers(), 0

    def progress() -> dict[LaneId, LaneProgress]:
        nonlocal looks
        looks += 1
        at = LaneProgress(
            lane=LANE,
            state=Copying(),
            position=50,
            source_next_offset=150,
            source_end_offset=150,
            source_start_offset=0,
            target_next_offset=57,
        )
        return {LANE: at}

    flow_map = RunningMap(
        FlowConfig(id=FLOW, enabled=True), cast("LedgerService", ledgers), progress
    )
    absent = TopicPartition(topic=TopicName("returns"), partition=0)

    lanes, answers = flow_map.translate({(ORDERS, 120), (absent, 3)})

    assert (looks, ledgers.reads) == (1, 1)
    assert lanes[ORDERS].last_source_offset == 149
    assert answers == {(ORDERS, 120): Exact(offset=27)}
