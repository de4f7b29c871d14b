"""Costly answers are made once for many, and never kept for long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.api import shared
from heliograph.api.shared import COST_SHARE, Shared


class Clock:
    """Stands still but for what making an answer takes."""

    def __init__(self) -> None:
        self.now_s, self.takes_s, self.made = 100.0, 1.0, 0

    async def make(self) -> int:
        await asyncio.sleep(0)
        self.now_s += self.takes_s
        self.made += 1
        return self.made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(shared, "monotonic_s", lambda: clock.now_s)
    yield clock


def test_those_who_ask_at_once_and_soon_after_get_the_same_answer(clock: Clock) -> None:
    async def ask() -> list[int]:
        answers: Shared[int] = Shared()
        found = list(await asyncio.gather(*(answers.get("q", clock.make) for _ in range(3))))
        clock.now_s += 0.99 / COST_SHARE
        found.append(await answers.get("q", clock.make))
        clock.now_s += 0.02 / COST_SHARE
        return [*found, await answers.get("q", clock.make), await answers.get("r", clock.make)]

    assert asyncio.run(ask()) == [1, 1, 1, 1, 2, 3]


def test_what_costs_little_is_made_anew(clock: Clock) -> None:
    clock.takes_s = 0.01

    async def ask() -> list[int]:
        answers: Shared[int] = Shared()
        return [await answers.get("q", clock.make) for _ in range(3)]

    assert asyncio.run(ask()) == [1, 2, 3]


def test_one_that_fails_is_tried_again_and_few_questions_are_kept(clock: Clock) -> None:
    async def fail() -> int:
        raise ValueError("no")

    async def ask() -> int:
        answers: Shared[int] = Shared()
        with pytest.raises(ValueError, match="no"):
            await answers.get("q", fail)
        for number in range(100):
            await answers.get(number, clock.make)
        return len(answers._kept)

    assert asyncio.run(ask()) == 16
