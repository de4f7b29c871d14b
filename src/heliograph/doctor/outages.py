"""How long a mirror may be away before something is lost that it cannot make good. No I/O;
anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from heliograph.doctor.facts import ClusterFacts, TopicFacts
from heliograph.doctor.finding import Finding, Severity, listed
from heliograph.inspect.flow_status import FlowStatus
from heliograph.model import TopicName
from heliograph.words import counted, in_words

CHECK: Final = "outages"
_DAY_S: Final = 86_400
_SHORT_PRODUCER_S: Final = 600
_NEAR: Final = 0.5


def longest_outage_s(status: FlowStatus, now_ms: int) -> float | None:
    """The longest time for which a lane has had something to mirror and has not: the age of its
    oldest record that waits, how long ago it was last heard of while no driver runs, or the longest
    outage that a driver noted, however long ago."""
    if not status.is_known or not status.lanes:
        return None
    waits = [lane.lag_s for lane in status.lanes if lane.lag_s is not None]
    if status.holder is None:
        noted = [lane.noted_ms for lane in status.lanes if lane.noted_ms is not None]
        waits += [(now_ms - max(noted)) / 1000] if noted else []
    if status.outage is not None:
        waits.append(status.outage.longest_s)
    return max(waits, default=0.0)


def outage_findings(
    source: ClusterFacts,
    target: ClusterFacts,
    mirrored: Iterable[TopicName],
    status: FlowStatus,
    now_ms: int,
) -> list[Finding]:
    about = str(status.flow)
    seen_s = longest_outage_s(status, now_ms)
    topics = [source.topics[name] for name in mirrored if name in source.topics]
    found = [
        *_tombstones(about, topics, seen_s),
        *_retention(about, topics, status),
        *_producers(about, target, seen_s),
    ]
    if not any(each.severity in (Severity.PROBLEM, Severity.WARN) for each in found):
        seen = "nothing was mirrored yet" if seen_s is None else f"{_words(seen_s)} were seen"
        least = _shortest(topics)
        bound = "of any length" if least is None else f"of {_words(least)}"
        found.append(_finding(about, Severity.OK, f"an outage {bound} can be made up for; {seen}"))
    return found


def _shortest(topics: list[TopicFacts]) -> float | None:
    bounds = [
        ms / 1000
        for topic in topics
        for key, policy in (("retention.ms", "delete"), ("delete.retention.ms", "compact"))
        if policy in (topic.text("cleanup.policy") or "")
        and (ms := topic.number(key)) is not None
        and ms >= 0
    ]
    return min(bounds, default=None)


def _tombstones(about: str, topics: list[TopicFacts], seen_s: float | None) -> Iterator[Finding]:
    compacted = {
        topic.name: ms / 1000
        for topic in topics
        if "compact" in (topic.text("cleanup.policy") or "")
        and (ms := topic.number("delete.retention.ms")) is not None
    }
    why = (
        "a tombstone that the source compacts away before it is mirrored leaves its key on the "
        "target: deleted on one side, alive on the other"
    )
    fix = "raise delete.retention.ms of these topics on the source"
    over = [name for name, kept_s in compacted.items() if seen_s is not None and seen_s > kept_s]
    if over:
        yield _finding(
            about,
            Severity.PROBLEM,
            f"{listed(over)}: away for {_words(seen_s or 0)}, longer than delete.retention.ms",
            why,
            fix,
        )
    short = [name for name, kept_s in compacted.items() if kept_s < _DAY_S and name not in over]
    if short:
        least = min(compacted[name] for name in short)
        yield _finding(
            about,
            Severity.WARN,
            f"{counted(len(short), 'compacted topic')} ({listed(short)}) with delete.retention.ms "
            f"of {_words(least)}",
            why,
            fix,
        )


def _retention(about: str, topics: list[TopicFacts], status: FlowStatus) -> Iterator[Finding]:
    kept = {
        topic.name: ms / 1000
        for topic in topics
        if "delete" in (topic.text("cleanup.policy") or "")
        and (ms := topic.number("retention.ms")) is not None
        and ms >= 0
    }
    near = {
        lane.lane.source.topic: lane.lag_s
        for lane in status.lanes
        if lane.lag_s and lane.lag_s > _NEAR * kept.get(lane.lane.source.topic, float("inf"))
    }
    if near:
        left = min(kept[name] - lag_s for name, lag_s in near.items() if lag_s is not None)
        yield _finding(
            about,
            Severity.PROBLEM if left <= 0 else Severity.WARN,
            f"{listed(sorted(near))}: the oldest record that waits has {_words(max(0.0, left))} "
            "left of retention.ms",
            "what retention deletes first is lost to the target (retention overrun)",
            "raise retention.ms on the source until the lanes have caught up",
        )


def _producers(about: str, target: ClusterFacts, seen_s: float | None) -> Iterator[Finding]:
    expiry = min(target.broker_numbers("producer.id.expiration.ms").values(), default=None)
    if expiry is None:
        yield _finding(
            about,
            Severity.UNKNOWN,
            f"producer.id.expiration.ms of cluster {target.alias} is not told",
            "it says for how long a broker knows which batch of a lane comes next",
            "grant DESCRIBE_CONFIGS on the cluster to the target's admin client",
        )
        return
    said = f"cluster {target.alias} forgets producers after {_words(expiry / 1000)}"
    why = (
        "a broker that has forgotten takes any sequence; a lane then goes on by the log and the "
        "ledger, and sends its first batch alone"
    )
    if expiry < 1000 * _SHORT_PRODUCER_S:
        fix = "producer.id.expiration.ms = 86400000, Kafka's default"
        yield _finding(about, Severity.WARN, said, why, fix)
    elif seen_s is not None and 1000 * seen_s > expiry:
        yield _finding(
            about, Severity.NOTE, f"{said}, and an outage of {_words(seen_s)} was seen", why
        )


def _words(seconds: float) -> str:
    """To the minute from an hour on: an outage is not known to the second."""
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} d"
    if seconds >= 2 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return in_words(round(seconds)) if seconds < 120 else f"{seconds / 60:.0f} min"


def _finding(about: str, severity: Severity, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(check=CHECK, about=about, severity=severity, what=what, why=why, fix=fix)
