"""What people see: unknown is never shown as nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from heliograph.cli.groups import group_table
from heliograph.cli.status import (
    StatusDocument,
    exit_code,
    flow_line,
    rendered,
    topic_rows,
    unmatched,
)
from heliograph.cli.tables import TopicRow, time_left, topic_table
from heliograph.clock import now_ms
from heliograph.inspect.flow_status import FlowStatus, LaneStatus, MirrorStatus
from heliograph.inspect.status import lag_facts
from heliograph.inspect.waiting import FOR_ADOPT, FOR_TOPIC, WaitingLane
from heliograph.lag.figures import NEVER, Behind, LaneLag, Motion
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition
from tests.unit.cli import canned

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


WAITING_FOR_ADOPT = WaitingLane(
    lane=LaneId(flow=FLOW, source=TopicPartition(topic=TopicName("mm2"), partition=0)),
    target=TopicPartition(topic=TopicName("A.mm2"), partition=0),
    state=FOR_ADOPT,
    detail="mirrored by MirrorMaker 2; `heliograph adopt` takes it over",
    lag_records=None,
)
TO_BE_CREATED = replace(
    WAITING_FOR_ADOPT, state=FOR_TOPIC, detail="A.mm2-0 is not there", lag_records=7
)


def waits(*lanes: WaitingLane, begun: tuple[LaneStatus, ...] = (LANE,)) -> MirrorStatus:
    found = status_of(*begun)
    return replace(found, flows=(replace(found.flows[0], waiting=lanes),))


def test_lanes_that_wait_have_a_row_before_the_others_and_say_what_to_do() -> None:
    shown = text_of(rendered(waits(WAITING_FOR_ADOPT), lanes=False)).splitlines()

    assert shown[1].split()[1:5] == ["mm2", "1", "waiting:", "adopt"]
    assert "`heliograph adopt` takes it over" in shown[1]
    assert shown[1].split()[6:8] == ["?", "?"]
    assert "A->B: 2 lanes (1 waiting), 1,000 mirrored, lag ?" in shown[-1]


def test_what_waits_in_a_lane_that_has_not_begun_is_lag() -> None:
    found = waits(TO_BE_CREATED)

    assert StatusDocument.of(found).plain()["flows"][0]["lag_records"] == 7
    assert "waiting: not created" in text_of(rendered(found, lanes=True))
    assert "A.mm2-0 is not there" in text_of(rendered(found, lanes=True))


def test_a_flow_whose_target_was_not_read_has_no_numbers() -> None:
    found = status_of(holder=None)
    dark = replace(found, flows=(replace(found.flows[0], problem="B is down", is_known=False),))

    flow = StatusDocument.of(dark).plain()["flows"][0]

    assert (flow["mirrored_records"], flow["lag_records"], flow["lost_records"]) == (None,) * 3
    assert "unknown" in flow_line(dark.flows[0])
    assert "never run" not in text_of(rendered(dark, lanes=False))


STALLED_LANE = replace(LANE, state="stalled: corrupt batch")
RELEASED_LANE = replace(LANE, state="released", detail="handed to MirrorMaker 2")
FENCE = Fence(at_ms=1, why="failed over")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (status_of(LANE), 0),
        (status_of(STALLED_LANE), 3),
        (waits(WAITING_FOR_ADOPT), 3),
        (waits(TO_BE_CREATED), 0),
        (status_of(LANE, holder=None), 3),
        (status_of(holder=None), 3),
        (status_of(RELEASED_LANE, holder=None), 0),
        (status_of(replace(LANE, state="copying"), holder=None), 0),
        (replace(status_of(STALLED_LANE), unreachable={ClusterAlias("A"): "down"}), 1),
    ],
    ids=[
        "carried",
        "stalled",
        "waits for adopt",
        "begins by itself",
        "not carried",
        "never run",
        "handed to MirrorMaker 2",
        "carried without a lease",
        "source down",
    ],
)
def test_the_exit_code_of_status_says_whether_all_is_carried(
    found: MirrorStatus, code: int
) -> None:
    assert exit_code(found) == code


def test_a_flow_that_is_fenced_on_purpose_is_no_error() -> None:
    found = status_of(replace(LANE, state="fenced"), holder=None)
    fenced = replace(found, flows=(replace(found.flows[0], fence=FENCE),))

    assert exit_code(fenced) == 0


def test_a_topic_that_no_flow_mirrors_is_named() -> None:
    found = waits(TO_BE_CREATED)

    assert unmatched(found, ["orders", "mm2", "A.orders"]) == ["A.orders"]
    assert exit_code(found, ["A.orders"]) == 1


def test_released_lanes_say_what_became_of_them() -> None:
    shown = text_of(rendered(status_of(RELEASED_LANE), lanes=False))

    assert "released" in shown
    assert "handed to MirrorMaker 2" in shown


def test_offsets_of_a_stalled_topic_are_not_called_identical() -> None:
    assert "identical" not in text_of(
        topic_table(topic_rows(status_of(STALLED_LANE).flows[0]), remarks=True)
    )


def test_a_screen_that_does_not_scroll_begins_with_the_flows() -> None:
    many = [
        replace(
            LANE,
            lane=replace(LANE.lane, source=TopicPartition(topic=TopicName(f"t{n}"), partition=0)),
        )
        for n in range(40)
    ]

    shown = text_of(rendered(status_of(*many), lanes=False, worst_first=True)).splitlines()

    assert shown[0].startswith("A->B: 40 lanes")


@pytest.mark.parametrize("width", [80, 120])
def test_names_are_whole_at_any_usual_width(width: int) -> None:
    """A name that is folded cannot be copied; 80 columns lost characters of it besides."""
    name = TopicName("team-45.customer-profile-updates.v1")
    lane = replace(LANE.lane, source=TopicPartition(topic=name, partition=0))
    group = replace(canned.GROUPS.flows[0].rows[0], group=f"{name}.readers", source=lane.source)
    console = Console(width=width, no_color=True)

    with console.capture() as capture:
        console.print(rendered(status_of(replace(STALLED_LANE, lane=lane)), lanes=True))
        console.print(group_table(replace(canned.GROUPS.flows[0], rows=(group,))))

    lines = capture.get().splitlines()
    assert sum(name in line for line in lines) >= 3
    assert any(f"{name}.readers" in line for line in lines)
    assert all(len(line) <= width for line in lines)


def lagging(**more: object) -> LaneLag:
    return LaneLag(
        lane=LANE.lane,
        motion=Motion.MOVING,
        acknowledged=Behind(records=5, bytes=50, seconds=1.0),
        **more,  # type: ignore[arg-type]
    )


def test_a_topic_whose_records_the_source_will_delete_says_when() -> None:
    lane = replace(LANE, lag=lagging(overrun_s=600.0, overrun_by="retention.ms"))

    remarks = topic_rows_of(lane)

    assert "records that wait may be deleted on the source in 0:10:00 (retention.ms)" in remarks


def topic_rows_of(lane: LaneStatus) -> str:
    (flow,) = status_of(lane).flows
    return " ".join(row.remarks for row in topic_rows(flow))


def test_what_the_source_keeps_is_no_remark() -> None:
    for overrun_s in (None, NEVER):
        assert "deleted" not in topic_rows_of(replace(LANE, lag=lagging(overrun_s=overrun_s)))
    assert "now (log start)" in topic_rows_of(
        replace(LANE, lag=lagging(overrun_s=0.0, overrun_by="log start"))
    )


def test_times_of_lag_are_numbers_never_or_null_in_json() -> None:
    lane = replace(LANE, lag=lagging(catch_up_s=NEVER, overrun_s=12.5, overrun_by="retention.ms"))

    (flow,) = StatusDocument.of(status_of(lane)).flows

    lag = flow.lanes[0].lag
    assert lag is not None
    assert (lag.catch_up_s, lag.overrun_s, lag.trend) == ("never", 12.5, None)
    assert StatusDocument.of(status_of(LANE)).flows[0].lanes[0].lag is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "stalled: bug"}, Motion.STALLED),
        ({"state": "paused"}, Motion.HELD),
        ({"state": "stopped"}, Motion.HELD),
        ({"state": "copying?", "lag_records": None}, Motion.UNKNOWN),
        ({"state": "idle"}, None),
    ],
)
def test_status_tells_lag_from_what_the_clusters_show(
    changes: dict[str, str], expected: Motion | None
) -> None:
    facts = lag_facts(replace(LANE, **changes))  # type: ignore[arg-type]

    assert facts.kept_by is expected
    assert (facts.source_end is None) == ("lag_records" in changes)
