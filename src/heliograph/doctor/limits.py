"""Sizes and timestamps that the target would refuse or change. No I/O; runs anywhere.

What depends on one topic's settings alone (max.message.bytes of both sides, LogAppendTime on the
target) is in the plan, `topics.provisioning`; here is what brokers bound for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from heliograph.doctor.facts import ClusterFacts, TopicFacts
from heliograph.doctor.finding import Finding, Severity, listed
from heliograph.inspect.dry_run import FlowPlan
from heliograph.model import FlowId, TopicName
from heliograph.topics.provisioning import Severity as Weight
from heliograph.words import counted, in_words

CHECK: Final = "limits"
PLAN: Final = "plan"
_REQUEST_ROOM_BYTES: Final = 64 * 1024
"""Of a request, beside the batch it carries."""
_NO_BOUND_MS: Final = 2**62
_APPEND_TIME: Final = "LogAppendTime"


def limit_findings(
    flow: FlowId,
    source: ClusterFacts,
    target: ClusterFacts,
    mirrored: Iterable[tuple[TopicName, TopicName]],
) -> list[Finding]:
    about = str(flow)
    pairs = [
        (source.topics[name], target.topics.get(renamed))
        for name, renamed in mirrored
        if name in source.topics
    ]
    found = [
        *_request_size(about, target, [topic for topic, _ in pairs]),
        *_timestamps(about, target, pairs),
        *_append_time(about, [topic for topic, _ in pairs]),
    ]
    if not any(each.severity in (Severity.PROBLEM, Severity.WARN) for each in found) and pairs:
        sizes = [size for topic, _ in pairs if (size := topic.number("max.message.bytes"))]
        largest = f"; the largest batch allowed is {max(sizes):,} bytes" if sizes else ""
        what = f"{counted(len(pairs), 'topic')}: the target takes their sizes and timestamps"
        found.append(_finding(about, Severity.OK, f"{what}{largest}"))
    return found


def _request_size(about: str, target: ClusterFacts, topics: list[TopicFacts]) -> Iterator[Finding]:
    """A broker closes the connection of a request above its bound, without a word."""
    allowed = target.broker_numbers("socket.request.max.bytes")
    if not allowed:
        return
    least = min(allowed.values())
    large = [
        topic.name
        for topic in topics
        if (topic.number("max.message.bytes") or 0) + _REQUEST_ROOM_BYTES > least
    ]
    if large:
        yield _finding(
            about,
            Severity.PROBLEM,
            f"socket.request.max.bytes of cluster {target.alias} is {least:,}, and max.message"
            f".bytes of {listed(large)} on the source lets batches be as large",
            "the broker closes the connection instead of answering, and the lane stalls",
            "raise socket.request.max.bytes on the target's brokers above max.message.bytes",
        )


def _timestamps(
    about: str, target: ClusterFacts, pairs: list[tuple[TopicFacts, TopicFacts | None]]
) -> Iterator[Finding]:
    """What the target holds against a record's own time, which it looks at when it is appended."""
    old = _bounded(target, pairs, "before", _may_be_older)
    if old:
        key, least = "message.timestamp.before.max.ms", min(old.values())
        yield _finding(
            about,
            Severity.PROBLEM,
            f"{key} of cluster {target.alias} is {in_words(least / 1000)}, and the source keeps "
            f"records of {listed(sorted(old))} for longer",
            "the target refuses records of that age, and their lanes stall (refused by target)",
            f"remove {key} from the target's topics and brokers",
        )
    early = _bounded(target, pairs, "after", _may_be_later)
    if early:
        key, least = "message.timestamp.after.max.ms", min(early.values())
        yield _finding(
            about,
            Severity.WARN,
            f"{key} of cluster {target.alias} is {in_words(least / 1000)}, and the source takes "
            f"records of {listed(sorted(early))} from further in the future",
            "the target refuses such records, and their lanes stall (refused by target)",
            f"the same {key} on both sides",
        )


def _bounded(
    target: ClusterFacts,
    pairs: list[tuple[TopicFacts, TopicFacts | None]],
    side: str,
    exceeds: Callable[[TopicFacts, int], bool],
) -> dict[TopicName, int]:
    """Topics that may hold records beyond the target's bound, with the bound in ms."""
    key = f"message.timestamp.{side}.max.ms"
    default = min(target.broker_numbers(f"log.{key}").values(), default=None)
    found: dict[TopicName, int] = {}
    for topic, copy in pairs:
        bound = default if copy is None else copy.number(key)
        if bound is not None and bound < _NO_BOUND_MS and exceeds(topic, bound):
            found[topic.name] = bound
    return found


def _may_be_older(topic: TopicFacts, bound_ms: int) -> bool:
    kept_ms = topic.number("retention.ms")
    is_deleted = "delete" in (topic.text("cleanup.policy") or "")
    if not is_deleted or kept_ms is None or kept_ms < 0:
        return not is_deleted or kept_ms is not None  # kept without end; or not told
    return kept_ms > bound_ms


def _may_be_later(topic: TopicFacts, bound_ms: int) -> bool:
    own = topic.number("message.timestamp.after.max.ms")
    return own is not None and own > bound_ms


def _append_time(about: str, topics: list[TopicFacts]) -> Iterator[Finding]:
    stamped = [t.name for t in topics if t.text("message.timestamp.type") == _APPEND_TIME]
    if stamped:
        yield _finding(
            about,
            Severity.NOTE,
            f"{counted(len(stamped), 'topic')} with LogAppendTime on the source "
            f"({listed(stamped)})",
            "a client may not send that mark, so their batches are re-encoded with the same times "
            "as CreateTime: three to five times the CPU",
            "CreateTime on the source topic, where the producers' clocks are good",
        )


def plan_findings(plan: FlowPlan) -> list[Finding]:
    """What `heliograph plan` would say, each once."""
    if plan.problem:
        return []  # a cluster that does not answer; its own findings say so
    together: dict[tuple[Weight, str], list[TopicName]] = {}
    for note in plan.notes:
        together.setdefault((note.weight, note.text), []).append(note.topic)
    if not together:
        what = f"{counted(len(plan.topics), 'topic')} mirrored, nothing against it"
        return [Finding(check=PLAN, about=str(plan.flow), severity=Severity.OK, what=what)]
    return [
        Finding(
            check=PLAN,
            about=str(plan.flow),
            severity=Severity.PROBLEM if weight is Weight.PROBLEM else Severity.NOTE,
            what=f"{listed(topics)}: {text}",
            why="it is not mirrored as asked" if weight is Weight.PROBLEM else "",
            fix="`heliograph plan` lists every topic" if len(topics) > 1 else "",
        )
        for (weight, text), topics in together.items()
    ]


def _finding(about: str, severity: Severity, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(check=CHECK, about=about, severity=severity, what=what, why=why, fix=fix)
