"""Figures under MirrorMaker 2's names, for panels and alarms that know those. Pure; driver.

Two spellings: `strimzi` is that of Strimzi's JMX exporter rules, `jmx-exporter` that of the
exporter's own example, which AWS, Redpanda and Google use. All are gauges there, counts too. A
slot takes the place of a task. Client ids are quoted as JMX quotes them: panels look for the quote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.engine.supervisor import SlotState
from heliograph.lag.figures import LaneLag
from heliograph.metrics.families import Definition, Families, Family
from heliograph.metrics.gather import Looked
from heliograph.metrics.native import TopicKey
from heliograph.model import (
    LATENCY_BUCKETS_MS,
    FlowId,
    LaneId,
    LaneProgress,
    SlotId,
    TopicPartition,
)
from heliograph.topics.naming import naming_policy

CHECKPOINTS_MAX: Final = 1_000
"""Partitions of groups of one flow that are told."""
WINDOW_S: Final = 30.0
"""Averages and extremes are of so long ago, as those of Kafka's own sensors."""
_MIRROR: Final = (
    "record_count",
    "record_rate",
    "byte_count",
    "byte_rate",
    *(
        f"{name}{end}"
        for name in ("record_age_ms", "replication_latency_ms")
        for end in ("", "_min", "_max", "_avg")
    ),
)
_ROUGH: Final = "MirrorMaker 2's name; see docs/reference/metrics.md."


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    source: str
    """Prefix of the source connector's metrics."""
    checkpoint: str
    labels: tuple[str, ...]
    """Of the source connector's metrics."""
    client_id: str
    """The label of a client's id."""


SPELLINGS: Final[Mapping[str, Spelling]] = {
    "strimzi": Spelling(
        source="kafka_connect_mirror_mirrorsourceconnector_",
        checkpoint="kafka_connect_mirror_mirrorcheckpointconnector_",
        labels=("source", "target", "topic", "partition"),
        client_id="clientid",
    ),
    "jmx-exporter": Spelling(
        source="kafka_connect_mirror_source_connector_",
        checkpoint="kafka_connect_mirror_checkpoint_connector_",
        labels=("destination", "topic", "partition"),
        client_id="clientId",
    ),
}


def definitions(spelling: Spelling) -> tuple[Definition, ...]:
    task = ("connector", "task")
    client = (spelling.client_id,)
    rows: list[tuple[str, tuple[str, ...]]] = [
        *((f"{spelling.source}{name}", spelling.labels) for name in _MIRROR),
        *(
            (
                f"{spelling.checkpoint}checkpoint_latency_ms{end}",
                ("source", "target", "group", "topic", "partition"),
            )
            for end in ("", "_min", "_max", "_avg")
        ),
        ("kafka_connect_worker_connector_count", ()),
        ("kafka_connect_worker_task_count", ()),
        ("kafka_connect_worker_rebalance_rebalancing", ()),
        ("kafka_connect_coordinator_assigned_connectors", ()),
        ("kafka_connect_coordinator_assigned_tasks", ()),
        ("kafka_connect_connector_task_offset_commit_avg_time_ms", task),
        ("kafka_connect_source_task_source_record_active_count", task),
        ("kafka_consumer_fetch_manager_records_lag", (*client, "topic", "partition")),
        ("kafka_consumer_fetch_manager_fetch_latency_avg", client),
        ("kafka_consumer_incoming_byte_total", client),
        ("kafka_producer_outgoing_byte_total", client),
        ("kafka_producer_buffer_available_bytes", client),
        ("jvm_memory_used_bytes", ("area",)),
        ("jvm_gc_collection_seconds_sum", ("gc",)),
        ("jvm_gc_collection_seconds_count", ("gc",)),
        ("jvm_threads_current", ()),
    ]
    return tuple(Definition(name, "gauge", labels, _ROUGH) for name, labels in rows)


@dataclass(slots=True)
class Windows:
    """Lanes as they were when the window began; belongs to who makes the figures."""

    began_s: float = 0.0
    base: Mapping[LaneId, LaneProgress] = field(default_factory=dict)
    next_s: float = 0.0
    next: Mapping[LaneId, LaneProgress] = field(default_factory=dict)

    def move(self, now_s: float, progress: Mapping[LaneId, LaneProgress]) -> None:
        """Windows overlap by half, so that one is never empty."""
        if now_s - self.next_s >= WINDOW_S / 2:
            self.base, self.began_s = self.next, self.next_s
            self.next, self.next_s = progress, now_s


