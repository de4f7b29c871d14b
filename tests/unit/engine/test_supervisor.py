"""The life of slots, played with a clock, jobs and sessions that do what the test says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import cast

from heliograph.engine.jobs import JobEnded
from heliograph.engine.link import Session
from heliograph.engine.messages import (
    AddLanes,
    Configure,
    Down,
    Drain,
    Hello,
    Progress,
    Settled,
    Stop,
)
from heliograph.engine.supervisor import SlotState, SlotSupervisor
from heliograph.engine.task import Outcome, SlotResult
from heliograph.model import SlotId
from heliograph.processes import machine_id
from tests.unit.engine.lanes import lane, progress

LEASE_S = 10.0
S0, S1 = SlotId(0), SlotId(1)


def slots(count: int) -> frozenset[SlotId]:
    return frozenset(map(SlotId, range(count)))


class PlayedJob:
    def __init__(self, slot: SlotId, generation: int, ended: JobEnded) -> None:
        self.slot, self.generation, self._ended = slot, generation, ended
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def end(self, outcome: Outcome, detail: str = "") -> None:
        settlement = SlotResult(
            slot=self.slot, generation=self.generation, outcome=outcome, detail=detail
        )
        self._ended(settlement, "")

    def fail(self, detail: str) -> None:
        self._ended(None, detail)


class PlayedSession:
    def __init__(self, stage: Stage, hello: Hello) -> None:
        self._stage, self.hello = stage, hello
        self.sent: list[Down] = []
        self.is_open = True
        self.heard_s = stage.now_s

    def send(self, message: Down) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.is_open = False


class Stage:
    """A crew with everything around it played."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.jobs: list[PlayedJob] = []
        self.crew = SlotSupervisor(
            lease_s=LEASE_S, submit=self._submit, post=self._run_now, clock_s=lambda: self.now_s
        )

    def _submit(self, slot: SlotId, generation: int, ended: JobEnded) -> PlayedJob:
        self.jobs.append(PlayedJob(slot, generation, ended))
        return self.jobs[-1]

    def _run_now(self, function: Callable[[], None]) -> None:
        function()

    def connect(
        self,
        slot: SlotId,
        generation: int = 1,
        *,
        machine: str = "elsewhere",
        pid: int = 1,
        settings_version: int = 0,
    ) -> PlayedSession:
        hello = Hello(
            slot=slot,
            generation=generation,
            attempt="7",
            machine=machine,
            pid=pid,
            lanes=(),
            settings_version=settings_version,
        )
        session = PlayedSession(self, hello)
        self.crew.hello(cast(Session, session))
        return session

    def lose(self, session: PlayedSession) -> None:
        self.crew.lost(cast(Session, session))

    def hear(self, session: PlayedSession, message: Progress | Settled) -> None:
        session.heard_s = self.now_s
        self.crew.heard(cast(Session, session), message)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.crew.tick()

    def states(self) -> list[SlotState]:
        return [health.state for health in self.crew.health()]


def test_a_slot_is_starting_until_it_says_hello() -> None:
    stage = Stage()

    stage.crew.keep(slots(2))
    stage.connect(S0)

    assert stage.states() == [SlotState.RUNNING, SlotState.STARTING]


def test_a_task_lost_for_sure_is_replaced_at_once_and_alone() -> None:
    stage = Stage()
    stage.crew.keep(slots(2))
    stage.crew.want({S0: (lane(0),), S1: (lane(1),)})
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    first = stage.connect(S0, machine=machine_id(), pid=gone.pid)
    second = stage.connect(S1)

    stage.lose(first)
    stage.jobs[0].end(Outcome.RETRIED)
    replacement = stage.connect(S0, 2)

    assert [(job.slot, job.generation) for job in stage.jobs] == [(S0, 1), (S1, 1), (S0, 2)]
    assert replacement.sent == [AddLanes(lanes=(lane(0),))]
    assert second.sent == [AddLanes(lanes=(lane(1),))]


def test_a_task_that_said_how_it_ended_needs_no_wait() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    session = stage.connect(S0)

    stage.lose(session)
    stage.jobs[0].end(Outcome.FAILED, "carrier: pretend")

    assert [job.generation for job in stage.jobs] == [1, 2]
    assert stage.crew.health()[0].detail == "failed: carrier: pretend"


