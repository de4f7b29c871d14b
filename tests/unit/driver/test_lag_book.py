from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from heliograph.driver import lag_book
from heliograph.driver.lag_book import LagBook, SourceEnds, facts_of
from heliograph.driver.live import RunStatus
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.lag.figures import LagReport, Motion
from heliograph.lag.retention import Retention
from heliograph.model import LaneProgress, Paused, SlotId, Starting
from tests.unit.api.pretend import AB, CONFIG, STALLED, at


class Scene:
    """A book over lanes that the test changes, on the test's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lanes: LaneProgress) -> None:
        self.now_s, self.slot_state = 1_000.0, SlotState.RUNNING
        self.lanes = list(lanes)
        monkeypatch.setattr(lag_book, "monotonic_s", lambda: self.now_s)
        monkeypatch.setattr(lag_book, "now_ms", lambda: int(self.now_s * 1000))
        self.book = LagBook(
            CONFIG, self.status, lambda: {each.lane: SlotId(0) for each in self.lanes}
        )

    def status(self) -> RunStatus:
        slot = SlotHealth(
            slot=SlotId(0),
            state=self.slot_state,
            generation=1,
            replaced=0,
            attempt="1",
            pid=1,
            lanes=1,
            silent_ms=0,
            detail="",
        )
        return RunStatus(
            progress={each.lane: each for each in self.lanes}, slots=(slot,), problems={}
        )

    def pass_(self, seconds: float, **changes: Any) -> None:
        """So much time, with a sample every five seconds; then the first lane changes."""
        while seconds > 0:
            self.book.sample()
            self.now_s += min(5.0, seconds)
            seconds -= 5.0
        if changes:
            self.lanes[0] = replace(self.lanes[0], **changes)

    def report(self) -> LagReport:
        return asyncio.run(self.book.report())


def test_rates_come_from_what_slots_told_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, at(0, lag=1_000))
    scene.pass_(30.0, source_next_offset=310, source_end_offset=1_040)

    lag = scene.report().lanes[scene.lanes[0].lane]

    assert lag.records_per_s == pytest.approx(10.0)
    assert lag.source_records_per_s == pytest.approx(1.0)
    assert lag.catch_up_s == pytest.approx(730 / 9)
    assert lag.motion is Motion.MOVING


def test_an_idle_lane_is_idle_and_one_that_stands_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, at(0), at(1, lag=7))
    scene.pass_(60.0)

    flow = scene.report().flows[AB]

    assert dict(flow.motions) == {Motion.IDLE: 1, Motion.STUCK: 1}


def test_a_record_after_a_long_quiet_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, at(0))
    scene.pass_(600.0, source_end_offset=11, last_timestamp_ms=5, behind_since_ms=5)

    lag = scene.report().lanes[scene.lanes[0].lane]

    assert lag.acknowledged.seconds is not None and lag.acknowledged.seconds <= 5.0


def test_a_lane_whose_slot_is_silent_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, at(0, lag=3))
    scene.slot_state = SlotState.SILENT

    report = scene.report()

    assert report.flows[AB].motion is Motion.UNKNOWN
    assert report.flows[AB].acknowledged.records is None


def test_a_stalled_lane_is_as_far_behind_as_the_driver_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, at(0, STALLED))
    lane = scene.lanes[0].lane
    scene.book._ends[lane] = SourceEnds(start=0, end=500, at_s=0.0)
    scene.book._retentions[AB, lane.source.topic] = Retention()

    lag = scene.report().lanes[lane]

    assert (lag.motion, lag.acknowledged.records) == (Motion.STALLED, 490)


def test_a_report_is_kept_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, at(0))

    first = scene.book.report_now()

    assert scene.book.report_now() is first
    scene.now_s += 2.0
    assert scene.book.report_now() is not first


@pytest.mark.parametrize(
    ("state", "expected"),
    [(STALLED, Motion.STALLED), (Paused(), Motion.HELD), (Starting(), Motion.UNKNOWN)],
)
def test_a_lane_that_does_not_look_has_no_end_unless_the_driver_looked(
    state: Any, expected: Motion
) -> None:
    unseen = facts_of(at(0, state, lag=5), None, heard=True)
    seen = facts_of(at(0, state, lag=5), SourceEnds(start=2, end=99, at_s=0.0), heard=True)

    assert (unseen.kept_by, unseen.source_end, unseen.source_start) == (expected, None, None)
    assert (seen.source_end, seen.source_start) == (99, 2)