def compat_families(
    looked: Looked,
    config: MirrorConfig,
    spelling: Spelling,
    shown: frozenset[TopicKey],
    windows: Windows,
) -> list[Family]:
    families = Families(definitions(spelling))
    status = looked.status
    progress: Mapping[LaneId, LaneProgress] = {} if status is None else status.progress
    windows.move(monotonic_s(), progress)
    names = _Names(config)
    for lane, lag in looked.lag.lanes.items():
        if (lane.flow, lane.source.topic) in shown and lane in progress:
            _lane(families, spelling, names, looked, lag, progress[lane], windows)
    _worker(families, looked, config)
    for flow in looked.flows:
        _tasks(families, looked, flow)
    _jvm(families, looked)
    for job in looked.jobs:
        if job.flow in looked.flows:
            for (group, at), took_ms in _slowest(job.latency_ms):
                row = (job.flow.source, job.flow.target, group, at.topic, str(at.partition))
                for end in ("", "_min", "_max", "_avg"):
                    name = f"{spelling.checkpoint}checkpoint_latency_ms{end}"
                    families[name].add(row, took_ms)
    return families.filled


def _slowest(
    latency_ms: Mapping[tuple[str, TopicPartition], int],
) -> Iterable[tuple[tuple[str, TopicPartition], int]]:
    """All, or the slowest of too many: one group alone may have ten thousand partitions."""
    if len(latency_ms) <= CHECKPOINTS_MAX:
        return latency_ms.items()
    return nlargest(CHECKPOINTS_MAX, latency_ms.items(), key=lambda each: each[1])


class _Names:
    """Topics as they are called on the target; found once each."""

    def __init__(self, config: MirrorConfig) -> None:
        self._config = config
        self._policies = {flow.id: naming_policy(flow) for flow in config.flows}
        self._found: dict[TopicKey, str] = {}

    def target(self, lane: LaneId) -> str:
        key = (lane.flow, lane.source.topic)
        if key not in self._found:
            self._found[key] = self._policies[lane.flow].target_topic(lane.source.topic)
        return self._found[key]


def _lane(
    families: Families,
    spelling: Spelling,
    names: _Names,
    looked: Looked,
    lag: LaneLag,
    at: LaneProgress,
    windows: Windows,
) -> None:
    lane, topic = lag.lane, names.target(lag.lane)
    every = {
        "source": lane.flow.source,
        "target": lane.flow.target,
        "destination": lane.flow.target,
        "topic": topic,
        "partition": str(lane.source.partition),
    }
    row = tuple(every[name] for name in spelling.labels)
    total = looked.totals.lane(lane)
    latency = latency_ms(windows.base.get(lane), at)
    # The age at which records were copied; a backlog's is that of what waits.
    waits_ms = None if lag.acknowledged.seconds is None else lag.acknowledged.seconds * 1000
    ages = latency if not waits_ms else (waits_ms, waits_ms, waits_ms)
    for name, value in (
        ("record_count", None if total is None else total.counts[0]),
        ("byte_count", None if total is None else total.counts[1]),
        ("record_rate", lag.records_per_s),
        ("byte_rate", lag.bytes_per_s),
    ):
        families[f"{spelling.source}{name}"].add(row, value)
    for name, found in (("record_age_ms", ages), ("replication_latency_ms", latency)):
        for end, value in zip(("_min", "_max", "_avg"), found or (), strict=bool(found)):
            families[f"{spelling.source}{name}{end}"].add(row, value)
        if found:
            families[f"{spelling.source}{name}"].add(row, found[2])
    read = lag.read.records
    records = lag.acknowledged.records if read is None else read
    slot = at_slot(looked, lane)
    client = _quoted(f"{lane.flow}|MirrorSourceConnector-{slot}|replication-consumer")
    families["kafka_consumer_fetch_manager_records_lag"].add(
        (client, lane.source.topic, str(lane.source.partition)), records
    )