def test_a_task_lost_out_of_sight_is_replaced_only_after_its_lease() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    session = stage.connect(S0, machine="elsewhere", pid=os.getpid())
    stage.lose(session)
    stage.jobs[0].end(Outcome.RETRIED)

    stage.wait(LEASE_S)
    before = len(stage.jobs)
    stage.wait(LEASE_S * 0.06)

    assert (before, len(stage.jobs)) == (1, 2)


def test_a_silent_slot_is_cancelled_and_replaced_after_its_lease() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    session = stage.connect(S0)

    stage.wait(LEASE_S * 0.6)
    silent = stage.states()
    stage.wait(LEASE_S * 0.5)

    assert silent == [SlotState.SILENT]
    assert not session.is_open
    assert stage.jobs[0].cancelled
    assert stage.crew.health()[0].replaced == 1


def test_a_generation_given_up_is_stopped_when_it_comes_back() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    stage.lose(stage.connect(S0))
    stage.wait(LEASE_S * 1.1)

    late = stage.connect(S0, 1)

    assert late.sent == [Stop()]
    assert not late.is_open


def test_a_connection_that_breaks_and_returns_within_the_lease_costs_nothing() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    first = stage.connect(S0)
    stage.lose(first)
    stage.wait(LEASE_S / 2)

    stage.connect(S0)
    stage.wait(LEASE_S * 0.4)

    assert stage.states() == [SlotState.RUNNING]
    assert len(stage.jobs) == 1


def test_a_slot_that_fails_at_once_every_time_is_started_less_and_less_often() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))

    for _ in range(100):
        if len(stage.jobs) and stage.crew.health()[0].state is not SlotState.ENDED:
            stage.jobs[-1].fail("no room")
        stage.wait(0.1)

    assert 4 <= len(stage.jobs) <= 8


def test_shrinking_drains_the_slots_that_go_and_keeps_the_rest() -> None:
    stage = Stage()
    stage.crew.keep(slots(2))
    keeper, leaver = stage.connect(S0), stage.connect(S1)

    stage.crew.keep(slots(1))
    stage.lose(leaver)
    stage.jobs[1].end(Outcome.DRAINED)

    assert leaver.sent == [Drain()]
    assert keeper.sent == []
    assert [health.slot for health in stage.crew.health()] == [S0]


def test_draining_replaces_nothing_and_ends_what_never_started() -> None:
    stage = Stage()
    stage.crew.keep(slots(2))
    session = stage.connect(S0)

    stage.crew.drain()
    stage.lose(session)
    stage.jobs[0].end(Outcome.DRAINED)
    stage.jobs[1].fail("cancelled")
    stage.wait(LEASE_S * 2)

    assert session.sent == [Drain()]
    assert stage.jobs[1].cancelled
    assert stage.crew.all_ended
    assert stage.crew.all_drained
    assert len(stage.jobs) == 2


def test_loads_follow_bytes_and_fade_when_nothing_comes() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    stage.crew.want({S0: (lane(0),)})
    session = stage.connect(S0)
    for second in range(60):
        report = progress(0, records=second * 10, lag_records=5)
        stage.hear(session, Progress(slot=S0, at_ms=0, lanes=(report,)))
        stage.now_s += 1

    busy = stage.crew.loads()[lane(0).id]
    stage.now_s += 20
    idle = stage.crew.loads()[lane(0).id]

    assert 800 < busy.bytes_per_s <= 1_000
    assert busy.lag_bytes == 500
    assert idle.bytes_per_s == 0


def test_progress_of_a_lane_nobody_wants_is_forgotten() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    stage.crew.want({S0: (lane(0),)})
    session = stage.connect(S0)
    stage.hear(session, Progress(slot=S0, at_ms=0, lanes=(progress(0), progress(1))))

    known = set(stage.crew.progress())
    stage.crew.want({})

    assert known == {lane(0).id}
    assert stage.crew.progress() == {}


