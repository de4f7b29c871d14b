"""Slots on a loop, with jobs that end on threads of their own and when the test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from heliograph.clock import monotonic_s
from heliograph.config.schema import EngineConfig
from heliograph.engine import slots as engine_slots
from heliograph.engine.jobs import JobEnded
from heliograph.engine.slots import Slots
from heliograph.engine.task import SlotOrder
from heliograph.errors import InvariantError, LinkError


class PlayedContext:
    master = "local[2]"


class PlayedJob:
    """Ends when it is cancelled, if it does."""

    ends = True

    def __init__(self, context: object, order: SlotOrder, ended: JobEnded) -> None:
        self._ended = ended
        self.cancels = 0
        made.append(self)

    def cancel(self) -> None:
        self.cancels += 1
        if self.ends:
            self.end()

    def end(self) -> threading.Thread:
        thread = threading.Thread(target=self._ended, args=(None, "cancelled"))
        thread.start()
        return thread


made: list[PlayedJob] = []


@pytest.fixture(autouse=True)
def played_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(PlayedJob, "ends", True)
    monkeypatch.setattr(engine_slots, "SlotJob", PlayedJob)
    monkeypatch.setattr(engine_slots, "spark_is_gone", lambda _: False)


async def started(count: int = 2, on_change: Callable[[], None] = lambda: None) -> Slots:
    slots = Slots(clusters={}, engine=EngineConfig(), on_change=on_change)
    session: Any = PlayedContext()
    await slots.start(session, count)
    return slots


def test_a_drain_ends_as_soon_as_the_last_job_has_ended_on_its_thread() -> None:
    changes: list[str] = []

    async def play() -> tuple[bool, float]:
        on = threading.current_thread()
        slots = await started(
            on_change=lambda: changes.append(
                "on the loop" if threading.current_thread() is on else "elsewhere"
            )
        )
        began_s = monotonic_s()
        drained = await slots.drain(30)
        took_s = monotonic_s() - began_s
        await slots.stop()
        return drained, took_s

    drained, took_s = asyncio.run(play())

    assert drained
    assert took_s < 5
    assert changes
    assert set(changes) == {"on the loop"}


def test_a_stop_does_not_wait_for_ever_for_jobs_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PlayedJob, "ends", False)
    monkeypatch.setattr(engine_slots, "_STOP_S_MAX", 0.1)
    monkeypatch.setattr(engine_slots, "_CANCEL_S_MAX", 0.1)

    async def play() -> None:
        slots = await started()
        assert not await slots.drain(0.1)
        await slots.stop()
        with pytest.raises(LinkError, match="closed"):
            slots.progress()

    asyncio.run(play())

    assert all(job.cancels >= 2 for job in made)
    # Spark may say so when nobody listens any more.
    for job in made:
        job.end().join(5)


def test_slots_are_ended_when_the_link_has_failed_and_no_other_is_started() -> None:
    def fail() -> None:
        raise ValueError("pretend bug")

    async def play() -> None:
        slots = await started()
        assert slots._link is not None
        slots._link.every(1.0, fail)
        # Long before its time is over: the failure wakes what waits.
        async with asyncio.timeout(5):
            with pytest.raises(InvariantError, match="pretend bug"):
                await slots._wait(lambda: slots.health() == (), 30)
            await slots.stop()

    asyncio.run(play())

    assert [job.cancels for job in made] == [1, 1]


def test_before_the_link_is_open_no_slot_carries_anything_and_nothing_can_be_asked() -> None:
    slots = Slots(clusters={}, engine=EngineConfig())

    assert slots.current() == {}
    with pytest.raises(LinkError, match="not open yet"):
        slots.progress()
