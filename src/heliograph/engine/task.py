"""One slot: a Spark task that carries lanes until driver or lease ends it. Runs on executors.

Imports nothing of the driver, and nothing of pyspark at module level.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never

from heliograph.clock import monotonic_s, now_ms
from heliograph.engine.link import LinkClient
from heliograph.engine.messages import (
    AddLanes,
    Beat,
    Configure,
    Down,
    Drain,
    Figures,
    Hello,
    LimitLanes,
    PauseLanes,
    Progress,
    RemoveLanes,
    ResumeLanes,
    Settled,
    Stop,
    Throttle,
)
from heliograph.engine.sealed import unseal
from heliograph.errors import InvariantError
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    LaneProgress,
    SlotFigures,
    SlotId,
)
from heliograph.processes import machine_id

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig
    from heliograph.copy.flow import FetchLimits

_log: Final = logging.getLogger(__name__)
_PROGRESS_INTERVAL_S: Final = 0.25
_PROGRESS_INTERVAL_S_MAX: Final = 10.0
_LANES_PER_INTERVAL: Final = 1_000
ALONE_S: Final = 2.5
"""Without an echo for so long the slot looks for fences itself; much less than a driver's lease,
which is how long a failover waits for a driver it does not hear."""
_ALONE_LOOK_S: Final = 1.0
_LANES_PER_REPORT: Final = 5_000
_FIGURES_S: Final = 1.0

Clusters = Mapping[ClusterAlias, "ClusterConfig"]


class SlotWorker(Protocol):
    """Carries lanes between clusters; used by one slot on one event loop."""

    def add(self, lanes: Iterable[Lane]) -> None:
        """Start carrying. Idempotent per lane; a changed spec restarts that lane."""
        ...

    async def remove(self, ids: Iterable[LaneId]) -> tuple[LaneProgress, ...]:
        """Stop fetching, wait for what is in flight, settle; then the lanes are not touched."""
        ...

    def discard(self, ids: Iterable[LaneId]) -> None:
        """Send nothing more for these lanes; `remove` then only waits for what is in flight."""
        ...

    async def look_for_fences(self) -> None:
        """Stop lanes of flows that are fenced, or whose ledger does not say whether they are."""
        ...

    def pause(self, ids: Iterable[LaneId]) -> None: ...

    def resume(self, ids: Iterable[LaneId]) -> None: ...

    def limit(self, ids: Iterable[LaneId], limits: tuple[str, ...]) -> None:
        """These lanes keep these limits, which `throttle` gives a rate, and no others."""
        ...

    def throttle(self, limit: str, bytes_per_s: int | None) -> None: ...

    def use(self, clusters: Clusters, limits: Mapping[FlowId, FetchLimits], bytes_max: int) -> None:
        """Carry on with these settings; lanes that run go on running."""
        ...

    def progress(self) -> tuple[LaneProgress, ...]:
        """Of all lanes."""
        ...

    def changes(self) -> tuple[LaneProgress, ...]:
        """Of those lanes at least whose progress is another than when it was last asked for."""
        ...

    def figures(self) -> SlotFigures:
        """Of the slot as a whole."""
        ...

    async def drain(self) -> None:
        """Stop fetching and let everything in flight settle."""
        ...

    async def close(self) -> None:
        """End at once, in order; settles nothing. May be called after `drain`."""
        ...

    async def run(self) -> None:
        """Run until `close`; raises only on our own bugs."""
        ...


CarrierFactory = Callable[[Clusters, int], SlotWorker]
"""Takes the clusters and the most bytes in flight; importable, because it travels to executors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOrder:
    """All a slot gets with its job; lanes come over the link, so none of them can be stale."""

    slot: SlotId
    generation: int
    host: str
    port: int
    token: bytes = field(repr=False)
    lease_s: float
    bytes_max: int
    clusters: Clusters = field(repr=False)
    carrier: CarrierFactory
    settings_version: int = 0
    """Of `clusters`, `bytes_max` and what `carrier` holds; later ones come over the link."""


class Outcome(StrEnum):
    DRAINED = "drained"
    STOPPED = "stopped"
    LEASE_OVER = "lease over"
    FAILED = "failed"
    RETRIED = "task lost"
    """Spark lost the first attempt and started another, which declined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotResult:
    """What a slot's task returns in the end."""

    slot: SlotId
    generation: int
    outcome: Outcome
    detail: str = ""
    lanes: tuple[LaneProgress, ...] = ()


