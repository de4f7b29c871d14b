"""A busy flow's latency with and without a drill beside it, in one run. Runs on the driver.

Quiet laps and laps full of drills take turns, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError
from heliograph_tools.bench.latency import (
    PacedProducer,
    TimingConsumer,
    await_topic,
    ensure_all_well,
    quantile,
)
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.rows import DrillRow, LatencyRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import Route, compiled_environment, keys_for_groups, prepare
from heliograph_tools.bench.translation import commit_group
from heliograph_tools.bench.watch import wait_until

_CAUGHT_UP_RECORDS: Final = 100
_CHECKPOINTS_S: Final = 5.0
"""After groups were committed; checkpoints are written every second."""
_LAST_RECORDS_S: Final = 3.0
_END_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRun:
    system: System
    round_index: int
    drills: int
    drill_s: float
    """Of one drill, the median."""
    problems: tuple[str, ...]
    """Of drills that failed; none should."""
    quiet_seen: int
    quiet_p50_ms: float
    quiet_p99_ms: float
    drilled_seen: int
    drilled_p50_ms: float
    drilled_p99_ms: float
    missing: int
    repeated: int


@dataclass(slots=True)
class _Laps:
    """Numbers of the records sent in laps of one kind, as ranges."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def delays(self, delays_ms: Mapping[int, float]) -> list[float]:
        return sorted(
            delays_ms[number]
            for first, end in self.ranges
            for number in range(first, end)
            if number in delays_ms
        )

    @property
    def sent(self) -> int:
        return sum(end - first for first, end in self.ranges)


@dataclass(slots=True)
class _Driller:
    child: subprocess.Popen[str]
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def drill(self) -> None:
        if self.child.stdin is None:
            raise BenchError("the driller has no stdin")
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        answer = self.answer()
        self.seconds.append(float(answer["seconds"]))
        self.problems.extend(answer["problems"])

    def answer(self) -> dict[str, Any]:
        line = self.child.stdout.readline() if self.child.stdout is not None else ""
        if not line:
            raise BenchError(f"the driller ended with exit code {self.child.wait(_END_S_MAX)}")
        found: dict[str, Any] = json.loads(line)
        return found


def run_drill(
    stage: Stage,
    row: DrillRow,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> DrillRun:
    alias = f"{system.value.replace('_', '')}{round_index}{row.name}"
    topic = f"drilled-{alias}"
    stage.create_source_topic(topic, row.partitions)
    route = stage.route(alias, topic)
    folder = stage.folder / "runs" / alias
    keys = keys_for_groups(alias)
    launch = prepare(system, route, folder, heliograph_keys, keys)
    try:
        with (
            running(launch, folder / "mirror.log") as mirror,
            _driller(folder / "mm2.properties", route) as driller,
        ):
            return _measure(stage, row, mirror, route, driller, round_index)
    finally:
        stage.drop_topics(alias)


def _measure(
    stage: Stage,
    row: DrillRow,
    mirror: MirrorProcess,
    route: Route,
    driller: _Driller,
    round_index: int,
) -> DrillRun:
    paced = LatencyRow(
        name=row.name,
        records_per_s=row.records_per_s,
        record_bytes=row.record_bytes,
        partitions=row.partitions,
    )
    quiet, drilled = _Laps(), _Laps()
    with PacedProducer(stage.source_address, route.topic, paced) as producer:
        await_topic(stage.target_address, route.target_topic, row.partitions, mirror)
        with TimingConsumer(stage.target_address, route.target_topic, row.partitions) as consumer:
            wait_until(
                lambda: len(consumer.delays_ms) >= producer.sent - _CAUGHT_UP_RECORDS,
                lambda: ensure_all_well(mirror, producer, consumer),
                "catching up",
            )
            time.sleep(row.warmup_s)
            half = producer.sent // row.partitions // 2
            for number in range(row.groups):
                group = f"{route.source_alias}-{number}"
                at = dict.fromkeys(range(row.partitions), half)
                commit_group(stage, group, route.topic, at, mirror)
            time.sleep(_CHECKPOINTS_S)
            driller.drill()  # the first one makes what brokers make once
            driller.seconds.clear()
            for lap in range(2 * row.laps):
                first, end_s = producer.sent, monotonic_s() + row.lap_s
                while lap % 2 and monotonic_s() < end_s:
                    driller.drill()
                time.sleep(max(0.0, end_s - monotonic_s()))
                (drilled if lap % 2 else quiet).ranges.append((first, producer.sent))
                ensure_all_well(mirror, producer, consumer)
            time.sleep(_LAST_RECORDS_S)
    return _told(quiet, drilled, consumer, driller, mirror.launch.system, round_index)


def _told(
    quiet: _Laps,
    drilled: _Laps,
    consumer: TimingConsumer,
    driller: _Driller,
    system: System,
    round_index: int,
) -> DrillRun:
    before, beside = quiet.delays(consumer.delays_ms), drilled.delays(consumer.delays_ms)
    if not before or not beside:
        raise BenchError("none of the records was seen")
    return DrillRun(
        system=system,
        round_index=round_index,
        drills=len(driller.seconds),
        drill_s=median(driller.seconds),
        problems=tuple(driller.problems),
        quiet_seen=len(before),
        quiet_p50_ms=quantile(before, 0.50),
        quiet_p99_ms=quantile(before, 0.99),
        drilled_seen=len(beside),
        drilled_p50_ms=quantile(beside, 0.50),
        drilled_p99_ms=quantile(beside, 0.99),
        missing=quiet.sent + drilled.sent - len(before) - len(beside),
        repeated=consumer.repeated,
    )


@contextmanager
def _driller(path: Path, route: Route) -> Iterator[_Driller]:
    flow = f"{route.source_alias}->{route.target_alias}"
    child = subprocess.Popen(
        [sys.executable, "-m", "heliograph_tools.bench.driller", str(path), flow],
        env=compiled_environment(path.parent.parent),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        driller = _Driller(child)
        driller.answer()
        yield driller
    finally:
        child.terminate()
        child.wait(timeout=_END_S_MAX)
