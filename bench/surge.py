"""A slot's memory while ten times its load comes and the target does not keep up.

    python -m bench.surge

A mirror with one slot on Spark copies a steady load; then the source gets ten times as much while
the target's link is narrow, and again while the target hangs. The most that the slot's process has
resident, over what it had before, is compared with `slots.bytes.max`. Writes
bench/results/scale/surge.json. Needs brokers and Spark; runs on the driver. Three minutes.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError
from heliograph_tools.bench.filling import build_batch
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.partitions import _Observer, _SteadyLoad
from heliograph_tools.bench.rows import PartitionsRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until

RESULTS: Final = Path(__file__).parent / "results" / "scale" / "surge.json"
BYTES_MAX: Final = 64 << 20
STEADY_BYTES_PER_S: Final = 5_000_000
NARROW_BYTES_PER_S: Final = 2_000_000
_TOPIC: Final = "surge"
_PHASE_S: Final = 40.0
_LOOK_S: Final = 0.1
_HUNG_MS: Final = 1_000_000
_ROW: Final = PartitionsRow(
    name="surge",
    partitions=16,
    record_bytes=1_000,
    batch_bytes=65_536,
    bytes_per_s=STEADY_BYTES_PER_S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    what: str
    sent_bytes: int
    """To the source, in this phase."""
    rss_bytes_max: int
    over_before_bytes: int
    """More than the slot had with nothing to do."""
    share_of_setting: float


def measure(stage: Stage) -> tuple[int, list[Phase], float]:
    stage.create_source_topic(_TOPIC, _ROW.partitions)
    route = replace(stage.route("surge", _TOPIC), target_bootstrap=stage.target.proxied_bootstrap)
    keys = {"slots": "1", "slots.bytes.max": str(BYTES_MAX)}
    launch = prepare(System.HELIOGRAPH, route, stage.folder / "run", keys)
    surge = replace(_ROW, bytes_per_s=10 * STEADY_BYTES_PER_S)
    link = stage.target_link
    with running(launch, stage.folder / "mirror.log") as mirror:
        observer = _Observer(stage, _TOPIC, route.target_topic, _ROW.partitions)
        with observer.source, observer.target:
            with _SteadyLoad(stage.source_address, _TOPIC, _ROW, _batch()):
                time.sleep(1.0)
            wait_until(observer.caught_up, mirror.ensure_alive, "first records")
            before = slot_of(mirror).memory_info().rss
            phases = [_phase(stage, mirror, "steady", _ROW, before)]
            link.bytes_per_s = NARROW_BYTES_PER_S
            phases.append(_phase(stage, mirror, "ten times, target narrow", surge, before))
            link.delay_ms = _HUNG_MS
            phases.append(_phase(stage, mirror, "ten times, target hangs", surge, before))
            link.delay_ms, link.bytes_per_s = 0, None
            link.cut()
            from_s = monotonic_s()
            wait_until(observer.caught_up, mirror.ensure_alive, "all of the surge")
            return before, phases, monotonic_s() - from_s


def slot_of(mirror: MirrorProcess) -> psutil.Process:
    """The Python worker of Spark that runs the slot: a fork of PySpark's daemon."""
    found = [
        member
        for member in mirror._tree()
        if _is_daemon(member) and (parent := member.parent()) is not None and _is_daemon(parent)
    ]
    if len(found) != 1:
        raise BenchError(f"{len(found)} Python workers, expected one")
    return found[0]


def _is_daemon(member: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in member.cmdline()
    except psutil.NoSuchProcess:  # also a zombie
        return False


def _batch() -> Any:
    return build_batch(0, _ROW.record_bytes, _ROW.batch_bytes)


def _phase(
    stage: Stage, mirror: MirrorProcess, what: str, row: PartitionsRow, before: int
) -> Phase:
    slot, most = slot_of(mirror), 0
    with _SteadyLoad(stage.source_address, _TOPIC, row, _batch()) as load:
        end_s = monotonic_s() + _PHASE_S
        while monotonic_s() < end_s:
            most = max(most, slot.memory_info().rss)
            mirror.ensure_alive()
            load.ensure_well()
            time.sleep(_LOOK_S)
    return Phase(
        what=what,
        sent_bytes=load.bytes_sent,
        rss_bytes_max=most,
        over_before_bytes=most - before,
        share_of_setting=round((most - before) / BYTES_MAX, 3),
    )


def main() -> None:
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-surge-") as scratch,
        open_stage(Path(scratch)) as stage,
    ):
        before, phases, caught_up_s = measure(stage)
    found = {
        "goal": "what a slot keeps in memory beside its own is bounded by slots.bytes.max",
        "slots_bytes_max": BYTES_MAX,
        "rss_bytes_before": before,
        "phases": [asdict(each) for each in phases],
        "caught_up_s": round(caught_up_s, 1),
        "load_before": load_before,
        "machine": asdict(this_machine()),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
