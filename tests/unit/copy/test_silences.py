"""A lane that waits for an answer says so, and does not pass for one that has caught up."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.round_trip import RoundTrip
from heliograph.clock import monotonic_s, now_ms
from heliograph.copy.fetch_streams import FetchStreams
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Resuming, Running, StreamKey
from heliograph.copy.room import Room
from heliograph.copy.silences import Silences
from heliograph.ledger.runs import Run
from heliograph.model import Awaited, ClusterAlias, Copying, Idle, Waiting, badge
from tests.unit.copy.kit import OfferedTargets, QuietSlot, carried_lane, chunk, running_at, send
from tests.unit.copy.test_fetch_streams import Scene

STREAM: StreamKey = (ClusterAlias("B"), 1, 0)


class Sides:
    """Both sides of a slot, of which a test says what is overdue."""

    def __init__(self) -> None:
        self.fetches: dict[CarriedLane, float] = {}
        self.appends: dict[StreamKey, float] = {}
        self.slot = QuietSlot()
        self.room = self.slot.room = Room(1_000)
        self.lane = carried_lane()
        self.running: Running = running_at(self.lane)
        self.lane.enter(self.running)
        self.running.append_stream = STREAM
        self.lane.source_seen.end_offset = 0
        self._silences = Silences(_Said(self.fetches), _Said(self.appends), self.slot)  # type: ignore[arg-type]

    def look(self) -> str:
        self.lane.unreported = False
        before = self.lane.progress()
        self._silences.look([self.lane], [self.lane.flow])
        # The driver hears of changes alone.
        assert self.lane.unreported == (self.lane.progress() != before)
        return badge(self.lane.state())


class _Said:
    def __init__(self, late: dict[Any, float]) -> None:
        self._late = late

    def overdue(self, at_s: float) -> dict[Any, float]:
        return dict(self._late)


def test_an_idle_lane_whose_fetch_is_overdue_waits_until_it_is_answered() -> None:
    sides = Sides()
    shown = [sides.look()]
    sides.fetches[sides.lane] = monotonic_s() - 12
    shown += [sides.look(), sides.look()]
    waiting, lag = sides.lane.state(), sides.lane.progress().lag_records
    sides.fetches.clear()
    shown += [sides.look(), sides.look()]

    assert shown == ["idle", "waiting: source answer", "waiting: source answer", "idle", "idle"]
    assert isinstance(waiting, Waiting)
    assert 11_000 < now_ms() - waiting.since_ms < 60_000
    assert lag is None
    assert sides.lane.progress().lag_records == 0


def test_a_batch_that_is_not_acknowledged_is_what_the_lane_waits_for_and_the_lag_is_known() -> None:
    sides = Sides()
    sides.lane.enqueue(sides.running, chunk(sides.running), [], 0)
    # It has something to send, whatever the source says.
    sides.fetches[sides.lane] = monotonic_s() - 9
    shown = [sides.look()]
    batch = send(sides.lane)
    sides.appends[STREAM] = monotonic_s() - 8
    shown.append(sides.look())
    lag = sides.lane.progress().lag_records
    sides.lane.in_flight -= 1
    sides.lane.settle(sides.running, batch, 0)

    assert shown == ["copying", "waiting: target answer"]
    assert lag == 0
    assert isinstance(sides.lane.state(), Idle)


def test_batches_that_wait_for_the_ledger_say_so_while_its_write_is_overdue() -> None:
    sides, targets = Sides(), OfferedTargets(QuietSlot())
    run = Run(position=0, source_offset=9, target_offset=0)
    targets.enqueue(sides.lane, sides.running, chunk(sides.running, [run]))
    ledger: Any = sides.lane.flow.ledger

    shown = [sides.look()]
    for seconds in (3, 8):
        ledger.writing_since_s = monotonic_s() - seconds
        shown.append(sides.look())
    ledger.durable, ledger.writing_since_s = 1, None
    shown.append(sides.look())

    assert shown == ["copying", "copying", "waiting: ledger write", "copying"]


def test_a_lane_that_is_not_told_where_it_goes_on_says_so_until_it_is() -> None:
    sides = Sides()
    sides.lane.enter(Resuming())
    sides.slot.look_up(sides.lane)
    shown = [sides.look()]
    sides.slot.asked[sides.lane] -= 6
    shown += [sides.look(), sides.look()]
    lag = sides.lane.progress().lag_records
    del sides.slot.asked[sides.lane]
    shown.append(sides.look())

    assert shown == ["starting", "waiting: its place", "waiting: its place", "starting"]
    assert lag is None


def test_a_lane_whose_first_fetch_is_overdue_waits_for_the_source() -> None:
    sides = Sides()
    sides.lane.source_seen.end_offset = -1
    shown = [sides.look()]
    sides.fetches[sides.lane] = monotonic_s() - 9
    shown.append(sides.look())

    assert shown == ["starting", "waiting: source answer"]


def test_a_lane_that_is_not_fetched_for_want_of_room_does_not_say_that_it_is_idle() -> None:
    sides = Sides()
    sides.running.share = share = sides.room.share(sides.lane.flow.id, 1)
    sides.room.kept(share, 900)
    shown = [sides.look()]
    share.closed_s -= 6
    shown.append(sides.look())
    lag = sides.lane.progress().lag_records
    sides.room.kept(share, -900)
    shown.append(sides.look())

    assert shown == ["idle", "waiting: room in the slot", "idle"]
    assert lag is None


def test_a_throttled_lane_does_not_know_whether_it_has_caught_up() -> None:
    sides = Sides()
    sides.running.throttled = True
    throttled = sides.lane.state()
    sides.running.throttled = False

    assert isinstance(throttled, Copying)
    assert isinstance(sides.lane.state(), Idle)


def test_a_long_wait_is_written_to_the_ledger_once_and_its_end_too() -> None:
    sides = Sides()
    lane = sides.lane
    lane.head_written.position, lane.head_written.badge = lane.reached.position, "idle"
    lane.head_written.wrote(lane.reached.source_next_offset, ticket=0)
    due = []
    for awaited in (
        None,
        Waiting(awaited=Awaited.SOURCE, since_ms=now_ms() - 6_000),
        Waiting(awaited=Awaited.SOURCE, since_ms=now_ms() - 20_000),
        None,
    ):
        lane.waiting = awaited
        due.append(lane.head_is_due(settling=False))
        if due[-1]:
            head = lane.head()
            lane.head_written.badge = head.state
    lane.waiting = Waiting(awaited=Awaited.SOURCE, since_ms=7)

    assert due == [False, False, True, True]
    assert lane.head_written.badge == "idle"
    assert (lane.head().at_ms, lane.head().detail) == (7, "a fetch from the source is not answered")


@pytest.mark.parametrize(
    ("round_trip_s", "under_way_s", "is_overdue"),
    [(0.001, 5.0, False), (0.001, 6.0, True), (4.0, 12.0, False), (4.0, 13.0, True)],
)
def test_a_fetch_is_overdue_after_its_wait_and_what_the_link_takes(
    round_trip_s: float, under_way_s: float, is_overdue: bool
) -> None:
    scene = Scene(2, far=False)
    scene.cluster.far.heard(round_trip_s)
    streams: FetchStreams = scene.streams
    streams._streams[0].asked_s = 100.0

    late = dict(streams.overdue(100.0 + under_way_s))

    assert late == (dict.fromkeys(scene.lanes, 100.0) if is_overdue else {})


def test_no_fetch_is_overdue_that_is_not_under_way() -> None:
    scene = Scene(2, far=False)

    assert list(scene.streams.overdue(monotonic_s() + 1_000)) == []


def test_a_link_that_is_known_to_be_longer_is_given_longer() -> None:
    near, far = RoundTrip(), RoundTrip()
    far.heard(10.0)

    assert (near.overdue_s, far.overdue_s) == (5.0, 30.0)


def test_a_lane_that_leaves_its_slot_waits_for_its_head_while_the_ledger_is_not_written() -> None:
    """It is fetched no more, and showed `copying` while the ledger could not be reached."""
    sides = Sides()
    ledger: Any = sides.lane.flow.ledger
    sides.lane.source_seen.end_offset = 10
    ledger.writing_since_s = monotonic_s() - 8
    shown = [sides.look()]
    sides.lane.retiring = True
    shown.append(sides.look())
    ledger.writing_since_s = None
    shown.append(sides.look())

    assert shown == ["copying", "waiting: ledger write", "copying"]
