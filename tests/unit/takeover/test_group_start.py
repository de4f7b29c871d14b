"""When the group is looked at, at whose commits a flow begins, and what its members hold up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.broker.group_view import GroupOffset
from heliograph.driver.flow_state import FlowState
from heliograph.errors import BrokerUnreachable, GroupActive, GroupTaken
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    StartOffset,
    TopicName,
    TopicPartition,
)
from heliograph.takeover.group_start import begun_by_group
from tests.unit.config.texts import with_lines

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
CONFIG = with_lines("A->B.start.group = mirror\n")
AT = [TopicPartition(topic=TopicName("orders"), partition=number) for number in range(2)]
LANES = tuple(Lane(id=LaneId(flow=FLOW, source=at), target=at, source_topic_id=None) for at in AT)


class Source:
    """A cluster with one group; what it is asked is counted."""

    def __init__(self, *committed: int, is_idle: bool = True) -> None:
        self.committed, self.is_idle, self.asked = list(committed), is_idle, 0

    def describe(self, names: list[str]) -> dict[str, Any]:
        self.asked += 1
        return dict.fromkeys(names, SimpleNamespace(is_idle=self.is_idle))

    def offsets(self, names: list[str]) -> dict[str, dict[TopicPartition, GroupOffset]]:
        placed = zip(AT, self.committed, strict=False)
        return {name: {at: GroupOffset(offset=offset) for at, offset in placed} for name in names}

    def list_offsets(self, wanted: list[TopicPartition], _: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, 1_000)


def begun(source: Source, carried: tuple[Lane, ...], *in_ledger: TopicPartition) -> list[Any]:
    clients: Any = SimpleNamespace(
        source=lambda flow: flow, groups=lambda _: source, admin=lambda _: source
    )
    view = SimpleNamespace(begun=lambda: dict.fromkeys(in_ledger))
    ledgers: Any = SimpleNamespace(ask=lambda _, question: question(view))
    config = CONFIG.flow(FLOW)
    return [
        lane.start_at for lane in begun_by_group(CONFIG, config, clients, ledgers, LANES, carried)
    ]


def placed(*offsets: int) -> tuple[Lane, ...]:
    clients = Source(*offsets)
    found = begun(clients, ())
    return tuple(replace(lane, start_at=at) for lane, at in zip(LANES, found, strict=True))


def test_a_flow_that_has_not_begun_goes_where_the_group_has_come_meanwhile() -> None:
    found = begun(Source(7, 9), placed(3, 4))

    assert found == [StartOffset(7), StartOffset(9)]


def test_nothing_of_a_flow_begins_while_the_group_has_members_again() -> None:
    carried = placed(3, 4)
    state = FlowState(config=CONFIG.flow(FLOW), adoption=None, lanes=carried, known=carried)  # type: ignore[arg-type]

    with pytest.raises(GroupTaken, match="has members") as raised:
        begun(Source(7, 9, is_idle=False), carried)
    state.failed(raised.value, due_s=5.0)

    assert (state.lanes, state.known, state.due_s) == ((), (), 5.0)


def test_lanes_go_on_and_keep_their_place_once_one_of_them_has_begun() -> None:
    source = Source(7, 9, is_idle=False)

    found = begun(source, placed(3, 4), AT[0])

    assert found == [StartOffset(3), StartOffset(4)]
    assert source.asked == 0


def test_a_new_lane_of_a_flow_that_has_begun_waits_for_the_group_and_the_others_go_on() -> None:
    carried = placed(3, 4)[:1]
    state = FlowState(config=CONFIG.flow(FLOW), adoption=None, lanes=carried)  # type: ignore[arg-type]

    with pytest.raises(GroupActive) as raised:
        begun(Source(7, 9, is_idle=False), carried, AT[0])
    state.failed(raised.value, due_s=5.0)

    assert not isinstance(raised.value, GroupTaken)
    assert state.lanes == carried


def test_a_cluster_that_does_not_answer_takes_no_lane_away() -> None:
    carried = placed(3, 4)
    state = FlowState(config=CONFIG.flow(FLOW), adoption=None, lanes=carried)  # type: ignore[arg-type]

    state.failed(BrokerUnreachable("gone"), due_s=5.0)

    assert state.lanes == carried