def carry_slot(order: SlotOrder, rows: Iterator[object]) -> Iterator[SlotResult]:
    """The Spark task. Ends only by order, by the end of its lease or by a bug, and says which."""
    from pyspark import TaskContext

    # An input that is not drained costs the worker its reuse, and the next slot half a second.
    for _ in rows:
        pass
    context = TaskContext.get()
    if context.attemptNumber() > 0:
        # One job is one attempt: the driver learns that the first was lost and decides when the
        # slot may be replaced. Carrying on could overlap with a first attempt Spark lost sight of.
        yield SlotResult(slot=order.slot, generation=order.generation, outcome=Outcome.RETRIED)
        return
    try:
        settlement = asyncio.run(run_slot(order, attempt=str(context.taskAttemptId())))
    except Exception as exc:  # noqa: BLE001 - our own bug; raising it would hide it behind Spark's retry
        _log.exception("slot %d failed", order.slot)
        settlement = _failed(order, f"{type(exc).__name__}: {exc}")
    yield settlement


async def run_slot(order: SlotOrder, *, attempt: str) -> SlotResult:
    """Carry what the driver says until it says otherwise or is silent for the whole lease."""
    carrier = order.carrier(order.clusters, order.bytes_max)
    # All that was imported stays for good; a full collection over it stops every lane for 34 ms.
    gc.freeze()
    slot = _Slot(order, carrier, attempt)
    running = asyncio.create_task(carrier.run())
    linked = asyncio.create_task(slot.client.run())
    reporting = asyncio.create_task(slot.report())
    watching = asyncio.create_task(slot.watch_alone())
    tasks = (running, linked, reporting, watching)
    try:
        await asyncio.wait((*tasks, slot.ended), return_when=asyncio.FIRST_COMPLETED)
        outcome, detail = _judge(slot, *tasks)
        lanes = carrier.progress()
    finally:
        # The lanes are let go before anything else: past this line the driver may give them away.
        await carrier.close()
        for task in (*tasks, *slot.background_tasks):
            task.cancel()
        await asyncio.gather(*tasks, *slot.background_tasks, return_exceptions=True)
    if detail:
        _log.error("slot %d %s: %s", order.slot, outcome, detail)
    return SlotResult(
        slot=order.slot,
        generation=order.generation,
        outcome=outcome,
        detail=detail,
        lanes=lanes,
    )


def _failed(order: SlotOrder, detail: str) -> SlotResult:
    return SlotResult(
        slot=order.slot, generation=order.generation, outcome=Outcome.FAILED, detail=detail
    )


def _judge(
    slot: _Slot,
    running: asyncio.Task[None],
    linked: asyncio.Task[None],
    reporting: asyncio.Task[None],
    watching: asyncio.Task[None],
) -> tuple[Outcome, str]:
    if slot.ended.done():
        exc = slot.ended.exception()
        if exc is None:
            return slot.ended.result(), ""
        return Outcome.FAILED, f"errand: {type(exc).__name__}: {exc}"
    named = ((running, "carrier"), (linked, "link"), (reporting, "report"), (watching, "watch"))
    for task, name in named:
        if task.done() and (problem := task.exception()) is not None:
            return Outcome.FAILED, f"{name}: {type(problem).__name__}: {problem}"
    if linked.done():
        return Outcome.LEASE_OVER, ""
    return Outcome.FAILED, "the carrier ended by itself"


def progress_interval_s(changed: int) -> float:
    """Longer after more lanes have changed, so that telling of them costs the slot, and hearing of
    them the driver, the same few hundredths of a core however many there are."""
    slower = max(1.0, changed / _LANES_PER_INTERVAL)
    return min(_PROGRESS_INTERVAL_S * slower, _PROGRESS_INTERVAL_S_MAX)


