"""What a driver has imported is not looked through again."""

from __future__ import annotations

import asyncio
import gc

import pytest

from heliograph.driver import heap
from tests.unit.api.pretend import live


def test_the_heap_is_frozen_once_the_mirror_reports_and_let_go_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap, "_LOOK_S", 0.001)
    mirror = live()
    reports, mirror.status = mirror.status, lambda: None
    frozen = gc.get_freeze_count()

    async def played() -> tuple[int, int]:
        async with heap.settled_heap(mirror):
            await asyncio.sleep(0.05)
            before = gc.get_freeze_count()
            mirror.status = reports
            async with asyncio.timeout(10):
                while gc.get_freeze_count() == before:
                    await asyncio.sleep(0.001)
            return before, gc.get_freeze_count()

    before, during = asyncio.run(played())

    assert before == frozen
    assert during > frozen + 10_000
    assert gc.get_freeze_count() == 0
