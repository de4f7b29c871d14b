"""One look for all browsers, and since when a flow has been as it is."""

from __future__ import annotations

import asyncio

from heliograph.api.page.look import Looks
from heliograph.api.state import ApiState
from heliograph.model import LaneProgress
from tests.unit.api.pretend import AB, BA, LANES, at, live


def test_browsers_share_a_look_and_a_verdict_that_changes_says_when() -> None:
    mirror = live((at(0),))
    healthy, stalled = mirror.status, live(LANES).status
    lanes: list[LaneProgress] = []
    mirror.status = lambda: (stalled if lanes else healthy)()

    async def looked() -> None:
        looks = Looks(ApiState(live=mirror))
        first, second = await asyncio.gather(looks.now(), looks.now())
        assert first is second
        assert not first.since[AB].is_exact, "it may have been so before anyone looked"
        assert BA not in first.verdicts, "its ledger was not read"
        lanes.extend(LANES)
        looks._kept = None
        third = await looks.now()
        assert third.verdicts[AB].word == "stalled"
        assert (third.since[AB].at_ms, third.since[AB].is_exact) == (5, True)

    asyncio.run(looked())
