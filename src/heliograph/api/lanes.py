"""Lanes and topics as rows, the worst first, page by page. Driver only.

There may be ten thousand lanes, so rows are dicts and not models, and are sorted and written on a
thread (`broker.blocking`) from values that do not change: the driver's loop goes on meanwhile.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic_core import to_json
from typing_extensions import TypedDict

from heliograph.api.problems import ApiProblem
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.orders import FREE, FlowOrders
from heliograph.driver.lag_book import facts_of
from heliograph.lag.figures import (
    NOTHING,
    FlowLag,
    Lag,
    LagReport,
    LaneLag,
    Motion,
    Seconds,
    json_seconds,
)
from heliograph.lag.folding import lag_report, topic_lag
from heliograph.lag.lanes import lane_lag
from heliograph.model import (
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneLoad,
    LaneProgress,
    LaneState,
    Paused,
    SlotId,
    Stalled,
    Starting,
    TopicName,
    Waiting,
)
from heliograph.topics.naming import NamingPolicy, naming_policy

T = TypeVar("T")

PAGE_SIZE: Final = 1_000
PAGE_SIZE_MAX: Final = 10_000
_LISTINGS_KEPT: Final = 16
_ROWS_AT_ONCE: Final = 32
_RANKS: Final = {Starting: 2, Waiting: 2, Copying: 3, Paused: 4, Idle: 5}
_NO_ORDERS: Final = FlowOrders()
LaneStateWord = Literal["starting", "copying", "idle", "waiting", "paused", "stalled"]


class LagFields(TypedDict):
    """What lanes, topics and flows tell of their lag; None is unknown."""

    motion: str
    lag_records: int | None
    lag_bytes: int | None
    lag_s: float | None
    read_lag_records: int | None
    committed_lag_records: int | None
    records_per_s: float | None
    source_records_per_s: float | None
    catch_up_s: Seconds
    trend: str | None
    overrun_s: Seconds
    overrun_by: str | None


class LaneRow(LagFields):
    """How far one lane has come, as its slot reported it last."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    state: LaneStateWord
    reason: str | None
    detail: str | None
    since_ms: int | None
    retrying: bool | None
    lost_offsets: list[int] | None
    slot: int | None
    still_s: float | None
    behind_since_ms: int | None
    position: int
    source_start_offset: int
    source_next_offset: int
    source_end_offset: int
    source_read_offset: int
    source_noted_offset: int
    target_next_offset: int
    identical: bool
    bytes_per_s: float
    records: int
    bytes: int
    received_bytes: int
    sent_bytes: int
    last_timestamp_ms: int | None
    foreign_records: int
    unknown_control_records: int
    latency_counts: Sequence[int]
    decisions: list[str]


class TopicRow(LagFields):
    """The lanes of one topic together."""

    flow: str
    topic: str
    target_topic: str
    lanes: int
    states: dict[str, int]
    reasons: list[str]
    motions: dict[str, int]
    behind_since_ms: int | None
    bytes_per_s: float
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Lanes at one moment; nothing in it changes."""

    at_ms: int
    lanes: Sequence[LaneProgress]
    placed: Mapping[LaneId, SlotId]
    loads: Mapping[LaneId, LaneLoad]
    config: MirrorConfig
    decided: Mapping[FlowId, FlowOrders]
    lag: LagReport = field(default_factory=lambda: LagReport(at_ms=0))


def select(
    lanes: Iterable[LaneProgress],
    *,
    flows: frozenset[FlowId],
    topic: str | None = None,
    state: str | None = None,
) -> list[LaneProgress]:
    return [
        at
        for at in lanes
        if at.lane.flow in flows
        and (topic is None or at.lane.source.topic == topic)
        and (state is None or at.state.kind == state)
    ]


def worst_first(lanes: Iterable[LaneProgress]) -> list[LaneProgress]:
    """Stalled ones that wait for an operator, those that are tried again, the unknown, then by
    lag; idle and paused ones last."""
    return sorted(lanes, key=_badness)


def _badness(at: LaneProgress) -> tuple[int, int, str, str, int]:
    state, source = at.state, at.lane.source
    lag = at.lag_records
    rank = int(state.retrying) if isinstance(state, Stalled) else _RANKS[type(state)]
    if lag is None and rank == 3:
        rank = 2
    return rank, -(lag or 0), at.lane.flow.source, source.topic, source.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """What the rows of a topic's lanes have in common."""

    flow: str
    target: str
    orders: FlowOrders


