from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from heliograph.metrics import gather
from heliograph.metrics.gather import Gatherer, Looked
from heliograph.metrics.scrape import Metrics
from tests.unit.api.pretend import AB, BA, at, live

BOTH = frozenset({AB, BA})


def test_figures_are_made_once_however_often_they_are_asked_for() -> None:
    made: list[Looked] = []

    def make(found: Looked) -> bytes:
        made.append(found)
        return b"%d" % len(made)

    async def ask() -> list[bytes]:
        gatherer = Gatherer(live())
        return [await gatherer.made("key", BOTH, make) for _ in range(20)]

    assert set(asyncio.run(ask())) == {b"1"}


def test_figures_that_took_long_are_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(gather, "monotonic_s", lambda: clock[0])
    made: list[float] = []

    def make(_: Looked) -> bytes:
        made.append(clock[0])
        clock[0] += 0.5
        return b""

    async def ask() -> None:
        gatherer = Gatherer(live())
        for _ in range(60):
            await gatherer.made("key", BOTH, make)
            clock[0] += 1.0

    asyncio.run(ask())

    # Half a second of work at one hundredth of a core is one look in fifty seconds.
    assert len(made) == 2


def test_only_so_many_different_answers_are_kept() -> None:
    async def ask() -> int:
        gatherer = Gatherer(live())
        for number in range(40):
            await gatherer.made(number, BOTH, lambda _: b"")
        return len(gatherer._kept)

    assert asyncio.run(ask()) <= 8


def test_a_ledger_that_does_not_answer_is_left_out_and_said() -> None:
    async def ask() -> Looked:
        return await Gatherer(live()).look(BOTH)

    looked = asyncio.run(ask())

    assert (looked.ledgers[AB].losses, looked.ledgers[AB].lost_records) == (1, 5)
    assert BA not in looked.ledgers


def test_a_caller_of_one_flow_is_told_of_that_flow_alone() -> None:
    async def ask() -> bytes:
        return await Metrics(live()).exposed(frozenset({AB}), openmetrics=False, lanes=True)

    body = asyncio.run(ask()).decode()

    assert 'target="B"' in body
    assert 'source="B"' not in body and 'topic="back"' not in body


def test_before_the_slots_are_started_there_is_something_to_scrape() -> None:
    async def ask() -> bytes:
        return await Metrics(live(None)).exposed(BOTH, openmetrics=True)

    body = asyncio.run(ask()).decode()

    assert "heliograph_build_info" in body and body.endswith("# EOF\n")


def test_ten_thousand_lanes_stay_within_their_bound() -> None:
    lanes = tuple(
        replace(at(number % 10, topic=f"topic-{number // 10}"), records=1)
        for number in range(10_000)
    )

    async def ask() -> bytes:
        return await Metrics(live(lanes)).exposed(BOTH, openmetrics=False)

    body = asyncio.run(ask()).decode()

    assert len(set(re.findall(r'topic="([^"]*)"', body))) <= 501
    assert len(body) < 3_000_000
