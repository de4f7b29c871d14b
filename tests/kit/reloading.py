"""A mirror whose file changes while it runs, with slots that are threads of this process.

Driver, leases, link, supervisor and slots are the real ones; only who runs a slot's task is not. So
a test can count what a lane was told, and which phases it went through.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from heliograph.clock import monotonic_s
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.copy.lane import CarriedLane
from heliograph.copy.machine import LaneMachine
from heliograph.copy.phases import LanePhase
from heliograph.copy.shuttle import Shuttle
from heliograph.driver import run as driver
from heliograph.driver.live import LiveMirror, RunStatus
from heliograph.driver.run import run_mirror
from heliograph.driver.stop import StopRequest
from heliograph.driver.watching import WatchedFile
from heliograph.engine import slots
from heliograph.ledger.access import read_ledger
from heliograph.model import FlowId, Lane, LaneId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import wait_until
from tests.kit.without_spark import NoSpark, ThreadJob

_END_S_MAX: Final = 90.0
_LOAD_S: Final = 0.2


class Watch:
    """What slots were told about lanes, and which phases those entered."""

    def __init__(self) -> None:
        self.handed: Counter[LaneId] = Counter()
        self.phases: defaultdict[LaneId, list[str]] = defaultdict(list)
        self.shuttles: list[Shuttle] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        add, enter, begin = Shuttle.add, LaneMachine._enter, Shuttle.run

        def counted_add(shuttle: Shuttle, lanes: Iterable[Lane]) -> None:
            told = tuple(lanes)
            self.handed.update(lane.id for lane in told)
            add(shuttle, told)

        def noted_enter(machine: LaneMachine, lane: CarriedLane, phase: LanePhase) -> None:
            self.phases[lane.spec.id].append(type(phase).__name__)
            enter(machine, lane, phase)

        async def noted_run(shuttle: Shuttle) -> None:
            self.shuttles.append(shuttle)
            await begin(shuttle)

        patch.setattr(Shuttle, "add", counted_add)
        patch.setattr(LaneMachine, "_enter", noted_enter)
        patch.setattr(Shuttle, "run", noted_run)

    def of(self, flow: str) -> dict[LaneId, tuple[int, list[str]]]:
        return {
            lane: (count, list(self.phases[lane]))
            for lane, count in self.handed.items()
            if str(lane.flow) == flow
        }


class Reloading:
    """A mirror that follows its file."""

    def __init__(self, file: Path, watch: Watch) -> None:
        self.file, self.watch = file, watch
        self.stop = StopRequest()
        self.live: LiveMirror | None = None
        self.statuses: list[RunStatus] = []
        self.still_s: dict[LaneId, float] = {}
        """The longest that a lane under load did not advance once it had begun."""
        self._advanced: dict[LaneId, tuple[int, float]] = {}
        self._watched = WatchedFile(lambda around: load_config(file, around))
        self._problem: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def status(self) -> RunStatus | None:
        return self.statuses[-1] if self.statuses else None

    @property
    def problem(self) -> str:
        return self._watched.changes.status.problem

    @property
    def changes(self) -> tuple[str, ...]:
        return self._watched.changes.status.changes

    def flows(self) -> set[str]:
        """Those with lanes at the moment."""
        return set() if self.status is None else {str(at.flow) for at in self.status.progress}

    def copied(self, flow: str, topic: str) -> int:
        """Records of the topic that the flow's lanes have reached, as last reported."""
        lanes = {} if self.status is None else self.status.progress
        return sum(
            at.position
            for lane, at in lanes.items()
            if (str(lane.flow), lane.source.topic) == (flow, topic)
        )

    def await_copying(self, flow: str, topic: str) -> None:
        """Until it has copied more than it has now."""
        now = self.copied(flow, topic)
        wait_until(lambda: self.copied(flow, topic) > now, f"{flow} copies {topic}", timeout_s=60)

    def rewrite(self, change: Callable[[str], str]) -> None:
        """As an editor saves it."""
        other = self.file.with_suffix(".new")
        other.write_text(change(self.file.read_text()))
        other.replace(self.file)

    def await_changes(self, *words: str) -> None:
        def applied() -> bool:
            return self.changes == words and not self.problem

        try:
            wait_until(applied, f"{words}", timeout_s=30.0)
        except AssertionError as exc:
            raise AssertionError(f"{exc}: {self.changes} {self.problem!r}") from exc

    def await_problem(self, words: str) -> None:
        wait_until(lambda: words in self.problem, f"problem: {words}", timeout_s=30.0)

    def end(self) -> None:
        self.stop.make()
        self._thread.join(_END_S_MAX)
        assert not self._thread.is_alive(), "the mirror does not end"
        assert not self._problem, self._problem

    def _told(self, status: RunStatus) -> None:
        self.statuses.append(status)
        for lane, at in status.progress.items():
            position, since_s = self._advanced.get(lane, (at.position, monotonic_s()))
            if position > 0:
                still_s = monotonic_s() - since_s
                self.still_s[lane] = max(still_s, self.still_s.get(lane, 0.0))
            if lane not in self._advanced or at.position > position:
                self._advanced[lane] = (at.position, monotonic_s())

    def _run(self) -> None:
        try:
            asyncio.run(
                run_mirror(
                    self._watched.load(),
                    stop=self.stop,
                    on_progress=self._told,
                    services=[self._watched.followed],
                    changes=self._watched.changes,
                )
            )
        except BaseException as exc:  # noqa: BLE001 - raised on the test's own thread by `end`
            self._problem.append(exc)


@contextmanager
def reloading(file: Path) -> Iterator[Reloading]:
    """A mirror that follows `file` until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "SparkApplication", NoSpark)
        patch.setattr(slots, "SlotJob", ThreadJob)
        patch.setattr(slots, "_link_host", lambda *_: "127.0.0.1")
        patch.setattr(slots, "spark_is_gone", lambda _: False)
        watch = Watch()
        watch.install(patch)
        mirror = Reloading(file, watch)
        try:
            yield mirror
        finally:
            mirror.end()


@contextmanager
def load_on(cluster: LocalCluster, topics: Iterable[str], partitions: int) -> Iterator[None]:
    """Records all the while, in every topic and partition."""
    ending, producer = threading.Event(), Producer(cluster.librdkafka_config)

    def write() -> None:
        number = 0
        while not ending.wait(_LOAD_S):
            for topic in topics:
                for partition in range(partitions):
                    for _ in range(5):
                        number += 1
                        producer.produce(topic, b"v%d" % number, partition=partition)
            producer.flush(_END_S_MAX)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        ending.set()
        writing.join(_END_S_MAX)


def is_led(live_config: MirrorConfig, flow: FlowId) -> bool:
    """Whether the ledger names a driver that leads the flow."""

    async def ask() -> bool:
        async with read_ledger(live_config, flow) as ledger:
            return ledger.store.view.holder is not None

    return asyncio.run(ask())