class Rows:
    """Makes rows of a snapshot; what lanes of one topic share is found once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._policies: dict[FlowId, NamingPolicy] = {}
        self._topics: dict[tuple[FlowId, TopicName], _Topic] = {}

    def lane(self, at: LaneProgress) -> LaneRow:
        topic = self._of(at.lane.flow, at.lane.source.topic)
        stalled = at.state if isinstance(at.state, Stalled) else None
        hindered = at.state if isinstance(at.state, Stalled | Waiting) else None
        load = self._snapshot.loads.get(at.lane)
        lost = None if stalled is None or stalled.lost is None else stalled.lost
        lag = self._snapshot.lag.lanes.get(at.lane) or _not_looked(at)
        return {
            "flow": topic.flow,
            "topic": at.lane.source.topic,
            "partition": at.lane.source.partition,
            "target_topic": topic.target,
            "state": at.state.kind,
            "reason": None if hindered is None else _reason(hindered),
            "detail": None if hindered is None else hindered.detail,
            "since_ms": None if hindered is None else hindered.since_ms,
            "retrying": None if stalled is None else stalled.retrying,
            "lost_offsets": None if lost is None else [lost.start, lost.end],
            "slot": self._snapshot.placed.get(at.lane),
            **lag_fields(lag),
            "still_s": lag.still_s,
            "behind_since_ms": _known(at.behind_since_ms),
            "position": at.position,
            "source_start_offset": at.source_start_offset,
            "source_next_offset": at.source_next_offset,
            "source_end_offset": at.source_end_offset,
            "source_read_offset": at.source_read_offset,
            "source_noted_offset": at.source_noted_offset,
            "target_next_offset": at.target_next_offset,
            "identical": at.identical,
            "bytes_per_s": 0.0 if load is None else round(load.bytes_per_s, 1),
            "records": at.records,
            "bytes": at.bytes,
            "received_bytes": at.received_bytes,
            "sent_bytes": at.sent_bytes,
            "last_timestamp_ms": _known(at.last_timestamp_ms),
            "foreign_records": at.foreign_records,
            "unknown_control_records": at.unknown_control_records,
            "latency_counts": at.latency_counts,
            "decisions": _decisions(topic.orders, at) if topic.orders.standing else [],
        }

    def topics(self, lanes: Sequence[LaneProgress]) -> list[TopicRow]:
        """One for each topic, in the order of their worst lanes."""
        together: defaultdict[tuple[FlowId, TopicName], list[LaneProgress]] = defaultdict(list)
        for at in lanes:
            together[at.lane.flow, at.lane.source.topic].append(at)
        return [self._topic(flow, topic, each) for (flow, topic), each in together.items()]

    def _topic(self, flow: FlowId, topic: TopicName, lanes: Sequence[LaneProgress]) -> TopicRow:
        behind = [at.behind_since_ms for at in lanes if at.behind_since_ms >= 0]
        reasons = {reason for at in lanes if (reason := _reason(at.state)) is not None}
        loads = self._snapshot.loads
        rate = sum(loads[at.lane].bytes_per_s for at in lanes if at.lane in loads)
        found = self._snapshot.lag.topics.get((flow, topic))
        lag = found or topic_lag(flow, topic, [_not_looked(at) for at in lanes])
        named = self._of(flow, topic)
        return {
            "flow": named.flow,
            "topic": topic,
            "target_topic": named.target,
            "lanes": len(lanes),
            "states": dict(Counter(at.state.kind for at in lanes)),
            "reasons": sorted(reasons),
            **lag_fields(lag),
            "motions": {motion.value: count for motion, count in lag.motions.items()},
            "behind_since_ms": min(behind, default=None),
            "bytes_per_s": round(rate, 1),
            "records": sum(at.records for at in lanes),
            "bytes": sum(at.bytes for at in lanes),
        }

    def _of(self, flow: FlowId, topic: TopicName) -> _Topic:
        key = (flow, topic)
        found = self._topics.get(key)
        if found is None:
            if flow not in self._policies:
                self._policies[flow] = naming_policy(self._snapshot.config.flow(flow))
            found = self._topics[key] = _Topic(
                flow=str(flow),
                target=self._policies[flow].target_topic(topic),
                orders=self._snapshot.decided.get(flow, _NO_ORDERS),
            )
        return found


def _decisions(orders: FlowOrders, at: LaneProgress) -> list[str]:
    decided = orders.lane(at.lane.source)
    # Most lanes are free, and to find that out of their orders takes a tenth of the page.
    return [] if decided is FREE else [each.id for each in decided.decisions]


def _reason(state: LaneState) -> str | None:
    match state:
        case Stalled(reason=reason):
            return reason.value
        case Waiting(awaited=awaited):
            return awaited.value
        case _:
            return None


def lag_fields(lag: Lag) -> LagFields:
    """The figures that lanes, topics and flows have alike. Words are left as they are: an enum's
    `value` costs as much as all the rest."""
    behind = lag.acknowledged
    return {
        "motion": lag.motion,
        "lag_records": behind.records,
        "lag_bytes": behind.bytes,
        "lag_s": behind.seconds,
        "read_lag_records": lag.read.records,
        "committed_lag_records": lag.committed.records,
        "records_per_s": lag.records_per_s,
        "source_records_per_s": lag.source_records_per_s,
        "catch_up_s": json_seconds(lag.catch_up_s),
        "trend": lag.trend,
        "overrun_s": json_seconds(lag.overrun_s),
        "overrun_by": lag.overrun_by or None,
    }


def flow_lag_of(snapshot: Snapshot, flow: FlowId, lanes: Sequence[LaneProgress]) -> FlowLag:
    """A flow without lanes has no lag that could be known."""
    found = snapshot.lag.flows.get(flow)
    if found is None and lanes:
        found = lag_report(map(_not_looked, lanes), 0).flows[flow]
    return found or FlowLag(flow=flow, lanes=0, topics=0, motion=Motion.IDLE, acknowledged=NOTHING)


def _not_looked(at: LaneProgress) -> LaneLag:
    """Of a lane that came since the lag was last looked at."""
    return lane_lag(facts_of(at, None, heard=True), None, None, at_s=0.0, now_ms=now_ms())


def _known(time_ms: int) -> int | None:
    return None if time_ms < 0 else time_ms


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole answer, of which pages are given out."""

    kind: str
    snapshot: Snapshot
    rows: Sequence[T]


