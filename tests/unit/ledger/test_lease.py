"""What a driver is to a flow is a value; tasks read it and wait for it to change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.ledger.lease import Fenced, HolderWatch, Leaderships, Leading, Standby
from heliograph.model import ClusterAlias, FlowId

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
OTHER = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))


def test_a_flow_is_not_led_before_its_ledger_was_read() -> None:
    leaderships = Leaderships([FLOW])

    assert leaderships[FLOW] == Standby(None)
    assert not leaderships.leads(FLOW)


def test_a_pair_without_a_lease_is_every_drivers_to_look_after() -> None:
    assert Leaderships([FLOW]).leads(OTHER)


def test_a_fence_says_why_nothing_is_mirrored() -> None:
    leaderships = Leaderships([FLOW])

    leaderships[FLOW] = Fenced(Fence(at_ms=1, why="failed over"))

    assert not leaderships.leads(FLOW)
    assert leaderships.why_fenced(FLOW) == "failed over"
    assert leaderships.why_fenced(OTHER) == ""


def test_a_task_that_waits_to_lead_is_woken_by_nothing_else() -> None:
    async def scenario() -> list[bool]:
        leaderships = Leaderships([FLOW])
        waiting = asyncio.create_task(leaderships.wait_leading(FLOW))
        seen = []
        for value in (Fenced(Fence(at_ms=1, why="failed over")), Standby(), Leading()):
            leaderships[FLOW] = value
            await asyncio.sleep(0.01)
            seen.append(waiting.done())
        return seen

    assert asyncio.run(scenario()) == [False, False, True]


def test_a_lease_that_was_never_seen_is_over() -> None:
    assert HolderWatch().left_s <= 0


def test_a_lease_lasts_from_the_renewal_that_was_seen_whatever_the_holders_clock_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(wall_ms=1_000_000, mono_s=500.0)
    clock.patch(monkeypatch)
    watch = HolderWatch()

    watch.see(lease(at_ms=996_000))
    at_first = watch.left_s
    clock.mono_s += 3
    watch.see(lease(at_ms=996_000))
    unrenewed = watch.left_s
    watch.see(lease(at_ms=10))
    renewed = watch.left_s

    assert (at_first, unrenewed, renewed) == (11.0, 8.0, 15.0)


def test_the_lease_of_another_holder_counts_from_its_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(wall_ms=1_000_000, mono_s=500.0)
    clock.patch(monkeypatch)
    watch = HolderWatch()

    watch.see(lease(at_ms=1_000_000))
    watch.see(lease(author="second", at_ms=990_000))

    assert watch.left_s == 5.0
    assert watch.holder == lease(author="second", at_ms=990_000)


def test_a_lease_that_was_let_go_is_over_until_it_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(wall_ms=1_000_000, mono_s=2.0).patch(monkeypatch)
    watch = HolderWatch()

    watch.see(lease(at_ms=1_000_000))
    watch.expire()
    watch.see(lease(at_ms=1_000_000))
    let_go = watch.left_s
    watch.see(lease(at_ms=1_000_001))

    assert let_go <= 0
    assert watch.left_s == 15.0


def lease(*, author: str = "first", at_ms: int) -> LeaseEntry:
    return LeaseEntry(author=author, host="box", pid=7, at_ms=at_ms, lease_ms=15_000, slot_count=1)


@dataclass
class Clock:
    wall_ms: int
    mono_s: float

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("heliograph.ledger.lease.now_ms", lambda: self.wall_ms)
        monkeypatch.setattr("heliograph.ledger.lease.monotonic_s", lambda: self.mono_s)