def test_progress_is_the_same_object_until_a_slot_has_news() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    stage.crew.want({S0: (lane(0),)})
    session = stage.connect(S0)
    stage.hear(session, Progress(slot=S0, at_ms=0, lanes=(progress(0),)))

    first, second = stage.crew.progress(), stage.crew.progress()
    stage.hear(session, Progress(slot=S0, at_ms=0, lanes=(progress(0, records=1),)))

    assert first is second
    assert first[lane(0).id].records == 0
    assert stage.crew.progress()[lane(0).id].records == 1


def test_no_slot_is_started_while_spark_is_gone_and_all_are_once_it_is_back() -> None:
    stage = Stage()
    stage.crew.keep(slots(2))
    stage.crew.want({S0: (lane(0),), S1: (lane(1),)})
    sessions = [stage.connect(S0), stage.connect(S1)]

    stage.crew.hold()
    for session, job in zip(sessions, list(stage.jobs), strict=True):
        stage.lose(session)
        job.fail("Connection refused")
    stage.wait(2 * LEASE_S)
    without_spark = len(stage.jobs)
    stage.crew.proceed()

    assert without_spark == 2
    assert [(job.slot, job.generation) for job in stage.jobs[2:]] == [(S0, 2), (S1, 2)]
    again = stage.connect(S0, generation=2)
    assert again.sent == [AddLanes(lanes=(lane(0),))]


def test_a_slot_that_is_missing_in_between_stays_away_and_the_others_are_left_alone() -> None:
    stage = Stage()
    stage.crew.keep(slots(3))
    first, second, third = (stage.connect(SlotId(number)) for number in range(3))

    stage.crew.keep(frozenset({S0, SlotId(2)}))
    stage.lose(second)
    stage.jobs[1].end(Outcome.DRAINED)

    assert second.sent == [Drain()]
    assert first.sent == third.sent == []
    assert [health.slot for health in stage.crew.health()] == [S0, SlotId(2)]


def test_a_slot_that_is_not_wanted_before_it_was_started_again_is_forgotten() -> None:
    stage = Stage()
    stage.crew.keep(slots(2))
    for _ in range(2):
        stage.jobs[-1].fail("no room")  # the second time it waits before the next try

    stage.crew.keep(slots(1))

    assert [health.slot for health in stage.crew.health()] == [S0]
    stage.wait(60)
    assert [job.slot for job in stage.jobs] == [S0, S1, S1]


def test_a_slot_that_is_given_up_is_ended_and_another_carries_its_lanes() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    stage.crew.want({S0: (lane(0),)})
    session = stage.connect(S0)

    stage.crew.give_up(S0, "it does not let go")
    stage.lose(session)
    stage.jobs[0].end(Outcome.STOPPED)
    successor = stage.connect(S0, 2)

    assert session.sent[-1] == Stop()
    assert stage.jobs[0].cancelled
    assert successor.sent == [AddLanes(lanes=(lane(0),))]


def test_the_cpu_of_a_slot_is_known_after_some_seconds_of_reports_and_fades_without() -> None:
    stage = Stage()
    stage.crew.keep(slots(1))
    session = stage.connect(S0)

    shares = []
    for step in range(25):
        stage.now_s += 0.25
        stage.hear(session, Progress(slot=S0, at_ms=0, lanes=(), cpu_s=10 + 0.2 * step))
        shares.append(stage.crew.health()[0].cpu_share)
    stage.now_s += 30

    assert shares[0] == 0.0
    assert round(shares[-1], 2) == 0.8
    assert stage.crew.health()[0].cpu_share == 0.0


def test_slots_are_told_settings_before_lanes_and_once() -> None:
    stage = Stage()
    stage.crew.keep(slots(2))
    stage.crew.want({S0: (lane(0),), S1: (lane(1),)})
    first = stage.connect(S0)
    told = Configure(version=1, sealed="x")

    stage.crew.configure(told)
    late = stage.connect(S1)
    stage.lose(late)
    again = stage.connect(S1, settings_version=1)

    assert first.sent == [AddLanes(lanes=(lane(0),)), told]
    assert late.sent == [told, AddLanes(lanes=(lane(1),))]
    assert again.sent == [AddLanes(lanes=(lane(1),))]
