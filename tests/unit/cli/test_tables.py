"""What people see: unknown is never shown as nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from heliograph.cli.status import StatusDocument, flow_line, rendered
from heliograph.cli.tables import TopicRow, time_left, topic_table
from heliograph.clock import now_ms
from heliograph.inspect.status import FlowStatus, LaneStatus, MirrorStatus
from heliograph.ledger.entries import LeaseEntry
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ROW = TopicRow(
    flow=FLOW,
    topic="orders",
    lanes=4,
    state="copying",
    mirrored=750,
    lag_records=250,
    lag_s=12.0,
    records_per_s=50.0,
)
LANE = LaneStatus(
    lane=LaneId(flow=FLOW, source=TopicPartition(topic=TopicName("orders"), partition=0)),
    target=TopicPartition(topic=TopicName("A.orders"), partition=0),
    state="idle",
    detail="",
    position=1_000,
    position_is_exact=True,
    source_start_offset=0,
    source_next_offset=1_000,
    source_end_offset=1_000,
    target_next_offset=1_000,
    lag_records=0,
    lag_s=0.0,
    mapped_because="",
    lost_records=0,
    foreign_records=0,
    noted_ms=0,
)
HOLDER = LeaseEntry(
    author="0" * 32, host="box", pid=17, at_ms=now_ms(), lease_ms=15_000, slot_count=1
)


def text_of(shown: RenderableType) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def status_of(*lanes: LaneStatus, holder: LeaseEntry | None = HOLDER) -> MirrorStatus:
    flow = FlowStatus(flow=FLOW, producer=None, holder=holder, lanes=lanes)
    return MirrorStatus(at_ms=0, flows=(flow,), unreachable={})


def test_a_topic_that_catches_up_has_a_bar_and_the_time_left() -> None:
    shown = text_of(topic_table([ROW]))

    assert "━" in shown
    assert "0:00:05" in shown


def test_a_lag_that_nobody_knows_is_a_question_mark() -> None:
    shown = text_of(topic_table([replace(ROW, lag_records=None, lag_s=None)]))

    assert shown.splitlines()[1].split()[5:7] == ["?", "?"]


@pytest.mark.parametrize(
    ("lag", "rate", "left"),
    [(0, 5.0, ""), (None, 5.0, ""), (10, 0.0, "?"), (10, None, "?"), (7_322, 1.0, "2:02:02")],
)
def test_time_left_is_told_only_where_it_is_known(
    lag: int | None, rate: float | None, left: str
) -> None:
    assert time_left(lag, rate) == left


def test_one_lane_of_unknown_lag_makes_the_lag_of_all_unknown() -> None:
    dark = replace(LANE, lag_records=None, lag_s=None, source_end_offset=None)

    document = StatusDocument.of(status_of(LANE, dark)).plain()

    assert document["flows"][0]["lag_records"] is None
    assert "lag ?" in flow_line(status_of(LANE, dark).flows[0])


def test_stalled_lanes_are_shown_without_being_asked_for() -> None:
    stalled = replace(LANE, state="stalled: corrupt batch", detail="offset 17: bad checksum")

    shown = text_of(rendered(status_of(LANE, stalled), lanes=False))

    assert shown.count("A->B/orders-0") == 1
    assert "offset 17: bad checksum" in shown


def test_the_flow_line_says_who_carries_it() -> None:
    assert "mirrored by box (pid 17)" in flow_line(status_of(LANE).flows[0])


def test_a_flow_nobody_carries_says_so() -> None:
    assert "never run" in flow_line(status_of(holder=None).flows[0])
