"""A mirror as one asyncio application. Runs on the driver; begin here.

Tasks of one loop: a lease per flow, the periodic jobs, one that reconciles, one that takes lanes of
lost flows off the slots, one that watches Spark, one that reports, and the link's to the slots.
Threads are only behind `broker.blocking` (librdkafka, Spark's start and stop, the assignment) and
`engine.jobs` (one for each of Spark's jobs).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from heliograph.audit.job import audit_runner
from heliograph.audit.loop import audit_jobs
from heliograph.broker.blocking import Changed, blocking, first_of, on_loop
from heliograph.broker.clients import Clients
from heliograph.broker.kerberos import require_kerberos
from heliograph.clock import monotonic_s
from heliograph.config.choice import choose
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.config.tls.oauth import require_signer
from heliograph.copy.flow import fetch_limits
from heliograph.decisions.orders import FlowOrders
from heliograph.drill.schedule import DrillJob
from heliograph.driver.activity import FlowActivity
from heliograph.driver.decided import DecidedFlows
from heliograph.driver.jobs import periodic_jobs
from heliograph.driver.periodic import PeriodicJob, PeriodicJobs
from heliograph.driver.reconcile import Reconciler
from heliograph.driver.stop import StopRequest
from heliograph.engine.application import SparkApplication
from heliograph.engine.slots import Slots
from heliograph.engine.supervisor import SlotHealth
from heliograph.engine.task import make_shuttle
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.leadership import Leaderships
from heliograph.ledger.lease import Leases
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, LaneId, LaneLoad, LaneProgress, SlotId, Stalled
from heliograph.words import counted

log = logging.getLogger("heliograph")

_REPORT_S: Final = 0.25
_QUIET_S_MAX: Final = 1.0
_REBALANCE_S: Final = 30.0
_DECISIONS_S: Final = 0.5
_DRAIN_S_MAX: Final = 60.0
_CORES_PER_SLOT: Final = 2
"""One slot fills its target broker long before it fills a core; more of them only share that
broker."""
_LEASE_WAIT_S: Final = 3.0
_SPARK_STOP_S_MAX: Final = 10.0

Progress = Mapping[LaneId, LaneProgress]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How a running mirror is at one moment."""

    progress: Progress
    slots: Sequence[SlotHealth]
    problems: Mapping[FlowId, str]
    """Why a flow is not mirrored, or a job of it does not work."""
    standby: Mapping[FlowId, str] = field(default_factory=dict)
    """Which driver mirrors a flow that this one stands by for."""
    decided: Mapping[FlowId, tuple[str, ...]] = field(default_factory=dict)
    """What operators decided about a flow, in words."""
    at_s: float = field(default_factory=monotonic_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMirror:
    """A mirror while it runs, for what is served beside it. Used on its loop alone."""

    config: MirrorConfig
    ledgers: LedgerAccess
    leaderships: Leaderships
    status: Callable[[], RunStatus | None]
    """As last reported, at most a second ago; None before the slots were started."""
    phase: Callable[[], str]
    """What the run was last heard to do, in a few words."""
    decided: Callable[[FlowId], FlowOrders]
    """What operators decided about a flow, as this driver follows it."""
    placed: Callable[[], Mapping[LaneId, SlotId]]
    loads: Callable[[], Mapping[LaneId, LaneLoad]]
    """Not before there is a status."""
    resume: Callable[[Iterable[LaneId]], None]
    """On lanes of the status; a lane that is stalled is tried again by it."""


Service = Callable[[LiveMirror], AbstractAsyncContextManager[object]]
"""Something served beside a mirror, from before its first lease until it has settled.

Entered and left on the mirror's loop. What raises on entering keeps the mirror from beginning.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a mirror was when it ended."""

    progress: Progress
    fenced: frozenset[FlowId] = frozenset()
    """Flows that no driver may carry until their fence is lifted."""
    unadopted: int = 0
    """Partitions that wait for `heliograph adopt`."""
    failures: Mapping[FlowId, str] = field(default_factory=dict)
    """Why a flow or a topic of it is not mirrored, or what of its jobs does not work."""

    @property
    def stalled(self) -> tuple[LaneProgress, ...]:
        return tuple(at for at in self.progress.values() if isinstance(at.state, Stalled))

    @property
    def is_well(self) -> bool:
        """Whether nothing needs an operator; a flow that is fenced on purpose, beside others that
        are mirrored, does not."""
        all_fenced = bool(self.fenced) and not self.progress
        return not (self.stalled or all_fenced or self.unadopted or self.failures)


def run(
    config: MirrorConfig | Path | str,
    *,
    clusters: Sequence[str] = (),
    flows: Sequence[str] = (),
    once: bool = False,
    lease: bool = True,
    until: Callable[[Progress], bool] = lambda _: False,
    stop: StopRequest | None = None,
    on_progress: Callable[[RunStatus], None] = lambda _: None,
    services: Sequence[Service] = (),
) -> RunResult:
    """Mirror the flows of `config`, a file or what was loaded from one; blocks until it ends.

    Of all flows, or only those whose target is one of `clusters` and those named in `flows`.

    It ends, drained, when `stop` is made, when `until` says so of the lanes' progress (asked at
    least once a second), or `once` every lane has caught up. `on_progress` hears how it goes, at
    most four times a second; like `until` it is called on the loop and must not block. Without
    `lease` a flow is mirrored even where another driver leads it. `services` are served beside
    the mirror while it runs, such as `heliograph.api.server:api_service`. Raises `MirrorError`.
    docs/guides/library.md has an example.
    """
    if not isinstance(config, MirrorConfig):
        config = load_config(Path(config))
    config = choose(config, clusters=clusters, flows=flows)
    return asyncio.run(
        run_mirror(
            config,
            once=once,
            lease=lease,
            until=until,
            stop=stop,
            on_progress=on_progress,
            services=services,
        )
    )


async def run_mirror(
    config: MirrorConfig,
    *,
    once: bool = False,
    lease: bool = True,
    until: Callable[[Progress], bool] = lambda _: False,
    stop: StopRequest | None = None,
    on_progress: Callable[[RunStatus], None] = lambda _: None,
    services: Sequence[Service] = (),
    spark: SparkApplication | None = None,
) -> RunResult:
    """As `run`, for a caller that has a loop; it may have a `spark` too, which runs already and is
    left running."""
    require_kerberos(config.clusters.values())
    require_signer(config.clusters.values())
    mirror = _Mirror(
        config, once=once, lease=lease, until=until, stop=stop, on_progress=on_progress, spark=spark
    )
    try:
        return await mirror.run(services)
    except BaseExceptionGroup as group:
        # Tasks fail with their group; what went wrong first is what the caller should hear.
        raise _first(group) from group


class _Mirror:
    """The tasks of one run and what they share. All state is on the loop."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        once: bool,
        lease: bool,
        until: Callable[[Progress], bool],
        stop: StopRequest | None,
        on_progress: Callable[[RunStatus], None],
        spark: SparkApplication | None,
    ) -> None:
        self._config, self._once, self._until = config, once, until
        self._stop = stop or StopRequest()
        self._on_progress = on_progress
        self._began_s = monotonic_s()
        self._latest: RunStatus | None = None
        self._last_phase = "starting"
        self._slots_changed = Changed()
        self._spark_gone = asyncio.Event()
        self._slots = Slots(
            clusters=config.clusters,
            engine=config.engine,
            carrier=partial(make_shuttle, limits=fetch_limits(config)),
            on_change=self._slots_changed.notify,
            on_spark_gone=self._spark_gone.set,
        )
        self._activity = FlowActivity(self._slots, self._slots_changed)
        self._ledgers = LedgerAccess(config.clusters)
        self._leases = Leases(config, self._ledgers, self._activity, exclusive=lease)
        self._leaderships = self._leases.leaderships
        self._spark = spark or SparkApplication(config, self._phase)
        self._owns_spark = spark is None
        self._stopping = asyncio.ensure_future(self._stop.wait())
        self._leasing: asyncio.Task[None]
        self._decided = DecidedFlows({flow.id: flow for flow in config.flows})

    @property
    def live(self) -> LiveMirror:
        return LiveMirror(
            config=self._config,
            ledgers=self._ledgers,
            leaderships=self._leaderships,
            status=lambda: self._latest,
            phase=lambda: self._last_phase,
            decided=lambda flow: self._decided.orders(flow),
            placed=self._slots.current,
            loads=self._slots.loads,
            resume=self._slots.resume,
        )

    async def run(self, services: Sequence[Service]) -> RunResult:
        try:
            async with AsyncExitStack() as served, asyncio.TaskGroup() as tasks:
                for service in services:
                    await served.enter_async_context(service(self.live))
                # Claimed while Spark starts, and renewed until nothing is carried any more.
                self._leasing = tasks.create_task(self._leases.run())
                try:
                    if not self._config.flows:
                        return await self._run_heartbeats()
                    return await self._run_with_spark()
                finally:
                    self._leasing.cancel()
        finally:
            self._stopping.cancel()
            await self._leases.release()
            await self._ledgers.close()

    async def _run_heartbeats(self) -> RunResult:
        """Of a file without an enabled flow, as MirrorMaker 2 runs it; Spark has nothing to do."""
        self._phase("no flow is enabled: only heartbeats are written")
        clients = Clients(self._config)
        ledgers = LedgerService.of(self._ledgers)
        beating = periodic_jobs(self._config, clients, ledgers, dict)
        jobs = PeriodicJobs(beating, self._leaderships, self._activity)
        try:
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(jobs.run())
                while not (self._once or self._stop.is_made or self._until({})):
                    self._show(RunStatus(progress={}, slots=(), problems=jobs.problems))
                    await asyncio.wait({self._stopping}, timeout=_QUIET_S_MAX)
                working.cancel()
                await (jobs.finish() if self._once else jobs.settle())
            return RunResult(progress={}, failures=jobs.problems)
        finally:
            await blocking(clients.close)

    async def _run_with_spark(self) -> RunResult:
        try:
            if self._owns_spark and not await self._unless_stopped(blocking(self._spark.start)):
                return RunResult(progress={})
            self._phase("Spark is up")
            count = slot_count(self._config, await blocking(self._spark.room))
            clients = Clients(self._config)
            try:
                return await self._run_with_slots(clients, count)
            finally:
                await blocking(clients.close)
        finally:
            if self._owns_spark:
                await stop_spark(self._spark)

    async def _run_with_slots(self, clients: Clients, count: int) -> RunResult:
        ledgers = LedgerService.of(self._ledgers)
        # Jobs ask from threads of their own.
        progress_of_lanes = partial(on_loop, asyncio.get_running_loop(), self._slots.progress)
        reconciler = Reconciler(self._config, ledgers, clients, count, self._leaderships)
        self._decided = reconciler.decided
        jobs = PeriodicJobs(
            (
                *periodic_jobs(self._config, clients, ledgers, progress_of_lanes),
                *self._proofs(ledgers),
            ),
            self._leaderships,
            self._activity,
            reconciler.decided.is_stopped,
        )
        try:
            await self._slots.start(self._spark.session, count)
            await self._leases.wait_known(_LEASE_WAIT_S)
            async with asyncio.TaskGroup() as tasks:
                watching = [
                    tasks.create_task(self._start_spark_again()),
                    tasks.create_task(self._drop_lost_flows(reconciler)),
                    tasks.create_task(self._follow_decisions(reconciler)),
                    tasks.create_task(self._report(reconciler, jobs)),
                ]
                working = tasks.create_task(jobs.run())
                if await self._unless_stopped(self._reconcile(reconciler)) and self._once:
                    self._phase("writing final checkpoints and offset syncs")
                    working.cancel()
                    await jobs.finish()
                working.cancel()
                await jobs.settle()
                for task in watching:
                    task.cancel()
            progress = self._slots.progress()
            self._phase("draining")
            is_drained = await self._slots.drain(_DRAIN_S_MAX)
            progress = self._slots.progress() or progress
            self._report_now(reconciler, jobs)
            if is_drained:
                # Nothing is carried any more: a standby need not wait for the end of Spark.
                self._leasing.cancel()
                await asyncio.wait({self._leasing})
                await self._leases.release()
            self._phase("settled")
            return RunResult(
                progress=progress,
                fenced=reconciler.fenced,
                unadopted=reconciler.unadopted,
                failures={**jobs.problems, **reconciler.failures},
            )
        finally:
            await self._slots.stop()

    async def _reconcile(self, reconciler: Reconciler) -> None:
        """Follow what is configured, until the flows have caught up where that is the end."""
        await reconciler.reconcile(self._slots)
        lanes, slots = len(reconciler.lanes), self._slots.count
        self._phase(f"{counted(lanes, 'lane')} handed to {counted(slots, 'slot')}")
        rebalance_s = monotonic_s() + _REBALANCE_S
        balanced: Progress = {}
        first = True
        while True:
            progress = await reconciler.apply_policies(self._slots)
            if first and any(at.records for at in progress.values()):
                log.info("first records mirrored")
                first = False
            if self._until(progress) or (self._once and reconciler.finished(progress)):
                return
            if reconciler.due_in_s == 0.0:
                await reconciler.reconcile(self._slots)
            elif monotonic_s() >= rebalance_s:
                if progress is not balanced:
                    await reconciler.rebalance(self._slots)
                balanced = progress
                rebalance_s = monotonic_s() + _REBALANCE_S
            due_in_s = min(reconciler.due_in_s, rebalance_s - monotonic_s())
            # Slots have nothing to report while nothing comes; `until` may wait for something else.
            await self._next_change(min(due_in_s, _QUIET_S_MAX))

    async def _next_change(self, timeout_s: float) -> None:
        """Wait for news of slots or leases; many reports that come together are one change."""
        began_s = monotonic_s()
        await first_of(
            self._slots_changed, self._leaderships.changed, timeout_s=max(0.0, timeout_s)
        )
        left_s = _REPORT_S - (monotonic_s() - began_s)
        if left_s > 0:
            await first_of(self._leaderships.changed, timeout_s=left_s)

    async def _drop_lost_flows(self, reconciler: Reconciler) -> None:
        """At once, while `_reconcile` may wait for a dead cluster."""
        changed = self._leaderships.changed.wait()
        while True:
            await changed
            # Before the lanes are looked at, so that a change while they are is not missed.
            changed = self._leaderships.changed.wait()
            await reconciler.drop_lost_flows(self._slots)

    async def _follow_decisions(self, reconciler: Reconciler) -> None:
        while True:
            await asyncio.sleep(_DECISIONS_S)
            await reconciler.follow_decisions(self._slots, self._ledgers)

    async def _start_spark_again(self) -> None:
        while True:
            await self._spark_gone.wait()
            await blocking(self._spark.start_again)
            self._spark_gone.clear()
            self._slots.use(self._spark.session)
            self._phase("Spark is up again")

    async def _report(self, reconciler: Reconciler, jobs: PeriodicJobs) -> None:
        while True:
            self._report_now(reconciler, jobs)
            await self._next_change(_QUIET_S_MAX)

    def _report_now(self, reconciler: Reconciler, jobs: PeriodicJobs) -> None:
        self._show(
            RunStatus(
                progress=self._slots.progress(),
                slots=self._slots.health(),
                problems={**jobs.problems, **reconciler.problems},
                standby=self._leaderships.standing_by,
                decided=self._decided.words(),
            )
        )

    def _show(self, status: RunStatus) -> None:
        self._latest = status
        self._on_progress(status)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether `work` came to its end before the mirror was asked to stop."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
                return True
            return False
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _proofs(self, ledgers: LedgerService) -> tuple[PeriodicJob, ...]:
        """What proves the copy while it is made: drills as scheduled, audits as the file asks."""
        config = self._config
        clusters = {
            flow.id: (config.source_of(flow.id), config.target_of(flow.id)) for flow in config.flows
        }
        audits = audit_runner(lambda: self._spark.session, clusters, lambda: not self._stop.is_made)
        drills = [DrillJob(config, flow, ledgers) for flow in config.flows]
        return (*drills, *audit_jobs(config, audits))

    def _phase(self, what: str) -> None:
        self._last_phase = what
        log.info("[%.1f s] %s", monotonic_s() - self._began_s, what)


async def stop_spark(spark: SparkApplication) -> None:
    """A Spark in trouble must not keep the mirror from ending."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SPARK_STOP_S_MAX):
            await blocking(spark.stop)


def slot_count(config: MirrorConfig, room: int) -> int:
    """As many slots as asked for, or one for every two cores; never more than Spark can run.

    `tasks.max` bounds a flow; where every flow has one, their sum bounds the run.
    """
    engine = config.engine
    cores = max(1, round(room * engine.slot_cpus))
    wanted = engine.slots or max(1, cores // _CORES_PER_SLOT)
    bounds = [flow.tasks_max for flow in config.flows if flow.tasks_max is not None]
    most = sum(bounds) if bounds and len(bounds) == len(config.flows) else room
    return min(room, wanted, most)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