class Listings:
    """Answers that do not fit a page, kept so that the next page belongs to the first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Listing[Any]] = OrderedDict()

    def keep(self, listing: Listing[Any]) -> str:
        token = secrets.token_urlsafe(9)
        self._kept[token] = listing
        if len(self._kept) > _LISTINGS_KEPT:
            self._kept.popitem(last=False)
        return token

    def find(self, kind: str, page_token: str) -> tuple[str, Listing[Any], int]:
        """The listing of a page token, and where the page begins; 400 where it is not known."""
        token, _, start = page_token.partition(".")
        listing = self._kept.get(token)
        if (
            listing is None
            or listing.kind != kind
            or not (start.isascii() and start.isdecimal() and len(start) < 10)
        ):
            raise ApiProblem(
                400,
                "page_token is not one this driver still knows; ask for the first page again",
                code="page_unknown",
            )
        self._kept.move_to_end(token)
        return token, listing, int(start)


def page_bytes(listing: Listing[Any], token: str, start: int, page_size: int) -> bytes:
    """A page as JSON; may be called on a thread."""
    end = start + page_size
    more = end < len(listing.rows)
    head = {
        "at_ms": listing.snapshot.at_ms,
        "total": len(listing.rows),
        "next_page_token": f"{token}.{end}" if more else None,
    }
    # Some rows at a time: ten thousand dicts at once have Python's collector look at all that the
    # driver has, which takes longer than the page; and other threads would wait for all of it.
    some = iter(_rows(listing, listing.rows[start:end]))
    parts: list[bytes] = []
    while part := list(islice(some, _ROWS_AT_ONCE)):
        parts.append(to_json(part)[1:-1])
    rows = b",".join(parts)
    return b'%s,"%s":[%s]}' % (to_json(head)[:-1], listing.kind.encode(), rows)


def _rows(listing: Listing[Any], part: Sequence[Any]) -> Iterable[Any]:
    return map(Rows(listing.snapshot).lane, part) if listing.kind == "lanes" else part
