"""A slot without Spark: real link, pretend carrier."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from heliograph.clock import monotonic_s
from heliograph.copy.flow import FetchLimits
from heliograph.engine import task
from heliograph.engine.link import LinkServer, Session
from heliograph.engine.messages import (
    AddLanes,
    Configure,
    Down,
    Drain,
    Figures,
    PauseLanes,
    Progress,
    RemoveLanes,
    Settled,
    Stop,
)
from heliograph.engine.sealed import SlotSettings, seal
from heliograph.engine.task import (
    CarrierFactory,
    Clusters,
    Outcome,
    SlotOrder,
    SlotResult,
    progress_interval_s,
    run_slot,
)
from heliograph.model import LaneId, LaneProgress, SlotFigures, SlotId
from tests.kit.loop_thread import LoopThread, loop_thread
from tests.kit.topics import wait_until
from tests.spark.fake_carrier import BrokenCarrier, FakeCarrier
from tests.unit.engine.lanes import lane

TOKEN = b"t" * 32
LEASE_S = 1.0


class Script:
    """Says its lines when a slot connects, and answers `Settled` with the next ones."""

    def __init__(self) -> None:
        self.lines: list[Down] = []
        self.after_settled: list[Down] = []
        self.settled: list[LaneId] = []
        self.reports: list[LaneProgress] = []
        self.figures: list[SlotFigures] = []
        self.sessions: list[Session] = []

    def hello(self, session: Session) -> None:
        self.sessions.append(session)
        for line in self.lines:
            session.send(line)

    def heard(self, session: Session, message: Progress | Figures | Settled) -> None:
        if isinstance(message, Figures):
            self.figures.append(message.figures)
            return
        if isinstance(message, Progress):
            self.reports += message.lanes
            return
        self.settled += message.ids
        for line in self.after_settled:
            session.send(line)

    def lost(self, session: Session) -> None: ...

    def freeze(self) -> None:
        """The driver's event loop hangs, as in a process that is stopped or swapped out."""
        time.sleep(2 * LEASE_S)


def after(loop: LoopThread, delay_s: float, function: Callable[[], None]) -> None:
    def begin() -> None:
        asyncio.get_running_loop().call_later(delay_s, function)

    loop.call(begin)


Run = Callable[..., SlotResult]


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """The driver's; the slot's is the test's own."""
    with loop_thread() as loop:
        yield loop


@pytest.fixture
def server(script: Script, loop: LoopThread) -> Iterator[LinkServer]:
    server = LinkServer(host="127.0.0.1", token=TOKEN, listener=script)
    yield server
    loop.wait(server.stop())


@pytest.fixture
def run(server: LinkServer, loop: LoopThread) -> Run:
    port = loop.wait(server.start())

    def run(carrier: CarrierFactory = FakeCarrier, token: bytes = TOKEN) -> SlotResult:
        order = SlotOrder(
            slot=SlotId(0),
            generation=1,
            host="127.0.0.1",
            port=port,
            token=token,
            lease_s=LEASE_S,
            bytes_max=1,
            clusters={},
            carrier=carrier,
        )
        return asyncio.run(run_slot(order, attempt="0"))

    return run


def test_a_removed_lane_is_settled_before_the_driver_hears_of_it(run: Run, script: Script) -> None:
    script.lines = [AddLanes(lanes=(lane(0), lane(1))), RemoveLanes(ids=(lane(0).id,))]
    script.after_settled = [Stop()]

    settlement = run()

    assert script.settled == [lane(0).id]
    assert settlement.outcome is Outcome.STOPPED
    assert [progress.lane for progress in settlement.lanes] == [lane(1).id]


def remembered(made: list[FakeCarrier]) -> CarrierFactory:
    def make(clusters: Clusters, bytes_max: int) -> FakeCarrier:
        made.append(FakeCarrier(clusters, bytes_max))
        return made[-1]

    return make


def test_what_was_fetched_for_an_abandoned_lane_is_dropped_before_it_is_settled(
    run: Run, script: Script
) -> None:
    made: list[FakeCarrier] = []
    script.lines = [AddLanes(lanes=(lane(0),)), RemoveLanes(ids=(lane(0).id,), settle=False)]
    script.after_settled = [Stop()]

    run(remembered(made))

    assert made[0].discarded == {lane(0).id}
    assert script.settled == [lane(0).id]


def test_a_slot_looks_for_fences_itself_while_its_driver_is_silent(
    run: Run, script: Script, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "ALONE_S", 0.3)
    monkeypatch.setattr(task, "_ALONE_LOOK_S", 0.05)
    made: list[FakeCarrier] = []
    script.lines = [AddLanes(lanes=(lane(0),))]
    heard: list[int] = []
    after(loop, 0.6, lambda: heard.append(made[0].looks))
    after(loop, 0.6, script.freeze)

    settlement = run(remembered(made))

    assert settlement.outcome is Outcome.LEASE_OVER
    assert heard == [0]
    assert made[0].looks > 3


