"""Figures under Heliograph's own names. Pure; runs on a thread of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from heliograph import __version__
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.engine.tally import LANE_COUNTERS, LaneTotal
from heliograph.lag.figures import Lag, LaneLag, Motion, TopicLag, Trend
from heliograph.lag.folding import badness, fold
from heliograph.ledger.pipeline_note import PipelineFigures, PipelineState
from heliograph.metrics.definitions import LANE_METRICS, NATIVE, OTHERS
from heliograph.metrics.families import Families, Family, Histogram
from heliograph.metrics.gather import LedgerFacts, LinkLook, Looked
from heliograph.metrics.health import add_health
from heliograph.model import FlowId, LaneId, Stalled, TopicName

TopicKey = tuple[FlowId, TopicName]

_TRENDS: Final = {Trend.GROWING: 1.0, Trend.STEADY: 0.0, Trend.SHRINKING: -1.0}
_NOTHING: Final = LaneTotal()
_COUNTED: Final = tuple(name for name in LANE_COUNTERS if name != "latency_ms_sum")


def native_families(looked: Looked, *, lanes: bool, topics_max: int) -> list[Family]:
    """What is not known has no series; of topics past `topics_max` the rest is one."""
    families = Families((*NATIVE, *LANE_METRICS))
    flows = frozenset(looked.flows)
    shown = shown_topics(looked, topics_max)
    _driver(families, looked)
    for flow in looked.flows:
        _flow(families, looked, flow)
    add_health(families, looked)
    _topics(families, looked, shown)
    for (flow, _), figures in looked.pipelines.items():
        if flow in flows:
            _pipeline(families, flow, figures)
    families["heliograph_topics_left_out"].add((), _topic_count(looked) - len(shown))
    for (cluster, way), link in looked.links.items():
        if any(cluster in (flow.source, flow.target) for flow in flows):
            _link(families, (cluster, way), link)
    slots = () if looked.status is None else tuple(looked.status.slots)
    for state in SlotState:
        count = sum(slot.state is state for slot in slots)
        families["heliograph_slots"].add((state.value,), count)
    for slot in slots:
        _slot(families, looked, slot)
    if lanes:
        for lane, lag in looked.lag.lanes.items():
            if (lane.flow, lane.source.topic) in shown:
                _lane(families, looked, lane, lag)
    return families.filled


def shown_topics(looked: Looked, topics_max: int) -> frozenset[TopicKey]:
    """Those with series of their own: the worst first, then by name, so that most stay."""
    flows = frozenset(looked.flows)
    found = {key for key in looked.lag.topics if key[0] in flows}
    found |= {key for key in looked.totals.gone if key[0] in flows}
    if len(found) <= topics_max:
        return frozenset(found)
    lags = looked.lag

    def rank(key: TopicKey) -> tuple[object, ...]:
        topic = lags.topics.get(key)
        worst = None if topic is None or topic.worst is None else lags.lanes.get(topic.worst)
        if worst is None or worst.motion not in (Motion.STALLED, Motion.STUCK):
            return (1, *key)
        return (0, *badness(worst))

    return frozenset(sorted(found, key=rank)[:topics_max])


def _topic_count(looked: Looked) -> int:
    keys = looked.lag.topics.keys() | looked.totals.gone.keys()
    return sum(flow in looked.flows for flow, _ in keys)


def _driver(families: Families, looked: Looked) -> None:
    families["heliograph_build_info"].add((__version__,), 1)
    for name, value in (
        ("start_time_seconds", looked.began_ms / 1000),
        ("driver_cpu_seconds_total", looked.cpu_s),
        ("metrics_made_total", looked.made),
        ("metrics_seconds", looked.took_s),
        ("ledgers_unread", sum(flow not in looked.ledgers for flow in looked.flows)),
    ):
        families[f"heliograph_{name}"].add((), value)


def _flow(families: Families, looked: Looked, flow: FlowId) -> None:
    labels = (flow.source, flow.target)
    lag = looked.lag.flows.get(flow)
    if lag is not None:
        _lag(families, "flow_", labels, lag)
        families["heliograph_flow_stuck_lanes"].add(labels, lag.motions.get(Motion.STUCK, 0))
    for state in ("leading", "standby", "lapsed", "fenced"):
        value = float(looked.leaderships.get(flow) == state)
        families["heliograph_flow_state"].add((*labels, state), value)
    status = looked.status
    if status is not None:
        families["heliograph_flow_problem"].add(labels, float(flow in status.problems))
        reasons = Counter(
            at.state.reason.value
            for at in status.progress.values()
            if isinstance(at.state, Stalled) and at.lane.flow == flow
        )
        for reason, count in reasons.items():
            families["heliograph_stalled_lanes"].add((*labels, reason), count)
    for reason, count in looked.stalls.get(flow, {}).items():
        families["heliograph_stalls_total"].add((*labels, reason), count)
    counters = looked.flow_counters.get(flow, {})
    for name, value in (
        ("resyncs_total", counters.get("lookups", 0)),
        ("repeats_refused_batches_total", counters.get("refused_batches", 0)),
        ("map_corrections_total", counters.get("corrections", 0)),
        ("ledger_writes_total", counters.get("notes", 0)),
        ("ledger_write_seconds_total", counters.get("note_ms", 0) / 1000),
    ):
        families[f"heliograph_{name}"].add(labels, value)
    for verb, count in looked.decisions.get(flow, {}).items():
        families["heliograph_decisions"].add((*labels, verb), count)
    for job in looked.jobs:
        if job.flow == flow:
            families["heliograph_job_seconds"].add((*labels, job.what), job.took_s)
            families["heliograph_job_failures_total"].add((*labels, job.what), job.failures)
    if flow in looked.ledgers:
        _ledger(families, labels, looked.ledgers[flow])


def _ledger(families: Families, labels: tuple[str, str], facts: LedgerFacts) -> None:
    drill, audit = facts.drill, facts.audit
    for name, value in (
        ("losses_total", facts.losses),
        ("lost_records_total", facts.lost_records),
        ("dead_letters_total", facts.letters),
        ("flow_standbys", facts.standbys),
        ("ledger_entries", facts.entries),
        ("ledger_lanes", facts.lanes),
        ("ledger_unreadable_records", facts.unreadable_records),
    ):
        families[f"heliograph_{name}"].add(labels, value)
    if drill is not None:
        families["heliograph_drill_passed"].add(labels, float(drill.verdict == "pass"))
        families["heliograph_drill_timestamp_seconds"].add(labels, drill.at_ms / 1000)
        families["heliograph_drill_rto_seconds"].add(labels, drill.rto_s)
        families["heliograph_drill_lost_records"].add(labels, drill.lost_records)
    if audit is not None:
        families["heliograph_audit_timestamp_seconds"].add(labels, audit.at_ms / 1000)
        families["heliograph_audit_records"].add(labels, audit.records)
        for kind, records in audit.findings.items():
            families["heliograph_audit_findings"].add((*labels, kind.value), records)


def _topics(families: Families, looked: Looked, shown: frozenset[TopicKey]) -> None:
    totals = looked.totals.topics()
    others: dict[FlowId, LaneTotal] = {}
    for key, total in totals.items():
        if key in shown:
            _counters(families, (key[0].source, key[0].target, key[1]), total)
        elif key[0] in looked.flows:
            others[key[0]] = others.get(key[0], _NOTHING).plus(total)
    for flow, total in others.items():
        _counters(families, (flow.source, flow.target, OTHERS), total)
    rest: dict[FlowId, list[TopicLag]] = {}
    for key, lag in looked.lag.topics.items():
        if key in shown:
            _topic_lag(families, (key[0].source, key[0].target, key[1]), lag, lag.motions)
        elif key[0] in looked.flows:
            rest.setdefault(key[0], []).append(lag)
    for flow, lags in rest.items():
        _others(families, (flow.source, flow.target, OTHERS), lags)


def _others(families: Families, labels: tuple[str, str, str], lags: list[TopicLag]) -> None:
    motions: Counter[Motion] = Counter()
    for lag in lags:
        motions.update(lag.motions)
    folded = fold(lags)
    _topic_lag(families, labels, folded, motions)


def _topic_lag(
    families: Families, labels: tuple[str, str, str], lag: Lag, motions: Mapping[Motion, int]
) -> None:
    _lag(families, "", labels, lag)
    for motion, count in motions.items():
        families["heliograph_lanes"].add((*labels, motion.value), count)


def _counters(families: Families, labels: tuple[str, str, str], total: LaneTotal) -> None:
    counts = dict(zip(LANE_COUNTERS, total.counts, strict=True))
    for name in _COUNTED:
        families[f"heliograph_{name}_total"].add(labels, counts[name])
    if any(total.latency):
        value = Histogram(total.latency, counts["latency_ms_sum"] / 1000)
        families["heliograph_latency_seconds"].add(labels, value)


def _lag(families: Families, prefix: str, labels: tuple[str, ...], lag: Lag) -> None:
    for position in ("read", "acknowledged", "committed"):
        behind, where = getattr(lag, position), (*labels, position)
        families[f"heliograph_{prefix}lag_records"].add(where, behind.records)
        families[f"heliograph_{prefix}lag_bytes"].add(where, behind.bytes)
        families[f"heliograph_{prefix}lag_seconds"].add(where, behind.seconds)
    for name, value in (
        ("catch_up_seconds", lag.catch_up_s),
        ("retention_overrun_seconds", lag.overrun_s),
        ("records_per_second", lag.records_per_s),
        ("source_records_per_second", lag.source_records_per_s),
        ("lag_trend", None if lag.trend is None else _TRENDS[lag.trend]),
    ):
        families[f"heliograph_{prefix}{name}"].add(labels, value)


def _lane(families: Families, looked: Looked, lane: LaneId, lag: LaneLag) -> None:
    labels = (lane.flow.source, lane.flow.target, lane.source.topic, str(lane.source.partition))
    _lag(families, "lane_", labels, lag)
    total = looked.totals.lane(lane)
    if total is not None:
        families["heliograph_lane_records_total"].add(labels, total.counts[0])
        families["heliograph_lane_bytes_total"].add(labels, total.counts[1])
    at = None if looked.status is None else looked.status.progress.get(lane)
    if at is not None and isinstance(at.state, Stalled):
        families["heliograph_lane_stalled"].add((*labels, at.state.reason.value), 1)


def _pipeline(families: Families, flow: FlowId, at: PipelineFigures) -> None:
    labels = (flow.source, flow.target, at.name)
    for state in PipelineState:
        value = float(at.state is state)
        families["heliograph_pipeline_state"].add((*labels, state.value), value)
    for name, value_ in (
        ("lag_records", at.lag_records),
        ("records_per_second", at.records_per_s),
        ("batch_seconds", None if at.batch_ms is None else at.batch_ms / 1000),
        ("batch_timestamp_seconds", None if at.batch_at_ms is None else at.batch_at_ms / 1000),
        ("records_total", at.records_read),
        ("rows_total", at.rows_written),
        ("left_out_total", at.rows_left_out),
        ("restarts_total", at.restarts),
    ):
        families[f"heliograph_pipeline_{name}"].add(labels, value_)


def _link(families: Families, labels: tuple[str, str], link: LinkLook) -> None:
    for name, value in (
        ("requests_total", link.counters.get("requests", 0)),
        ("failed_requests_total", link.counters.get("failed", 0)),
        ("bytes_total", link.counters.get("bytes", 0)),
        ("batches_total", link.counters.get("batches", 0)),
        ("retried_batches_total", link.counters.get("retried_batches", 0)),
        ("answer_seconds_total", link.counters.get("answer_ms", 0) / 1000),
        ("throttle_seconds_total", link.counters.get("throttle_ms", 0) / 1000),
        ("request_bytes_max", link.largest[0]),
        ("batch_bytes_max", link.largest[1]),
        ("answer_seconds_max", link.largest[2] / 1000),
        ("requests_in_flight", link.requests_in_flight),
    ):
        families[f"heliograph_link_{name}"].add(labels, value)


def _slot(families: Families, looked: Looked, health: SlotHealth) -> None:
    labels = (str(health.slot),)
    counters = looked.slot_counters.get(health.slot, {})
    latest, shares = looked.slot_latest.get(health.slot), looked.slot_shares.get(health.slot)
    for name, value in (
        ("restarts_total", health.replaced),
        ("lanes", health.lanes),
        ("silent_seconds", health.silent_ms / 1000),
        ("kept_bytes", None if latest is None else latest.kept_bytes),
        ("bytes_max", None if latest is None else latest.bytes_max),
        ("io_ratio", None if shares is None else shares.io),
        ("io_wait_ratio", None if shares is None else shares.io_wait),
    ):
        families[f"heliograph_slot_{name}"].add(labels, value)
    for mode in ("user", "system"):
        value = counters.get(f"{mode}_s", 0.0)
        families["heliograph_slot_cpu_seconds_total"].add((*labels, mode), value)