class _Slot:
    """Turns the driver's messages into calls on the carrier, and its progress into messages."""

    def __init__(self, order: SlotOrder, carrier: SlotWorker, attempt: str) -> None:
        self._order, self._carrier, self._attempt = order, carrier, attempt
        self._settings_version = order.settings_version
        self._carried: dict[LaneId, Lane] = {}
        self._leaving: set[LaneId] = set()
        self._reported: dict[LaneId, LaneProgress] = {}
        self._reported_on = 0
        self._figures_due_s = 0.0
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.background_tasks: set[asyncio.Task[None]] = set()
        self.client = LinkClient(
            host=order.host,
            port=order.port,
            token=order.token,
            lease_s=order.lease_s,
            hello=self._hello,
            heard=self._heard,
        )

    async def report(self) -> None:
        changed = told_all_on = 0
        while True:
            await asyncio.sleep(progress_interval_s(changed))
            if told_all_on == self.client.connections:
                lanes = self._carrier.changes()
            else:
                # What was told on a connection before may have been lost with it.
                lanes, told_all_on = self._carrier.progress(), self.client.connections
            changed = len(lanes)
            self._report(lanes)
            if monotonic_s() >= self._figures_due_s:
                self._report_figures()

    async def watch_alone(self) -> None:
        """A driver that is silent cannot say that a flow was fenced, and its lease runs out before
        this slot's does."""
        while True:
            await asyncio.sleep(_ALONE_LOOK_S)
            if self.client.unheard_s > ALONE_S:
                await self._carrier.look_for_fences()

    def _report_figures(self) -> None:
        self._figures_due_s = monotonic_s() + _FIGURES_S
        self.client.send(Figures(figures=self._carrier.figures()))

    def _report(self, lanes: tuple[LaneProgress, ...]) -> None:
        if self._reported_on != self.client.connections:
            # A report may have been lost with the connection it was sent on.
            self._reported.clear()
            self._reported_on = self.client.connections
        changed = [lane for lane in lanes if self._reported.get(lane.lane) != lane]
        for start in range(0, len(changed), _LANES_PER_REPORT):
            part = tuple(changed[start : start + _LANES_PER_REPORT])
            report = Progress(
                slot=self._order.slot, at_ms=now_ms(), lanes=part, cpu_s=time.process_time()
            )
            if self.client.send(report):
                self._reported.update((lane.lane, lane) for lane in part)

    def _hello(self) -> Hello:
        return Hello(
            slot=self._order.slot,
            generation=self._order.generation,
            attempt=self._attempt,
            machine=machine_id(),
            pid=os.getpid(),
            lanes=tuple(self._carried.values()),
            settings_version=self._settings_version,
        )

    def _heard(self, message: Down) -> None:
        match message:
            case AddLanes(lanes=lanes):
                self._carried.update((lane.id, lane) for lane in lanes)
                self._carrier.add(lanes)
            case RemoveLanes(ids=ids, settle=settle):
                if not settle:
                    self._carrier.discard(ids)
                leaving = set(ids) - self._leaving
                self._leaving |= leaving
                self._start(self._remove(leaving))
            case PauseLanes(ids=ids):
                self._mark(ids, {"paused": True})
                self._carrier.pause(ids)
            case ResumeLanes(ids=ids):
                self._mark(ids, {"paused": False})
                self._carrier.resume(ids)
            case LimitLanes(ids=ids, limits=limits):
                self._mark(ids, {"limits": limits})
                self._carrier.limit(ids, limits)
            case Throttle(limit=limit, bytes_per_s=bytes_per_s):
                self._carrier.throttle(limit, bytes_per_s)
            case Configure(version=version, sealed=sealed):
                told = unseal(sealed, self._order.token)
                self._carrier.use(told.clusters, told.limits, told.bytes_max)
                self._settings_version = version
            case Drain():
                self._start(self._drain())
            case Stop():
                self._end(Outcome.STOPPED)
            case Beat():
                raise InvariantError("beats are the client's own business")
            case _:
                assert_never(message)

    def _mark(self, ids: Iterable[LaneId], changed: Mapping[str, Any]) -> None:
        for lane_id in ids:
            if lane_id in self._carried:
                self._carried[lane_id] = replace(self._carried[lane_id], **changed)

    async def _remove(self, ids: set[LaneId]) -> None:
        self._report(await self._carrier.remove(ids))
        for lane_id in ids:
            self._carried.pop(lane_id, None)
            self._reported.pop(lane_id, None)
        self._leaving -= ids
        self.client.send(Settled(ids=tuple(ids)))

    async def _drain(self) -> None:
        await self._carrier.drain()
        self._report(self._carrier.progress())
        self._report_figures()
        self.client.send(Settled(ids=tuple(self._carried)))
        await self.client.flush()
        self._end(Outcome.DRAINED)

    def _end(self, outcome: Outcome) -> None:
        if not self.ended.done():
            self.ended.set_result(outcome)

    def _start(self, errand: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(errand)
        self.background_tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, errand: asyncio.Task[None]) -> None:
        self.background_tasks.discard(errand)
        if errand.cancelled() or self.ended.done():
            return
        if (exc := errand.exception()) is not None:
            self.ended.set_exception(exc)


def make_shuttle(
    clusters: Clusters, bytes_max: int, limits: Mapping[FlowId, FetchLimits] | None = None
) -> SlotWorker:
    """The carrier that carries; imported on the executor only."""
    from heliograph.copy.shuttle import Shuttle

    return Shuttle(clusters, bytes_max=bytes_max, limits=limits)
