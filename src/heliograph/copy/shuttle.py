"""Carry all lanes of a slot: what the driver may ask of them. Runs on executors.

Whatever a broker does becomes a lane's visible state (`machine`); only our own bugs end `run`.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from heliograph.broker.open_clusters import OpenClusters
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.copy.events import (
    Close,
    FetchDue,
    LookedUp,
    Pause,
    Resume,
    ResumeDue,
    Retire,
    SequenceMismatch,
    TargetEvent,
    TargetFailed,
)
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Found
from heliograph.copy.lane import CarriedLane
from heliograph.copy.machine import LaneMachine
from heliograph.copy.merging import is_merge_due, merge_runs
from heliograph.copy.phases import Closed, Resuming
from heliograph.copy.resume import find_resume_points
from heliograph.copy.silences import LOOK_S as SILENCES_LOOK_S
from heliograph.copy.silences import Silences
from heliograph.copy.sizes import learn_sizes
from heliograph.copy.slot import Slot
from heliograph.copy.throttle import Throttle
from heliograph.errors import BrokerUnreachable, InvariantError, LedgerUnusable, MirrorError
from heliograph.ledger.entries import ledger_topic, new_author
from heliograph.ledger.fence import fence_of, topic_fences
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    GIVES_WAY,
    WRITTEN,
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    LaneProgress,
    SlotFigures,
    TopicName,
)
from heliograph.probe import HEADS_TO_WRITE, probe

log = logging.getLogger(__name__)

BYTES_MAX: Final = 256 * 1024 * 1024
HEAD_INTERVAL_S: Final = 5.0
STALL_GATHER_S: Final = 0.5
"""Lanes that stall together are written together."""
DISCARD_S_MAX: Final = 0.5
"""How long the last answers for lanes that may append no more are waited for."""
FENCE_S_MAX: Final = 3.0
"""How long a ledger may take to say whether its flow is fenced."""


class Shuttle:
    """The lanes of one slot; see `heliograph.engine.task.SlotWorker` for the contract."""

    def __init__(
        self,
        clusters: Mapping[ClusterAlias, ClusterConfig],
        bytes_max: int = BYTES_MAX,
        limits: Mapping[FlowId, FetchLimits] | None = None,
        head_interval_s: float = HEAD_INTERVAL_S,
    ) -> None:
        self._limits = limits or {}
        """Of flows whose consumer was told; the others go by their source's own."""
        self._author = new_author()
        self._clusters = OpenClusters(clusters)
        self._flows: dict[FlowId, Flow] = {}
        self._lanes: dict[LaneId, CarriedLane] = {}
        self._slot = Slot(bytes_max)
        self._machine = LaneMachine(self._slot)
        self._silences = Silences(self._machine.sources, self._machine.targets, self._slot)
        self._head_interval_s = head_interval_s
        self._merging: set[FlowId] = set()
        self._unwritable: set[Flow] = set()
        """Flows whose ledger could not be written when `changes` was last asked for."""
        self._throttles: dict[str, Throttle] = {}
        """By the name of the limit."""
        used = resource.getrusage(resource.RUSAGE_THREAD)
        self._began_s, self._used = monotonic_s(), (used.ru_utime, used.ru_stime)

    # -- what the driver may ask

    async def run(self) -> None:
        """Until `close`; raises only on our own bugs."""
        self._slot.spawn(self._resume_loop())
        self._slot.spawn(self._tick_loop())
        self._slot.spawn(self._watch_loop())
        await self._slot.closed.wait()
        tasks = tuple(self._slot.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for flow in self._flows.values():
            await flow.ledger.close()
        self._machine.targets.close()
        self._clusters.close()
        if self._slot.bug is not None:
            raise self._slot.bug

    def add(self, lanes: Iterable[Lane]) -> None:
        """Start carrying; a lane already carried as it is stays undisturbed."""
        for spec in lanes:
            carried = self._lanes.get(spec.id)
            if carried is not None:
                if carried.spec == spec:
                    continue
                self._machine.on(carried, Close())
                self._limit(carried, ())
            lane = self._lanes[spec.id] = CarriedLane(spec, self._flow(spec.id.flow))
            self._limit(lane, spec.limits)
            self._machine.add(lane)

    async def remove(self, ids: Iterable[LaneId]) -> tuple[LaneProgress, ...]:
        """Stop fetching, wait for what is on its way, write the heads."""
        lanes = [self._lanes[lane_id] for lane_id in ids if lane_id in self._lanes]
        await self._settle(lanes)
        for lane in lanes:
            self._machine.on(lane, Close())
            self._limit(lane, ())
            if self._lanes.get(lane.spec.id) is lane:
                # It may have been given back since another call took it away.
                del self._lanes[lane.spec.id]
                lane.flow.drop(lane.spec.id)
        return tuple(lane.progress() for lane in lanes)

    def discard(self, ids: Iterable[LaneId]) -> None:
        """Send nothing more for these lanes, whatever waits; `remove` ends sooner for it.

        What is in flight may sit in a socket of this machine whose network is broken, and would
        arrive when that heals. Connections that do not answer in time are therefore reset, which
        drops what has not left.
        """
        lanes = [self._lanes[lane_id] for lane_id in ids if lane_id in self._lanes]
        for lane in lanes:
            self._machine.on(lane, Close())

        def reset() -> None:
            for alias in {lane.flow.target.alias for lane in lanes if lane.in_flight}:
                self._machine.targets.reset(alias)

        self._slot.later(DISCARD_S_MAX, reset)

    def pause(self, ids: Iterable[LaneId]) -> None:
        for lane_id in ids:
            if lane_id in self._lanes:
                self._machine.on(self._lanes[lane_id], Pause())

    def resume(self, ids: Iterable[LaneId]) -> None:
        """Let paused and stalled lanes look for their place again."""
        for lane_id in ids:
            if lane_id in self._lanes:
                self._machine.on(self._lanes[lane_id], Resume())

    def limit(self, ids: Iterable[LaneId], limits: tuple[str, ...]) -> None:
        """These lanes keep these limits and no others; `throttle` says how much each is."""
        for lane_id in ids:
            if lane_id in self._lanes:
                self._limit(self._lanes[lane_id], limits)

    def throttle(self, limit: str, bytes_per_s: int | None) -> None:
        self._throttle(limit).set_rate(bytes_per_s)

    def _throttle(self, limit: str) -> Throttle:
        if limit not in self._throttles:
            self._throttles[limit] = Throttle(
                counts_written=limit.startswith(WRITTEN), is_smooth=limit == GIVES_WAY
            )
        return self._throttles[limit]

    def _limit(self, lane: CarriedLane, limits: tuple[str, ...]) -> None:
        for throttle in lane.throttles:
            throttle.lanes -= 1
        lane.throttles = tuple(map(self._throttle, limits))
        for throttle in lane.throttles:
            throttle.lanes += 1

    def use(
        self,
        clusters: Mapping[ClusterAlias, ClusterConfig],
        limits: Mapping[FlowId, FetchLimits],
        bytes_max: int,
    ) -> None:
        """Carry on with these; no lane stops for it.

        Connections with other settings are replaced once all that they carry is answered, as before
        the end of a session. A flow is fetched by other limits from its next fetch on.
        """
        self._limits = limits
        for reconnected in self._clusters.use(clusters):
            self._slot.spawn(self._go_on_after(reconnected))
        self._slot.room.bytes_max = bytes_max
        for flow in self._flows.values():
            wanted = limits.get(flow.id)
            if wanted is not None and wanted != flow.limits:
                flow.carry_by(wanted)
                self._machine.sources.renew(flow)

    def progress(self) -> tuple[LaneProgress, ...]:
        return tuple(map(_reported, self._lanes.values()))

    def changes(self) -> tuple[LaneProgress, ...]:
        """A thousand quiet lanes cost a look at a flag each."""
        # How long a ledger could not be written is part of what its lanes show.
        before = self._unwritable
        self._unwritable = {f for f in self._flows.values() if f.ledger.problem is not None}
        shown = before | self._unwritable
        return tuple(
            _reported(lane)
            for lane in self._lanes.values()
            if lane.unreported or (shown and lane.flow in shown)
        )

    def figures(self) -> SlotFigures:
        """As of now; what is largest counts since the call before."""
        used = resource.getrusage(resource.RUSAGE_THREAD)
        ways: dict[ClientRole, Literal["from", "to"]] = {"consumer": "from", "producer": "to"}
        return SlotFigures(
            at_ms=now_ms(),
            elapsed_s=round(monotonic_s() - self._began_s, 3),
            user_s=round(used.ru_utime - self._used[0], 3),
            system_s=round(used.ru_stime - self._used[1], 3),
            kept_bytes=self._slot.room.kept_bytes,
            bytes_max=self._slot.room.bytes_max,
            links=tuple(
                cluster.traffic.figures(alias, ways[role])
                for (alias, role), cluster in self._clusters.opened.items()
                if role in ways
            ),
            flows=tuple(flow.counted.figures(flow.id) for flow in self._flows.values()),
        )

    async def drain(self) -> None:
        """Stop fetching and settle all; the shuttle then only waits for `close`."""
        await self._settle(tuple(self._lanes.values()))

    async def close(self) -> None:
        self._slot.closed.set()

    # -- finding the place

    async def _resume_loop(self) -> None:
        """Lanes that wait are looked up together, by flow, so a thousand cost a few requests."""
        while True:
            await self._slot.lookups_due.wait()
            for flow_id, lanes in self._slot.take_lookups().items():
                self._slot.spawn(self._look_up(self._flows[flow_id], lanes))

    async def _look_up(self, flow: Flow, lanes: Iterable[CarriedLane]) -> None:
        asked = {lane: lane.phase for lane in lanes if isinstance(lane.phase, Resuming)}
        if not asked:
            return

        def report(lane: CarriedLane, found: Found) -> None:
            self._machine.on(lane, LookedUp(asked=asked.pop(lane), found=found))

        problem: MirrorError = InvariantError(f"{flow.id}: a resume without an outcome")
        try:
            await learn_sizes(asked)
            await find_resume_points(flow, tuple(asked), report)
        except MirrorError as exc:
            problem = exc
        except Exception as exc:  # our own bug; the lanes of other flows go on
            log.exception("%s: a bug", flow.id)
            problem = InvariantError(f"{type(exc).__name__}: {exc}")
        for lane in tuple(asked):
            report(lane, problem)

    # -- without a driver

    async def look_for_fences(self) -> None:
        """Lanes that run stop where their flow or topic is fenced, or its ledger does not say in
        time."""
        for flow in {lane.flow for lane in self._lanes.values() if lane.running is not None}:
            try:
                async with asyncio.timeout(FENCE_S_MAX):
                    await flow.ledger.catch_up()
                if fence_of(flow.ledger.view) is not None:
                    self._ask_logs(flow.id)
                elif fences := topic_fences(flow.ledger.view):
                    self._ask_logs(flow.id, topics=fences)
            except TimeoutError:
                self._stop_unsure(flow, BrokerUnreachable(f"{flow.id}: its ledger does not answer"))
            except MirrorError as exc:
                self._stop_unsure(flow, exc)

    def _stop_unsure(self, flow: Flow, error: MirrorError) -> None:
        """Nothing more is appended until the ledger was read, not even what is in a socket."""
        self._ask_logs(flow.id, TargetFailed(error=error))
        self._machine.targets.reset(flow.target.alias)

    # -- settling

    async def _settle(self, lanes: Iterable[CarriedLane]) -> None:
        """Fetch no more for these lanes and wait until the target has all that was fetched."""
        lanes = tuple(lanes)
        for lane in lanes:
            self._machine.on(lane, Retire())
        while not all(map(_is_settled, lanes)):
            self._slot.settled.clear()
            await self._slot.settled.wait()
        # A lane that was discarded may be so because the ledger cannot be reached.
        open_lanes = [lane for lane in lanes if not isinstance(lane.phase, Closed)]
        await self._write_heads(open_lanes, wait=True)

    async def _write_heads(self, lanes: Iterable[CarriedLane], *, wait: bool) -> None:
        by_flow: defaultdict[FlowId, list[CarriedLane]] = defaultdict(list)
        for lane in lanes:
            if lane.head_is_due(settling=wait):
                by_flow[lane.spec.id.flow].append(lane)
            elif wait:
                # A tick may have queued this head a moment ago: it is not in the ledger yet, and
                # whoever settles may close the ledger next.
                by_flow.setdefault(lane.spec.id.flow, [])
        for flow_id, some in by_flow.items():
            ledger = self._flows[flow_id].ledger
            if ledger.problem is not None and not wait:
                # They would pile up; the first tick after it has newer ones.
                continue
            heads = [lane.head() for lane in some]
            for lane, head in zip(some, heads, strict=True):
                lane.head_written.position, lane.head_written.badge = head.position, head.state
            if heads:
                probe(HEADS_TO_WRITE)
            if wait:
                await ledger.write(heads)
            ticket = 0 if wait or not heads else ledger.write_soon(heads)
            if ticket:
                self._flows[flow_id].counted.noting(ticket)
            for lane, head in zip(some, heads, strict=True):
                lane.head_written.wrote(head.source_next_offset, ticket)
                lane.unreported = True

    # -- common

    def _flow(self, flow_id: FlowId) -> Flow:
        flow = self._flows.get(flow_id)
        if flow is None:
            source = self._clusters.get(flow_id.source, "consumer")
            target = self._clusters.get(flow_id.target, "producer")
            limits = self._limits.get(flow_id)
            if limits is None:
                consumer = self._clusters.configs[flow_id.source].consumer
                limits = FetchLimits.of(flow_id.source, consumer)
            ledger = LedgerStore(target, ledger_topic(flow_id.source), self._author, lanes=())
            ledger.on_durable.append(lambda: self._machine.targets.release(flow_id))
            # Without it lanes with gaps would wait for ever, and say that they copy.
            self._slot.spawn(ledger.fail_with_writer())
            flow = self._flows[flow_id] = Flow(flow_id, source, target, ledger, limits)
            counted = flow.counted
            ledger.on_durable.append(lambda: counted.durable(ledger.durable))
            self._slot.spawn(self._machine.sources.follow_leaders(flow))
            flow.on_new_producer = lambda: self._ask_logs(flow_id)
        return flow

    async def _go_on_after(self, reconnected: Coroutine[Any, Any, None]) -> None:
        """Lanes that a cluster turned away need not wait until they would try again."""
        await reconnected
        for lane in tuple(self._lanes.values()):
            if lane.trouble is not None:
                due = ResumeDue() if isinstance(lane.phase, Resuming) else FetchDue()
                self._machine.on(lane, due)

    def _ask_logs(
        self,
        flow_id: FlowId,
        event: TargetEvent | None = None,
        topics: Collection[TopicName] | None = None,
    ) -> None:
        """Lanes of the flow that run stop and find their place again, if they still may; all, or
        those of some topics."""
        for lane in tuple(self._lanes.values()):
            of = lane.spec.id
            is_meant = of.flow == flow_id and (topics is None or of.source.topic in topics)
            if is_meant and lane.running is not None:
                self._machine.on(
                    lane, event or SequenceMismatch(detail="its flow has another producer")
                )

    async def _tick_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                # Not wait_for: it swallows a cancellation that meets the wake, and `run` hangs.
                async with asyncio.timeout(self._head_interval_s):
                    await self._slot.heads_due.wait()
                await asyncio.sleep(STALL_GATHER_S)
            self._slot.heads_due.clear()
            self._machine.targets.check_timeouts()
            await self._write_heads(self._lanes.values(), wait=False)
            self._tend_ledgers()

    async def _watch_loop(self) -> None:
        while True:
            await asyncio.sleep(SILENCES_LOOK_S)
            self._silences.look(self._lanes.values(), self._flows.values())

    def _tend_ledgers(self) -> None:
        """Merge what is due; take lanes off a ledger that nothing may be written to any more."""
        for flow in self._flows.values():
            lanes = [lane for lane in self._lanes.values() if lane.flow is flow]
            problem = flow.ledger.problem
            if isinstance(problem, LedgerUnusable):
                for lane in lanes:
                    if lane.running is not None:
                        self._machine.on(lane, TargetFailed(error=problem))
            elif problem is None and flow.id not in self._merging:
                due = [lane for lane in lanes if is_merge_due(lane)]
                if due:
                    self._merging.add(flow.id)
                    self._slot.spawn(self._merge(flow, due))

    async def _merge(self, flow: Flow, lanes: Iterable[CarriedLane]) -> None:
        try:
            await merge_runs(flow, lanes)
        finally:
            self._merging.discard(flow.id)


def _reported(lane: CarriedLane) -> LaneProgress:
    # What the ledger shows of it changes once more, when its head is durable.
    lane.unreported = lane.head_written.is_on_its_way(lane.flow.ledger.durable)
    return lane.progress()


def _is_settled(lane: CarriedLane) -> bool:
    """Whether nothing of the lane is on its way to the target any more."""
    if isinstance(lane.phase, Closed):
        return lane.in_flight == 0
    return lane.running is None or lane.is_drained
