"""How every lane is, read from the clusters by a process of its own. Runs on the driver.

Nothing here asks the driver that mirrors, so the answer is the same while it runs, after it ended,
and when it ran on another machine. What a cluster does not tell is None, never 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from heliograph.broker.blocking import blocking
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClientRole, ClusterConfig, FlowConfig, MirrorConfig
from heliograph.decisions.file import orders_for
from heliograph.decisions.orders import FlowOrders, LaneOrders
from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import decision_words
from heliograph.errors import BrokerError, BrokerUnreachable, LeaderMoved, NoLedger
from heliograph.inspect.flow_status import (
    EXCLUDED,
    FENCED,
    PAUSED,
    STOPPED,
    FailedOverTopic,
    FlowStatus,
    LaneStatus,
    MirrorStatus,
)
from heliograph.inspect.lag import first_pending_record, read_retentions
from heliograph.inspect.waiting import Adoption, WaitingLane, waiting_lanes
from heliograph.lag.figures import LaneLag, Motion
from heliograph.lag.history import LaneHistory, observed
from heliograph.lag.lanes import LaneFacts, lane_lag
from heliograph.lag.retention import Retention
from heliograph.ledger.access import require_ledger, within
from heliograph.ledger.canary_note import canary_note
from heliograph.ledger.config_note import config_problem_of
from heliograph.ledger.drill_note import last_of
from heliograph.ledger.entries import RELEASED, ledger_topic
from heliograph.ledger.fence import Fence, fence_of, topic_fences
from heliograph.ledger.fenced_topics import unless_fenced
from heliograph.ledger.locate import is_other_topic
from heliograph.ledger.locations import (
    LaneLocation,
    Wanted,
    all_topics,
    first_offset_difference,
    locate_lanes,
)
from heliograph.ledger.outage_note import outage_note
from heliograph.ledger.pipeline_note import pipeline_figures
from heliograph.ledger.slots_note import slots_why_of
from heliograph.ledger.standby_note import standbys_of
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.letters.notes import letters_by_topic
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName

ANSWER_S_MAX: Final = 10.0
_LOOKS_AT_ONCE: Final = 32
_WAITING_S: Final = 10.0
_FRESH_MS: Final = 15_000
_RETENTIONS_S: Final = 60.0

T = TypeVar("T")


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
        self._histories: dict[LaneId, LaneHistory] = {}
        self._retentions: dict[tuple[FlowId, TopicName], Retention] = {}
        self._retentions_due_s = 0.0

    async def read(self) -> MirrorStatus:
        """One sample; rates count from the second one on."""
        unreachable: dict[ClusterAlias, str] = {}
        flows = await asyncio.gather(*(self._flow(f, unreachable) for f in self._config.flows))
        await self._read_retentions(flows)
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
        fences = topic_fences(view)
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
            slots_why="" if holder is None else slots_why_of(view),
            standbys=standbys_of(view, now_ms()),
            config_problem=config_problem_of(view) if holder is not None else "",
            lanes=_fenced_alone(lanes, fences),
            problem=problem,
            fence=fence,
            failed_over=tuple(
                FailedOverTopic(topic=topic, at_ms=each.at_ms, why=each.why)
                for topic, each in sorted(fences.items())
            ),
            dead_letters=sum(each.records for each in letters_by_topic(view).values()),
            last_drill=last_of(view),
            outage=outage_note(view),
            canary=canary_note(view) if flow.canary.enabled else None,
            orders=orders,
            pipelines=pipeline_figures(view, [each.name for each in flow.pipelines]),
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
            choice = unless_fenced(topic_fences(view), orders.choice)
            found = await within(
                waiting_lanes(flow, source, target, view, self._wanted, adoption, choice),
                ANSWER_S_MAX,
                f"clusters {source.alias} and {target.alias}",
            )
            self._waiting[flow.id] = (monotonic_s() + _WAITING_S, found)
        begun = view.begun()
        return tuple(lane for lane in found if lane.lane.source not in begun)

    def _rated(self, lane: LaneStatus, elapsed_s: float) -> LaneStatus:
        before = self._positions.get(lane.lane)
        if before is None or elapsed_s <= 0:
            return replace(lane, lag=self._lag(lane))
        rate = max(0, lane.position - before) / elapsed_s
        lane = replace(lane, lag=self._lag(lane))
        # Caught up at this very moment, and copying all the same.
        state = "copying" if rate and lane.state == "idle" else lane.state
        return replace(lane, state=state, records_per_s=rate)

    def _lag(self, lane: LaneStatus) -> LaneLag:
        """As the driver answers it, from what the clusters show."""
        facts, at_s = lag_facts(lane), monotonic_s()
        history = observed(self._histories.get(lane.lane), facts.sample(at_s))
        self._histories[lane.lane] = history
        retention = self._retentions.get((lane.lane.flow, lane.lane.source.topic))
        return lane_lag(facts, history, retention, at_s=at_s, now_ms=now_ms())

    async def _read_retentions(self, flows: Iterable[FlowStatus]) -> None:
        """What sources delete, now and then, where a lane lags; one that does not tell leaves it
        unknown."""
        if monotonic_s() < self._retentions_due_s:
            return
        self._retentions_due_s = monotonic_s() + _RETENTIONS_S
        for flow in flows:
            topics = sorted({lane.lane.source.topic for lane in flow.lanes if lane.lag_records})
            if not topics or flow.problem:
                continue
            config = self._config.source_of(flow.flow)
            try:
                found = await within(
                    blocking(read_retentions, config, topics),
                    ANSWER_S_MAX,
                    f"cluster {config.alias}",
                )
            except BrokerError:
                continue
            self._retentions |= {(flow.flow, topic): each for topic, each in found.items()}

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
    state = _state(location, lag, carried=carried)
    detail = head.detail if head is not None and state.startswith(head.state) else ""
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


def _fenced_alone(
    lanes: Iterable[LaneStatus], fences: Mapping[TopicName, Fence]
) -> tuple[LaneStatus, ...]:
    """Lanes of topics that were failed over alone show that."""
    return tuple(
        lane
        if (fence := fences.get(lane.lane.source.topic)) is None
        else replace(lane, state=FENCED, detail=fence.why)
        for lane in lanes
    )


def lag_facts(lane: LaneStatus) -> LaneFacts:
    """What the clusters show of a lane; what a slot alone knows, such as what it has read, is not
    among it."""
    kept_by = None
    if lane.is_stalled:
        kept_by = Motion.STALLED
    elif lane.state in (STOPPED, FENCED, EXCLUDED, PAUSED, RELEASED):
        kept_by = Motion.HELD
    elif lane.lag_records is None or lane.state == "starting":
        kept_by = Motion.UNKNOWN
    return LaneFacts(
        lane=lane.lane,
        acknowledged=lane.source_next_offset,
        source_start=lane.source_start_offset,
        source_end=lane.source_end_offset if lane.lag_records is not None else None,
        oldest_ms=now_ms() - int(lane.lag_s * 1000) if lane.lag_s else None,
        kept_by=kept_by,
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
    if noted.startswith("waiting") and lag_records:
        # There is more, as can be seen from here, and the slot waits for an answer.
        return noted
    return "copying" if lag_records else "idle"


def _unknown(flow: FlowId, problem: str) -> FlowStatus:
    return FlowStatus(
        flow=flow, producer=None, holder=None, lanes=(), problem=problem, is_known=False
    )


def _known(offset: int | BrokerError | None) -> int | None:
    return offset if isinstance(offset, int) else None
