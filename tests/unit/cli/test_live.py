"""What `run` shows: a stall is seen at any height of a terminal, and is in the log either way."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest
from rich.console import Console
from rich.live import Live

from heliograph.cli import live
from heliograph.cli.live import Lines, Summaries, open_display
from heliograph.cli.tables import flow_table
from heliograph.driver.changes import ConfigStatus
from heliograph.driver.live import RunStatus
from heliograph.model import (
    Awaited,
    ClusterAlias,
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneProgress,
    LaneState,
    Stalled,
    StallReason,
    TopicName,
    TopicPartition,
    Waiting,
)

FLOW: Final = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
RECREATED: Final = Stalled(
    reason=StallReason.TOPIC_RECREATED, detail="t-45 was deleted and created again", since_ms=1
)
UNREACHABLE: Final = Stalled(
    reason=StallReason.SOURCE_UNREACHABLE, detail="no leader", since_ms=1, retrying=True
)
LANES: Final = 50


def lane(number: int) -> LaneId:
    return LaneId(flow=FLOW, source=TopicPartition(topic=TopicName(f"t-{number:02}"), partition=0))


def at(
    number: int, state: LaneState, *, next_offset: int = 20, end: int = 20, records: int = 0
) -> LaneProgress:
    return LaneProgress(
        lane=lane(number),
        state=state,
        position=next_offset,
        source_next_offset=next_offset,
        source_end_offset=end,
        source_start_offset=0,
        target_next_offset=next_offset,
        records=records,
    )


def status(progress: Mapping[int, LaneProgress], **more: Mapping[FlowId, str]) -> RunStatus:
    by_lane = {each.lane: each for each in progress.values()}
    return RunStatus(progress=by_lane, slots=(), problems=more.get("problems", {}))


def idle() -> dict[int, LaneProgress]:
    return {number: at(number, Idle()) for number in range(LANES)}


def screen_of(found: RunStatus, *, width: int = 100, height: int = 30) -> list[str]:
    """The lines a terminal of this size shows."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, height=height, force_terminal=True, color_system=None
    )
    table = flow_table(
        found.progress, {}, found.problems, found.standby, config_problem=found.config.problem
    )
    with Live(table, console=console, auto_refresh=False):
        lines = stream.getvalue().splitlines()
    assert len(lines) <= height
    return lines


@pytest.mark.parametrize("height", [6, 30])
@pytest.mark.parametrize("width", [80, 100])
def test_a_stalled_topic_is_on_the_screen_whatever_its_name_and_the_height(
    width: int, height: int
) -> None:
    progress = idle() | {45: at(45, RECREATED, end=500)}

    lines = screen_of(status(progress), width=width, height=height)

    assert "50 lanes of 50 topics: 1 stalled, 49 idle; lag ?" in lines[0]
    assert any("t-45" in line and "stalled: topic recreated" in line for line in lines)


def test_what_keeps_a_flow_from_being_mirrored_is_above_the_rows() -> None:
    found = status(idle(), problems={FLOW: "cluster B: unreachable"})

    assert "A->B: cluster B: unreachable" in screen_of(found, height=8)[1]


def test_a_changed_file_that_is_not_followed_is_the_first_problem() -> None:
    why = "the changed configuration is not followed: mm2.properties: line 9  topcs: unknown key"
    found = replace(
        status(idle(), problems={FLOW: "cluster B: unreachable"}), config=ConfigStatus(problem=why)
    )

    assert screen_of(found, height=8)[1].strip() == why
    assert "a changed configuration that is not followed" in Summaries().of(found)


def test_a_standby_says_which_driver_leads() -> None:
    found = RunStatus(
        progress={}, slots=(), problems={}, standby={FLOW: "standby: led by h (pid 7)"}
    )

    lines = screen_of(found)

    assert "A->B: standby: led by h (pid 7)" in lines[1]
    assert not any("topic" in line and "state" in line for line in lines)


def test_the_lag_of_a_stalled_lane_is_unknown() -> None:
    # The last answer of the source, or the end of a topic that is no more, is no lag.
    assert at(1, UNREACHABLE).lag_records is None
    assert at(1, RECREATED, end=500, next_offset=6_000).lag_records is None
    assert at(1, Copying(), end=-1).lag_records is None
    assert at(1, Copying(), end=30).lag_records == 10


def test_a_lane_whose_source_does_not_answer_is_not_shown_as_one_that_has_caught_up() -> None:
    waits = {each: at(each, Waiting(awaited=Awaited.SOURCE, since_ms=1)) for each in (3, 4)}
    unsent = {5: at(5, Waiting(awaited=Awaited.TARGET, since_ms=1), end=30)}
    found = status(idle() | waits | unsent)

    lines = screen_of(found)

    assert "50 lanes of 50 topics: 3 waiting, 47 idle; lag ? (at least 10)" in lines[0]
    assert any("t-03" in line and "waiting: source answer" in line for line in lines)
    assert any("t-05" in line and "waiting: target answer" in line for line in lines)
    said = "50 lanes, 3 waiting, lag ? (at least 10) records"
    assert live.Summaries().of(found) == said


