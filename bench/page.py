"""How long a browser waits for the page with ten thousand lanes, and what the page then costs.

    python -m bench.page [--lanes 10000] [--loads 10]

The mirror only seems to run, in a process of its own, so that server and browser are measured and
no broker; Chromium is Debian's. Writes bench/results/operate/page-10000-lanes.json. No Spark.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import psutil
from tests.kit.chromium import Browser, Page, chromium
from tests.kit.served import served
from tests.unit.api.pretend import PretendLedgers, at, live

from heliograph.api.page import routes
from heliograph.inspect.groups import GroupsStatus
from heliograph_tools.bench.machine import this_machine

RESULTS: Final = Path(__file__).parent / "results" / "operate" / "page-10000-lanes.json"
_OPEN_S: Final = 30.0
_ROWS: Final = "document.querySelectorAll('#lanes tbody tr').length"
_USABLE_MS: Final = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
"""From the click on the address until the lanes are there and the script answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    usable_ms: float
    first_byte_ms: float
    html_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    lanes: int
    first: Loaded
    """Of a driver that was never asked: templates are compiled, the first look is made."""
    usable_ms_median: float
    usable_ms_max: float
    html_bytes: int
    search_ms_median: float
    """From the last key until the table shows what was searched for; the script waits 250 ms."""
    driver_cpu_share: float
    """Of a core, with one browser open, the driver's own work aside: this one mirrors nothing."""
    tab_heap_mb: float
    """Of the tab's script, after the browser was open for a while."""


def measure(lanes: int, loads: int) -> Measured:
    spawn = multiprocessing.get_context("spawn")
    near, far = spawn.Pipe()
    server = spawn.Process(target=serve, args=(lanes, far), daemon=True)
    server.start()
    try:
        url: str = near.recv()
        with chromium() as browser:
            first = _load(browser, url)
            print(first, flush=True)
            others = [_load(browser, url) for _ in range(loads)]
            usable = [each.usable_ms for each in others]
            page = browser.page(url)
            searched = [_search_ms(page, f"topic-{number}") for number in range(1, 8)]
            page.write("#search", "")
            share = _cpu_share(server.pid or 0)
            page.call("HeapProfiler.collectGarbage")
            heap = page.call("Runtime.getHeapUsage")["usedSize"]
    finally:
        near.send("over")
        server.join(10)
    return Measured(
        lanes=lanes,
        first=first,
        usable_ms_median=round(statistics.median(usable), 1),
        usable_ms_max=round(max(usable), 1),
        html_bytes=others[0].html_bytes,
        search_ms_median=round(statistics.median(searched), 1),
        driver_cpu_share=round(share, 4),
        tab_heap_mb=round(heap / 1e6, 2),
    )


def serve(lanes: int, pipe: Connection) -> None:
    """In a process of its own: a mirror that only seems to run."""
    # It has no clusters that could be asked.
    vars(routes).update(verdicts=lambda _: [], groups=lambda _: GroupsStatus(at_ms=0, flows=()))
    ledgers = PretendLedgers()
    ledgers.silent = set()
    found = tuple(at(n % 100, lag=n % 7, topic=f"topic-{n // 100}") for n in range(lanes))
    with served(live(found, ledgers=ledgers)) as server:
        pipe.send(server.url)
        pipe.recv()


def _load(browser: Browser, url: str) -> Loaded:
    page = browser.page(url)
    page.until(f"{_ROWS} === 50")
    timing = page.run("performance.getEntriesByType('navigation')[0].toJSON()")
    found = Loaded(
        usable_ms=round(page.run(_USABLE_MS), 1),
        first_byte_ms=round(timing["responseStart"], 1),
        html_bytes=timing["decodedBodySize"],
    )
    page.close()
    return found


def _search_ms(page: Page, topic: str) -> float:
    began_s = time.monotonic()
    page.write("#search", topic)
    shown = f"document.querySelector('#lanes tbody th')?.innerText.startsWith('{topic}')"
    page.until(f"{shown} && location.search.includes('{topic}')")
    return (time.monotonic() - began_s) * 1000


def _cpu_share(pid: int) -> float:
    server = psutil.Process(pid)
    before = sum(server.cpu_times()[:2])
    began_s = time.monotonic()
    time.sleep(_OPEN_S)
    return (sum(server.cpu_times()[:2]) - before) / (time.monotonic() - began_s)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    asked.add_argument("--lanes", type=int, default=10_000)
    asked.add_argument("--loads", type=int, default=10)
    asked.add_argument("--results", type=Path, default=RESULTS)
    given = asked.parse_args()
    found = measure(given.lanes, given.loads)
    print(found, flush=True)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": asdict(this_machine()), **asdict(found)}
    given.results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
