"""Carry all lanes of a slot: what the driver may ask, what becomes of a lane. Runs on executors.

Whatever a broker does becomes a lane's visible state; only our own bugs end `run`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.copy.fates import RETRY_S, target_reason
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.lane import CarriedLane, Phase
from heliograph.copy.resume import Found, Place, Refused, find_places
from heliograph.copy.sources import SourceSide
from heliograph.copy.targets import TargetSide
from heliograph.errors import InvariantError, MirrorError
from heliograph.ledger.entries import ledger_topic, new_author
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    LaneProgress,
    OffsetRange,
    StallReason,
)

BYTES_MAX: Final = 256 * 1024 * 1024
HEAD_INTERVAL_S: Final = 5.0
STALL_GATHER_S: Final = 0.5
"""Lanes that stall together are written together."""


class Shuttle:
    """The lanes of one slot; see `heliograph.engine.task.SlotWorker` for the contract."""

    def __init__(
        self,
        clusters: Mapping[ClusterAlias, ClusterConfig],
        bytes_max: int = BYTES_MAX,
        limits: Mapping[FlowId, FetchLimits] | None = None,
    ) -> None:
        self._configs = clusters
        self._limits = limits or {}
        """Of flows whose consumer was told; the others go by their source's own."""
        self._author = new_author()
        self._clusters: dict[tuple[ClusterAlias, ClientRole], Cluster] = {}
        self._flows: dict[FlowId, Flow] = {}
        self._lanes: dict[LaneId, CarriedLane] = {}
        self._bytes_max = bytes_max
        self._kept_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._targets = TargetSide(self, self._fetch_again)
        self._sources = SourceSide(self, self._targets, self._room)
        self._resuming: defaultdict[FlowId, set[CarriedLane]] = defaultdict(set)
        self._resume_wake = asyncio.Event()
        self._settled_wake = asyncio.Event()
        self._heads_wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()
        self._bug: BaseException | None = None

    # -- what the driver may ask

    async def run(self) -> None:
        """Until `close`; raises only on our own bugs."""
        self.spawn(self._resume_loop())
        self.spawn(self._tick_loop())
        await self._closed.wait()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for flow in self._flows.values():
            await flow.ledger.close()
        self._targets.close()
        for cluster in self._clusters.values():
            cluster.close()
        if self._bug is not None:
            raise self._bug

    def add(self, lanes: Iterable[Lane]) -> None:
        """Start carrying; a lane already carried as it is stays undisturbed."""
        for spec in lanes:
            carried = self._lanes.get(spec.id)
            if carried is not None:
                if carried.spec == spec:
                    continue
                self._halt(carried, Phase.CLOSED)
            lane = CarriedLane(spec, self._flow(spec.id.flow))
            lane.when_stalled = self._show_soon
            self._lanes[spec.id] = lane
            self._resume_if_due(lane)

    async def remove(self, ids: Iterable[LaneId]) -> tuple[LaneProgress, ...]:
        """Stop fetching, wait for what is on its way, write the heads."""
        lanes = [self._lanes[lane_id] for lane_id in ids if lane_id in self._lanes]
        await self._settle(lanes)
        for lane in lanes:
            self._halt(lane, Phase.CLOSED)
            self._lanes.pop(lane.spec.id, None)
        return tuple(lane.progress() for lane in lanes)

    def pause(self, ids: Iterable[LaneId]) -> None:
        for lane_id in ids:
            lane = self._lanes.get(lane_id)
            if lane is not None:
                self._halt(lane, Phase.PAUSED)
                lane.unstall()
                self._show_soon(lane)

    def resume(self, ids: Iterable[LaneId]) -> None:
        """Let paused and stalled lanes look for their place again."""
        for lane_id in ids:
            lane = self._lanes.get(lane_id)
            if lane is not None and lane.phase in (Phase.PAUSED, Phase.STALLED):
                self._find_place_again(lane)

    def throttle(self, flow: FlowId, bytes_per_s: int | None) -> None:
        self._flow(flow).throttle.set_rate(bytes_per_s)

    def progress(self) -> tuple[LaneProgress, ...]:
        return tuple(lane.progress() for lane in self._lanes.values())

    async def drain(self) -> None:
        """Stop fetching and settle all; the shuttle then only waits for `close`."""
        await self._settle(tuple(self._lanes.values()))

    async def close(self) -> None:
        self._closed.set()

    # -- fates: what the two sides report of a lane

    def out_of_place(self, lane: CarriedLane) -> None:
        delay_s = lane.backoff_s() if lane.failures else 0.0
        lane.failures = max(lane.failures, 1)
        self._halt(lane, Phase.RESUMING)
        self._due_later(lane, delay_s)

    def target_failed(self, lane: CarriedLane, error: MirrorError) -> None:
        self._halt(lane, Phase.RESUMING)
        lane.stall(target_reason(error), str(error), retrying=True)
        self._due_later(lane, lane.backoff_s() if error.retriable else RETRY_S)

    def stall(
        self,
        lane: CarriedLane,
        reason: StallReason,
        detail: str,
        *,
        retry_s: float | None,
        lost: OffsetRange | None = None,
    ) -> None:
        self._sources.detach(lane)

        def stop() -> None:
            self._halt(lane, Phase.STALLED)
            lane.stall(reason, detail, retrying=retry_s is not None, lost=lost)
            if retry_s is not None:
                self.later(retry_s, lane, self._find_place_again)

        lane.when_quiet = stop
        if not lane.outgoing and not lane.in_flight:
            self.quiet(lane)

    def quiet(self, lane: CarriedLane) -> None:
        self._settled_wake.set()
        if lane.when_quiet is not None:
            act, lane.when_quiet = lane.when_quiet, None
            act()
        self._resume_if_due(lane)

    def kept(self, more_bytes: int) -> None:
        self._kept_bytes += more_bytes
        if self._kept_bytes >= self._bytes_max:
            self._room.clear()
        elif self._kept_bytes < self._bytes_max // 2:
            self._room.set()

    def later(self, delay_s: float, lane: CarriedLane, act: Callable[[CarriedLane], None]) -> None:
        generation = lane.generation

        def due() -> None:
            if lane.generation == generation and self._lanes.get(lane.spec.id) is lane:
                act(lane)

        asyncio.get_running_loop().call_later(delay_s, due)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    # -- finding the place

    def _find_place_again(self, lane: CarriedLane) -> None:
        self._halt(lane, Phase.RESUMING)
        self._due_later(lane, 0.0)

    def _due_later(self, lane: CarriedLane, delay_s: float) -> None:
        lane.resume_due = delay_s == 0
        if delay_s:

            def due(same: CarriedLane) -> None:
                same.resume_due = True
                self._resume_if_due(same)

            self.later(delay_s, lane, due)
        self._resume_if_due(lane)

    def _resume_if_due(self, lane: CarriedLane) -> None:
        """Only once nothing is in flight: an answer on its way would make the log's word old at
        once."""
        if lane.phase is Phase.RESUMING and lane.resume_due and lane.in_flight == 0:
            lane.resume_due = False
            self._resuming[lane.spec.id.flow].add(lane)
            self._resume_wake.set()

    async def _resume_loop(self) -> None:
        """Lanes that wait are looked up together, by flow, so a thousand cost a few requests."""
        while True:
            await self._resume_wake.wait()
            self._resume_wake.clear()
            waiting, self._resuming = self._resuming, defaultdict(set)
            for flow_id, lanes in waiting.items():
                self.spawn(self._resume_flow(self._flows[flow_id], lanes))

    async def _resume_flow(self, flow: Flow, lanes: set[CarriedLane]) -> None:
        generations = {lane: lane.generation for lane in lanes}
        found: Mapping[CarriedLane, Found | MirrorError]
        try:
            found = await find_places(flow, tuple(lanes))
        except InvariantError:
            raise
        except MirrorError as exc:
            found = dict.fromkeys(lanes, exc)
        for lane, place in found.items():
            if lane.generation != generations[lane] or lane.phase is not Phase.RESUMING:
                continue
            if isinstance(place, Place):
                self._start(lane, place)
            elif isinstance(place, Refused):
                lane.position = place.position
                lane.phase = Phase.STALLED
                lane.stall(place.reason, place.detail, retrying=False)
            else:
                self.target_failed(lane, place)

    def _start(self, lane: CarriedLane, place: Place) -> None:
        lane.foreign_records += place.foreign_records
        lane.begin(
            place.cursor,
            identical=place.identical,
            target_topic_id=place.target_topic_id,
            written_until=place.written_until,
            alone=place.is_unknown,
        )
        source = lane.spec.id.source
        record = lane.flow.ledger.view.lane(source.topic, source.partition)
        if record is not None and record.head is not None:
            lane.head_position, lane.head_state = record.head.position, record.head.state
        self._sources.attach(lane)

    # -- settling

    async def _settle(self, lanes: Iterable[CarriedLane]) -> None:
        """Fetch no more for these lanes and wait until the target has all that was fetched."""
        lanes = tuple(lanes)
        for lane in lanes:
            lane.draining = True
            self._sources.detach(lane)
        while any(
            lane.phase is Phase.RUNNING and (lane.outgoing or lane.in_flight) for lane in lanes
        ):
            self._settled_wake.clear()
            await self._settled_wake.wait()
        await self._write_heads(lanes, wait=True)

    async def _write_heads(self, lanes: Iterable[CarriedLane], *, wait: bool) -> None:
        by_flow: defaultdict[FlowId, list[CarriedLane]] = defaultdict(list)
        for lane in lanes:
            if lane.head_is_due(settling=wait):
                by_flow[lane.spec.id.flow].append(lane)
        for flow_id, some in by_flow.items():
            ledger = self._flows[flow_id].ledger
            heads = [lane.head() for lane in some]
            for lane, head in zip(some, heads, strict=True):
                lane.head_position, lane.head_state = head.position, head.state
            if wait:
                await ledger.write(heads)
            else:
                ledger.write_soon(heads)

    def _show_soon(self, lane: CarriedLane) -> None:
        if lane.head_is_due(settling=False):
            self._heads_wake.set()

    # -- common

    def _halt(self, lane: CarriedLane, phase: Phase) -> None:
        self._sources.detach(lane)
        self.kept(-lane.buffered_bytes)
        lane.stop(phase)
        self._settled_wake.set()

    def _fetch_again(self, lane: CarriedLane) -> None:
        self._sources.changed(lane)

    def _flow(self, flow_id: FlowId) -> Flow:
        flow = self._flows.get(flow_id)
        if flow is None:
            source = self._cluster(flow_id.source, "consumer")
            target = self._cluster(flow_id.target, "producer")
            limits = self._limits.get(flow_id)
            if limits is None:
                limits = FetchLimits.of(flow_id.source, self._configs[flow_id.source].consumer)
            ledger = LedgerStore(target, ledger_topic(flow_id.source), self._author)
            ledger.on_durable.append(lambda: self._targets.release(flow_id))
            flow = self._flows[flow_id] = Flow(flow_id, source, target, ledger, limits)
        return flow

    def _cluster(self, alias: ClusterAlias, role: ClientRole) -> Cluster:
        """Each role has connections of its own: it may have credentials of its own."""
        if (alias, role) not in self._clusters:
            self._clusters[alias, role] = open_cluster(self._configs[alias], role)
        return self._clusters[alias, role]

    async def _tick_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                # Not wait_for: it swallows a cancellation that meets the wake, and `run` hangs.
                async with asyncio.timeout(HEAD_INTERVAL_S):
                    await self._heads_wake.wait()
                await asyncio.sleep(STALL_GATHER_S)
            self._heads_wake.clear()
            self._targets.check_timeouts()
            await self._write_heads(self._lanes.values(), wait=False)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._bug = task.exception()
            self._closed.set()
