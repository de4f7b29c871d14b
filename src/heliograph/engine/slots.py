"""The slots as the rest of the driver sees them. Runs on the driver; may be called from any thread.

All state lives on the link's thread (`crew`, `roster`); every method here is one call over there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from heliograph.clock import monotonic_s
from heliograph.config.schema import EngineConfig
from heliograph.engine.jobs import Job, JobEnded, SlotJob, spark_is_gone
from heliograph.engine.link import LinkServer, Session
from heliograph.engine.messages import Progress, Settled
from heliograph.engine.session import is_local
from heliograph.engine.supervisor import TICK_S, SlotHealth, SlotSupervisor
from heliograph.engine.task import CarrierFactory, Clusters, SlotOrder, SlotResult, make_shuttle
from heliograph.errors import InvariantError, LinkError
from heliograph.model import FlowId, Lane, LaneId, LaneLoad, LaneProgress, SlotId

_STOP_S_MAX: Final = 5.0
_CANCEL_S_MAX: Final = 10.0
_POLL_S: Final = 0.02
_TOKEN_BYTES: Final = 32
_T = TypeVar("_T")


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
        any more, until `use` brings another session. Both are called from other threads."""
        self._clusters, self._engine, self._carrier = clusters, engine, carrier
        self._lease_s = engine.lease_ms_max / 1000
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._context: SparkContext | None = None
        self._on_change, self._on_spark_gone = on_change, on_spark_gone
        self._crew = SlotSupervisor(lease_s=self._lease_s, submit=self._submit, post=self._post)
        self._link: LinkServer | None = None
        self._host, self._port = "", 0
        self._stopped = False
        self.count = 0
        """How many slots there should be."""

    def start(self, session: SparkSession, count: int) -> None:
        """Submit `count` slots; returns at once, `health` says when they run."""
        self._context = session.sparkContext
        self._host = _link_host(session, self._engine)
        heard = _Heard(self._crew, self._on_change)
        self._link = LinkServer(host=self._host, token=self._token, listener=heard)
        self._port = self._link.start()
        self._link.every(TICK_S, self._crew.tick)
        self.resize(count)

    def use(self, session: SparkSession) -> None:
        """Start slots in this session from here on; the one there was is gone."""

        def change() -> None:
            self._context = session.sparkContext
            self._crew.proceed()

        self._call(change)

    def resize(self, count: int) -> None:
        """Slots are 0 to count - 1. Slots that go settle their lanes first; assign those anew."""
        self.count = count
        self._call(lambda: self._crew.resize(count))

    def apply(self, assignment: Mapping[SlotId, tuple[Lane, ...]]) -> None:
        """Make this the assignment, whole; only differences are sent. Returns before they act."""
        self._call(lambda: self._crew.want(assignment))

    def wait_applied(self, timeout_s: float) -> bool:
        """Whether every lane is where `apply` wanted it, within the time given."""
        return self._wait(lambda: self._crew.roster.in_place, timeout_s)

    def pause(self, ids: Iterable[LaneId]) -> None:
        chosen = tuple(ids)
        self._call(lambda: self._crew.tell(self._crew.roster.pause(chosen)))

    def resume(self, ids: Iterable[LaneId]) -> None:
        chosen = tuple(ids)
        self._call(lambda: self._crew.tell(self._crew.roster.resume(chosen)))

    def throttle(self, flow: FlowId, bytes_per_s: int | None) -> None:
        """A limit for the whole flow, shared out among its slots; None lifts it."""
        self._call(lambda: self._crew.tell(self._crew.roster.limit(flow, bytes_per_s)))

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        """The latest of every lane that is wanted; after `drain` the settled state."""
        return self._call(self._crew.progress)

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return self._call(self._crew.loads)

    def current(self) -> Mapping[LaneId, SlotId]:
        """Who may be carrying what; nobody before `start`."""
        return {} if self._link is None else self._call(self._crew.roster.holders)

    def health(self) -> tuple[SlotHealth, ...]:
        return self._call(self._crew.health)

    def drain(self, timeout_s: float) -> bool:
        """Let every slot settle and end. True when all did in time; call `stop` in either case."""
        self._call(self._crew.drain)
        ended = self._wait(lambda: self._crew.all_ended, timeout_s)
        return ended and self._call(lambda: self._crew.all_drained)

    def stop(self) -> None:
        """End every slot at once and close the link; nothing more is settled. May be repeated."""
        if self._stopped or self._link is None:
            return
        self._stopped = True
        try:
            self._call(self._crew.stop)
            if not self._wait(lambda: self._crew.all_ended, _STOP_S_MAX):
                self._call(self._crew.cancel)
                self._wait(lambda: self._crew.all_ended, _CANCEL_S_MAX)
        finally:
            self._link.stop()

    def _submit(self, slot: SlotId, generation: int, ended: JobEnded) -> Job:
        order = SlotOrder(
            slot=slot,
            generation=generation,
            host=self._host,
            port=self._port,
            token=self._token,
            lease_s=self._lease_s,
            bytes_max=self._engine.bytes_max,
            clusters=self._clusters,
            carrier=self._carrier,
        )
        context = self._context
        if context is None:
            raise InvariantError("a slot is started before there is Spark")

        def ended_here(settlement: SlotResult | None, detail: str) -> None:
            # On the job's thread: a JVM in trouble may take long to answer.
            if settlement is None and spark_is_gone(context):
                self._post(lambda: self._lost_spark(context))
            ended(settlement, detail)
            self._on_change()

        return SlotJob(context, order, ended_here)

    def _lost_spark(self, context: SparkContext) -> None:
        # Every job of the session ends with it; the first one to say so is enough.
        if context is self._context and not self._stopped:
            self._crew.hold()
            self._on_spark_gone()

    def _call(self, function: Callable[[], _T]) -> _T:
        if self._link is None:
            raise LinkError("the link is not open yet")
        return self._link.call(function)

    def _post(self, function: Callable[[], None]) -> None:
        if self._link is not None:
            self._link.post(function)

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = monotonic_s() + timeout_s
        while not self._call(condition):
            if monotonic_s() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


class _Heard:
    """Passes on what the link reports, and says that there is news."""

    def __init__(self, crew: SlotSupervisor, on_change: Callable[[], None]) -> None:
        self._crew, self._on_change = crew, on_change

    def hello(self, session: Session) -> None:
        self._crew.hello(session)
        self._on_change()

    def heard(self, session: Session, message: Progress | Settled) -> None:
        self._crew.heard(session, message)
        self._on_change()

    def lost(self, session: Session) -> None:
        self._crew.lost(session)
        self._on_change()


def _link_host(session: SparkSession, engine: EngineConfig) -> str:
    context = session.sparkContext
    if is_local(context.master):
        return "127.0.0.1"
    return engine.link_host or str(context.getConf().get("spark.driver.host"))
