"""Many partitions on one mirror: its cost at rest, its lag under load. Runs on the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.errors import MirrorError
from heliograph_tools.bench.filling import BuiltBatch, build_batch
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import Address, RawConnection, produce_frame
from heliograph_tools.bench.rows import PartitionsRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until

_LOOK_S: Final = 0.2
_SETTLE_S: Final = 5.0
_PARTITIONS_PER_REQUEST: Final = 50
_REQUESTS_IN_FLIGHT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Both ends of every partition; the source was asked first."""

    source_s: float
    target_s: float
    source_ends: tuple[int, ...]
    target_ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRun:
    system: System
    round_index: int
    partitions: int
    startup_s: float
    """From the start of the process until every partition has its first record on the target."""
    idle_cpu_share: float
    """Of one core, all processes of the mirror."""
    idle_rss_bytes: int
    busy_bytes_per_s: float
    """What the producers reached; short of the goal where the machine has no more."""
    busy_cpu_share: float
    busy_rss_bytes_max: int
    lag_s_max: float
    lag_s_p99: float
    lag_records_max: int
    """All partitions together."""
    drained_s: float
    """From the last record produced until the target holds all."""


def run_partitions(
    stage: Stage,
    row: PartitionsRow,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> PartitionsRun:
    alias = f"{system.value.replace('_', '')}{round_index}many"
    topic = f"many-{alias}"
    stage.create_source_topic(topic, row.partitions)
    route = stage.route(alias, topic)
    folder = stage.folder / "runs" / alias
    batch = build_batch(0, row.record_bytes, row.batch_bytes)
    try:
        # One batch in each partition, so that every lane has been carried before the rest is timed.
        _produce_everywhere(stage.source_address, topic, row.partitions, batch)
        launch = prepare(system, route, folder, heliograph_keys)
        with running(launch, folder / "mirror.log") as mirror:
            observer = _Observer(stage, topic, route.target_topic, row.partitions)
            with observer.source, observer.target:
                return _measure(stage, row, mirror, observer, batch, round_index)
    finally:
        stage.drop_topics(alias)


def _measure(
    stage: Stage,
    row: PartitionsRow,
    mirror: MirrorProcess,
    observer: _Observer,
    batch: BuiltBatch,
    round_index: int,
) -> PartitionsRun:
    wait_until(observer.caught_up, mirror.ensure_alive, "a first record in every partition")
    startup_s = monotonic_s() - mirror.started_s
    # The second append to each of a thousand new partitions took 35 s on an otherwise idle broker,
    # the third ran at full speed. Neither system is to pay for that.
    _produce_everywhere(stage.source_address, observer.topic, row.partitions, batch)
    wait_until(observer.caught_up, mirror.ensure_alive, "a second record in every partition")
    time.sleep(_SETTLE_S)
    idle_cpu_share, idle_rss_bytes = _rest(row, mirror)

    looks: list[Look] = []
    rss_bytes_max = 0
    with _SteadyLoad(stage.source_address, observer.topic, row, batch) as load:
        began_s, cpu_from_s = monotonic_s(), mirror.cpu_s()
        while monotonic_s() - began_s < row.busy_s:
            looks.append(observer.look())
            rss_bytes_max = max(rss_bytes_max, mirror.rss_bytes())
            mirror.ensure_alive()
            load.ensure_well()
            time.sleep(_LOOK_S)
        busy_s, cpu_to_s = monotonic_s() - began_s, mirror.cpu_s()
    ended_s = monotonic_s()
    wait_until(observer.caught_up, mirror.ensure_alive, "the last record")
    lags = sorted(lag for look_lags in lags_s(looks) for lag in look_lags)
    return PartitionsRun(
        system=mirror.launch.system,
        round_index=round_index,
        partitions=row.partitions,
        startup_s=startup_s,
        idle_cpu_share=idle_cpu_share,
        idle_rss_bytes=idle_rss_bytes,
        busy_bytes_per_s=load.bytes_sent / (ended_s - load.began_s),
        busy_cpu_share=(cpu_to_s - cpu_from_s) / busy_s,
        busy_rss_bytes_max=rss_bytes_max,
        lag_s_max=lags[-1],
        lag_s_p99=lags[int(0.99 * len(lags))],
        lag_records_max=max(_lag_records(look) for look in looks),
        drained_s=monotonic_s() - ended_s,
    )


def _rest(row: PartitionsRow, mirror: MirrorProcess) -> tuple[float, int]:
    from_s, cpu_from_s = monotonic_s(), mirror.cpu_s()
    time.sleep(row.idle_s)
    share = (mirror.cpu_s() - cpu_from_s) / (monotonic_s() - from_s)
    mirror.ensure_alive()
    return share, mirror.rss_bytes()


def lags_s(looks: Sequence[Look]) -> list[list[float]]:
    """For each look, how old the oldest record missing in each partition can be at most.

    A partition whose target holds all that the source held when it was asked is 0 behind. Otherwise
    its oldest missing record was written after the last look at which the source had no more than
    the target has at this one.
    """
    partitions = len(looks[0].source_ends) if looks else 0
    known = [0] * partitions
    found: list[list[float]] = []
    for index, look in enumerate(looks):
        row: list[float] = []
        for partition, held in enumerate(look.target_ends):
            if held >= look.source_ends[partition]:
                row.append(0.0)
                continue
            at = known[partition]
            while at + 1 <= index and looks[at + 1].source_ends[partition] <= held:
                at += 1
            known[partition] = at
            row.append(look.target_s - looks[at].source_s)
        found.append(row)
    return found


def _lag_records(look: Look) -> int:
    return sum(
        max(0, source - target)
        for source, target in zip(look.source_ends, look.target_ends, strict=True)
    )


class _Observer:
    def __init__(self, stage: Stage, topic: str, target_topic: str, partitions: int) -> None:
        self.topic, self._target_topic, self._partitions = topic, target_topic, partitions
        self.source = RawConnection(stage.source_address)
        self.target = RawConnection(stage.target_address)

    def look(self) -> Look:
        source_ends = self.source.end_offsets(self.topic, self._partitions)
        source_s = monotonic_s()
        target_ends = self.target.end_offsets(self._target_topic, self._partitions)
        return Look(
            source_s=source_s,
            target_s=monotonic_s(),
            source_ends=tuple(source_ends),
            target_ends=tuple(target_ends),
        )

    def caught_up(self) -> bool:
        look = self.look()
        return look.target_ends == look.source_ends


class _SteadyLoad:
    """One batch to each partition in turn, many to a request, at so many bytes a second."""

    def __init__(self, address: Address, topic: str, row: PartitionsRow, batch: BuiltBatch) -> None:
        self.bytes_sent = 0
        self.began_s = monotonic_s()
        self._failure: MirrorError | None = None
        self._address, self._row, self._batch = address, row, batch
        self._frames = _frames(topic, row.partitions, batch)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="load", daemon=True)

    def __enter__(self) -> _SteadyLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def ensure_well(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send_all(self) -> None:
        try:
            with RawConnection(self._address) as connection:
                self._send_paced(connection)
        except MirrorError as exc:
            self._failure = exc

    def _send_paced(self, connection: RawConnection) -> None:
        in_flight = 0
        self.began_s = monotonic_s()
        while not self._stop.is_set():
            for partitions, frame in self._frames:
                connection.send(frame)
                in_flight += 1
                payload = self._batch.records * self._row.record_bytes
                self.bytes_sent += partitions * payload
                if in_flight == _REQUESTS_IN_FLIGHT:
                    connection.receive_produced()
                    in_flight -= 1
                due_s = self.began_s + self.bytes_sent / self._row.bytes_per_s
                if self._stop.wait(max(0.0, due_s - monotonic_s())):
                    break
        for _ in range(in_flight):
            connection.receive_produced()


def _frames(topic: str, partitions: int, batch: BuiltBatch) -> list[tuple[int, bytes]]:
    lots = [
        range(first, min(partitions, first + _PARTITIONS_PER_REQUEST))
        for first in range(0, partitions, _PARTITIONS_PER_REQUEST)
    ]
    return [
        (len(lot), produce_frame(topic, [(partition, batch.payload) for partition in lot]))
        for lot in lots
    ]


def _produce_everywhere(address: Address, topic: str, partitions: int, batch: BuiltBatch) -> None:
    with RawConnection(address) as connection:
        for _, frame in _frames(topic, partitions, batch):
            connection.send(frame)
            connection.receive_produced()
