"""Lanes to topics, topics to flows. Pure; runs anywhere.

A sum is unknown as soon as one part of it is: half a lag would look like all of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from heliograph.lag.figures import (
    NEVER,
    Behind,
    FlowLag,
    Lag,
    LagReport,
    LaneLag,
    Motion,
    OverrunBy,
    TopicLag,
    Trend,
)
from heliograph.lag.history import trend_of
from heliograph.model import FlowId, LaneId, TopicName

N = TypeVar("N", int, float)

_WORST_FIRST: Final = (
    Motion.STALLED,
    Motion.STUCK,
    Motion.UNKNOWN,
    Motion.HELD,
    Motion.MOVING,
    Motion.IDLE,
)
_RANK: Final = {motion: rank for rank, motion in enumerate(_WORST_FIRST)}
_TREND_S: Final = 60.0


def lag_report(lanes: Iterable[LaneLag], at_ms: int) -> LagReport:
    by_topic: defaultdict[tuple[FlowId, TopicName], list[LaneLag]] = defaultdict(list)
    every: dict[LaneId, LaneLag] = {}
    for lag in lanes:
        every[lag.lane] = lag
        by_topic[lag.lane.flow, lag.lane.source.topic].append(lag)
    topics = {key: topic_lag(*key, some) for key, some in by_topic.items()}
    by_flow: defaultdict[FlowId, list[TopicLag]] = defaultdict(list)
    for topic in topics.values():
        by_flow[topic.flow].append(topic)
    flows = {flow: flow_lag(flow, some, every) for flow, some in by_flow.items()}
    return LagReport(at_ms=at_ms, lanes=every, topics=topics, flows=flows)


def topic_lag(flow: FlowId, topic: TopicName, lanes: Sequence[LaneLag]) -> TopicLag:
    """Of all lanes of the topic; there is at least one."""
    return TopicLag(
        flow=flow,
        topic=topic,
        lanes=len(lanes),
        motions=Counter(lag.motion for lag in lanes),
        worst=min(lanes, key=badness).lane,
        **_folded(lanes),
    )


def flow_lag(flow: FlowId, topics: Sequence[TopicLag], lanes: Mapping[LaneId, LaneLag]) -> FlowLag:
    """Of all topics of the flow; there is at least one."""
    motions: Counter[Motion] = Counter()
    for topic in topics:
        motions.update(topic.motions)
    worst = [lanes[topic.worst] for topic in topics if topic.worst is not None]
    return FlowLag(
        flow=flow,
        lanes=sum(topic.lanes for topic in topics),
        topics=len(topics),
        motions=motions,
        worst=min(worst, key=badness).lane if worst else None,
        **_folded(topics),
    )


def badness(lag: LaneLag) -> tuple[int, float, int, str, int]:
    """The worst lane is the smallest: by what it does, how soon it loses records, how many wait."""
    source = lag.lane.source
    overrun_s = NEVER if lag.overrun_s is None else lag.overrun_s
    waiting = lag.acknowledged.records or 0
    return _RANK[lag.motion], overrun_s, -waiting, source.topic, source.partition


def known_sum(numbers: Sequence[N | None]) -> N | None:
    """The sum, or None where one of them is not known."""
    # In C throughout: this is done for ten figures of each lane.
    return None if None in numbers else sum(numbers)  # type: ignore[arg-type]


def known_max(numbers: Sequence[N | None]) -> N | None:
    """The largest, or None where one of them is not known."""
    return None if None in numbers else max(numbers, default=None)  # type: ignore[type-var]


def fold(parts: Sequence[Lag]) -> Lag:
    """Of any lanes or topics together; there is at least one."""
    return Lag(**_folded(parts))


def _folded(parts: Sequence[Lag]) -> dict[str, Any]:
    overrun_s, overrun_by = _first_overrun(parts)
    return {
        "motion": min((part.motion for part in parts), key=_RANK.__getitem__),
        "read": _behind([part.read for part in parts]),
        "acknowledged": _behind([part.acknowledged for part in parts]),
        "committed": _behind([part.committed for part in parts]),
        "records_per_s": known_sum([part.records_per_s for part in parts]),
        "bytes_per_s": known_sum([part.bytes_per_s for part in parts]),
        "source_records_per_s": known_sum([part.source_records_per_s for part in parts]),
        "catch_up_s": known_max([part.catch_up_s for part in parts]),
        "trend": _trend(parts),
        "overrun_s": overrun_s,
        "overrun_by": overrun_by,
    }


def _behind(some: Sequence[Behind]) -> Behind:
    return Behind(
        records=known_sum([part.records for part in some]),
        bytes=known_sum([part.bytes for part in some]),
        seconds=known_max([part.seconds for part in some]),
    )


def _first_overrun(parts: Sequence[Lag]) -> tuple[float | None, OverrunBy]:
    """The first that is known is worth telling though others are not."""
    soon = [part for part in parts if part.overrun_s is not None and part.overrun_s != NEVER]
    if soon:
        first = min(soon, key=lambda part: part.overrun_s or 0.0)
        return first.overrun_s, first.overrun_by
    return (None if any(part.overrun_s is None for part in parts) else NEVER), ""


def _trend(parts: Sequence[Lag]) -> Trend | None:
    """By the rates of all together: one lane may grow while the others shrink."""
    lag = known_sum([part.acknowledged.records for part in parts])
    done = known_sum([part.records_per_s for part in parts])
    written = known_sum([part.source_records_per_s for part in parts])
    if lag is None or done is None or written is None:
        return None
    return trend_of(max(0, round(lag - (written - done) * _TREND_S)), lag)
