"""Clusters are asked beside the requests, one question at a time, and rarely."""

from __future__ import annotations

import asyncio
import threading

from heliograph.api.page.slow import Slow
from heliograph.api.state import ApiState
from heliograph.errors import BrokerUnreachable
from tests.unit.api.pretend import live


def test_no_request_waits_for_clusters_and_many_ask_once() -> None:
    asked: list[int] = []
    answer = threading.Event()

    def read(_: ApiState) -> str:
        asked.append(1)
        assert answer.wait(10)
        return "found"

    def fails(_: ApiState) -> str:
        raise BrokerUnreachable("cluster A: no answer in time")

    async def played() -> None:
        state, turn = ApiState(live=live()), asyncio.Lock()
        slow, gone = Slow(state, read, turn), Slow(state, fails, turn)
        before = [slow.now() for _ in range(5)]
        gone.now()
        await asyncio.sleep(0.05)
        answer.set()
        while slow.now().is_asking or gone.now().is_asking:
            await asyncio.sleep(0.01)

        assert [(each.found, each.is_asking) for each in before] == [(None, True)] * 5
        assert slow.now().found == "found"
        assert gone.now().problem == "cluster A: no answer in time"
        assert len(asked) == 1

    asyncio.run(played())
