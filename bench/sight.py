"""What it costs the driver to be looked at: lag, metrics and API at a thousand lanes, in CPU.

    python -m bench.sight --lanes 1000 --seconds 60

No brokers and no Spark: lanes that move come as they would from slots, four times a second, and
everything that keeps and serves figures is the real thing. Each phase adds to the one before it;
`share` is of one core, `beside` without what the lanes themselves cost. Who scrapes is a process of
its own. Results go to the folder `sight`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, cast

from heliograph.api.page import routes
from heliograph.api.server import api_service
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.api import Address, ApiConfig
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.decisions.orders import FlowOrders
from heliograph.driver.heap import set_aside
from heliograph.driver.lag_book import LagBook
from heliograph.driver.live import LiveMirror, RunStatus
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.engine.tally import SlotTally
from heliograph.errors import BrokerUnreachable
from heliograph.health.conditions import conditions
from heliograph.health.sight import FlowSight, lane_of_progress
from heliograph.inspect.groups import GroupsStatus
from heliograph.lag.history import SAMPLE_S
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.leadership import Leaderships, Leading
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    LATENCY_BUCKETS_MS,
    ClusterAlias,
    Copying,
    FlowId,
    LaneId,
    LaneProgress,
    SlotId,
    TopicName,
    TopicPartition,
)
from heliograph_tools.bench.machine import this_machine

RESULTS: Final = Path(__file__).parent / "results" / "sight"
FLOW: Final = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
_REPORT_S: Final = 0.25
_TALLY_S: Final = 1.0
_PARTITIONS: Final = 10
_KEEP_ALIVE_S: Final = 2.5


AS_PROMETHEUS: Final = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
PHASES: Final[tuple[Mapping[str, float], ...]] = (
    {"/metrics": 15.0},
    {"/metrics": 0.1},
    # Together, as the goal has it: a Prometheus, a page that is open, a script.
    {"/metrics": 15.0, "/page/live": 3.0, "/v1/lanes?page_size=100": 2.0, "/v1/flows": 2.0},
)


class NoLedger:
    """Nothing of a ledger is asked for again and again; what was last read of it is empty."""

    async def ask(self, flow: FlowId, question: object) -> object:
        raise BrokerUnreachable("there is none")

    async def ask_recent(
        self, flow: FlowId, question: Callable[[LedgerView], object], _: float
    ) -> object:
        return question(LedgerView())

    def age_s(self, flow: FlowId) -> float:
        return 0.5


class Mirror:
    """Lanes that move; what keeps figures is switched on phase by phase."""

    def __init__(self, lanes: int) -> None:
        self.config = MirrorConfig(
            clusters={
                alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
                for alias in (FLOW.source, FLOW.target)
            },
            pairs=(FlowConfig(id=FLOW, enabled=True),),
            api=ApiConfig(listen=Address("127.0.0.1", 0)),
        )
        latency = (0,) * (len(LATENCY_BUCKETS_MS) + 1)
        self._progress = {at.lane: at for at in (_lane(n, latency) for n in range(lanes))}
        self._turn = 0
        self.tally = SlotTally()
        self.book = LagBook(self.config, self.status, self.placed)
        self._placed = dict.fromkeys(self._progress, SlotId(0))

    def placed(self) -> Mapping[LaneId, SlotId]:
        return self._placed

    def status(self) -> RunStatus:
        slot = SlotHealth(
            slot=SlotId(0),
            state=SlotState.RUNNING,
            generation=1,
            replaced=0,
            attempt="0",
            pid=1,
            lanes=len(self._progress),
            silent_ms=0,
            detail="",
        )
        return RunStatus(progress=self._progress, slots=(slot,), problems={})

    @property
    def live(self) -> LiveMirror:
        leaderships = Leaderships([FLOW])
        leaderships[FLOW] = Leading()
        return LiveMirror(
            config=self.config,
            ledgers=cast(LedgerAccess, NoLedger()),
            leaderships=leaderships,
            status=self.status,
            phase=lambda: "measured",
            decided=lambda _: FlowOrders(),
            placed=self.placed,
            loads=dict,
            resume=lambda _: None,
            lag=self.book.report,
            tally=lambda: self.tally,
        )

    async def move(self) -> None:
        """A quarter of the lanes in each report."""
        while True:
            await asyncio.sleep(_REPORT_S)
            self._turn += 1
            moved = dict(self._progress)
            for number, (lane, at) in enumerate(self._progress.items()):
                if number % 4 == self._turn % 4:
                    moved[lane] = _moved(at)
            self._progress = moved

    async def keep(self) -> None:
        """As the driver does, from its loop."""
        sampled_s = judged_s = 0.0
        flow = self.config.flow(FLOW)
        while True:
            await asyncio.sleep(_TALLY_S)
            if monotonic_s() - judged_s >= flow.alarms.interval_s:
                judged_s = monotonic_s()
                lags = (await self.book.report()).lanes
                lanes = tuple(
                    lane_of_progress(at, frozenset(), now_ms(), lags.get(lane))
                    for lane, at in self._progress.items()
                )
                conditions(FlowSight(flow=FLOW, at_ms=now_ms(), lanes=lanes), flow)
            self.tally.lanes.sample(self._progress)
            if monotonic_s() - sampled_s >= SAMPLE_S:
                sampled_s = monotonic_s()
                self.book.sample()


def _lane(number: int, latency: tuple[int, ...]) -> LaneProgress:
    topic = TopicName(f"topic-{number // _PARTITIONS:04}")
    source = TopicPartition(topic=topic, partition=number % _PARTITIONS)
    return LaneProgress(
        lane=LaneId(flow=FLOW, source=source),
        state=Copying(),
        position=0,
        source_next_offset=0,
        source_end_offset=10,
        source_start_offset=0,
        target_next_offset=0,
        source_read_offset=0,
        latency_counts=latency,
    )


def _moved(at: LaneProgress) -> LaneProgress:
    counts = (*at.latency_counts[:3], at.latency_counts[3] + 1, *at.latency_counts[4:])
    return replace(
        at,
        position=at.position + 100,
        source_next_offset=at.source_next_offset + 100,
        source_read_offset=at.source_next_offset + 100,
        source_end_offset=at.source_end_offset + 100,
        records=at.records + 100,
        bytes=at.bytes + 10_000,
        last_timestamp_ms=now_ms(),
        latency_counts=counts,
        latency_ms_sum=at.latency_ms_sum + 8,
    )


def scrape(port: int, path: str, every_s: float, asked: Any, sizes: Any) -> None:
    """In a process of its own, until it is ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        began_s = time.monotonic()
        connection.request("GET", path, headers=AS_PROMETHEUS if path == "/metrics" else {})
        answer = connection.getresponse()
        sizes.value = len(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}")
        asked.value += 1
        if every_s >= _KEEP_ALIVE_S:
            connection.close()  # The server does by then, and http.client does not look.
        time.sleep(max(0.0, every_s - (time.monotonic() - began_s)))