def latency_ms(before: LaneProgress | None, now: LaneProgress) -> tuple[float, float, float] | None:
    """Least, most and mean since `before`, else since the lane came to its slot; the first two to
    the bounds of their buckets. None where nothing was copied that was not a backlog."""
    if not any(now.latency_counts):
        return None
    earlier, summed = (0,) * len(now.latency_counts), now.latency_ms_sum
    if (
        before is not None
        and before.latency_counts
        and before.latency_counts != now.latency_counts
        and before.records <= now.records
    ):
        earlier, summed = before.latency_counts, now.latency_ms_sum - before.latency_ms_sum
    counts = [a - b for a, b in zip(now.latency_counts, earlier, strict=True)]
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled or min(counts) < 0:
        return None
    bounds = (0, *LATENCY_BUCKETS_MS, LATENCY_BUCKETS_MS[-1])
    mean = summed / sum(counts)
    return float(bounds[filled[0]]), max(mean, float(bounds[filled[-1] + 1])), mean


def at_slot(looked: Looked, lane: LaneId) -> SlotId:
    return looked.placed.get(lane, SlotId(0))


def _worker(families: Families, looked: Looked, config: MirrorConfig) -> None:
    slots = () if looked.status is None else tuple(looked.status.slots)
    running = sum(slot.state is SlotState.RUNNING for slot in slots)
    connectors = sum(
        1 + flow.checkpoints.enabled + flow.heartbeats.enabled
        for flow in config.flows
        if flow.id in looked.flows
    )
    for name, value in (
        ("kafka_connect_worker_connector_count", connectors),
        ("kafka_connect_worker_task_count", running),
        ("kafka_connect_worker_rebalance_rebalancing", float(running < len(slots))),
        ("kafka_connect_coordinator_assigned_connectors", connectors),
        ("kafka_connect_coordinator_assigned_tasks", running),
    ):
        families[name].add((), value)


def _tasks(families: Families, looked: Looked, flow: FlowId) -> None:
    connector = _quoted(f"{flow}.MirrorSourceConnector")
    counters = looked.flow_counters.get(flow, {})
    notes = counters.get("notes", 0)
    active = _active(looked, flow)
    for slot, latest in looked.slot_latest.items():
        row = (connector, str(slot))
        name = "kafka_connect_source_task_source_record_active_count"
        families[name].add(row, active.get(slot, 0))
        if notes:
            name = "kafka_connect_connector_task_offset_commit_avg_time_ms"
            families[name].add(row, counters.get("note_ms", 0) / notes)
        producer = _quoted(f"{flow}|MirrorSourceConnector-{slot}")
        free = max(0, latest.bytes_max - latest.kept_bytes)
        families["kafka_producer_buffer_available_bytes"].add((producer,), free)
    for way, name in (
        ("from", "kafka_consumer_incoming_byte_total"),
        ("to", "kafka_producer_outgoing_byte_total"),
    ):
        cluster = flow.source if way == "from" else flow.target
        link = looked.links.get((cluster, way))
        if link is None:
            continue
        role = "replication-consumer" if way == "from" else "producer"
        client = _quoted(f"{flow}|MirrorSourceConnector|{role}")
        families[name].add((client,), link.counters.get("bytes", 0))
        if way == "from" and link.counters.get("requests"):
            mean = link.counters["answer_ms"] / link.counters["requests"]
            families["kafka_consumer_fetch_manager_fetch_latency_avg"].add((client,), mean)


def _active(looked: Looked, flow: FlowId) -> dict[SlotId, int]:
    """Records that were fetched and are not acknowledged, by slot."""
    found: dict[SlotId, int] = {}
    progress = {} if looked.status is None else looked.status.progress
    for lane, at in progress.items():
        if lane.flow == flow and at.source_read_offset >= 0:
            slot = at_slot(looked, lane)
            waiting = max(0, at.source_read_offset - at.source_next_offset)
            found[slot] = found.get(slot, 0) + waiting
    return found


def _jvm(families: Families, looked: Looked) -> None:
    jvm = looked.jvm
    if jvm is None:
        return
    families["jvm_memory_used_bytes"].add(("heap",), jvm.heap_used_bytes)
    families["jvm_memory_used_bytes"].add(("nonheap",), jvm.other_used_bytes)
    families["jvm_threads_current"].add((), jvm.threads)
    for collector, seconds in jvm.gc_seconds.items():
        families["jvm_gc_collection_seconds_sum"].add((collector,), seconds)
        families["jvm_gc_collection_seconds_count"].add((collector,), jvm.gc_counts[collector])


def _quoted(text: str) -> str:
    return f'"{text}"'
