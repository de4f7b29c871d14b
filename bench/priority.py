"""A critical topic's latency with and without a bulk topic that catches up beside it, in one run.

    python -m bench.priority                  the critical topic has a slot of its own, and others
                                              give way to it (critical.latency.ms = 5)
    python -m bench.priority --latency-ms 0   it has a slot of its own, no more
    python -m bench.priority --shared         it shares the slots, for comparison
    python -m bench.priority --bulk 40MB      the bulk topic is throttled

Quiet laps and laps in which the bulk topic is copied take turns, so that whatever else the machine
does meets both. Before them the bulk topic is copied for half a minute, in which the mirror finds
out how much of it goes. Writes bench/results/operate/priority-5ms.json (else priority-apart.json,
priority-shared.json, priority-throttled.json). Needs brokers and Spark; runs on the driver. Five
minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.words import bytes_of
from heliograph_tools.bench.drilling import _Laps
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.latency import (
    PacedProducer,
    TimingConsumer,
    await_topic,
    ensure_all_well,
    quantile,
)
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, LatencyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import Route, prepare
from heliograph_tools.bench.watch import wait_until

RESULTS: Final = Path(__file__).parent / "results" / "operate"
_CRITICAL, _BULK = "critical", "bulk"
_PACED: Final = LatencyRow(name="critical", records_per_s=500, warmup_s=20.0)
_PARTITIONS: Final = 4
_LAPS: Final = 6
_LAP_S: Final = 8.0
_LEARNT_S: Final = 30.0
_FOLLOWED_S: Final = 3.0
"""After a decision, which a driver follows within two seconds."""
_CAUGHT_UP_RECORDS: Final = 100
_LATE_MS: Final = 5
"""In the figures of each second, where the mirror was not told what is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """From the first moment in which the bulk topic might be copied."""

    is_bulk: bool
    held_back_bytes_per_s: int | None
    copied_bytes_per_s: int
    late_share: float
    """Of the critical records that were sent in it, those that took longer than asked for."""
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    slots: int
    is_apart: bool
    latency_ms: int | None
    """`critical.latency.ms`, where lanes of the bulk topic give way."""
    bulk_bytes_per_s: float
    """What the bulk topic was copied at in its laps."""
    bulk_records_left: int
    """When the last lap ended; none means that its laps were not all full of work."""
    followed_s: list[float]
    """Each decision about the bulk topic, from its request until all lanes followed it."""
    held_back_bytes_per_s: list[int | None]
    """What it might be copied at, when it had been copied for half a minute and after each of its
    laps."""
    seconds: list[Second]
    quiet_seen: int
    quiet_p50_ms: float
    quiet_p99_ms: float
    beside_seen: int
    beside_p50_ms: float
    beside_p99_ms: float
    p99_ratio: float
    missing: int
    repeated: int


def measure(
    stage: Stage, row: CopyRow, *, shared: bool, bulk: int | None, latency_ms: int | None
) -> Priority:
    stage.create_source_topic(_CRITICAL, _PACED.partitions)
    stage.create_source_topic(_BULK, _PARTITIONS)
    fill_topic(stage.source_address, _BULK, row)
    route = stage.route("prio", f"{_CRITICAL},{_BULK}")
    keys = {"slots": "2", "tasks.max": "2"}
    if not shared:
        keys |= {"critical.topics": _CRITICAL, "critical.slots": "0"}
    if latency_ms is not None:
        keys["critical.latency.ms"] = str(latency_ms)
    if bulk is not None:
        keys |= {"throttle.topics": _BULK, "throttle.topics.bytes.per.second": str(bulk)}
    folder = stage.folder / "run"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    launch = prepare(System.HELIOGRAPH, route, folder, keys | {"api.listen": address})
    file = folder / "mm2.properties"
    argv = [sys.executable, "-m", "heliograph", "pause", str(file), "--topic", _BULK]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    decide = _Driver(f"http://{address}/v1")
    with running(launch, folder / "mirror.log") as mirror:
        return _measure(
            stage, mirror, route, row, decide, is_apart=not shared, latency_ms=latency_ms
        )