def test_a_drain_settles_all_lanes_and_returns_them(run: Run, script: Script) -> None:
    script.lines = [AddLanes(lanes=(lane(0), lane(1))), Drain()]

    settlement = run()

    assert settlement.outcome is Outcome.DRAINED
    assert {progress.state.kind for progress in settlement.lanes} == {"idle"}
    wait_until(lambda: set(script.settled) == {lane(0).id, lane(1).id}, "both lanes settled")


def test_a_slot_that_loses_its_driver_stops_after_its_lease(
    run: Run, script: Script, loop: LoopThread
) -> None:
    script.lines = [AddLanes(lanes=(lane(0),))]
    after(loop, 0.5, script.freeze)
    started_s = monotonic_s()

    settlement = run()

    assert settlement.outcome is Outcome.LEASE_OVER
    assert 1.0 < monotonic_s() - started_s < 4.0


def test_a_slot_with_the_wrong_token_fails_at_once(run: Run) -> None:
    settlement = run(token=b"x" * 32)

    assert settlement.outcome is Outcome.FAILED
    assert "does not know the token" in settlement.detail


def test_a_bug_of_the_carrier_is_told(run: Run, script: Script) -> None:
    script.lines = [AddLanes(lanes=(lane(0),))]

    settlement = run(BrokenCarrier)

    assert (settlement.outcome, settlement.detail) == (
        Outcome.FAILED,
        "carrier: ValueError: pretend bug",
    )


class CarrierThatCannotSettle(FakeCarrier):
    async def remove(self, ids: Iterable[LaneId]) -> tuple[LaneProgress, ...]:
        raise ValueError("cannot settle")


def test_a_removal_that_fails_ends_the_slot_instead_of_hanging_the_lane(
    run: Run, script: Script
) -> None:
    script.lines = [AddLanes(lanes=(lane(0),)), RemoveLanes(ids=(lane(0).id,))]

    settlement = run(CarrierThatCannotSettle)

    assert script.settled == []
    assert settlement.detail == "errand: ValueError: cannot settle"


def test_only_lanes_that_changed_are_reported(run: Run, script: Script, loop: LoopThread) -> None:
    still, moving = lane(0), lane(1)
    script.lines = [AddLanes(lanes=(still, moving)), PauseLanes(ids=(still.id,))]
    after(loop, 1.5, lambda: script.sessions[0].send(Stop()))

    run()

    seen = [progress.lane for progress in script.reports]
    assert seen.count(still.id) == 1
    assert seen.count(moving.id) > 1


def test_a_slot_tells_its_own_figures_each_second_and_once_more_when_it_drains(
    run: Run, script: Script, loop: LoopThread
) -> None:
    script.lines = [AddLanes(lanes=(lane(0),))]
    after(loop, 1.6, lambda: script.sessions[0].send(Drain()))

    run()

    assert 2 <= len(script.figures) <= 4


class QuietCarrier(FakeCarrier):
    """Nothing ever changes."""

    def changes(self) -> tuple[LaneProgress, ...]:
        return ()


def test_after_a_lost_connection_all_lanes_are_told_again(
    run: Run, script: Script, loop: LoopThread
) -> None:
    script.lines = [AddLanes(lanes=(lane(0),))]
    after(loop, 0.8, lambda: script.sessions[0].close())
    after(loop, 2.0, lambda: script.sessions[-1].send(Stop()))

    run(QuietCarrier)

    assert len(script.sessions) == 2
    assert [progress.lane for progress in script.reports] == [lane(0).id, lane(0).id]


def test_progress_is_reported_more_rarely_the_more_lanes_change() -> None:
    intervals = [progress_interval_s(changed) for changed in (0, 1_000, 10_000, 1_000_000)]

    assert intervals == [0.25, 0.25, 2.5, 10.0]


def test_settings_that_come_over_the_link_reach_the_carrier_and_the_next_hello(
    run: Run, script: Script, loop: LoopThread
) -> None:
    made: list[FakeCarrier] = []
    limits = {lane(0).id.flow: FetchLimits(bytes_max=5)}
    told = SlotSettings(clusters={}, limits=limits, bytes_max=7)
    script.lines = [Configure(version=3, sealed=seal(told, TOKEN)), AddLanes(lanes=(lane(0),))]

    def reconnect() -> None:
        script.lines = [Stop()]
        script.sessions[0].close()

    after(loop, 0.3, reconnect)
    run(remembered(made))

    assert [session.hello.settings_version for session in script.sessions] == [0, 3]
    assert (made[0].limits, made[0]._bytes_max) == (limits, 7)