def test_a_summary_counts_lanes_again_only_where_there_is_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand lanes at rest cost three hundredths of a core, for a line that nobody read."""
    count, looked = live._counts, list[int]()

    def counted(lanes: Mapping[LaneId, LaneProgress]) -> tuple[str, str]:
        looked.append(len(lanes))
        return count(lanes)

    monkeypatch.setattr(live, "_counts", counted)
    summaries, quiet = live.Summaries(), status(idle())

    said = [summaries.of(quiet), summaries.of(replace(quiet, problems={FLOW: "no leader"}))]
    moved = summaries.of(status(idle() | {1: at(1, Idle(), end=25)}))

    assert looked == [LANES, LANES]
    assert said == ["50 lanes, lag 0 records", "50 lanes, 1 flow with problems, lag 0 records"]
    assert moved == "50 lanes, lag 5 records"


def test_a_lane_that_copies_is_not_idle() -> None:
    shown = Console(width=120, no_color=True)
    with shown.capture() as capture:
        progress = status({1: at(1, Idle(), records=2_888)}).progress
        shown.print(flow_table(progress, {lane(1): 2_888.0}, {}, {}))

    assert "copying" in capture.get()
    assert "idle" not in capture.get()


@pytest.mark.parametrize("with_summary", [True, False])
def test_a_stall_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture, with_summary: bool
) -> None:
    caplog.set_level(logging.INFO, logger="heliograph")
    display = Lines(with_summary=with_summary)

    for progress in (idle(), idle() | {45: at(45, RECREATED)}, idle() | {45: at(45, RECREATED)}):
        display.show(status(progress))
    display.show(status(idle()))

    assert caplog.messages == [
        "A->B/t-45-0: stalled: topic recreated: t-45 was deleted and created again",
        "A->B/t-45-0: no longer stalled: topic recreated",
    ]


def test_a_lane_that_meets_control_records_nobody_knows_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = Lines(with_summary=False)
    met = [replace(at(1, Copying()), unknown_control_records=count) for count in (0, 2, 5)]

    with caplog.at_level(logging.INFO, "heliograph"):
        for each in met:
            lines.show(status({1: each}))

    (said,) = caplog.messages
    assert said.startswith("A->B/t-01-0: control records of a kind this version does not know")
    assert "2 so far" in said


def test_a_stall_is_logged_beside_a_live_table_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, height=10)
    monkeypatch.setattr(live, "Console", lambda **_: terminal)

    with open_display(live=True) as display:
        display.show(status(idle() | {45: at(45, RECREATED)}))

    assert "A->B/t-45-0: stalled: topic recreated" in caplog.text


def test_lanes_that_stall_together_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="heliograph")
    display = Lines(with_summary=False)

    display.show(status({n: at(n, UNREACHABLE) for n in range(LANES)}))
    display.show(status(idle()))

    assert caplog.messages == [
        "A->B: 50 lanes stalled: source unreachable, first t-00-0: no leader",
        "A->B: 50 lanes no longer stalled: source unreachable, first t-00-0",
    ]


def test_a_summary_is_said_while_anything_changes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="heliograph")
    now_s = 0.0
    monkeypatch.setattr(live, "monotonic_s", lambda: now_s)
    display = Lines(with_summary=True)
    quiet = Lines(with_summary=False)

    for records in (100, 100, 100, 200):
        now_s += 10.0
        for each in (display, quiet):
            each.show(status({1: at(1, Idle(), records=records)}))

    assert caplog.messages == ["1 lane, lag 0 records, 10 records/s"] * 2


def test_a_summary_says_what_crossed_the_links(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="heliograph")
    now_s = 0.0
    monkeypatch.setattr(live, "monotonic_s", lambda: now_s)
    display = Lines(with_summary=True)

    for count in (1, 3):
        now_s += 10.0
        moved = replace(
            at(1, Idle(), records=count),
            received_bytes=count * 10_000_000,
            sent_bytes=count * 5_000_000,
        )
        display.show(status({1: moved}))

    assert caplog.messages[-1].endswith(", 2.0 MB/s from A, 1.0 MB/s to B")


def test_the_summary_of_nothing_does_not_claim_that_nothing_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="heliograph")
    now_s = 0.0
    monkeypatch.setattr(live, "monotonic_s", lambda: now_s)
    display = Lines(with_summary=True)
    now_s = 10.0

    display.show(status({}, problems={FLOW: "cluster A: unreachable"}))

    assert caplog.messages == ["0 lanes, 1 flow with problems, lag ? records, 0 records/s"]
