"""What a page of very many lanes costs."""

from __future__ import annotations

import asyncio
import time

from pydantic_core import to_json

from heliograph.api.lanes import Listing, Rows, Snapshot, page_bytes, worst_first
from heliograph.driver.live import LiveMirror
from heliograph.lag.figures import LagReport
from tests.unit.api.pretend import at, live


def test_a_page_of_ten_thousand_lanes_costs_a_few_times_its_json() -> None:
    """A ratio, since beside other work the same takes twice the CPU time; what a request takes is
    measured by `bench.api_lanes`. Three times on a quiet machine."""
    lanes = tuple(at(number, lag=number % 7) for number in range(10_000))
    mirror = live(lanes)
    snapshot = Snapshot(
        at_ms=0,
        lanes=lanes,
        placed=mirror.placed(),
        loads=mirror.loads(),
        config=mirror.config,
        decided={},
        lag=asyncio.run(_lag(mirror)),
    )
    rows = [Rows(snapshot).lane(each) for each in lanes]
    page_s = json_s = 1e9

    for _ in range(5):
        began_s = time.thread_time()
        page = page_bytes(Listing("lanes", snapshot, worst_first(lanes)), "", 0, len(lanes))
        page_s = min(page_s, time.thread_time() - began_s)
        began_s = time.thread_time()
        to_json(rows)
        json_s = min(json_s, time.thread_time() - began_s)

    assert len(page) > 1_000_000
    assert page_s < 8 * json_s


async def _lag(mirror: LiveMirror) -> LagReport:
    return await mirror.lag()
