"""Records at a steady pace, timed from send to sight on the target. Runs on the driver.

Producer and consumer are bare connections, the same for every system: what they add is the time of
one produce and one fetch on an idle broker, well under a millisecond.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BenchError, MirrorError
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import Address, FetchedPartition, RawConnection, produce_frame
from heliograph_tools.bench.rows import LatencyRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until

_STAMP: Final = struct.Struct(">Qq")
_FETCH_WAIT_MS: Final = 500
_FETCH_BYTES_MAX: Final = 1 << 20
_CAUGHT_UP_RECORDS: Final = 100
_LAST_RECORDS_S: Final = 3.0
"""After the last record that counts; what has not arrived by then is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRun:
    system: System
    round_index: int
    sent: int
    seen: int
    missing: int
    repeated: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    cpu_share: float
    """Of one core, over the measured time, all processes of the mirror."""


def run_latency(
    stage: Stage,
    row: LatencyRow,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> LatencyRun:
    alias = f"{system.value.replace('_', '')}{round_index}{row.name}"
    topic = f"paced-{alias}"
    stage.create_source_topic(topic, row.partitions)
    route = stage.route(alias, topic)
    folder = stage.folder / "runs" / alias
    launch = prepare(system, route, folder, heliograph_keys)
    try:
        with running(launch, folder / "mirror.log") as mirror:
            return _measure(stage, row, mirror, topic, route.target_topic, round_index)
    finally:
        stage.drop_topics(alias)


def _measure(
    stage: Stage,
    row: LatencyRow,
    mirror: MirrorProcess,
    topic: str,
    target_topic: str,
    round_index: int,
) -> LatencyRun:
    with PacedProducer(stage.source_address, topic, row) as producer:
        await_topic(stage.target_address, target_topic, row.partitions, mirror)
        with TimingConsumer(stage.target_address, target_topic, row.partitions) as consumer:
            # What was sent while the mirror was starting must be through before anything is timed.
            wait_until(
                lambda: len(consumer.delays_ms) >= producer.sent - _CAUGHT_UP_RECORDS,
                lambda: ensure_all_well(mirror, producer, consumer),
                "catching up",
            )
            time.sleep(row.warmup_s)
            first, cpu_from_s, from_s = producer.sent, mirror.cpu_s(), monotonic_s()
            time.sleep(row.seconds)
            end, cpu_to_s, to_s = producer.sent, mirror.cpu_s(), monotonic_s()
            time.sleep(_LAST_RECORDS_S)
            ensure_all_well(mirror, producer, consumer)
    delays = {
        number: delay for number, delay in consumer.delays_ms.items() if first <= number < end
    }
    if not delays:
        raise BenchError(f"{target_topic}: none of {end - first} records was seen")
    ordered = sorted(delays.values())
    return LatencyRun(
        system=mirror.launch.system,
        round_index=round_index,
        sent=end - first,
        seen=len(ordered),
        missing=end - first - len(ordered),
        repeated=consumer.repeated,
        p50_ms=quantile(ordered, 0.50),
        p99_ms=quantile(ordered, 0.99),
        p999_ms=quantile(ordered, 0.999),
        max_ms=ordered[-1],
        cpu_share=(cpu_to_s - cpu_from_s) / (to_s - from_s),
    )


def quantile(ordered: list[float], share: float) -> float:
    """The nearest-rank quantile of values already in order."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class PacedProducer:
    """Sends one record every `1 / records_per_s`, whatever the answers do."""

    def __init__(self, address: Address, topic: str, row: LatencyRow) -> None:
        self.sent = 0
        self.failure: MirrorError | None = None
        self._topic, self._row = topic, row
        self._connection = RawConnection(address)
        self._stop = threading.Event()
        self._sender = threading.Thread(target=self._send_all, name="paced-send", daemon=True)
        self._reader = threading.Thread(target=self._read_all, name="paced-acks", daemon=True)
        self._sent = threading.Semaphore(0)

    def __enter__(self) -> PacedProducer:
        self._sender.start()
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._sender.join()
        self._sent.release()
        self._reader.join()
        self._connection.__exit__(None, None, None)

    def _send_all(self) -> None:
        try:
            self._send_paced()
        except MirrorError as exc:
            self.failure = exc

    def _send_paced(self) -> None:
        filler = b"x" * (self._row.record_bytes - _STAMP.size)
        period_s = 1 / self._row.records_per_s
        due_s = monotonic_s()
        while not self._stop.is_set():
            value = _STAMP.pack(self.sent, time.monotonic_ns()) + filler
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1)
            builder.append(0, now_ms(), None, value, [])
            partition = self.sent % self._row.partitions
            self._connection.send(produce_frame(self._topic, [(partition, bytes(builder.build()))]))
            self.sent += 1
            self._sent.release()
            due_s += period_s
            time.sleep(max(0.0, due_s - monotonic_s()))

    def _read_all(self) -> None:
        try:
            self._read_answers()
        except MirrorError as exc:
            self.failure = exc

    def _read_answers(self) -> None:
        answered = 0
        while True:
            self._sent.acquire()
            if self._stop.is_set() and answered == self.sent:
                return
            self._connection.receive_produced()
            answered += 1


class TimingConsumer:
    """Follows the target's partitions from their start and times every record it has not seen."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        self.delays_ms: dict[int, float] = {}
        self.repeated = 0
        self.failure: MirrorError | None = None
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), 0)
        self._connection = RawConnection(address)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="paced-read", daemon=True)

    def __enter__(self) -> TimingConsumer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.__exit__(None, None, None)

    def _follow(self) -> None:
        try:
            self._follow_partitions()
        except MirrorError as exc:
            self.failure = exc

    def _follow_partitions(self) -> None:
        while not self._stop.is_set():
            fetched = self._connection.fetch(
                self._topic, self._next, _FETCH_WAIT_MS, _FETCH_BYTES_MAX
            )
            at_ns = time.monotonic_ns()
            for part in fetched:
                self._time_records(part, at_ns)

    def _time_records(self, part: FetchedPartition, at_ns: int) -> None:
        batches = MemoryRecords(part.records)
        while (batch := batches.next_batch()) is not None:
            for record in batch:
                number, sent_ns = _STAMP.unpack_from(record.value)
                if number in self.delays_ms:
                    self.repeated += 1
                else:
                    self.delays_ms[number] = (at_ns - sent_ns) / 1e6
                self._next[part.partition] = record.offset + 1


def ensure_all_well(
    mirror: MirrorProcess, producer: PacedProducer, consumer: TimingConsumer
) -> None:
    mirror.ensure_alive()
    for failure in (producer.failure, consumer.failure):
        if failure is not None:
            raise failure


def await_topic(address: Address, topic: str, partitions: int, mirror: MirrorProcess) -> None:
    with RawConnection(address) as connection:
        wait_until(
            lambda: (
                connection.serves(topic, partitions)
                and sum(connection.end_offsets(topic, partitions)) > 0
            ),
            mirror.ensure_alive,
            f"first record in {topic}",
        )
