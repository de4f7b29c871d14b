"""Slow loops run beside each other, only while the flow is ours, and fail alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from heliograph.driver.periodic import PeriodicJobs
from heliograph.errors import BrokerUnreachable
from heliograph.model import ClusterAlias, FlowId
from tests.kit.topics import wait_until

_FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


@dataclass(slots=True)
class _Loop:
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


def test_a_loop_that_hangs_holds_up_no_other_and_never_overlaps_itself() -> None:
    free = threading.Event()

    def wait(_: int) -> None:
        free.wait(10)

    stuck, lively = _Loop(wait), _Loop(lambda _: None)
    loops = PeriodicJobs([stuck, lively], lambda _: True)

    loops.start()
    wait_until(lambda: lively.steps >= 3, "three steps of the other")

    free.set()
    loops.stop()
    assert stuck.steps == stuck.at_once_max == 1


def test_a_flow_is_busy_while_a_step_of_it_is_under_way_and_no_longer() -> None:
    free, leads = threading.Event(), threading.Event()
    leads.set()

    def wait(_: int) -> None:
        free.wait(10)

    other = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))
    loops = PeriodicJobs([_Loop(wait), _Loop(lambda _: None, flow=other)], lambda _: leads.is_set())
    loops.start()
    wait_until(lambda: loops.is_busy(_FLOW), "a step under way")

    leads.clear()
    still_busy = loops.is_busy(_FLOW)
    free.set()
    wait_until(lambda: not loops.is_busy(_FLOW), "its end")

    assert still_busy
    assert not loops.is_busy(other)
    loops.stop()


def test_a_step_that_fails_is_shown_said_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_twice(step: int) -> None:
        if step <= 2:
            raise BrokerUnreachable("cluster B: no answer")

    loop = _Loop(fail_twice)
    loops = PeriodicJobs([loop], lambda _: True)
    caplog.set_level("INFO")

    loops.start()
    wait_until(lambda: bool(loops.problems), "a problem")
    shown = dict(loops.problems)
    wait_until(lambda: loop.steps >= 3 and not loops.problems, "a step that works")

    loops.stop()
    said = [record.message for record in caplog.records]
    assert shown == {_FLOW: "work: cluster B: no answer"}
    assert sum("cluster B: no answer" in line for line in said) == 1
    assert "A->B: work: works again" in said


def test_a_bug_in_one_loop_is_shown_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: int) -> None:
        raise KeyError("surprise")

    bad, good = _Loop(broken, what="bad"), _Loop(lambda _: None)
    loops = PeriodicJobs([bad, good], lambda _: True)

    loops.start()
    wait_until(lambda: bad.steps >= 2 and good.steps >= 2, "both again")

    loops.stop()
    assert loops.problems == {_FLOW: "bad: bug: KeyError"}
    assert sum("please report it" in record.message for record in caplog.records) == 1


def test_nothing_is_done_for_a_flow_that_another_driver_leads() -> None:
    ours = threading.Event()
    loop = _Loop(lambda _: None)
    loops = PeriodicJobs([loop], lambda _: ours.is_set())

    loops.start()
    before = loop.steps
    ours.set()
    wait_until(lambda: loop.steps >= 1, "a step once it is ours")

    loops.stop()
    assert before == 0


def test_finishing_takes_one_last_step_of_each() -> None:
    slow = _Loop(lambda _: None, interval_s=3600.0)
    loops = PeriodicJobs([slow], lambda _: True)
    loops.start()
    wait_until(lambda: slow.steps == 1, "the first step")

    loops.finish()

    assert slow.steps == 2
