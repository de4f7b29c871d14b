"""One system copies one full topic: rate, CPU, memory, start-up. Runs on the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.errors import BenchError
from heliograph_tools.bench.floor import floor_rate
from heliograph_tools.bench.link import Link, NoLink, far_link
from heliograph_tools.bench.mirror import LogLine, MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, FarRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import Sighting, watch

_GB: Final = 1_000_000_000
_RSS_POLL_S: Final = 0.5
_SETTLE_S: Final = 0.5
_STARTUP_LINES_MAX: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRun:
    system: System
    round_index: int
    records: int
    seconds: float
    records_per_s: float
    startup_s: float | None = None
    """From the start of the process to the first record on the target."""
    cpu_s: float | None = None
    """Of all processes of the mirror, from the first record to the last."""
    cpu_s_per_gb: float | None = None
    """GB of keys and values before compression, the same for every system."""
    cpu_startup_s: float | None = None
    rss_bytes_max: int | None = None
    repeated: int | None = None
    """Records on the target beyond those of the source."""
    startup_lines: tuple[LogLine, ...] = ()
    floor: Mapping[str, float] | None = None
    wire_bytes: int | None = None
    """Over the link to the far cluster, in the records' direction, first record to last."""
    link_share: float | None = None
    """Of what the link could have carried in that time."""


def run_copy(
    stage: Stage,
    row: CopyRow,
    topic: str,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> CopyRun:
    alias = f"{system.value.replace('_', '')}{round_index}{row.name.replace('_', '')}"
    try:
        if system is System.FLOOR:
            return _run_floor(stage, row, topic, alias, round_index)
        return _run_mirror(stage, row, topic, alias, system, round_index, heliograph_keys)
    finally:
        stage.drop_topics(alias)


def _run_floor(stage: Stage, row: CopyRow, topic: str, alias: str, round_index: int) -> CopyRun:
    rates = floor_rate(stage, row, topic, f"{alias}.{topic}")
    slower = min(rates.values())
    return CopyRun(
        system=System.FLOOR,
        round_index=round_index,
        records=row.records,
        seconds=row.records / slower,
        records_per_s=slower,
        floor=rates,
    )


def _run_mirror(
    stage: Stage,
    row: CopyRow,
    topic: str,
    alias: str,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> CopyRun:
    link = far_link(stage, row) if isinstance(row, FarRow) else NoLink()
    route = link.route(stage.route(alias, topic))
    folder = stage.folder / "runs" / alias
    launch = prepare(system, route, folder, heliograph_keys)
    with (
        link,
        running(launch, folder / "mirror.log") as mirror,
        RawConnection(stage.target_address) as connection,
    ):
        meter = _Meter(mirror, link)
        sighting = watch(
            connection,
            route.target_topic,
            row.partitions,
            row.records,
            seconds_max=row.seconds_max if isinstance(row, FarRow) else None,
            on_first=meter.mark_first,
            ensure_alive=mirror.ensure_alive,
        )
        meter.mark_last()
        time.sleep(_SETTLE_S)
        held = sum(connection.end_offsets(route.target_topic, row.partitions))
        if held < sighting.last.records:
            raise BenchError(f"{route.target_topic} shrank to {held} records")
        return _summary(row, system, round_index, sighting, mirror, meter, held)


class _Meter:
    """CPU and wire at the first and the last record, and the most memory ever held."""

    def __init__(self, mirror: MirrorProcess, link: Link) -> None:
        self._mirror = mirror
        self._link = link
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow_memory, name="rss", daemon=True)
        self.cpu_first_s = 0.0
        self.cpu_last_s = 0.0
        self.rss_bytes_max = 0
        self.wire_bytes = 0

    def mark_first(self) -> None:
        self.wire_bytes = -self._link.carried_bytes()
        self.cpu_first_s = self._mirror.cpu_s()
        self._thread.start()

    def mark_last(self) -> None:
        self.wire_bytes += self._link.carried_bytes()
        self.cpu_last_s = self._mirror.cpu_s()
        self._done.set()
        self._thread.join()

    def _follow_memory(self) -> None:
        while not self._done.wait(_RSS_POLL_S):
            self.rss_bytes_max = max(self.rss_bytes_max, self._mirror.rss_bytes())
        self.rss_bytes_max = max(self.rss_bytes_max, self._mirror.rss_bytes())


def _summary(
    row: CopyRow,
    system: System,
    round_index: int,
    sighting: Sighting,
    mirror: MirrorProcess,
    meter: _Meter,
    held: int,
) -> CopyRun:
    startup_s = sighting.first.at_s - mirror.started_s
    cpu_s = meter.cpu_last_s - meter.cpu_first_s
    # The first look already finds records; the CPU that carried them counts as start-up, so the
    # bytes they are do not count either.
    share = (sighting.last.records - sighting.first.records) / row.records
    moved_bytes = row.payload_bytes * share
    # A stack trace tells nothing about where the time went.
    early = [
        line for line in mirror.lines if line.at_s <= startup_s and not line.text.startswith("\t")
    ]
    return CopyRun(
        system=system,
        round_index=round_index,
        records=sighting.last.records,
        seconds=sighting.seconds,
        records_per_s=sighting.records_per_s,
        startup_s=startup_s,
        cpu_s=cpu_s,
        cpu_s_per_gb=cpu_s / moved_bytes * _GB if moved_bytes else None,
        cpu_startup_s=meter.cpu_first_s,
        rss_bytes_max=meter.rss_bytes_max,
        repeated=max(0, held - row.records),
        wire_bytes=meter.wire_bytes if isinstance(row, FarRow) else None,
        link_share=meter.wire_bytes / sighting.seconds / row.bytes_per_s
        if isinstance(row, FarRow) and sighting.seconds > 0
        else None,
        startup_lines=tuple(early[-_STARTUP_LINES_MAX:]),
    )