class _Driver:
    """Its REST API: a command would take a core for a second, and be what delays records."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.followed_s: list[float] = []
        """Of each decision, from its request until its lanes are shown to follow it."""

    def __call__(self, verb: str) -> None:
        body = {"flow": self._call("/flows")["flows"][0]["flow"], "verb": verb, "topics": [_BULK]}
        began_s = monotonic_s()
        self._call("/decisions", json.dumps(body).encode())
        wanted = _PARTITIONS if verb == "pause" else 0
        while self._call(f"/lanes?topic={_BULK}&state=paused")["total"] != wanted:
            time.sleep(0.02)
        self.followed_s.append(round(monotonic_s() - began_s, 2))

    @property
    def held_back(self) -> int | None:
        """What lanes that give way may copy together."""
        found = self._call("/slots")["held_back_bytes_per_s"]
        return None if found is None else int(found)

    def _call(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self._url + path, body)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)


class _Trace:
    """What might be copied of the bulk topic, what was, and what that did to the critical one."""

    def __init__(
        self, driver: _Driver, sent: Callable[[], int], bulk_copied: Callable[[], int]
    ) -> None:
        self._driver, self._sent, self._bulk_copied = driver, sent, bulk_copied
        self._noted: list[tuple[bool, int | None]] = []
        self._ends: list[tuple[float, int, int]] = [(monotonic_s(), sent(), bulk_copied())]

    def follow(self, seconds: float, *, is_bulk: bool) -> None:
        until_s = monotonic_s() + seconds
        while (left_s := until_s - monotonic_s()) > 0:
            time.sleep(min(1.0, left_s))
            if left_s >= 1.0:
                self._noted.append((is_bulk, self._driver.held_back))
                self._ends.append((monotonic_s(), self._sent(), self._bulk_copied()))

    def seconds(
        self, delays_ms: Mapping[int, float], record_bytes: int, late_ms: int
    ) -> list[Second]:
        found: list[Second] = []
        for (is_bulk, held_back), (from_s, first, before), (to_s, end, after) in zip(
            self._noted, self._ends, self._ends[1:], strict=False
        ):
            delays = sorted(delays_ms[n] for n in range(first, end) if n in delays_ms)
            found.append(
                Second(
                    is_bulk=is_bulk,
                    held_back_bytes_per_s=held_back,
                    copied_bytes_per_s=round((after - before) * record_bytes / (to_s - from_s)),
                    late_share=round(sum(d > late_ms for d in delays) / max(1, len(delays)), 4),
                    p99_ms=quantile(delays, 0.99) if delays else 0.0,
                )
            )
        return found


def _measure(
    stage: Stage,
    mirror: MirrorProcess,
    route: Route,
    row: CopyRow,
    decide: _Driver,
    *,
    is_apart: bool,
    latency_ms: int | None,
) -> Priority:
    target = f"{route.source_alias}.{_CRITICAL}"
    quiet, beside = _Laps(), _Laps()
    copied = copied_s = 0.0
    with (
        PacedProducer(stage.source_address, _CRITICAL, _PACED) as producer,
        RawConnection(stage.target_address) as connection,
    ):
        await_topic(stage.target_address, target, _PACED.partitions, mirror)
        with TimingConsumer(stage.target_address, target, _PACED.partitions) as consumer:
            wait_until(
                lambda: len(consumer.delays_ms) >= producer.sent - _CAUGHT_UP_RECORDS,
                lambda: ensure_all_well(mirror, producer, consumer),
                "catching up",
            )
            time.sleep(_PACED.warmup_s)
            trace = _Trace(decide, lambda: producer.sent, lambda: _bulk_copied(connection, route))
            decide("resume")
            trace.follow(_FOLLOWED_S + _LEARNT_S, is_bulk=True)
            held_back = [decide.held_back]
            for lap in range(_LAPS):
                is_bulk = bool(lap % 2)
                decide("resume" if is_bulk else "pause")
                trace.follow(_FOLLOWED_S, is_bulk=is_bulk)
                first, from_s, before = (
                    producer.sent,
                    monotonic_s(),
                    _bulk_copied(connection, route),
                )
                trace.follow(_LAP_S, is_bulk=is_bulk)
                (beside if is_bulk else quiet).ranges.append((first, producer.sent))
                if is_bulk:
                    copied += _bulk_copied(connection, route) - before
                    copied_s += monotonic_s() - from_s
                    held_back.append(decide.held_back)
                ensure_all_well(mirror, producer, consumer)
            left = row.records - _bulk_copied(connection, route)
            time.sleep(_FOLLOWED_S)
    alone, with_bulk = quiet.delays(consumer.delays_ms), beside.delays(consumer.delays_ms)
    return Priority(
        slots=2,
        is_apart=is_apart,
        latency_ms=latency_ms,
        bulk_bytes_per_s=round(copied * row.record_bytes / copied_s),
        bulk_records_left=left,
        followed_s=decide.followed_s,
        held_back_bytes_per_s=held_back,
        seconds=trace.seconds(consumer.delays_ms, row.record_bytes, latency_ms or _LATE_MS),
        quiet_seen=len(alone),
        quiet_p50_ms=quantile(alone, 0.50),
        quiet_p99_ms=quantile(alone, 0.99),
        beside_seen=len(with_bulk),
        beside_p50_ms=quantile(with_bulk, 0.50),
        beside_p99_ms=quantile(with_bulk, 0.99),
        p99_ratio=round(quantile(with_bulk, 0.99) / quantile(alone, 0.99), 2),
        missing=quiet.sent + beside.sent - len(alone) - len(with_bulk),
        repeated=consumer.repeated,
    )


def _bulk_copied(connection: RawConnection, route: Route) -> int:
    topic = f"{route.source_alias}.{_BULK}"
    if not connection.serves(topic, _PARTITIONS):
        return 0
    return sum(connection.end_offsets(topic, _PARTITIONS))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--shared", action="store_true")
    asked.add_argument("--bulk", type=bytes_of)
    asked.add_argument("--latency-ms", type=int, default=5, help="0: no lane gives way")
    asked.add_argument("--records", type=int, default=40_000_000, help="of 100 B in the bulk topic")
    order = asked.parse_args()
    row = CopyRow(
        name="bulk",
        records=order.records,
        record_bytes=100,
        batch_bytes=16_384,
        partitions=_PARTITIONS,
        systems=(),
        goals=(),
    )
    latency_ms = None if order.shared or order.bulk else order.latency_ms or None
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-priority-") as scratch,
        open_stage(Path(scratch)) as stage,
    ):
        found: dict[str, Any] = asdict(
            measure(stage, row, shared=order.shared, bulk=order.bulk, latency_ms=latency_ms)
        )
    found |= {"load_before": load_before, "machine": asdict(this_machine())}
    name = f"-{latency_ms}ms" if latency_ms else "-apart"
    name = "-shared" if order.shared else "-throttled" if order.bulk else name
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"priority{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
