"""How every lane is, read from the clusters by a process of its own. Runs on the driver.

Nothing here asks the driver that mirrors, so the answer is the same while it runs, after it ended,
and when it ran on another machine. What a cluster does not tell is None, never 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClientRole, ClusterConfig, FlowConfig, MirrorConfig
from heliograph.decisions.file import orders_for
from heliograph.decisions.orders import FREE, FlowOrders, LaneOrders
from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import decision_words
from heliograph.errors import BrokerError, BrokerUnreachable, LeaderMoved, NoLedger
from heliograph.inspect.lag import first_pending_record
from heliograph.inspect.waiting import Adoption, WaitingLane, waiting_lanes
from heliograph.ledger.access import require_ledger, within
from heliograph.ledger.drill_note import LastDrill, last_of
from heliograph.ledger.entries import RELEASED, FlowEntry, LeaseEntry, ledger_topic
from heliograph.ledger.fence import Fence, fence_of
from heliograph.ledger.locate import is_other_topic
from heliograph.ledger.locations import (
    LaneLocation,
    Wanted,
    all_topics,
    first_offset_difference,
    locate_lanes,
)
from heliograph.ledger.standby_note import StandbyDriver, standbys_of
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicPartition

ANSWER_S_MAX: Final = 10.0
_LOOKS_AT_ONCE: Final = 32
_WAITING_S: Final = 10.0
_FRESH_MS: Final = 15_000
STOPPED: Final = "stopped"
FENCED: Final = "fenced"
EXCLUDED: Final = "excluded"
PAUSED: Final = "paused"

NOTHING_DECIDED: Final = FlowOrders()

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    lane: LaneId
    target: TopicPartition
    state: str
    detail: str
    position: int
    position_is_exact: bool
    source_start_offset: int | None
    source_next_offset: int
    source_end_offset: int | None
    target_next_offset: int
    lag_records: int | None
    lag_s: float | None
    mapped_because: str
    """Nothing while offsets are identical on both sides."""
    lost_records: int
    foreign_records: int
    noted_ms: int | None
    """When the ledger was last told about the lane."""
    records_per_s: float | None = None
    """None until two samples are there."""
    decided: LaneOrders = FREE
    """What operators decided about the lane."""

    @property
    def offsets(self) -> str:
        return "mapped" if self.mapped_because else "identical"

    @property
    def is_stalled(self) -> bool:
        return self.state.startswith("stalled")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    flow: FlowId
    producer: FlowEntry | None
    holder: LeaseEntry | None
    """The driver whose lease on the flow has not expired."""
    lanes: tuple[LaneStatus, ...]
    problem: str = ""
    standbys: tuple[StandbyDriver, ...] = ()
    """Drivers that take over when the holder is gone."""
    fence: Fence | None = None
    """Why no driver may mirror the flow."""
    last_drill: LastDrill | None = None
    waiting: tuple[WaitingLane, ...] = ()
    """Lanes that have not begun; none where they were not asked for."""
    orders: FlowOrders = NOTHING_DECIDED
    is_known: bool = True
    """False where the target does not tell about any lane."""

    @property
    def every(self) -> tuple[LaneStatus | WaitingLane, ...]:
        """Lanes that have begun, then those that wait."""
        return (*self.lanes, *self.waiting)

    @property
    def mirrored_records(self) -> int | None:
        return sum(lane.position for lane in self.lanes) if self.is_known else None

    @property
    def lag_records(self) -> int | None:
        if not self.is_known:
            return None
        return known_sum(lane.lag_records for lane in self.every)

    @property
    def lost_records(self) -> int | None:
        return sum(lane.lost_records for lane in self.lanes) if self.is_known else None

    @property
    def foreign_records(self) -> int | None:
        return sum(lane.foreign_records for lane in self.lanes) if self.is_known else None

    @property
    def lacks_driver(self) -> bool:
        """Whether no driver is seen to mirror it though one should: it is neither fenced nor
        handed to MirrorMaker 2."""
        if not self.is_known or self.holder is not None or self.fence is not None:
            return False
        states = {lane.state for lane in self.lanes}
        # A mirror without a lease is seen only while it copies.
        return "copying" not in states and states != {RELEASED}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    at_ms: int
    flows: tuple[FlowStatus, ...]
    unreachable: Mapping[ClusterAlias, str]

    @property
    def lanes(self) -> tuple[LaneStatus, ...]:
        return tuple(lane for flow in self.flows for lane in flow.lanes)


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """The sum, or None as soon as one of them is not known: half a lag would look like all."""
    known = 0
    for number in numbers:
        if number is None:
            return None
        known += number
    return known


class StatusReader:
    """Reads as often as asked; connections and what was read of the ledgers are kept in between.

    Lanes that have not begun are looked for where it is said, for each flow, what waits for
    `heliograph adopt`. Belongs to one event loop.
    """

    def __init__(
        self,
        config: MirrorConfig,
        wanted: Wanted | None = None,
        adoptions: Mapping[FlowId, Adoption] | None = None,
    ) -> None:
        self._config, self._adoptions = config, adoptions
        self._waiting: dict[FlowId, tuple[float, tuple[WaitingLane, ...]]] = {}
        self._wanted = wanted or all_topics()
        self._clusters: dict[tuple[FlowId, ClusterAlias], Cluster] = {}
        self._stores: dict[FlowId, LedgerStore] = {}
        self._positions: dict[LaneId, int] = {}
        self._sampled_s = 0.0

    async def read(self) -> MirrorStatus:
        """One sample; rates count from the second one on."""
        unreachable: dict[ClusterAlias, str] = {}
        flows = await asyncio.gather(*(self._flow(f, unreachable) for f in self._config.flows))
        sampled_s = monotonic_s()
        elapsed_s = sampled_s - self._sampled_s if self._sampled_s else 0.0
        rated = tuple(
            replace(flow, lanes=tuple(self._rated(lane, elapsed_s) for lane in flow.lanes))
            for flow in flows
        )
        self._positions = {lane.lane: lane.position for flow in flows for lane in flow.lanes}
        self._sampled_s = sampled_s
        return MirrorStatus(at_ms=now_ms(), flows=rated, unreachable=unreachable)

    async def locations(self, flow: FlowConfig) -> list[LaneLocation]:
        """Where the lanes of one flow are; raises `BrokerError`."""
        target = self._cluster(flow.id, self._config.target_of(flow.id))
        store = self._store(flow.id, target)
        try:
            return await within(
                locate_lanes(flow, target, store, self._wanted),
                ANSWER_S_MAX,
                f"cluster {target.alias}",
            )
        except LeaderMoved as exc:
            require_ledger(target, flow.id, exc)
            raise

    def ledger(self, flow: FlowId) -> LedgerStore:
        """As new as the last `locations` or `read` of the flow."""
        return self._store(flow, self._cluster(flow, self._config.target_of(flow)))

    def source(self, flow: FlowId) -> Cluster:
        return self._cluster(flow, self._config.source_of(flow))

    def target(self, flow: FlowId) -> Cluster:
        return self._cluster(flow, self._config.target_of(flow))

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()
        for cluster in self._clusters.values():
            cluster.close()

    async def _flow(self, flow: FlowConfig, unreachable: dict[ClusterAlias, str]) -> FlowStatus:
        try:
            locations = await self.locations(flow)
        except NoLedger:
            locations = []
        except BrokerUnreachable as exc:
            unreachable[flow.id.target] = str(exc)
            return _unknown(flow.id, str(exc))
        except BrokerError as exc:
            return _unknown(flow.id, str(exc))
        source = self.source(flow.id)
        view = self._stores[flow.id].view
        orders = orders_for(flow, decisions_of(view), now_ms())
        problem = ""
        waiting: tuple[WaitingLane, ...] = ()
        try:
            seen = await within(
                _look(source, locations, flow), ANSWER_S_MAX, f"cluster {source.alias}"
            )
            waiting = await self._waiting_of(flow, view, orders)
        except BrokerError as exc:
            unreachable[flow.id.source] = problem = str(exc)
            seen = {}
        holder = view.holder if view.holder and view.holder.until_ms >= now_ms() else None
        fence = fence_of(view)
        lanes = [
            _lane(
                location,
                seen.get(location.lane),
                orders.lane(location.lane.source),
                carried=holder is not None,
            )
            for location in locations
        ]
        if fence is not None and holder is None:
            # What they met last, a source that did not answer, is why the fence is there.
            lanes = [replace(lane, state=FENCED, detail="") for lane in lanes]
        return FlowStatus(
            flow=flow.id,
            producer=view.flow,
            holder=holder,
            standbys=standbys_of(view, now_ms()),
            lanes=tuple(lanes),
            problem=problem,
            fence=fence,
            last_drill=last_of(view),
            orders=orders,
            waiting=() if fence is not None else waiting,
        )

    async def _waiting_of(
        self, flow: FlowConfig, view: LedgerView, orders: FlowOrders
    ) -> tuple[WaitingLane, ...]:
        """Looked for now and then: every topic of both clusters is asked for."""
        if self._adoptions is None:
            return ()
        due_s, found = self._waiting.get(flow.id, (0.0, ()))
        if monotonic_s() >= due_s:
            source, target = self.source(flow.id), self.target(flow.id)
            adoption = self._adoptions.get(flow.id)
            found = await within(
                waiting_lanes(flow, source, target, view, self._wanted, adoption, orders.choice),
                ANSWER_S_MAX,
                f"clusters {source.alias} and {target.alias}",
            )
            self._waiting[flow.id] = (monotonic_s() + _WAITING_S, found)
        begun = view.begun()
        return tuple(lane for lane in found if lane.lane.source not in begun)

    def _rated(self, lane: LaneStatus, elapsed_s: float) -> LaneStatus:
        before = self._positions.get(lane.lane)
        if before is None or elapsed_s <= 0:
            return lane
        rate = max(0, lane.position - before) / elapsed_s
        # Caught up at this very moment, and copying all the same.
        state = "copying" if rate and lane.state == "idle" else lane.state
        return replace(lane, state=state, records_per_s=rate)

    def _cluster(self, flow: FlowId, config: ClusterConfig) -> Cluster:
        """As the mirroring driver reaches it, so that status needs no more permissions."""
        key = (flow, config.alias)
        if key not in self._clusters:
            role: ClientRole = "consumer" if config.alias == flow.source else "producer"
            self._clusters[key] = open_cluster(config, role, only_reads=True)
        return self._clusters[key]

    def _store(self, flow: FlowId, target: Cluster) -> LedgerStore:
        if flow not in self._stores:
            self._stores[flow] = LedgerStore(target, ledger_topic(flow.source))
        return self._stores[flow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceSeen:
    start: int | None
    end: int | None
    next: int
    waiting_since_ms: int | None
    is_other_topic: bool
    """Whether the topic was created again since the lane began: its offsets are others."""


async def _look(
    source: Cluster, locations: Iterable[LaneLocation], flow: FlowConfig
) -> dict[LaneId, _SourceSeen]:
    partitions = [location.lane.source for location in locations]
    await source.refresh({partition.topic for partition in partitions})
    starts = await source.list_offsets(partitions, EARLIEST)
    ends = await source.list_offsets(partitions, LATEST, read_committed=flow.read_committed)
    turns = asyncio.Semaphore(_LOOKS_AT_ONCE)

    async def look(location: LaneLocation) -> tuple[LaneId, _SourceSeen]:
        partition = location.lane.source
        start, end = _known(starts.get(partition)), _known(ends.get(partition))
        next_offset, since_ms = location.source_next_offset, None
        topic = source.topic(partition.topic)
        began_with = location.record.starts[-1].source_topic_id
        is_other = topic is not None and is_other_topic(began_with, topic.id)
        if end is not None and end > next_offset and not is_other:
            async with turns:
                first = await first_pending_record(
                    source, partition, next_offset, end, read_committed=flow.read_committed
                )
            next_offset, since_ms = first.offset, first.timestamp_ms
        return location.lane, _SourceSeen(
            start=start,
            end=end,
            next=next_offset,
            waiting_since_ms=since_ms,
            is_other_topic=is_other,
        )

    return dict(await asyncio.gather(*(look(location) for location in locations)))


def _lane(
    location: LaneLocation, seen: _SourceSeen | None, decided: LaneOrders, *, carried: bool
) -> LaneStatus:
    head = location.record.head
    source_next = location.source_next_offset if seen is None else seen.next
    end = None if seen is None else seen.end
    lag = None if end is None or end < source_next else end - source_next
    if seen is not None and seen.is_other_topic:
        # Nothing of the topic there is was mirrored, but how it goes on is not decided yet.
        lag = None
    lag_s: float | None = 0.0 if lag == 0 else None
    if seen is not None and lag and seen.waiting_since_ms is not None:
        lag_s = max(0.0, (now_ms() - seen.waiting_since_ms) / 1000)
    detail = head.detail if head is not None else ""
    state = _state(location, lag, carried=carried)
    if state != RELEASED and (held := held_by(decided)) is not None:
        state, detail = held
    return LaneStatus(
        lane=location.lane,
        target=location.target,
        state=state,
        detail=detail,
        decided=decided,
        position=location.position,
        position_is_exact=location.exact,
        source_start_offset=None if seen is None else seen.start,
        source_next_offset=source_next,
        source_end_offset=end,
        target_next_offset=location.target_next_offset,
        lag_records=lag,
        lag_s=lag_s,
        mapped_because=first_offset_difference(location),
        lost_records=sum(loss.lost.count for loss in location.record.losses),
        foreign_records=location.foreign_records,
        noted_ms=None if head is None else head.at_ms,
    )


def held_by(decided: LaneOrders) -> tuple[str, str] | None:
    """The state of a lane that a decision keeps from copying, and the decision in words."""
    for state, decision in (
        (STOPPED, decided.stopped),
        (EXCLUDED, decided.excluded),
        (PAUSED, decided.paused),
    ):
        if decision is not None:
            return state, decision_words(decision)
    return None


def _state(location: LaneLocation, lag_records: int | None, *, carried: bool) -> str:
    """What the ledger last heard, brought up to date by what can be seen now."""
    head = location.record.head
    noted = "starting" if head is None else head.state
    if noted.startswith("stalled") or noted == RELEASED:
        return noted
    if noted == PAUSED:
        noted = "starting"  # resumed since; the slot notes it when the lane has gone on
    # A mirror without a lease is known by what it keeps noting; one that drained notes `idle` last.
    fresh = head is not None and noted == "copying" and now_ms() - head.at_ms < _FRESH_MS
    if not (carried or fresh):
        return STOPPED
    if head is None:
        return noted
    if lag_records is None:
        # The source says nothing, and a driver that does not reach it either notes nothing.
        return f"{noted}?"
    return "copying" if lag_records else "idle"


def _unknown(flow: FlowId, problem: str) -> FlowStatus:
    return FlowStatus(
        flow=flow, producer=None, holder=None, lanes=(), problem=problem, is_known=False
    )


def _known(offset: int | BrokerError | None) -> int | None:
    return offset if isinstance(offset, int) else None
