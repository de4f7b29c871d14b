"""A mirror as one asyncio application. Runs on the driver; begin here.

Tasks of one loop: a lease per flow, the periodic jobs, one that reconciles, one that takes lanes of
lost flows off the slots, one that watches Spark, one that reports, and the link's to the slots.
Threads are only behind `broker.blocking` (librdkafka, Spark's start and stop, the assignment) and
`engine.jobs` (one for each of Spark's jobs).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from heliograph.broker.blocking import Changed, asked_of_loop, blocking, first_of, on_loop
from heliograph.broker.clients import Clients
from heliograph.broker.kerberos import require_kerberos
from heliograph.clock import monotonic_s
from heliograph.config.choice import choose
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.config.tls.oauth import require_signer
from heliograph.copy.flow import fetch_limits
from heliograph.driver.activity import FlowActivity
from heliograph.driver.applying import RunningParts, apply
from heliograph.driver.changes import ConfigChanges
from heliograph.driver.critical_first import CriticalFirst
from heliograph.driver.decided import DecidedFlows
from heliograph.driver.jobs import heartbeat_jobs, periodic_jobs, proofs
from heliograph.driver.lag_book import LagBook
from heliograph.driver.live import LiveMirror, Progress, RunStatus, Service
from heliograph.driver.old_brokers import say_what_is_lacking
from heliograph.driver.periodic import PeriodicJob, PeriodicJobs
from heliograph.driver.pipelines import Pipelines, spark_queries
from heliograph.driver.problems import joined
from heliograph.driver.reconcile import Reconciler
from heliograph.driver.result import RunResult
from heliograph.driver.slot_keeper import SlotKeeper
from heliograph.driver.stop import StopRequest, stop_spark, unless_stopped
from heliograph.engine.application import SparkApplication
from heliograph.engine.slots import Slots
from heliograph.engine.task import make_shuttle
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.lease import Leases
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId
from heliograph.words import counted

log = logging.getLogger("heliograph")

_REPORT_S: Final = 0.25
_QUIET_S_MAX: Final = 1.0
_REBALANCE_S: Final = 30.0
_DECISIONS_S: Final = 0.5
_DRAIN_S_MAX: Final = 60.0
_LEASE_WAIT_S: Final = 3.0


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
    changes: ConfigChanges | None = None,
) -> RunResult:
    """Mirror the flows of `config`, a file or what was loaded from one; blocks until it ends.

    Of all flows, or only those whose target is one of `clusters` and those named in `flows`.

    It ends, drained, when `stop` is made, when `until` says so of the lanes' progress (asked at
    least once a second), or `once` every lane has caught up. `on_progress` hears how it goes, at
    most four times a second; like `until` it is called on the loop and must not block. Without
    `lease` a flow is mirrored even where another driver leads it. `services` are served beside
    the mirror while it runs, such as `heliograph.api.server:api_service`. What is offered to
    `changes` is followed meanwhile (`heliograph.driver.watching` offers a file's). Raises
    `MirrorError`. docs/guides/library.md has an example.
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
            changes=changes,
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
    changes: ConfigChanges | None = None,
) -> RunResult:
    """As `run`, for a caller that has a loop."""
    require_kerberos(config.clusters.values())
    require_signer(config.clusters.values())
    mirror = _Mirror(
        config,
        once=once,
        lease=lease,
        until=until,
        stop=stop,
        on_progress=on_progress,
        changes=changes or ConfigChanges(),
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
        changes: ConfigChanges,
    ) -> None:
        self._config, self._once, self._until = config, once, until
        self._changes = changes
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
        self._spark = SparkApplication(config, self._phase)
        self._stopping = asyncio.ensure_future(self._stop.wait())
        self._leasing: asyncio.Task[None]
        self._decided = DecidedFlows({flow.id: flow for flow in config.flows})
        self._keeper: SlotKeeper | None = None
        self._jobs: PeriodicJobs | None = None
        self._pipelines = Pipelines(
            config,
            spark_queries(lambda: self._spark.session),
            self._leaderships,
            self._activity,
            lambda flow: self._decided.orders(flow),
            self._ledgers,
            once=once,
        )
        self._book = LagBook(config, lambda: self._latest, self._slots.current)
        self._live = LiveMirror(
            config=config,
            ledgers=self._ledgers,
            leaderships=self._leaderships,
            status=lambda: self._latest,
            phase=lambda: self._last_phase,
            decided=lambda flow: self._decided.orders(flow),
            placed=self._slots.current,
            loads=self._slots.loads,
            resume=self._slots.resume,
            lag=self._book.report,
            history=self._book.history,
            tally=lambda: self._slots.tally,
            jobs=lambda: () if self._jobs is None else self._jobs.figures,
            jvm=self._spark.jvm,
            changed=lambda: changes.status,
            pipelines=lambda: self._pipelines.figures,
        )

    async def run(self, services: Sequence[Service]) -> RunResult:
        try:
            async with AsyncExitStack() as served, asyncio.TaskGroup() as tasks:
                for service in services:
                    await served.enter_async_context(service(self._live))
                # Claimed while Spark starts, and renewed until nothing is carried any more.
                self._leasing = tasks.create_task(self._leases.run())
                try:
                    while not self._config.flows:
                        if (result := await self._run_heartbeats()) is not None:
                            return result
                    return await self._run_with_spark()
                finally:
                    self._leasing.cancel()
        finally:
            self._stopping.cancel()
            await self._leases.release()
            await self._ledgers.close()

    async def _run_heartbeats(self) -> RunResult | None:
        """Of a file without an enabled flow, as MirrorMaker 2 runs it; Spark has nothing to do.

        None where the configuration has a flow by now.
        """
        self._phase("no flow is enabled: only heartbeats are written")
        clients = Clients(self._config)
        beating = partial(heartbeat_jobs, clients, LedgerService.of(self._ledgers))
        jobs = PeriodicJobs(beating(self._config), self._leaderships, self._activity)
        try:
            async with asyncio.TaskGroup() as tasks:
                parts = self._parts(clients, jobs, beating)
                beside = [tasks.create_task(jobs.run()), tasks.create_task(self._follow(parts))]
                while not (self._once or self._stop.is_made or self._until({})):
                    if self._config.flows and self._changes.is_settled:
                        break
                    at, problems = self._changes.status, jobs.problems
                    self._show(RunStatus(progress={}, slots=(), problems=problems, config=at))
                    heard = {self._stopping, self._changes.changed.wait()}
                    await asyncio.wait(heard, timeout=_QUIET_S_MAX, return_when=FIRST_COMPLETED)
                for task in beside:
                    task.cancel()
                await (jobs.finish() if self._once else jobs.settle())
            if self._config.flows and not self._stop.is_made:
                return None
            return RunResult(progress={}, failures=jobs.problems)
        finally:
            await blocking(clients.close)

    async def _run_with_spark(self) -> RunResult:
        try:
            if not await unless_stopped(blocking(self._spark.start), self._stopping):
                return RunResult(progress={})
            self._phase("Spark is up")
            self._keeper = SlotKeeper(self._config, await blocking(self._spark.capacity))
            clients = Clients(self._config)
            try:
                return await self._run_with_slots(clients, self._keeper)
            finally:
                await blocking(clients.close)
        finally:
            await stop_spark(self._spark)

    def _every_job(
        self,
        loop: asyncio.AbstractEventLoop,
        clients: Clients,
        ledgers: LedgerService,
        config: MirrorConfig,
    ) -> list[PeriodicJob]:
        # They ask from threads of their own.
        progress = partial(on_loop, loop, self._slots.progress)
        lags = partial(asked_of_loop, loop, self._book.report)
        clocks = partial(on_loop, loop, lambda: self._slots.tally.clocks_s())
        session, is_wanted = lambda: self._spark.session, lambda: not self._stop.is_made
        proving = proofs(config, ledgers, session, is_wanted)
        return [*periodic_jobs(config, clients, ledgers, progress, lags, clocks), *proving]

    async def _run_with_slots(self, clients: Clients, keeper: SlotKeeper) -> RunResult:
        ledgers = LedgerService.of(self._ledgers)
        reconciler = Reconciler(self._config, ledgers, clients, keeper.count, self._leaderships)
        self._decided = reconciler.decided
        every_job = partial(self._every_job, asyncio.get_running_loop(), clients, ledgers)
        jobs = self._jobs = PeriodicJobs(
            every_job(self._config),
            self._leaderships,
            self._activity,
            reconciler.decided.is_stopped,
        )
        try:
            await self._slots.start(self._spark.session, keeper.count)
            await self._leases.wait_known(_LEASE_WAIT_S)
            async with asyncio.TaskGroup() as tasks:
                beside = (
                    self._start_spark_again(),
                    self._drop_lost_flows(reconciler),
                    self._follow_decisions(reconciler),
                    keeper.run(reconciler, self._slots, self._spark.capacity, self._ledgers),
                    CriticalFirst().run(reconciler, self._slots),
                    self._report(reconciler, jobs),
                    self._book.run(clients),
                    self._changes.keep_noted(self._leaderships, self._ledgers),
                    self._follow(self._parts(clients, jobs, every_job, reconciler)),
                    self._pipelines.run(),
                    say_what_is_lacking(self._config),
                )
                watching = [tasks.create_task(each) for each in beside]
                working = tasks.create_task(jobs.run())
                if await unless_stopped(self._reconcile(reconciler), self._stopping) and self._once:
                    self._phase("writing final checkpoints and offset syncs")
                    working.cancel()
                    await jobs.finish()
                working.cancel()
                await jobs.settle()
                for task in watching:
                    task.cancel()
            await self._pipelines.settle()
            progress = self._slots.progress()
            self._phase("draining")
            is_drained = await self._slots.drain(_DRAIN_S_MAX)
            progress = self._slots.progress() or progress
            await jobs.drained(progress)
            self._report_now(reconciler, jobs)
            if is_drained:
                await self._let_go()
            self._phase("settled")
            return RunResult(
                progress=progress,
                fenced=reconciler.fenced,
                unadopted=reconciler.unadopted,
                failures={**self._problems(jobs), **reconciler.failures},
            )
        finally:
            await self._slots.stop()

    async def _let_go(self) -> None:
        """Nothing is carried any more: a standby need not wait for the end of Spark."""
        self._leasing.cancel()
        await asyncio.wait({self._leasing})
        await self._leases.release()

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
            if self._until(progress):
                return
            if self._once and reconciler.finished(progress) and self._pipelines.have_ended:
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

    async def _follow(self, parts: RunningParts) -> None:
        await self._changes.follow(lambda config: apply(parts, self._config, config))

    def _parts(
        self,
        clients: Clients,
        jobs: PeriodicJobs,
        jobs_of: Callable[[MirrorConfig], Sequence[PeriodicJob]],
        reconciler: Reconciler | None = None,
    ) -> RunningParts:
        def adopt(config: MirrorConfig) -> None:
            self._config = self._live.config = config
            self._book.use(config)
            self._pipelines.use(config)
            if self._keeper is not None:
                self._keeper.use(config)

        return RunningParts(
            leases=self._leases,
            ledgers=self._ledgers,
            slots=self._slots,
            activity=self._activity,
            clients=clients,
            jobs=jobs,
            jobs_of=jobs_of,
            reconciler=reconciler,
            adopt=adopt,
        )

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
                problems={**self._problems(jobs), **reconciler.problems},
                standby=self._leaderships.standing_by,
                decided=self._decided.words(),
                slots_why="" if self._keeper is None else self._keeper.why,
                moved={} if self._keeper is None else self._keeper.moved,
                held_back=self._decided.held_back,
                lag=self._book.report_now,
                config=self._changes.status,
            )
        )

    def _problems(self, jobs: PeriodicJobs) -> Mapping[FlowId, str]:
        return joined(jobs.problems, self._pipelines.problems)

    def _show(self, status: RunStatus) -> None:
        self._latest = status
        self._on_progress(status)

    def _phase(self, what: str) -> None:
        self._last_phase = what
        log.info("[%.1f s] %s", monotonic_s() - self._began_s, what)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
