"""A browser that is left open: what it asks for in hours, as fast as it goes, and what grows.

The clock of the tab jumps by as much as the script would have waited, so that what is asked for
once a minute is asked for as often as in those hours. The mirror only seems to run, in a process
of its own, and everything it tells changes all the time.
"""

from __future__ import annotations

import logging
import multiprocessing
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import psutil
import pytest

from heliograph.api.page import routes
from heliograph.clock import now_ms
from heliograph.health.verdict import Cutover, FlowVerdict, Word
from heliograph.inspect.groups import FlowGroups, GroupsStatus, Verdict
from heliograph.model import Copying, LaneProgress, Stalled, StallReason
from tests.kit.chromium import Page, chromium
from tests.kit.served import served
from tests.unit.api.page.test_groups_view import row as group_row
from tests.unit.api.pretend import AB, BA, PretendLedgers, at, live

log = logging.getLogger(__name__)

_LANES: Final = 200
_REFRESH_S: Final = 3
_DAY: Final = 86_400 // _REFRESH_S
_WARM: Final = 400
_REFRESHES: Final = 6_000
"""Five hours; what grew is then told for a day."""
_PART: Final = 200
_CLOCKED: Final = (
    "window.live = 0; window.slow = 0; window.skew = 0;"
    " const now = Date.now; Date.now = () => now() + window.skew;"
    " const asked = window.fetch; window.fetch = (...words) => asked(...words).then((answer) => {"
    " if (String(words[0]).includes('/page/live')) window.live += 1; else window.slow += 1;"
    " return answer; }); 0"
)


class Kept(NamedTuple):
    """After garbage was collected."""

    heap_bytes: int
    nodes: int
    listeners: int
    documents: int
    server_bytes: int


def serve(pipe: Connection) -> None:
    turn = [0]

    def lanes() -> tuple[LaneProgress, ...]:
        turn[0] += 1
        found = []
        for number in range(_LANES):
            since = Stalled(reason=StallReason.BUG, detail=f"turn {turn[0]}", since_ms=now_ms())
            state = since if (number + turn[0]) % 7 == 0 else Copying()
            lag = (number * turn[0]) % 1_000
            found.append(at(number % 100, state, lag=lag, topic=f"topic-{number // 100}"))
        return tuple(found)

    def verdicts(_: object) -> list[FlowVerdict]:
        reasons = (f"{turn[0]:,} records not copied yet",)
        word = Word.BEHIND if turn[0] % 2 else Word.HEALTHY
        return [
            FlowVerdict(flow=flow, word=word, reasons=(), cutover=Cutover(reasons=reasons))
            for flow in (AB, BA)
        ]

    def groups(_: object) -> GroupsStatus:
        rows = tuple(
            group_row(f"group-{(number + turn[0]) % 300}", number, Verdict.IN_STEP)
            for number in range(200)
        )
        return GroupsStatus(
            at_ms=now_ms(), flows=(FlowGroups(flow=AB, writes_offsets=True, rows=rows),)
        )

    vars(routes).update(verdicts=verdicts, groups=groups)
    ledgers = PretendLedgers()
    ledgers.silent = set()
    mirror = live(lanes(), ledgers=ledgers)
    mirror.status = lambda: live(lanes(), ledgers=ledgers).status()
    with served(mirror) as server:
        pipe.send(server.url)
        pipe.recv()


def refresh(page: Page, times: int) -> None:
    """One after the other, each when the one before it is shown."""
    page.run(
        "(async () => { const rest = () => new Promise((done) => setTimeout(done, 0));"
        f" for (let n = 0; n < {times}; n += 1) {{ const before = window.live;"
        f" window.skew += {1_000 * _REFRESH_S};"
        " document.dispatchEvent(new Event('visibilitychange'));"
        " while (window.live === before) await rest(); await rest(); } })()"
    )


def kept(page: Page, server_pid: int) -> Kept:
    for _ in range(3):
        page.call("HeapProfiler.collectGarbage")
    page.call("Performance.enable")
    seen = {each["name"]: each["value"] for each in page.call("Performance.getMetrics")["metrics"]}
    return Kept(
        heap_bytes=int(seen["JSHeapUsedSize"]),
        nodes=int(seen["Nodes"]),
        listeners=int(seen["JSEventListeners"]),
        documents=int(seen["Documents"]),
        server_bytes=psutil.Process(server_pid).memory_info().rss,
    )


@pytest.mark.timeout(1_500)
def test_nothing_grows_while_the_page_is_open() -> None:
    spawn = multiprocessing.get_context("spawn")
    near, far = spawn.Pipe()
    server = spawn.Process(target=serve, args=(far,), daemon=True)
    server.start()
    try:
        with chromium() as browser:
            page = browser.page(near.recv())
            page.until("document.querySelector('#groups tbody tr') !== null")
            page.run(_CLOCKED)
            refresh(page, _WARM)
            first = kept(page, server.pid or 0)
            for _ in range(_REFRESHES // _PART):
                refresh(page, _PART)
            last = kept(page, server.pid or 0)
            asked = page.run("window.slow")
            shown = page.count("#lanes tbody tr")
            complaints = page.complaints
    finally:
        near.send("over")
        server.join(10)

    a_day = Kept(
        *((after - before) * _DAY // _REFRESHES for before, after in zip(first, last, strict=True))
    )
    log.info("%s; after %d refreshes more %s; in a day %s", first, _REFRESHES, last, a_day)
    assert asked >= 2 * _REFRESHES * _REFRESH_S // 60 * 0.5, (
        "verdicts and groups were asked for too"
    )
    assert shown == 50
    assert complaints == []
    assert a_day.heap_bytes < 5_000_000, (first, last)
    assert a_day.nodes < 2_000, (first, last)
    assert a_day.listeners < 100, (first, last)
    assert a_day.documents <= 5, (first, last)
    assert a_day.server_bytes < 50_000_000, (first, last)
