"""Pipelines run only while their flow is led and nobody paused them; what ends is begun again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from heliograph.broker.blocking import Changed
from heliograph.decisions.decision import Decision, Verb, scope_of
from heliograph.decisions.orders import FlowOrders, orders_of
from heliograph.driver import pipelines
from heliograph.driver.activity import FlowActivity
from heliograph.driver.pipelines import Pipelines
from heliograph.errors import PipelineRefused
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.leadership import Leaderships, Leading, Standby
from heliograph.ledger.pipeline_note import PipelineFigures, PipelineState
from heliograph.model import FlowId
from tests.kit.leasing import NoSlots
from tests.unit.config.texts import with_lines

FILE = """\
A->B.pipeline.p.topics = orders
A->B.pipeline.p.sql = SELECT value FROM records
A->B.pipeline.p.folder = /shared/p
"""
KEY = "p"


@dataclass(slots=True)
class FakeQuery:
    """Writes a row with each look, until it is told to fail."""

    problem: str = ""
    looks: int = 0
    is_stopped: bool = False
    ends: bool = False

    def look(self) -> PipelineFigures:
        if self.problem:
            raise PipelineRefused(self.problem)
        self.looks += 1
        state = PipelineState.ENDED if self.ends else PipelineState.RUNNING
        return PipelineFigures(
            name=KEY, state=state, at_ms=self.looks, batch=self.looks, rows_written=self.looks
        )

    def stop(self) -> None:
        self.is_stopped = True


@dataclass(slots=True)
class FakeLedgers:
    noted: list[MemoEntry] = field(default_factory=list)

    async def note(self, _: FlowId, entries: Iterable[MemoEntry]) -> None:
        self.noted += entries


class Driver:
    def __init__(self, *, once: bool = False) -> None:
        config = with_lines(FILE)
        self.flow = config.flows[0].id
        self.leaderships = Leaderships([self.flow])
        self.leaderships[self.flow] = Leading()
        self.queries: list[FakeQuery] = []
        self.next: Callable[[], FakeQuery] = FakeQuery
        self.orders = FlowOrders()
        self.ledgers = FakeLedgers()
        self.pipelines = Pipelines(
            config,
            self._begin,
            self.leaderships,
            FlowActivity(NoSlots(), Changed()),
            lambda _: self.orders,
            self.ledgers,  # type: ignore[arg-type]
            once=once,
        )

    def _begin(self, *_: Any) -> FakeQuery:
        self.queries.append(self.next())
        return self.queries[-1]

    @property
    def at(self) -> PipelineFigures:
        return self.pipelines.figures[self.flow, KEY]

    def play(self, scenario: Callable[[], Any]) -> None:
        async def played() -> None:
            task = asyncio.create_task(self.pipelines.run())
            try:
                await scenario()
            finally:
                task.cancel()
                await self.pipelines.settle()

        asyncio.run(played())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "_LOOK_S", 0.01)
    monkeypatch.setattr(pipelines, "_RETRY_S", 0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_pipeline_runs_while_its_flow_is_led_and_is_stopped_with_the_lease() -> None:
    driver = Driver()

    async def scenario() -> None:
        await until(lambda: bool(driver.queries) and driver.at.rows_written > 2)
        driver.leaderships[driver.flow] = Standby()
        await until(lambda: driver.queries[0].is_stopped and not driver.pipelines.figures)
        driver.leaderships[driver.flow] = Leading()
        await until(lambda: len(driver.queries) == 2)

    driver.play(scenario)

    assert [each.is_stopped for each in driver.queries] == [True, True]


def test_what_ends_it_is_shown_and_it_begins_again_with_its_counts() -> None:
    driver = Driver()

    async def scenario() -> None:
        await until(lambda: bool(driver.queries) and driver.at.rows_written > 2)
        driver.next = lambda: FakeQuery(problem="no folder")
        driver.queries[0].problem = "a row is for partition 7, and it has 3"
        await until(lambda: driver.at.state is PipelineState.STALLED)
        assert driver.pipelines.problems == {
            driver.flow: "pipeline p: a row is for partition 7, and it has 3"
        }
        await until(lambda: driver.at.reason == "no folder")
        assert driver.at.rows_written > 2
        driver.next = FakeQuery
        await until(lambda: driver.at.state is PipelineState.RUNNING and not driver.at.reason)
        assert driver.at.restarts >= 2
        assert driver.pipelines.problems == {}

    driver.play(scenario)

    assert any("partition 7" in each.text for each in driver.ledgers.noted)
    assert driver.at.state is PipelineState.ENDED


def test_a_decision_pauses_it_and_resumes_it() -> None:
    driver = Driver()
    pause = Decision(
        id="0" * 10, verb=Verb.PAUSE, scope=scope_of(("pipeline:p",)), who="ann", at_ms=1, why="x"
    )

    async def scenario() -> None:
        await until(lambda: bool(driver.queries))
        driver.orders = orders_of([pause], 2)
        await until(lambda: driver.at.state is PipelineState.PAUSED)
        assert driver.queries[0].is_stopped and "ann" in driver.at.reason
        driver.orders = FlowOrders()
        await until(lambda: len(driver.queries) == 2)

    driver.play(scenario)


def test_where_all_there_is_now_is_the_end_it_ends_once() -> None:
    driver = Driver(once=True)
    driver.next = lambda: FakeQuery(ends=True)

    async def scenario() -> None:
        await until(lambda: driver.pipelines.have_ended)

    driver.play(scenario)

    assert len(driver.queries) == 1 and driver.queries[0].is_stopped
