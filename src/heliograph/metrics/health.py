"""Whether flows are well, as figures: verdict, alarms, canary. Pure; runs on a driver thread."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from heliograph.health.conditions import Kind
from heliograph.health.listing import alarms_of
from heliograph.health.running import judged
from heliograph.health.sight import WatchFigures
from heliograph.health.verdict import Word
from heliograph.ledger.canary_note import CanaryNote, Track
from heliograph.metrics.families import Families
from heliograph.metrics.gather import Looked
from heliograph.model import FlowId, LaneProgress

_HEARD: Final = ("false", "true")


def add_health(families: Families, looked: Looked) -> None:
    """Of a flow that another driver leads, or whose ledger was not read, there is no verdict."""
    lanes: defaultdict[FlowId, list[LaneProgress]] = defaultdict(list)
    if looked.status is not None:
        for lane, at in looked.status.progress.items():
            lanes[lane.flow].append(at)
    for flow in looked.flows:
        _verdict(families, looked, flow, lanes[flow])
        facts = looked.ledgers.get(flow)
        if facts is not None:
            _alarms(families, looked, flow)
            if facts.health.canary is not None:
                _canary(families, flow, facts.health.canary, looked.at_ms)
    for job in looked.jobs:
        if job.measured is not None and job.flow in looked.flows:
            _measured(families, job.flow, job.measured)


def _verdict(families: Families, looked: Looked, flow: FlowId, lanes: list[LaneProgress]) -> None:
    about, facts = looked.of_flows.get(flow), looked.ledgers.get(flow)
    if about is None or facts is None or looked.status is None:
        return
    found = judged(
        about.settings,
        about.leadership,
        about.stopped,
        lanes,
        looked.lag.lanes,
        facts.health,
        looked.at_ms,
    )
    if found is not None:
        for word in Word:
            labels = (flow.source, flow.target, word.value)
            families["heliograph_flow_verdict"].add(labels, float(found.word is word))


def _alarms(families: Families, looked: Looked, flow: FlowId) -> None:
    rows = alarms_of(looked.ledgers[flow].alarms, flow, looked.at_ms).without_history().alarms
    counts = Counter((row.alarm.partition(":")[0], row.silenced is not None) for row in rows)
    for kind in Kind:
        for is_silenced, word in enumerate(_HEARD):
            labels = (flow.source, flow.target, kind.value, word)
            families["heliograph_alarms"].add(labels, counts[kind.value, bool(is_silenced)])


def _canary(families: Families, flow: FlowId, note: CanaryNote, at_ms: int) -> None:
    labels = (flow.source, flow.target)
    families["heliograph_canary_late_seconds"].add(labels, note.late_s(at_ms))
    families["heliograph_canary_interval_seconds"].add(labels, note.interval_s)
    for track in note.tracks:
        _track(families, (*labels, track.flow), track)


def _track(families: Families, labels: tuple[str, str, str], track: Track) -> None:
    for name, value in (
        ("arrived_total", track.seen),
        ("latency_seconds", _seconds(track.latency_ms)),
        ("hop_seconds", _seconds(track.hop_ms)),
        ("missing", track.missing),
        ("out_of_order", track.late),
        ("repeated", track.repeated),
    ):
        families[f"heliograph_canary_{name}"].add(labels, value)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _measured(families: Families, flow: FlowId, found: WatchFigures) -> None:
    labels = (flow.source, flow.target)
    families["heliograph_flow_tombstones_seconds"].add(labels, found.tombstones_s)
    families["heliograph_ledger_bytes"].add(labels, found.measured.ledger_bytes)
    for clock, ahead_s in found.measured.clocks_s.items():
        families["heliograph_clock_ahead_seconds"].add((*labels, clock), ahead_s)
    for each in found.measured.certificates:
        name = "heliograph_certificate_end_timestamp_seconds"
        families[name].add((*labels, each.whose), each.ends_ms / 1000)
