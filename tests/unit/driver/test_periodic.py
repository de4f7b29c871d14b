"""Periodic jobs run beside each other, only while the driver leads the flow, and fail alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from heliograph.broker.blocking import Changed
from heliograph.driver import periodic
from heliograph.driver.activity import FlowActivity
from heliograph.driver.periodic import PeriodicJob, PeriodicJobs
from heliograph.errors import BrokerUnreachable
from heliograph.ledger.leadership import Lapsed, Leaderships, Leading, Standby
from heliograph.model import ClusterAlias, FlowId
from tests.kit.leasing import NoSlots

_FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


@dataclass(slots=True)
class _Job:
    work: Callable[[int], None]
    what: str = "work"
    flow: FlowId = _FLOW
    interval_s: float = 0.01
    steps: int = 0
    at_once: int = 0
    at_once_max: int = field(default=0)

    def step(self) -> None:
        self.steps += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            self.work(self.steps)
        finally:
            self.at_once -= 1


@dataclass(slots=True)
class _Watcher(_Job):
    lapses: list[str] = field(default_factory=list)

    def step_lapsed(self, why: str) -> None:
        self.lapses.append(why)


@dataclass(slots=True)
class _Committer(_Job):
    drains: list[object] = field(default_factory=list)

    def drained(self, progress: object) -> None:
        self.drains.append(progress)


class _Driver:
    def __init__(self, *jobs: PeriodicJob) -> None:
        self.leaderships = Leaderships([_FLOW])
        self.leaderships[_FLOW] = Leading()
        self.activity = FlowActivity(NoSlots(), Changed())
        self.jobs = PeriodicJobs(jobs, self.leaderships, self.activity)


@asynccontextmanager
async def running(*jobs: PeriodicJob) -> AsyncIterator[_Driver]:
    driver = _Driver(*jobs)
    task = asyncio.create_task(driver.jobs.run())
    try:
        yield driver
    finally:
        task.cancel()
        await driver.jobs.settle()


def wait_for(free: threading.Event, _: int) -> None:
    free.wait(30)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_job_that_hangs_holds_up_no_other_and_never_overlaps_itself() -> None:
    free = threading.Event()
    stuck, lively = _Job(partial(wait_for, free)), _Job(lambda _: None)

    async def scenario() -> None:
        async with running(stuck, lively):
            await until(lambda: lively.steps >= 3)
            free.set()

    asyncio.run(scenario())

    assert stuck.at_once_max == 1
    assert lively.steps >= 3


def test_a_flow_is_idle_once_the_step_under_way_has_ended() -> None:
    free = threading.Event()
    job = _Job(partial(wait_for, free))

    async def scenario() -> tuple[bool, bool]:
        async with running(job) as driver:
            await until(lambda: job.steps == 1)
            driver.leaderships[_FLOW] = Standby()
            waiting = asyncio.create_task(driver.activity.idle(_FLOW))
            await asyncio.sleep(0.05)
            was_done = waiting.done()
            free.set()
            async with asyncio.timeout(0.9):  # less than the time after which none is waited for
                await waiting
            return was_done, waiting.done()

    assert asyncio.run(scenario()) == (False, True)
    assert job.steps == 1


def test_a_fenced_flow_does_not_wait_long_for_a_step_that_waits_for_a_dead_source() -> None:
    free = threading.Event()
    job = _Job(partial(wait_for, free))

    async def scenario() -> None:
        async with running(job) as driver:
            await until(lambda: job.steps == 1)
            is_idle = False
            async with asyncio.timeout(10):
                while not is_idle:  # as a lease does, which looks at its ledger in between
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(driver.activity.idle(_FLOW), 0.3)
                        is_idle = True
            assert job.at_once == 1
            free.set()

    asyncio.run(scenario())


def test_a_step_that_fails_is_shown_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_twice(step: int) -> None:
        if step <= 2:
            raise BrokerUnreachable("cluster B: no answer")

    job = _Job(fail_twice)
    caplog.set_level("INFO")

    async def scenario() -> dict[FlowId, str]:
        async with running(job) as driver:
            await until(lambda: bool(driver.jobs.problems))
            shown = dict(driver.jobs.problems)
            await until(lambda: job.steps >= 3 and not driver.jobs.problems)
            return shown

    shown = asyncio.run(scenario())

    said = [record.message for record in caplog.records]
    assert shown == {_FLOW: "work: cluster B: no answer"}
    assert sum("cluster B: no answer" in line for line in said) == 1
    assert "A->B: work: works again" in said


def test_an_unexpected_error_in_one_job_is_shown_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: int) -> None:
        raise KeyError("surprise")

    bad, good = _Job(broken, what="bad"), _Job(lambda _: None)

    async def scenario() -> dict[FlowId, str]:
        async with running(bad, good) as driver:
            await until(lambda: bad.steps >= 2 and good.steps >= 2)
            return dict(driver.jobs.problems)

    assert asyncio.run(scenario()) == {_FLOW: "bad: unexpected error: KeyError"}
    unexpected = [r for r in caplog.records if r.message == "unexpected error in bad of A->B"]
    assert len(unexpected) == 1
    assert unexpected[0].exc_info is not None


def test_nothing_is_done_for_a_flow_that_another_driver_leads() -> None:
    job = _Job(lambda _: None)

    async def scenario() -> tuple[int, int]:
        driver = _Driver(job)
        driver.leaderships[_FLOW] = Standby()
        task = asyncio.create_task(driver.jobs.run())
        await asyncio.sleep(0.1)
        before = job.steps
        driver.leaderships[_FLOW] = Leading()
        await until(lambda: job.steps >= 1)
        driver.leaderships[_FLOW] = Standby()
        await driver.jobs.settle()
        after = job.steps
        await asyncio.sleep(0.1)
        task.cancel()
        return before, job.steps - after

    assert asyncio.run(scenario()) == (0, 0)


def test_finishing_takes_one_last_step_of_each() -> None:
    slow = _Job(lambda _: None, interval_s=3600.0)

    async def scenario() -> None:
        driver = _Driver(slow)
        task = asyncio.create_task(driver.jobs.run())
        await until(lambda: slow.steps == 1)
        task.cancel()
        await driver.jobs.finish()

    asyncio.run(scenario())

    assert slow.steps == 2


def test_after_a_drain_jobs_hear_how_far_the_lanes_came() -> None:
    committer, other = _Committer(work=lambda _: None), _Job(work=lambda _: None)

    async def drain() -> None:
        async with running(committer, other) as driver:
            pass
        await driver.jobs.drained({})

    asyncio.run(drain())

    assert committer.drains == [{}]


def test_a_driver_that_lapsed_rests_but_for_jobs_that_have_something_to_do_then() -> None:
    job, watcher = _Job(lambda _: None), _Watcher(lambda _: None)

    async def scenario() -> tuple[int, int]:
        async with running(job, watcher) as driver:
            await until(lambda: job.steps > 0 and watcher.steps > 0)
            driver.leaderships[_FLOW] = Lapsed("B does not answer")
            await until(lambda: len(watcher.lapses) > 2)
            steps = job.steps, watcher.steps
            await asyncio.sleep(0.05)
            assert steps == (job.steps, watcher.steps)
            driver.leaderships[_FLOW] = Standby()
            await asyncio.sleep(0.05)
            lapses = len(watcher.lapses)
            await asyncio.sleep(0.05)
            assert lapses == len(watcher.lapses)
            driver.leaderships[_FLOW] = Leading()
            await until(lambda: job.steps > steps[0] and watcher.steps > steps[1])
            return steps

    asyncio.run(scenario())

    assert set(watcher.lapses) == {"B does not answer"}


def test_jobs_of_a_changed_flow_end_and_others_take_their_place() -> None:
    other = FlowId(source=ClusterAlias("X"), target=ClusterAlias("Y"))
    before, after = _Job(lambda _: None), _Job(lambda _: None)
    untouched = _Job(lambda _: None, flow=other)

    async def scenario() -> tuple[int, int]:
        async with running(before, untouched) as driver:
            await until(lambda: before.steps > 0)
            await driver.jobs.end({_FLOW})
            driver.jobs.begin([after])
            ended_at, kept_at = before.steps, untouched.steps
            await until(lambda: after.steps > 2 and untouched.steps > kept_at + 2)
            return ended_at, before.steps

    ended_at, at_the_end = asyncio.run(scenario())

    assert ended_at == at_the_end


def test_a_step_that_does_not_end_has_no_other_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "_LAST_STEPS_S_MAX", 0.05)
    free = threading.Event()
    stuck, after = _Job(partial(wait_for, free)), _Job(lambda _: None)

    async def scenario() -> int:
        async with running(stuck) as driver:
            await until(lambda: stuck.steps == 1)
            await driver.jobs.end({_FLOW})
            driver.jobs.begin([after])
            await asyncio.sleep(0.1)
            meanwhile = after.steps
            free.set()
            await until(lambda: after.steps > 0)
            return meanwhile

    assert asyncio.run(scenario()) == 0
