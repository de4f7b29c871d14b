"""What the copying path pays for being looked at, in instructions: exact where CPU seconds waver.

    python -m bench.looked_at_counted [--pairs 8] [--seconds 15]

As `bench.looked_at`: one mirror copies at a held rate, and every other stretch somebody scrapes
`/metrics` and has the page open. Here the slot is a process of its own (no Spark) under valgrind,
which counts every instruction of it; so the rate is a tenth. The interval is that of 95 of 100
resamplings of the stretches. Writes bench/results/sight/looked-at-counted.json. Needs valgrind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import psutil

from bench.looked_at import GOAL, LOOKS, free_port
from bench.sight import RESULTS, scraped
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until

_TOPIC: Final = "counted"
_ALIAS: Final = "one"
_PARTITIONS: Final = 4
_BYTES_PER_S: Final = 2_000_000
_RECORD_BYTES: Final = 1_000
_SETTLE_S: Final = 30.0
_PAUSE_S: Final = 3.0
_RESAMPLES: Final = 10_000
_PROGRAM: Final = """
import multiprocessing.spawn
from heliograph.engine import slots
from tests.kit import process_slots, without_spark
without_spark.install()
slots.SlotJob = process_slots.ProcessJob
multiprocessing.spawn.set_executable({wrapper!r})
without_spark.heliograph()
"""
_WRAPPER: Final = """#!/bin/sh
exec valgrind -q --tool=callgrind --callgrind-out-file={out}/callgrind.%p {python} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    looked_at: bool
    megabytes: float
    instructions_per_byte: float


class Counted:
    """The slot's process, and what it has executed so far."""

    def __init__(self, mirror: MirrorProcess) -> None:
        self._mirror = mirror

    def slot(self) -> int:
        for member in psutil.Process(self._mirror.child.pid).children(recursive=True):
            if "spawn_main" in " ".join(member.cmdline()):
                return member.pid
        raise SystemExit("there is no slot")

    def instructions(self) -> int:
        self._mirror.ensure_alive()
        said = subprocess.run(
            ["callgrind_control", "-e", str(self.slot())],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        found = [sum(int(n or 0) for n in _numbers(line)) for line in said.splitlines()]
        if not any(found):
            raise SystemExit(f"callgrind_control says {said!r}")
        return sum(found)


def _numbers(line: str) -> list[str]:
    match = re.match(r"\s*Th\s+\d+\s+([\d,.\s]+)$", line)
    return [] if match is None else [re.sub(r"[^\d]", "", match[1])]


def measure(stage: Stage, seconds: float, pairs: int) -> list[Stretch]:
    port, folder = free_port(), stage.folder / "counted"
    folder.mkdir()
    wrapper = folder / "python-counted"
    wrapper.write_text(_WRAPPER.format(out=folder, python=sys.executable))
    wrapper.chmod(0o755)
    keys = {
        "slots": "1",
        "topics": _TOPIC,
        "api.listen": f"127.0.0.1:{port}",
        f"{_ALIAS}->target.throttle.bytes.per.second": str(_BYTES_PER_S),
    }
    launch = prepare(System.HELIOGRAPH, stage.route(_ALIAS, _TOPIC), folder, keys)
    *_, file = launch.argv
    program = _PROGRAM.format(wrapper=str(wrapper))
    launch = replace(launch, argv=(sys.executable, "-c", program, "run", file))
    with (
        running(launch, folder / "mirror.log") as mirror,
        RawConnection(stage.target_address) as target,
    ):
        name = f"{_ALIAS}.{_TOPIC}"

        def copied() -> int:
            return sum(target.end_offsets(name, _PARTITIONS)) * _RECORD_BYTES

        def has_begun() -> bool:
            return target.serves(name, _PARTITIONS) and copied() > 0

        wait_until(has_begun, mirror.ensure_alive, "the first records")
        return asyncio.run(_stretches(Counted(mirror), copied, port, seconds, pairs))


async def _stretches(
    counted: Counted, copied: Callable[[], int], port: int, seconds: float, pairs: int
) -> list[Stretch]:
    await asyncio.sleep(_SETTLE_S)
    found: list[Stretch] = []
    for turn in range(2 * pairs):
        # Quiet, looked at, looked at, quiet: what drifts with time falls on both alike.
        if turn % 4 in (1, 2):
            async with scraped(port, LOOKS):
                found.append(await _stretch(counted, copied, seconds, looked_at=True))
        else:
            found.append(await _stretch(counted, copied, seconds, looked_at=False))
        print(found[-1], flush=True)
    return found


async def _stretch(
    counted: Counted, copied: Callable[[], int], seconds: float, *, looked_at: bool
) -> Stretch:
    await asyncio.sleep(_PAUSE_S)
    before, from_bytes = counted.instructions(), copied()
    await asyncio.sleep(seconds)
    after, to_bytes = counted.instructions(), copied()
    size = to_bytes - from_bytes
    return Stretch(
        looked_at=looked_at,
        megabytes=round(size / 1e6, 2),
        instructions_per_byte=round((after - before) / size, 3),
    )


def change(stretches: list[Stretch]) -> tuple[float, float, float]:
    """By how many per cent the mean is more when looked at, with the ends of its interval."""
    quiet, looked = (
        [each.instructions_per_byte for each in stretches if each.looked_at is wanted]
        for wanted in (False, True)
    )
    chance = random.Random(14)

    def percent(one: list[float], other: list[float]) -> float:
        return 100 * (statistics.fmean(other) / statistics.fmean(one) - 1)

    resampled = sorted(
        percent(chance.choices(quiet, k=len(quiet)), chance.choices(looked, k=len(looked)))
        for _ in range(_RESAMPLES)
    )
    low, high = resampled[_RESAMPLES // 40], resampled[-_RESAMPLES // 40]
    return round(percent(quiet, looked), 3), round(low, 3), round(high, 3)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=15.0, help="of one stretch")
    asked.add_argument("--pairs", type=int, default=8)
    order = asked.parse_args()
    load_before = os.getloadavg()[0]
    needed_s = 120 + _SETTLE_S + 2 * order.pairs * (order.seconds + 2 * _PAUSE_S + 5)
    row = CopyRow(
        name=_TOPIC,
        records=int(needed_s * _BYTES_PER_S / _RECORD_BYTES) // _PARTITIONS * _PARTITIONS,
        record_bytes=_RECORD_BYTES,
        batch_bytes=16_384,
        partitions=_PARTITIONS,
        systems=(),
        goals=(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-counted-") as scratch,
        open_stage(Path(scratch)) as stage,
    ):
        stage.create_source_topic(_TOPIC, _PARTITIONS)
        fill_topic(stage.source_address, _TOPIC, row)
        stretches = measure(stage, order.seconds, order.pairs)
    percent, low, high = change(stretches)
    found = {
        "goal": GOAL,
        "looks_every_s": dict(LOOKS),
        "bytes_per_s_held": _BYTES_PER_S,
        "change_percent": percent,
        "interval_95_percent": [low, high],
        "stretches": [asdict(each) for each in stretches],
        "load_before": load_before,
        "machine": asdict(this_machine()),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "looked-at-counted.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: each for name, each in found.items() if name != "stretches"}, indent=1))


if __name__ == "__main__":
    main()
