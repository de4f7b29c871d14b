"""Lanes and topics as rows, the worst first, page by page. Driver only.

There may be ten thousand lanes, so rows are dicts and not models, and are sorted and written on a
thread (`broker.blocking`) from values that do not change: the driver's loop goes on meanwhile.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic_core import to_json
from typing_extensions import TypedDict

from heliograph.api.problems import ApiProblem
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.orders import FREE, FlowOrders, LaneOrders
from heliograph.inspect.status import known_sum
from heliograph.model import (
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneLoad,
    LaneProgress,
    Paused,
    SlotId,
    Stalled,
    Starting,
    TopicName,
)
from heliograph.topics.naming import NamingPolicy, naming_policy

T = TypeVar("T")

PAGE_SIZE: Final = 1_000
PAGE_SIZE_MAX: Final = 10_000
_LISTINGS_KEPT: Final = 16
_RANKS: Final = {Starting: 2, Copying: 3, Paused: 4, Idle: 5}
LaneStateWord = Literal["starting", "copying", "idle", "paused", "stalled"]


class LaneRow(TypedDict):
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
    lag_records: int | None
    behind_since_ms: int | None
    position: int
    source_start_offset: int
    source_next_offset: int
    source_end_offset: int
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
    latency_counts: list[int]
    decisions: list[str]


class TopicRow(TypedDict):
    """The lanes of one topic together."""

    flow: str
    topic: str
    target_topic: str
    lanes: int
    states: dict[str, int]
    reasons: list[str]
    lag_records: int | None
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


class Rows:
    """Makes rows of a snapshot; what lanes of one topic share is found once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._flows: dict[FlowId, str] = {}
        self._policies: dict[FlowId, NamingPolicy] = {}
        self._names: dict[tuple[FlowId, TopicName], str] = {}

    def lane(self, at: LaneProgress) -> LaneRow:
        stalled = at.state if isinstance(at.state, Stalled) else None
        flow, source, load = at.lane.flow, at.lane.source, self._snapshot.loads.get(at.lane)
        lost = None if stalled is None or stalled.lost is None else stalled.lost
        return {
            "flow": self._flow(flow),
            "topic": source.topic,
            "partition": source.partition,
            "target_topic": self._target(flow, source.topic),
            "state": at.state.kind,
            "reason": None if stalled is None else stalled.reason.value,
            "detail": None if stalled is None else stalled.detail,
            "since_ms": None if stalled is None else stalled.since_ms,
            "retrying": None if stalled is None else stalled.retrying,
            "lost_offsets": None if lost is None else [lost.start, lost.end],
            "slot": self._snapshot.placed.get(at.lane),
            "lag_records": at.lag_records,
            "behind_since_ms": _known(at.behind_since_ms),
            "position": at.position,
            "source_start_offset": at.source_start_offset,
            "source_next_offset": at.source_next_offset,
            "source_end_offset": at.source_end_offset,
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
            "latency_counts": list(at.latency_counts),
            "decisions": [each.id for each in self._decided(at).decisions],
        }

    def topics(self, lanes: Sequence[LaneProgress]) -> list[TopicRow]:
        """One for each topic, in the order of their worst lanes."""
        together: defaultdict[tuple[FlowId, TopicName], list[LaneProgress]] = defaultdict(list)
        for at in lanes:
            together[at.lane.flow, at.lane.source.topic].append(at)
        return [self._topic(flow, topic, each) for (flow, topic), each in together.items()]

    def _topic(self, flow: FlowId, topic: TopicName, lanes: Sequence[LaneProgress]) -> TopicRow:
        behind = [at.behind_since_ms for at in lanes if at.behind_since_ms >= 0]
        reasons = {at.state.reason.value for at in lanes if isinstance(at.state, Stalled)}
        loads = self._snapshot.loads
        rate = sum(loads[at.lane].bytes_per_s for at in lanes if at.lane in loads)
        return {
            "flow": self._flow(flow),
            "topic": topic,
            "target_topic": self._target(flow, topic),
            "lanes": len(lanes),
            "states": dict(Counter(at.state.kind for at in lanes)),
            "reasons": sorted(reasons),
            "lag_records": known_sum(at.lag_records for at in lanes),
            "behind_since_ms": min(behind, default=None),
            "bytes_per_s": round(rate, 1),
            "records": sum(at.records for at in lanes),
            "bytes": sum(at.bytes for at in lanes),
        }

    def _decided(self, at: LaneProgress) -> LaneOrders:
        orders = self._snapshot.decided.get(at.lane.flow)
        return FREE if orders is None else orders.lane(at.lane.source)

    def _flow(self, flow: FlowId) -> str:
        if flow not in self._flows:
            self._flows[flow] = str(flow)
        return self._flows[flow]

    def _target(self, flow: FlowId, topic: TopicName) -> str:
        key = (flow, topic)
        if key not in self._names:
            if flow not in self._policies:
                self._policies[flow] = naming_policy(self._snapshot.config.flow(flow))
            self._names[key] = self._policies[flow].target_topic(topic)
        return self._names[key]


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
    part = listing.rows[start:end]
    if listing.kind == "lanes":
        rows = Rows(listing.snapshot)
        part = [rows.lane(at) for at in part]
    more = end < len(listing.rows)
    return to_json(
        {
            "at_ms": listing.snapshot.at_ms,
            "total": len(listing.rows),
            "next_page_token": f"{token}.{end}" if more else None,
            listing.kind: part,
        }
    )
