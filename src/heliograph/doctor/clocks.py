"""Whether the clocks of machines and clusters agree. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heliograph.doctor.finding import Finding, Severity
from heliograph.doctor.place import ClockSeen

CHECK: Final = "clocks"
_NOTICEABLE_MS: Final = 500.0
_BAD_MS: Final = 60_000.0
_WHY: Final = (
    "latencies and lags in seconds are wrong by so much, and so is a start by time; brokers refuse "
    "records too far in the future (message.timestamp.after.max.ms)"
)
_FIX: Final = "set the clock by NTP (chrony, systemd-timesyncd) on that machine"


def clock_findings(place: str, clocks: tuple[ClockSeen, ...]) -> list[Finding]:
    """The active controllers of all clusters against one machine."""
    return [_clock(place, clock) for clock in clocks]


def _clock(place: str, clock: ClockSeen) -> Finding:
    about = f"cluster {clock.cluster}"
    if clock.ahead_ms is None:
        return Finding(
            check=CHECK,
            about=about,
            severity=Severity.UNKNOWN,
            what=f"its clock is not told to {place}: {clock.why_not}",
            why=_WHY,
            fix="grant DESCRIBE on the cluster to the admin client (Kafka 3.4 or newer)",
        )
    what = f"node {clock.controller}, the active controller, is {_words(clock)} {place}"
    return _judged(about, what, clock.ahead_ms, clock.error_ms)


def broker_clock_findings(
    about: str, clocks: Mapping[int, tuple[float, float]], place: str
) -> list[Finding]:
    """Of every broker that a trial write has told of: how far ahead, and how exactly known."""
    found: list[Finding] = []
    for broker, (ahead_ms, error_ms) in sorted(clocks.items()):
        seen = ClockSeen(cluster=about, ahead_ms=ahead_ms, error_ms=error_ms)  # type: ignore[arg-type]
        found.append(
            _judged(about, f"broker {broker} is {_words(seen)} {place}", ahead_ms, error_ms)
        )
    return found


def executor_clock_findings(
    host: str, driver: tuple[ClockSeen, ...], executor: tuple[ClockSeen, ...]
) -> list[Finding]:
    """An executor against the driver, by the cluster whose clock both have read most exactly."""
    by_cluster = {clock.cluster: clock for clock in driver if clock.ahead_ms is not None}
    pairs = [
        (by_cluster[theirs.cluster], theirs)
        for theirs in executor
        if theirs.ahead_ms is not None and theirs.cluster in by_cluster
    ]
    if not pairs:
        return [
            Finding(
                check=CHECK,
                about=f"executor {host}",
                severity=Severity.UNKNOWN,
                what="its clock cannot be compared with the driver's: no cluster tells both the "
                "time",
                why=_WHY,
            )
        ]
    ours, theirs = min(pairs, key=lambda pair: pair[0].error_ms + pair[1].error_ms)
    assert ours.ahead_ms is not None
    assert theirs.ahead_ms is not None
    ahead_ms = ours.ahead_ms - theirs.ahead_ms
    error_ms = ours.error_ms + theirs.error_ms
    seen = ClockSeen(cluster=ours.cluster, ahead_ms=ahead_ms, error_ms=error_ms)
    return [_judged(f"executor {host}", f"is {_words(seen)} the driver", ahead_ms, error_ms)]


def _judged(about: str, what: str, ahead_ms: float, error_ms: float) -> Finding:
    """Only what is certain counts: the difference less what the answer took."""
    certain_ms = abs(ahead_ms) - error_ms
    if certain_ms < _NOTICEABLE_MS:
        return Finding(check=CHECK, about=about, severity=Severity.OK, what=what)
    severity = Severity.PROBLEM if certain_ms >= _BAD_MS else Severity.WARN
    return Finding(check=CHECK, about=about, severity=severity, what=what, why=_WHY, fix=_FIX)


def _words(clock: ClockSeen) -> str:
    assert clock.ahead_ms is not None
    if abs(clock.ahead_ms) <= clock.error_ms:
        return f"within {clock.error_ms:.0f} ms of"
    way = "ahead of" if clock.ahead_ms > 0 else "behind"
    return f"{abs(clock.ahead_ms):,.0f} ms (± {clock.error_ms:.0f}) {way}"
