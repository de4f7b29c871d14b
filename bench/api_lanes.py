"""Pages of ten thousand lanes over real HTTP, and whether the driver's loop goes on meanwhile.

    python -m bench.api_lanes [--lanes 10000] [--requests 40]

The mirror only seems to run, so that the server alone is measured; four clients ask at once from a
process of their own. Writes bench/results/operate/api-10000-lanes.json. No broker, no Spark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.unit.api.pretend import at, live

from heliograph.api.server import api_service
from heliograph.config.api import Address, ApiConfig
from heliograph.driver.heap import set_aside
from heliograph_tools.bench.machine import this_machine

RESULTS: Final = Path(__file__).parent / "results" / "operate" / "api-10000-lanes.json"
_BEAT_S: Final = 0.005
"""As often the loop is asked whether it goes on; a slot's beat waits for its echo far longer."""
_PATHS: Final = (
    "/v1/lanes?page_size=10000",
    "/v1/lanes?page_size=1000",
    "/v1/topics",
    "/v1/flows",
)
_PAUSE_S: Final = 1.5
_PAUSED: Final = 12


@dataclass(frozen=True, slots=True)
class Asked:
    server: str
    path: str
    clients: int
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    path: str
    clients: int
    pause_s: float
    """Between the requests of a client. Without one all but the first get a page that is kept for
    four times as long as it took to make."""
    requests: int
    bytes: int
    ms_median: float
    ms_max: float
    loop_late_ms_max: float
    """The longest that the driver's loop did not get to a task that was due."""


async def measure(lanes: int, requests: int) -> list[Answered]:
    mirror = live(None)
    config = ApiConfig(listen=Address("127.0.0.1", 0))
    found: list[Answered] = []
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        async with api_service(config)(mirror) as address:
            # As with a driver: lanes come once the server is there.
            running = live(tuple(at(number, lag=number % 7) for number in range(lanes)))
            for name in ("status", "placed", "loads", "lag"):
                setattr(mirror, name, getattr(running, name))
            set_aside()  # As `heliograph run` does once its mirror reports.
            for path in _PATHS:
                for clients, pause_s in ((1, 0.0), (4, 0.0), (1, _PAUSE_S)):
                    asked = Asked(f"http://{address}", path, clients, pause_s)
                    found.append(await _asked(pool, asked, requests if not pause_s else _PAUSED))
                    print(found[-1], flush=True)
    return found


async def _asked(pool: multiprocessing.pool.Pool, asked: Asked, requests: int) -> Answered:
    late_s = 0.0

    async def beat() -> None:
        nonlocal late_s
        while True:
            due_s = time.monotonic() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            late_s = max(late_s, time.monotonic() - due_s)

    # The first answer makes what others keep: it is no part of the figures.
    await asyncio.to_thread(pool.apply, ask, (asked, 1))
    beating = asyncio.create_task(beat())
    try:
        took_s, size = await asyncio.to_thread(pool.apply, ask, (asked, requests))
    finally:
        beating.cancel()
    return Answered(
        path=asked.path,
        clients=asked.clients,
        pause_s=asked.pause_s,
        requests=len(took_s),
        bytes=size,
        ms_median=round(statistics.median(took_s) * 1000, 1),
        ms_max=round(max(took_s) * 1000, 1),
        loop_late_ms_max=round(late_s * 1000, 1),
    )


def ask(asked: Asked, requests: int) -> tuple[list[float], int]:
    """Seconds of each request, and the bytes of an answer; in a process of its own."""

    def once(_: int) -> tuple[float, int]:
        time.sleep(asked.pause_s)
        began_s = time.monotonic()
        with urllib.request.urlopen(asked.server + asked.path, timeout=60) as response:
            size = len(response.read())
        return time.monotonic() - began_s, size

    with ThreadPoolExecutor(asked.clients) as threads:
        found = list(threads.map(once, range(requests)))
    return [took_s for took_s, _ in found], found[0][1]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    asked.add_argument("--lanes", type=int, default=10_000)
    asked.add_argument("--requests", type=int, default=40)
    asked.add_argument("--results", type=Path, default=RESULTS)
    given = asked.parse_args()
    found = asyncio.run(measure(given.lanes, given.requests))
    given.results.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": asdict(this_machine()),
        "lanes": given.lanes,
        "answers": [asdict(each) for each in found],
    }
    given.results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
