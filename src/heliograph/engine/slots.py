"""The slots as the rest of the driver sees them. Runs on the driver's loop.

The link, the supervisor and the roster live on that loop too, so nothing here may block. Only the
jobs of Spark have threads (`engine.jobs`); what those have to say comes in by `Slots._post`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from pyspark import SparkContext

from heliograph.broker.blocking import Changed, blocking
from heliograph.config.schema import EngineConfig
from heliograph.engine.jobs import Job, JobEnded, SlotJob, spark_is_gone
from heliograph.engine.link import LinkServer
from heliograph.engine.messages import Configure
from heliograph.engine.sealed import SlotSettings, seal
from heliograph.engine.session import is_local
from heliograph.engine.supervisor import TICK_S, SlotHealth, SlotSupervisor
from heliograph.engine.tally import SlotTally
from heliograph.engine.task import CarrierFactory, Clusters, SlotOrder, SlotResult, make_shuttle
from heliograph.errors import InvariantError, LinkError
from heliograph.model import FlowId, Lane, LaneId, LaneLoad, LaneProgress, SlotId

_STOP_S_MAX: Final = 5.0
_CANCEL_S_MAX: Final = 10.0
_TOKEN_BYTES: Final = 32


class Slots:
    """Spark tasks that carry lanes, kept alive and told what to carry.

    A lane is never given to a slot before the one that held it has settled it, ended for sure, or
    been silent for the whole lease. A slot that is lost is started anew and gets its lanes back;
    the others are not disturbed.
    """

    def __init__(
        self,
        *,
        clusters: Clusters,
        engine: EngineConfig,
        carrier: CarrierFactory = make_shuttle,
        on_change: Callable[[], None] = lambda: None,
        on_spark_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` hears when a slot has told something, `on_spark_gone` when jobs cannot run
        any more, until `use` brings another session. Both are called on the loop."""
        self._clusters, self._engine, self._carrier = clusters, engine, carrier
        self._bytes_max, self._settings_version = engine.bytes_max, 0
        self._lease_s = engine.lease_ms_max / 1000
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._context: SparkContext | None = None
        self._on_change, self._on_spark_gone = on_change, on_spark_gone
        self._changed = Changed()
        self._crew = SlotSupervisor(
            lease_s=self._lease_s, submit=self._submit, post=self._post, on_change=self._notify
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: LinkServer | None = None
        self._host, self._port = "", 0
        self._stopped = False
        self.count = 0
        """The highest number of a slot there should be, and one."""

    async def start(self, context: SparkContext, count: int) -> None:
        """Submit `count` slots and do not wait for them; `health` says when they run."""
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._host = await blocking(_link_host, context, self._engine)
        link = LinkServer(
            host=self._host, token=self._token, listener=self._crew, on_failure=self._notify
        )
        self._port = await link.start()
        self._link = link
        link.every(TICK_S, self._crew.tick)
        self.keep(frozenset(map(SlotId, range(count))))

    def use(self, context: SparkContext) -> None:
        """Start slots in this one from here on; the one there was is gone."""
        self._context = context
        self._open_crew().proceed()

    def keep(self, wanted: frozenset[SlotId]) -> None:
        """There should be these. Slots that go settle their lanes first; assign those anew."""
        self.count = max(wanted, default=-1) + 1
        self._open_crew().keep(wanted)

    def give_up(self, slot: SlotId, why: str) -> None:
        """End a slot that does not let go of a lane; another takes its place."""
        self._open_crew().give_up(slot, why)

    def configure(self, settings: SlotSettings) -> None:
        """Carry on with these, in every slot and without a pause; returns before they act.

        Lanes that are applied afterwards find their settings there. Only for the carrier that
        carries.
        """
        self._clusters, self._bytes_max = settings.clusters, settings.bytes_max
        self._carrier = partial(make_shuttle, limits=settings.limits)
        self._settings_version += 1
        sealed = seal(settings, self._token)
        self._crew.configure(Configure(version=self._settings_version, sealed=sealed))

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId] = frozenset(),
        stuck: frozenset[LaneId] = frozenset(),
    ) -> None:
        """Make this the assignment, whole; only differences are sent. Returns before they act.

        Lanes leave a slot with what was fetched for them, but those of `abandoned` flows, which
        append nothing more, and `stuck` ones, whose next slot fetches it again.
        """
        self._open_crew().want(assignment, abandoned, stuck)

    def resume(self, ids: Iterable[LaneId]) -> None:
        """Try lanes again that are stalled; what pauses a lane is its spec."""
        crew = self._open_crew()
        crew.tell(crew.roster.resume(ids))

    def throttle(self, limits: Mapping[str, int]) -> None:
        """Make these the limits, whole, in bytes a second; lanes name theirs in their specs.

        Each is divided among the slots that carry its lanes, anew every few seconds.
        """
        crew = self._open_crew()
        crew.tell(crew.roster.limit(limits))

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        """The latest of every lane that is wanted; after `drain` the settled state.

        Not to be changed: it is the same object until there is news.
        """
        return self._open_crew().progress()

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return self._open_crew().loads()

    def current(self) -> Mapping[LaneId, SlotId]:
        """Which slot may be carrying which lane; none before `start`."""
        return {} if self._link is None else self._open_crew().roster.holders()

    def health(self) -> tuple[SlotHealth, ...]:
        return self._open_crew().health()

    @property
    def tally(self) -> SlotTally:
        """What slots did as a whole, those that are gone included."""
        return self._crew.tally

    async def drain(self, timeout_s: float) -> bool:
        """Let every slot settle and end. True when all did in time; call `stop` in either case."""
        self._open_crew().drain()
        ended = await self._wait(lambda: self._open_crew().all_ended, timeout_s)
        return ended and self._crew.all_drained

    async def stop(self) -> None:
        """End every slot at once and close the link; nothing more is settled. May be repeated."""
        if self._stopped or self._link is None:
            return
        self._stopped = True
        try:
            # Not `_open_crew`: slots are ended too when the link has failed.
            self._crew.stop()
            if not await self._wait(lambda: self._crew.all_ended, _STOP_S_MAX):
                self._crew.cancel()
                await self._wait(lambda: self._crew.all_ended, _CANCEL_S_MAX)
        finally:
            await self._link.stop()

    def _submit(self, slot: SlotId, generation: int, ended: JobEnded) -> Job:
        order = SlotOrder(
            slot=slot,
            generation=generation,
            host=self._host,
            port=self._port,
            token=self._token,
            lease_s=self._lease_s,
            bytes_max=self._bytes_max,
            clusters=self._clusters,
            carrier=self._carrier,
            settings_version=self._settings_version,
        )
        context = self._context
        if context is None:
            raise InvariantError("a slot is started before there is Spark")

        def ended_here(settlement: SlotResult | None, detail: str) -> None:
            # On the job's thread: a JVM in trouble may take long to answer.
            if settlement is None and spark_is_gone(context):
                self._post(lambda: self._lost_spark(context))
            ended(settlement, detail)

        return SlotJob(context, order, ended_here)

    def _lost_spark(self, context: SparkContext) -> None:
        # Every job of the session ends with it; the first one to say so is enough.
        if context is self._context and not self._stopped:
            self._crew.hold()
            self._on_spark_gone()

    def _open_crew(self) -> SlotSupervisor:
        """Raises `LinkError` while there is no link, and `InvariantError` once it has failed."""
        if self._link is None:
            raise LinkError("the link is not open yet")
        self._link.check()
        return self._crew

    def _post(self, function: Callable[[], None]) -> None:
        """Call `function` on the loop, from the thread of a job."""
        # A job may end after the loop has.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)

    def _notify(self) -> None:
        self._changed.notify()
        self._on_change()

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` comes true in time; it is asked again after each change."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True


def _link_host(context: SparkContext, engine: EngineConfig) -> str:
    if is_local(context.master):
        return "127.0.0.1"
    return engine.link_host or str(context.getConf().get("spark.driver.host"))
