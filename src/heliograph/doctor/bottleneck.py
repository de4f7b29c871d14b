"""Which side keeps a flow from being faster. No I/O; runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from heliograph.doctor.finding import Finding, Severity
from heliograph.model import FlowId
from heliograph.words import rate_words

CHECK: Final = "bottleneck"
_FULL: Final = 0.5
"""Of what slots may hold: so much waits only for a target that does not keep up."""
_EMPTY: Final = 0.05
_BUSY: Final = 0.85
_CLEARLY: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What was measured of one flow; None where it was not."""

    flow: FlowId
    lag_records: int | None = None
    """Of lanes that copy; 0 where all have caught up."""
    bytes_per_s: float | None = None
    """As the running driver reports it."""
    held_share: float | None = None
    """Of the bytes that its slots may hold: fetched and not acknowledged yet."""
    busiest_slot: float | None = None
    """Share of a core that the busiest slot used."""
    source_bytes_per_s: float | None = None
    """At which one reader was given records by a probe."""
    target_bytes_per_s: float | None = None
    """At which one writer's records were taken by a probe."""
    why_not: str = ""
    """Why the running driver was not asked."""


def bottleneck_finding(pace: Pace) -> Finding:
    """By a running driver where there is one, otherwise by what probes were given."""
    if pace.bytes_per_s is not None:
        return _running(pace)
    if pace.source_bytes_per_s is not None and pace.target_bytes_per_s is not None:
        return _probed(pace, pace.source_bytes_per_s, pace.target_bytes_per_s)
    known = [
        f"{who} {rate_words(rate)}"
        for who, rate in (
            ("one reader of the source gets", pace.source_bytes_per_s),
            ("one writer to the target gets", pace.target_bytes_per_s),
        )
        if rate is not None
    ]
    missing = [
        f"no driver was asked ({pace.why_not or 'it has no REST server'})",
        *(["too little of the source was read"] * (not pace.source_bytes_per_s)),
        *(["nothing was written to the target"] * (not pace.target_bytes_per_s)),
    ]
    return _finding(
        pace,
        Severity.UNKNOWN,
        "; ".join([f"not known: {', '.join(missing)}", *known]),
        "",
        "run with api.listen and ask again while there is a backlog, or use --try",
    )


def with_probes(pace: Pace, source: float | None, target: float | None) -> Pace:
    return replace(pace, source_bytes_per_s=source, target_bytes_per_s=target)


def _running(pace: Pace) -> Finding:
    rate = f"at {rate_words(pace.bytes_per_s or 0)}"
    if not pace.lag_records:
        return _finding(pace, Severity.OK, f"the mirror keeps up {rate}: nothing bounds it now")
    held = pace.held_share
    if pace.busiest_slot is not None and pace.busiest_slot >= _BUSY:
        return _finding(
            pace,
            Severity.NOTE,
            f"a slot is the bottleneck {rate}: it uses {pace.busiest_slot:.0%} of a core",
            "a slot is one process, and copies on one core",
            "more slots (slots, tasks.max), if there are cores; topics with tiny batches or gaps "
            "cost more (linger.ms of their producers)",
        )
    if held is not None and held >= _FULL:
        return _finding(
            pace,
            Severity.NOTE,
            f"the target is the bottleneck {rate}: slots hold {held:.0%} of what they may, for it "
            "to be acknowledged",
            "records come faster than the target takes them",
            "see the target's brokers: disks, quotas, min.insync.replicas, compression.type",
        )
    if held is not None and held <= _EMPTY:
        return _finding(
            pace,
            Severity.NOTE,
            f"the source is the bottleneck {rate}: slots hold {held:.0%} of what they may",
            "records do not come faster",
            "see the source's brokers (disks, quotas), and the network above",
        )
    return _finding(
        pace,
        Severity.UNKNOWN,
        f"neither side stands out {rate}: slots hold "
        f"{'an unknown share' if held is None else f'{held:.0%}'} of what they may",
        "",
        "ask again while a backlog is caught up",
    )


def _probed(pace: Pace, source: float, target: float) -> Finding:
    said = f"one reader gets {rate_words(source)}, one writer {rate_words(target)}"
    if source > _CLEARLY * target:
        side, fix = "target", "see the target's brokers: disks, quotas, min.insync.replicas"
    elif target > _CLEARLY * source:
        side, fix = "source", "see the source's brokers (disks, quotas), and the network above"
    else:
        return _finding(pace, Severity.OK, f"{said}: both sides are about as fast")
    return _finding(
        pace,
        Severity.NOTE,
        f"{said}: the {side} would be the bottleneck of a lane",
        "measured with one connection of this machine; lanes use several",
        fix,
    )


def _finding(pace: Pace, severity: Severity, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(
        check=CHECK, about=str(pace.flow), severity=severity, what=what, why=why, fix=fix
    )
