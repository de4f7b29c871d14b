"""A whole mirror in this very process, on threads of its own: all of a driver but Spark and lease.

For every test whose subject is not Spark: it starts at once, and what it does can be asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from heliograph.broker.blocking import Changed, end_other_tasks
from heliograph.broker.clients import Clients
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.copy.flow import FetchLimits, fetch_limits
from heliograph.copy.shuttle import BYTES_MAX, Shuttle
from heliograph.driver.activity import FlowActivity
from heliograph.driver.jobs import periodic_jobs
from heliograph.driver.periodic import PeriodicJob, PeriodicJobs
from heliograph.driver.reconcile import Reconciler
from heliograph.driver.stop import StopRequest
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.leadership import Leaderships
from heliograph.ledger.lease import Leases
from heliograph.ledger.service import LedgerService
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Idle,
    Lane,
    LaneId,
    LaneLoad,
    LaneProgress,
    SlotId,
    Stalled,
)
from tests.kit.leasing import NoSlots
from tests.kit.topics import wait_until

_CALL_S_MAX: Final = 30.0
_IDLE_S_MAX: Final = 60.0
_TICK_S: Final = 0.1
_ONLY_SLOT: Final = SlotId(0)

T = TypeVar("T")


class InsideSlots:
    """The `SlotPool` of a `Reconciler`; all lanes are in one shuttle."""

    def __init__(
        self,
        clusters: Mapping[ClusterAlias, ClusterConfig],
        limits: Mapping[FlowId, FetchLimits] | None = None,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lanes: dict[LaneId, Lane] = {}
        self._told: dict[LaneId, LaneProgress] = {}
        self._paused: set[LaneId] = set()
        self._limits: dict[str, int] = {}

        async def begin() -> tuple[Shuttle, asyncio.Task[None]]:
            shuttle = Shuttle(clusters, bytes_max=bytes_max, limits=limits)
            return shuttle, asyncio.create_task(shuttle.run())

        self._shuttle, self._running = self._call(begin())

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId] = frozenset(),
        stuck: frozenset[LaneId] = frozenset(),
    ) -> None:
        wanted = {lane.id: lane for lanes in assignment.values() for lane in lanes}
        leaving = self._lanes.keys() - wanted.keys()
        # As the roster: a lane that is only paused, or goes on, stays as it is otherwise.
        specs = {id_: replace(lane, paused=False, limits=()) for id_, lane in wanted.items()}
        kept = {id_: wanted[id_] for id_, lane in specs.items() if self._lanes.get(id_) == lane}
        paused = {id_ for id_, lane in wanted.items() if lane.paused}

        async def change() -> None:
            self._shuttle.discard(lane for lane in leaving if lane.flow in abandoned)
            await self._shuttle.remove(leaving)
            self._shuttle.add(lane for id_, lane in wanted.items() if id_ not in kept)
            for id_, lane in kept.items():
                self._shuttle.limit([id_], lane.limits)
            self._shuttle.pause(id_ for id_ in kept if id_ in paused - self._paused)
            self._shuttle.resume(id_ for id_ in kept if id_ in self._paused - paused)

        self._call(change())
        self._lanes, self._paused = specs, paused

    def throttle(self, limits: Mapping[str, int]) -> None:
        """The one slot has all of each."""

        async def limit() -> None:
            for name in {*limits, *self._limits}:
                if limits.get(name) != self._limits.get(name):
                    self._shuttle.throttle(name, limits.get(name))

        self._call(limit())
        self._limits = dict(limits)

    def resume(self, ids: Iterable[LaneId]) -> None:
        async def go_on() -> None:
            self._shuttle.resume(ids)

        self._call(go_on())

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        async def look() -> dict[LaneId, LaneProgress]:
            # On the loop, which others ask as well: nothing changes between the two answers.
            self._told.update((at.lane, at) for at in self._shuttle.changes())
            found = {at.lane: at for at in self._shuttle.progress()}
            # A driver hears of changes alone: one that is not told would never be seen there.
            for lane, at in found.items():
                assert self._told.get(lane) == at, f"changed and not told: {at}"
            return found

        return self._call(look())

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    count = 1

    def current(self) -> Mapping[LaneId, SlotId]:
        return dict.fromkeys(self._lanes, _ONLY_SLOT)

    @property
    def has_ended(self) -> bool:
        """Only a bug of ours ends a slot before it is closed."""
        return self._running.done()

    def close(self) -> None:
        async def end() -> None:
            await self._shuttle.close()
            await self._running
            await end_other_tasks()

        try:
            self._call(end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S_MAX)


class InsideMirror:
    """A driver that does what a test says, step by step; `running_inside` is one that follows."""

    def __init__(
        self,
        file: Path | MirrorConfig,
        *,
        leads: Callable[[FlowId], bool] = lambda _: True,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.config = file if isinstance(file, MirrorConfig) else load_config(file)
        with ExitStack() as stack:
            self.clients = stack.enter_context(closing(Clients(self.config)))
            self.ledgers = stack.enter_context(closing(LedgerService(self.config.clusters)))
            limits = fetch_limits(self.config)
            slots = InsideSlots(self.config.clusters, limits, bytes_max)
            self.slots = stack.enter_context(closing(slots))
            self.leaderships = Leaderships(
                flow.id for flow in self.config.flows if not leads(flow.id)
            )
            self.reconciler = Reconciler(
                self.config, self.ledgers, self.clients, 1, self.leaderships
            )
            self._end = stack.pop_all()
        self.jobs: dict[tuple[FlowId, str], PeriodicJob] = {
            (job.flow, job.what): job
            for job in periodic_jobs(self.config, self.clients, self.ledgers, self.slots.progress)
        }

    def close(self) -> None:
        self._end.close()

    def reconcile(self) -> None:
        asyncio.run(self.reconciler.reconcile(self.slots))

    def catch_up(self, lanes: int | None = None) -> None:
        """Until all lanes are idle, as many as are planned unless told."""
        self.reconcile()
        wanted = len(self.reconciler.lanes) if lanes is None else lanes

        def is_idle() -> bool:
            found = self.slots.progress().values()
            return len(found) == wanted > 0 and all(isinstance(at.state, Idle) for at in found)

        try:
            wait_until(is_idle, f"{wanted} idle lanes", timeout_s=_IDLE_S_MAX)
        except AssertionError as exc:
            seen = [f"{at.lane}: {at.state}" for at in self.slots.progress().values()]
            raise AssertionError(f"{exc}: {seen} {self.reconciler.problems}") from exc

    def step(self, what: str, flow: FlowId | None = None) -> None:
        """One step of a periodic job, such as `checkpoints`, of every flow that has it."""
        found = [
            job for (of, name), job in self.jobs.items() if name == what and flow in (None, of)
        ]
        assert found, f"no flow has {what}"
        for job in found:
            job.step()

    @property
    def stalls(self) -> list[str]:
        """A sentence for each lane that is stalled."""
        states = [at.state for at in self.slots.progress().values()]
        return [state.detail for state in states if isinstance(state, Stalled)]

    def settle(self) -> None:
        """Lanes leave the slot, their heads in the ledger."""
        self.slots.apply({_ONLY_SLOT: ()})


async def _follow(inside: InsideMirror, stop: StopRequest, *, periodic: bool, leased: bool) -> None:
    """What a driver does until it is asked to stop, without reports and, unless asked, leases."""
    activity = FlowActivity(inside.slots if leased else NoSlots(), Changed())
    ledgers = LedgerAccess(inside.config.clusters)
    leases = Leases(inside.config, ledgers, activity)
    leaderships = leases.leaderships if leased else Leaderships()
    inside.reconciler._leaderships = inside.leaderships = leaderships
    leasing = [leases.run(), _drop_lost_flows(inside)] if leased else []
    aside = [asyncio.create_task(work) for work in leasing]
    jobs = PeriodicJobs(list(inside.jobs.values()) if periodic else [], leaderships, activity)
    working = asyncio.create_task(jobs.run())
    stopping = asyncio.create_task(stop.wait())
    while not stopping.done():
        await inside.reconciler.apply_policies(inside.slots)
        await inside.reconciler.follow_decisions(inside.slots, ledgers)
        if inside.reconciler.due_in_s == 0.0:
            await inside.reconciler.reconcile(inside.slots)
        await asyncio.wait({stopping}, timeout=_TICK_S)
    working.cancel()
    await jobs.settle()
    for task in aside:
        task.cancel()
    await leases.release()
    await ledgers.close()


async def _drop_lost_flows(inside: InsideMirror) -> None:
    while True:
        await inside.leaderships.changed.wait()
        await inside.reconciler.drop_lost_flows(inside.slots)


@contextmanager
def running_inside(
    file: Path, *, periodic: bool = False, leased: bool = False
) -> Iterator[InsideMirror]:
    """A mirror that follows its topics and lanes until the block ends; with `periodic` jobs too.

    `leased` it carries only what its leases let it; without them it looks for no fence either.
    """
    with closing(InsideMirror(file)) as inside:
        stop = StopRequest()
        problems: list[BaseException] = []

        def follow() -> None:
            try:
                asyncio.run(_follow(inside, stop, periodic=periodic, leased=leased))
            except BaseException as exc:  # noqa: BLE001 - raised on the test's own thread below
                problems.append(exc)

        if not leased:
            inside.reconcile()
        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield inside
        finally:
            stop.make()
            follower.join(_IDLE_S_MAX)
        assert not problems, problems
        assert not inside.slots.has_ended, "the slot ended by itself"


def carry(file: Path, *, lanes: int | None = None, checkpoints: bool = False) -> None:
    """Mirror until nothing waits, then stop; by default as many lanes as are planned."""
    with closing(InsideMirror(file)) as inside:
        inside.catch_up(lanes)
        if checkpoints:
            inside.step("checkpoints")