@asynccontextmanager
async def scraped(port: int, paths: Mapping[str, float]) -> AsyncIterator[dict[str, Any]]:
    """Who asks for each path as often as told, a process each; answers and sizes by path."""
    context = multiprocessing.get_context("spawn")
    readers: list[Any] = []
    counts = {path: (context.Value("i", 0), context.Value("i", 0)) for path in paths}
    found: dict[str, Any] = {}
    for path, every_s in paths.items():
        reader = context.Process(
            target=scrape, args=(port, path, every_s, *counts[path]), daemon=True
        )
        reader.start()
        readers.append(reader)
    try:
        while not all(asked.value for asked, _ in counts.values()):
            if not all(reader.is_alive() for reader in readers):
                raise SystemExit("a path did not answer well")
            await asyncio.sleep(0.1)
        yield found
        if not all(reader.is_alive() for reader in readers):
            raise SystemExit("a reader ended before its phase did")
        found |= {path: [asked.value, size.value] for path, (asked, size) in counts.items()}
    finally:
        for reader in readers:
            reader.terminate()


async def phase(seconds: float) -> float:
    """The share of a core that this process takes."""
    await asyncio.sleep(min(5.0, seconds))
    before, from_s = _cpu_s(), monotonic_s()
    await asyncio.sleep(seconds)
    return (_cpu_s() - before) / (monotonic_s() - from_s)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(lanes: int, seconds: float) -> list[dict[str, Any]]:
    mirror = Mirror(lanes)
    moving = asyncio.create_task(mirror.move())
    set_aside()  # As `heliograph run` does.
    bare = await phase(seconds)
    found: list[dict[str, Any]] = [{"phase": "lanes move", "share": round(bare, 4)}]
    keeping = asyncio.create_task(mirror.keep())
    # There are no clusters that could be asked whether the flow may be cut over.
    vars(routes).update(verdicts=lambda _: [], groups=lambda _: GroupsStatus(at_ms=0, flows=()))
    async with api_service(mirror.config.api)(mirror.live) as served:
        address = cast(Address, served)
        set_aside()
        found.append(_row("lag, counters and alarms are kept", await phase(seconds), bare))
        for paths in PHASES:
            async with scraped(address.port, paths) as answers:
                share = await phase(seconds)
            name = ", ".join(f"{path} every {every_s:g} s" for path, every_s in paths.items())
            found.append({**_row(name, share, bare), "answers_and_bytes": answers})
    for task in (moving, keeping):
        task.cancel()
    await asyncio.gather(moving, keeping, return_exceptions=True)
    return found


def _row(name: str, share: float, bare: float) -> dict[str, Any]:
    return {"phase": name, "share": round(share, 4), "beside": round(share - bare, 4)}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--lanes", type=int, default=1_000)
    asked.add_argument("--seconds", type=float, default=60.0)
    order = asked.parse_args()
    phases = asyncio.run(measure(order.lanes, order.seconds))
    found = {
        "lanes": order.lanes,
        "seconds": order.seconds,
        "phases": phases,
        "load_before": os.getloadavg()[0],
        "machine": asdict(this_machine()),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "sight.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
