"""What the Spark tests share: engines, and waiting for what must become true."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark import SparkContext

from heliograph.config.schema import EngineConfig
from heliograph.engine.session import start_session, stop_session
from heliograph.engine.slots import Slots
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.engine.task import CarrierFactory, Clusters
from heliograph.model import Lane, LaneId, LaneProgress, SlotId
from tests.kit.loop_thread import LoopThread
from tests.kit.spark_start import LIGHT_JVM, light_jvm
from tests.kit.topics import wait_until
from tests.spark.fake_carrier import JOURNAL_VARIABLE, FakeCarrier

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60.0
"""Ordinary machines need a tenth of it."""


def engine(
    master: str,
    *,
    journal: Path | None = None,
    lease_ms: int = 6_000,
    link_host: str | None = None,
    spark: Mapping[str, str] | None = None,
) -> EngineConfig:
    settings = {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        ),
        "spark.executor.extraJavaOptions": light_jvm(),
    } | dict(spark or {})
    if not master.startswith("local"):
        settings.setdefault("spark.driver.extraJavaOptions", LIGHT_JVM)
    if journal is not None:
        settings[f"spark.executorEnv.{JOURNAL_VARIABLE}"] = str(journal)
    return EngineConfig(master=master, lease_ms_max=lease_ms, link_host=link_host, spark=settings)


@contextmanager
def running_session(config: EngineConfig) -> Iterator[SparkContext]:
    session = start_session(config)
    try:
        yield session
    finally:
        stop_session(session)


class OutsideSlots:
    """`Slots` on a loop of their own, for tests and scripts that have none."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        carrier: CarrierFactory = FakeCarrier,
        clusters: Clusters | None = None,
        on_spark_gone: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = LoopThread()
        self._slots = Slots(
            clusters=clusters or {}, engine=config, carrier=carrier, on_spark_gone=on_spark_gone
        )
        self.token = self._slots._token

    def start(self, session: SparkContext, count: int) -> None:
        self._loop.wait(self._slots.start(session, count))

    def use(self, session: SparkContext) -> None:
        self._loop.call(lambda: self._slots.use(session))

    def resize(self, count: int) -> None:
        self._loop.call(lambda: self._slots.keep(frozenset(map(SlotId, range(count)))))

    def apply(self, assignment: Mapping[SlotId, tuple[Lane, ...]]) -> None:
        self._loop.call(lambda: self._slots.apply(assignment))

    def resume(self, ids: Iterable[LaneId]) -> None:
        self._loop.call(lambda: self._slots.resume(ids))

    def throttle(self, limits: Mapping[str, int]) -> None:
        self._loop.call(lambda: self._slots.throttle(limits))

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        return self._loop.call(self._slots.progress)

    def current(self) -> Mapping[LaneId, SlotId]:
        return self._loop.call(self._slots.current)

    def health(self) -> tuple[SlotHealth, ...]:
        return self._loop.call(self._slots.health)

    def drain(self, timeout_s: float) -> bool:
        return self._loop.wait(self._slots.drain(timeout_s))

    def stop(self) -> None:
        try:
            self._loop.wait(self._slots.stop())
        finally:
            self._loop.close()


@contextmanager
def running_slots(
    session: SparkContext,
    config: EngineConfig,
    *,
    count: int = 2,
    carrier: CarrierFactory = FakeCarrier,
    clusters: Clusters | None = None,
) -> Iterator[OutsideSlots]:
    slots = OutsideSlots(config, carrier=carrier, clusters=clusters)
    try:
        slots.start(session, count)
        yield slots
    finally:
        slots.stop()


def wait_running(slots: OutsideSlots) -> tuple[SlotHealth, ...]:
    wait_until(
        lambda: all(slot.state is SlotState.RUNNING for slot in slots.health()),
        "running slots",
        timeout_s=PATIENCE_S,
    )
    return slots.health()


def wait_replaced(slots: OutsideSlots, number: int) -> tuple[SlotHealth, ...]:
    wait_until(
        lambda: slots.health()[number].replaced > 0,
        f"another slot {number}",
        timeout_s=PATIENCE_S,
    )
    return wait_running(slots)


def wait_moving(slots: OutsideSlots, *ids: LaneId) -> None:
    """Every lane named has carried more than it had when this was called."""
    before = {i: slots.progress()[i].records if i in slots.progress() else -1 for i in ids}
    wait_until(
        lambda: all(
            i in slots.progress() and slots.progress()[i].records not in (0, before[i]) for i in ids
        ),
        f"progress of {ids}",
        timeout_s=PATIENCE_S,
    )


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def executor_of(worker_pid: int) -> psutil.Process:
    """The executor JVM a Python worker belongs to: worker, daemon, JVM."""
    return next(
        parent for parent in psutil.Process(worker_pid).parents() if "java" in parent.name()
    )
