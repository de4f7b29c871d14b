"""What the copying path pays for being looked at: CPU per GB with and without, turn by turn.

    python -m bench.looked_at

One real mirror of one flow copies a backlog at a held rate. Every other stretch of its run somebody
scrapes `/metrics` every five seconds and has the page open (what its script asks, as often as it
does, verdicts and groups that ask clusters among it). CPU of the slots' processes counts as the
copying path; that of the driver's Python process is told beside it. Medians of eight stretches
each. Writes bench/results/sight/looked-at.json. Needs brokers and Spark. Six minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.sight import RESULTS, scraped
from heliograph.clock import monotonic_s
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until

_TOPIC: Final = "looked"
_ALIAS: Final = "one"
_PARTITIONS: Final = 4
_BYTES_PER_S: Final = 20_000_000
_RECORD_BYTES: Final = 1_000
_SETTLE_S: Final = 90.0
_LOOK_S: Final = 5.0
_RESTS_SHARE: Final = 0.03
_PAUSE_S: Final = 4.0
"""Between two stretches: who looked is gone, or has looked once."""
_GB: Final = 1e9
LOOKS: Final[Mapping[str, float]] = {
    "/metrics": 5.0,
    "/page/live": 3.0,
    "/page/cutover": 60.0,
    "/page/groups": 60.0,
}
GOAL: Final = "CPU of the slots per GB unchanged within 2 %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    looked_at: bool
    seconds: float
    gigabytes: float
    slots_cpu_s_per_gb: float
    driver_cpu_s_per_gb: float
    jvm_cpu_s_per_gb: float


def measure(stage: Stage, seconds: float, pairs: int) -> list[Stretch]:
    port = free_port()
    keys = {
        "slots": "1",
        "topics": _TOPIC,
        "api.listen": f"127.0.0.1:{port}",
        f"{_ALIAS}->target.throttle.bytes.per.second": str(_BYTES_PER_S),
    }
    folder = stage.folder / "looked"
    launch = prepare(System.HELIOGRAPH, stage.route(_ALIAS, _TOPIC), folder, keys)
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
        return asyncio.run(_stretches(mirror, copied, port, seconds, pairs))


async def _stretches(
    mirror: MirrorProcess, copied: Callable[[], int], port: int, seconds: float, pairs: int
) -> list[Stretch]:
    await _settled(mirror)
    found: list[Stretch] = []
    for turn in range(2 * pairs):
        # Quiet, looked at, looked at, quiet: what drifts with time falls on both alike.
        if turn % 4 in (1, 2):
            async with scraped(port, LOOKS):
                found.append(await _stretch(mirror, copied, seconds, looked_at=True))
        else:
            found.append(await _stretch(mirror, copied, seconds, looked_at=False))
        print(found[-1], flush=True)
    return found


async def _settled(mirror: MirrorProcess) -> None:
    """Until Spark has begun and its JVM rests: what it compiles meanwhile slows the slots too."""
    until_s = monotonic_s() + _SETTLE_S
    while monotonic_s() < until_s:
        before = _cpu_s(mirror)
        await asyncio.sleep(_LOOK_S)
        if _cpu_s(mirror)["jvm"] - before["jvm"] < _RESTS_SHARE * _LOOK_S:
            return
    raise SystemExit(f"Spark's JVM did not come to rest within {_SETTLE_S:g} s")


async def _stretch(
    mirror: MirrorProcess, copied: Callable[[], int], seconds: float, *, looked_at: bool
) -> Stretch:
    await asyncio.sleep(_PAUSE_S)
    before, from_bytes, from_s = _cpu_s(mirror), copied(), monotonic_s()
    await asyncio.sleep(seconds)
    after, to_bytes, to_s = _cpu_s(mirror), copied(), monotonic_s()
    mirror.ensure_alive()
    gigabytes = (to_bytes - from_bytes) / _GB

    def per_gb(kind: str) -> float:
        return round((after[kind] - before[kind]) / gigabytes, 4)

    return Stretch(
        looked_at=looked_at,
        seconds=round(to_s - from_s, 2),
        gigabytes=round(gigabytes, 4),
        slots_cpu_s_per_gb=per_gb("slots"),
        driver_cpu_s_per_gb=per_gb("driver"),
        jvm_cpu_s_per_gb=per_gb("jvm"),
    )


def _cpu_s(mirror: MirrorProcess) -> dict[str, float]:
    """The driver's Python process, Spark's JVM, and what the JVM started: the slots."""
    spent = {"driver": 0.0, "jvm": 0.0, "slots": 0.0}
    root = psutil.Process(mirror.child.pid)
    for member in (root, *root.children(recursive=True)):
        try:
            used, name = member.cpu_times(), member.name()
        except psutil.NoSuchProcess:
            continue
        kind = "driver" if member == root else "jvm" if name.startswith("java") else "slots"
        spent[kind] += used.user + used.system
    return spent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _medians(stretches: list[Stretch], *, looked_at: bool) -> dict[str, float]:
    chosen = [each for each in stretches if each.looked_at is looked_at]
    return {
        name: round(statistics.median(getattr(each, name) for each in chosen), 4)
        for name in ("slots_cpu_s_per_gb", "driver_cpu_s_per_gb", "jvm_cpu_s_per_gb")
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=10.0, help="of one stretch")
    asked.add_argument("--pairs", type=int, default=8)
    order = asked.parse_args()
    load_before = os.getloadavg()[0]
    needed_s = _SETTLE_S + 2 * order.pairs * (order.seconds + 2 * _PAUSE_S) + 20
    row = CopyRow(
        name="looked",
        records=int(needed_s * _BYTES_PER_S / _RECORD_BYTES) // _PARTITIONS * _PARTITIONS,
        record_bytes=_RECORD_BYTES,
        batch_bytes=16_384,
        partitions=_PARTITIONS,
        systems=(),
        goals=(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-looked-") as scratch,
        open_stage(Path(scratch)) as stage,
    ):
        stage.create_source_topic(_TOPIC, _PARTITIONS)
        fill_topic(stage.source_address, _TOPIC, row)
        stretches = measure(stage, order.seconds, order.pairs)
    quiet, looked = (_medians(stretches, looked_at=each) for each in (False, True))
    found = {
        "goal": GOAL,
        "looks_every_s": dict(LOOKS),
        "bytes_per_s_held": _BYTES_PER_S,
        "quiet": quiet,
        "looked_at": looked,
        "slots_change_percent": round(
            100 * (looked["slots_cpu_s_per_gb"] / quiet["slots_cpu_s_per_gb"] - 1), 2
        ),
        "stretches": [asdict(each) for each in stretches],
        "load_before": load_before,
        "machine": asdict(this_machine()),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "looked-at.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: each for name, each in found.items() if name != "stretches"}, indent=1))


if __name__ == "__main__":
    main()
