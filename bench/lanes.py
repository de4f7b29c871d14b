"""Very many lanes: what a driver and its slots cost with them, and whether beats stay on time.

    python -m bench.lanes pretend --lanes 50000      link, roster and reports; no broker, no Spark
    python -m bench.lanes idle --partitions 10000    brokers and Spark, and nothing to copy

Writes bench/results/scale/pretend-50000.json or idle-10000.json. Runs on the driver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from tests.kit.process_slots import NoSpark, ProcessJob, slots_as_processes
from tests.spark.fake_carrier import FakeCarrier
from tests.unit.engine.lanes import lane

from heliograph.clock import monotonic_s
from heliograph.config.schema import EngineConfig
from heliograph.engine import slots as engine_slots
from heliograph.engine.task import Clusters
from heliograph.errors import BenchError
from heliograph.model import Lane, LaneProgress, SlotId
from heliograph_tools.bench.filling import build_batch
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.partitions import _Observer, _produce_everywhere
from heliograph_tools.bench.rows import System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare

RESULTS: Final = Path(__file__).parent / "results" / "scale"
SLOTS: Final = 2
_LOOK_S: Final = 0.1
_PARTITIONS_PER_TOPIC: Final = 1_000
_SAY_S: Final = 5.0
_SETTLE_S: Final = 45.0
"""The first mirror of an installation records the archive of Spark's classes half a minute after
its start; heads are written and old connections closed."""
_STANDS_STILL_S_MAX: Final = 300.0
_MEMORY: Final = Path("/dev/shm")
_LOGS_BYTES: Final = 4_000_000_000
_HEAP_MB: Final = 2_048
"""Of a broker with ten thousand logs."""
_SMALL_LOGS: Final = {
    # Ten thousand logs of the usual size are 200 GB of sparse index files.
    "log.index.size.max.bytes": "4096",
    "log.segment.bytes": "1048576",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    lanes: int
    handed_out_s: float
    """From the assignment until every slot has all of its lanes."""
    silent_ms_max: int
    """The longest that any slot was not heard, from the assignment on; beats come each second."""
    lost: int
    """Slots that were given up."""
    driver_cpu_share: float
    slot_cpu_share: float
    driver_rss_bytes: int
    slot_rss_bytes: int


class FewMove(FakeCarrier):
    """One lane in a hundred moves in each second."""

    def __init__(self, clusters: Clusters, bytes_max: int) -> None:
        super().__init__(clusters, bytes_max)
        self._turn = 0
        self._moved: list[LaneProgress] = []

    def add(self, lanes: Iterable[Lane]) -> None:
        super().add(lanes := tuple(lanes))
        self._moved += [self._lanes[each.id] for each in lanes]

    def changes(self) -> tuple[LaneProgress, ...]:
        moved, self._moved = self._moved, []
        return tuple(moved)

    async def run(self) -> None:
        while not self._closed.is_set():
            await asyncio.sleep(1.0)
            every = list(self._lanes.values())
            self._turn += 1
            self._lanes, kept = {each.lane: each for each in every[self._turn % 100 :: 100]}, every
            self._carry()
            self._moved += self._lanes.values()
            self._lanes = {each.lane: each for each in kept} | self._lanes


async def pretend(lanes: int, seconds: float) -> Beats:
    """Hand out `lanes` and listen to the beats for so many seconds."""
    ProcessJob.started.clear()
    context: Any = NoSpark()
    with slots_as_processes():
        slots = engine_slots.Slots(clusters={}, engine=EngineConfig(), carrier=FewMove)
        await slots.start(context, SLOTS)
        try:
            return await _listen(slots, lanes, seconds)
        finally:
            await slots.stop()


async def _listen(slots: engine_slots.Slots, lanes: int, seconds: float) -> Beats:
    while not all(slot.attempt for slot in slots.health()):
        await asyncio.sleep(_LOOK_S)
    wanted = [lane(number) for number in range(lanes)]
    began_s = monotonic_s()
    slots.apply({SlotId(n): tuple(wanted[n::SLOTS]) for n in range(SLOTS)})
    silent_ms, handed_out_s = 0, 0.0
    me, theirs = psutil.Process(), [psutil.Process(j.process.pid) for j in ProcessJob.started]
    cpu_from, from_s = (_cpu_s([me]), _cpu_s(theirs)), monotonic_s()
    while monotonic_s() - began_s < seconds or not handed_out_s:
        silent_ms = max(silent_ms, *(slot.silent_ms for slot in slots.health()))
        if not handed_out_s and len(slots.progress()) == lanes:
            handed_out_s = monotonic_s() - began_s
            cpu_from, from_s = (_cpu_s([me]), _cpu_s(theirs)), monotonic_s()
        await asyncio.sleep(_LOOK_S)
    elapsed_s = monotonic_s() - from_s
    return Beats(
        lanes=lanes,
        handed_out_s=round(handed_out_s, 2),
        silent_ms_max=silent_ms,
        lost=sum(slot.replaced for slot in slots.health()),
        driver_cpu_share=round((_cpu_s([me]) - cpu_from[0]) / elapsed_s, 4),
        slot_cpu_share=round((_cpu_s(theirs) - cpu_from[1]) / elapsed_s / SLOTS, 4),
        driver_rss_bytes=me.memory_info().rss,
        slot_rss_bytes=max(each.memory_info().rss for each in theirs),
    )


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [each.cpu_times() for each in processes]
    return sum(at.user + at.system for at in times)


def idle(partitions: int, seconds: float) -> dict[str, Any]:
    """A mirror of so many partitions that have caught up: CPU and memory of each process."""
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-lanes-", dir=_in_memory()) as scratch,
        open_stage(Path(scratch), _SMALL_LOGS, _HEAP_MB) as stage,
    ):
        topics = [f"many-{n}" for n in range(0, partitions, _PARTITIONS_PER_TOPIC)]
        batch = build_batch(0, 1_024, 1_024)
        for topic in topics:
            # A controller takes no operation of more than ten thousand records.
            stage.create_source_topic(topic, _PARTITIONS_PER_TOPIC)
            _produce_everywhere(stage.source_address, topic, _PARTITIONS_PER_TOPIC, batch)
            _say(f"{topic} has a record in each of {_PARTITIONS_PER_TOPIC:,} partitions")
        return _rest(stage, topics, seconds)


def _in_memory() -> Path | None:
    """A broker waits for the disk several times for each log it makes: ten thousand on one disk
    keep both of them from answering for minutes."""
    enough = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _LOGS_BYTES
    return _MEMORY if enough else None


def _rest(stage: Stage, topics: list[str], seconds: float) -> dict[str, Any]:
    route = stage.route("wide", "many-.*")
    keys = {"slots": str(SLOTS), "tasks.max": str(SLOTS)}
    launch = prepare(System.HELIOGRAPH, route, stage.folder / "run", keys)
    with running(launch, stage.folder / "mirror.log") as mirror, ExitStack() as open_ones:
        observers = [
            _Observer(stage, topic, f"wide.{topic}", _PARTITIONS_PER_TOPIC) for topic in topics
        ]
        for observer in observers:
            open_ones.enter_context(observer.source)
            open_ones.enter_context(observer.target)
        _wait_for_all(lambda: sum(map(_mirrored, observers)), mirror, len(topics))
        caught_up_s = monotonic_s() - mirror.started_s
        _say(f"caught up after {caught_up_s:.0f} s")
        time.sleep(_SETTLE_S)
        before, from_s = _each(mirror), monotonic_s()
        time.sleep(seconds)
        elapsed_s, after = monotonic_s() - from_s, _each(mirror)
        shares = {pid: (after[pid][0] - before[pid][0]) / elapsed_s for pid in before}
        return {
            "partitions": len(topics) * _PARTITIONS_PER_TOPIC,
            "slots": SLOTS,
            "caught_up_s": round(caught_up_s, 1),
            "idle_cpu_share": round(sum(shares.values()), 4),
            "rss_bytes": sum(after[pid][1] for pid in before),
            "processes": [
                {"what": after[pid][2], "cpu_share": round(share, 4), "rss_bytes": after[pid][1]}
                for pid, share in shares.items()
            ],
        }


def _mirrored(observer: _Observer) -> int:
    """Partitions of the copy that hold all of their source."""
    look = observer.look()
    return sum(
        target == source for source, target in zip(look.source_ends, look.target_ends, strict=True)
    )


def _wait_for_all(mirrored: Callable[[], int], mirror: MirrorProcess, topics: int) -> None:
    """As long as it goes on."""
    wanted, seen = topics * _PARTITIONS_PER_TOPIC, -1
    moved_s = monotonic_s()
    while (count := mirrored()) < wanted:
        mirror.ensure_alive()
        if count > seen:
            seen, moved_s = count, monotonic_s()
        if monotonic_s() - moved_s > _STANDS_STILL_S_MAX:
            raise BenchError(f"{count:,} of {wanted:,} partitions:\n{mirror.last_words()}")
        _say(f"{count:,} of {wanted:,} partitions mirrored")
        time.sleep(_SAY_S)


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _each(mirror: MirrorProcess) -> dict[int, tuple[float, int, str]]:
    found: dict[int, tuple[float, int, str]] = {}
    for member in mirror._tree():
        try:
            what = " ".join(Path(member.exe()).name.split() + member.cmdline()[1:3])
            found[member.pid] = (_cpu_s([member]), member.memory_info().rss, what)
        except psutil.Error:
            continue  # a shell that has ended
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("what", choices=("pretend", "idle"))
    asked.add_argument("--lanes", type=int, default=50_000)
    asked.add_argument("--partitions", type=int, default=10_000)
    asked.add_argument("--seconds", type=float, default=60.0)
    order = asked.parse_args()
    size = order.lanes if order.what == "pretend" else order.partitions
    if order.what == "pretend":
        found = asdict(asyncio.run(pretend(order.lanes, order.seconds)))
    else:
        found = idle(order.partitions, order.seconds)
    found |= {"load_before": os.getloadavg()[0], "machine": asdict(this_machine())}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{order.what}-{size}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
