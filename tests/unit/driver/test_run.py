"""The driver as one application, with Spark and slots played and clusters that do not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.driver import run as driver
from heliograph.driver.changes import ConfigChanges
from heliograph.driver.live import LiveMirror, RunStatus
from heliograph.driver.result import RunResult
from heliograph.driver.run import run_mirror
from heliograph.driver.stop import StopRequest
from heliograph.engine.capacity import Capacity
from heliograph.engine.sealed import SlotSettings
from heliograph.engine.supervisor import SlotHealth
from heliograph.errors import ConfigError, EngineError
from heliograph.ledger import leadership
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneId,
    LaneLoad,
    LaneProgress,
    SlotId,
)
from tests.unit.engine.lanes import progress

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
CONFIG = MirrorConfig(
    clusters={
        alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
        for alias in (FLOW.source, FLOW.target)
    },
    pairs=(FlowConfig(id=FLOW, enabled=True),),
)
AT = progress(0)


class PlayedSpark:
    """Starts when it may; what `start_again` raises is the test's."""

    def __init__(self) -> None:
        self.may_start = threading.Event()
        self.may_start.set()
        self.starts: list[str] = []
        self.error: EngineError | None = None

    def make(self, config: MirrorConfig, say: Callable[[str], None]) -> PlayedSpark:
        return self

    session = "the session"

    def start(self) -> None:
        self.may_start.wait(30)
        self.starts.append("start")

    def start_again(self) -> None:
        self.starts.append("start again")
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.starts.append("stop")

    def capacity(self) -> Capacity:
        return Capacity(cores=2, executors=1, room=2, most=2)

    def jvm(self) -> None: ...


class PlayedSlots:
    """Says what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.count = 0
        self.on_change: Callable[[], None] = lambda: None
        self.on_spark_gone: Callable[[], None] = lambda: None
        self.lanes: dict[LaneId, LaneProgress] = {AT.lane: AT}

    def make(self, **hooks: Any) -> PlayedSlots:
        self.on_change, self.on_spark_gone = hooks["on_change"], hooks["on_spark_gone"]
        return self

    async def start(self, session: object, count: int) -> None:
        self.count = count
        self.told.append(f"start {session}")

    def use(self, session: object) -> None:
        self.told.append(f"use {session}")

    def configure(self, settings: SlotSettings) -> None:
        self.told.append(f"configure {sorted(settings.clusters)}")

    def resize(self, count: int) -> None:
        self.count = count
        self.told.append(f"resize {count}")

    def throttle(self, limits: Mapping[str, int]) -> None: ...

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId],
        stuck: frozenset[LaneId],
    ) -> None: ...

    def keep(self, wanted: frozenset[SlotId]) -> None: ...

    def give_up(self, slot: SlotId, why: str) -> None: ...

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        return self.lanes

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    def current(self) -> Mapping[LaneId, SlotId]:
        return {}

    def resume(self, ids: Iterable[LaneId]) -> None: ...

    def health(self) -> tuple[SlotHealth, ...]:
        return ()

    async def drain(self, timeout_s: float) -> bool:
        self.told.append("drain")
        return True

    async def stop(self) -> None:
        self.told.append("stop")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> PlayedSpark:
    made = PlayedSpark()
    monkeypatch.setattr(driver, "SparkApplication", made.make)
    return made


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> PlayedSlots:
    made = PlayedSlots()
    monkeypatch.setattr(driver, "Slots", made.make)
    monkeypatch.setattr(driver, "_LEASE_WAIT_S", 0.01)
    return made


def run(
    stop: StopRequest | None = None,
    *,
    until: Callable[[Mapping[LaneId, LaneProgress]], bool] = lambda _: False,
    on_progress: Callable[[RunStatus], None] = lambda _: None,
    once: bool = False,
) -> RunResult:
    async def bounded() -> RunResult:
        async with asyncio.timeout(20):
            return await run_mirror(
                CONFIG, stop=stop, until=until, on_progress=on_progress, once=once
            )

    return asyncio.run(bounded())


def test_a_run_ends_when_its_caller_has_seen_enough_and_drains_first(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    seen: list[RunStatus] = []

    result = run(until=lambda progress: AT.lane in progress, on_progress=seen.append)

    assert result.progress == {AT.lane: AT}
    assert seen[-1].progress == {AT.lane: AT}
    assert slots.told == ["start the session", "drain", "stop"]
    assert spark.starts == ["start", "stop"]


def test_a_run_that_is_asked_to_stop_drains_and_ends(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    stop = StopRequest()

    run(stop, on_progress=lambda _: threading.Thread(target=stop.make).start())

    assert slots.told == ["start the session", "drain", "stop"]


def test_a_run_that_is_asked_to_stop_while_spark_starts_does_not_wait_for_it(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    """A Spark master without workers lets the start wait for ever."""
    spark.may_start.clear()
    stop = StopRequest()
    threading.Timer(0.1, stop.make).start()

    result = run(stop)

    assert result.progress == {}
    assert slots.told == []
    assert spark.starts == ["stop"]
    spark.may_start.set()


def test_spark_that_is_gone_is_started_again_and_the_slots_go_on_in_it(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    def lose_spark(_: RunStatus) -> None:
        if "start again" not in spark.starts:
            slots.on_spark_gone()

    def has_gone_on(_: Mapping[LaneId, LaneProgress]) -> bool:
        slots.on_change()  # so that it is asked again soon
        return "use the session" in slots.told

    run(until=has_gone_on, on_progress=lose_spark)

    assert slots.told == ["start the session", "use the session", "drain", "stop"]
    assert spark.starts[:2] == ["start", "start again"]


def test_spark_that_cannot_be_started_again_ends_the_run_with_its_one_sentence(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    spark.error = EngineError("Spark is gone, and cannot be started again")

    with pytest.raises(EngineError) as raised:
        run(on_progress=lambda _: slots.on_spark_gone())

    assert raised.value is spark.error
    assert slots.told == ["start the session", "stop"]
    assert spark.starts[-1] == "stop"


def test_a_run_in_which_a_lane_waits_or_something_fails_or_all_is_fenced_is_not_well() -> None:
    assert not RunResult(progress={}, fenced=frozenset([FLOW])).is_well
    assert not RunResult(progress={}, unadopted=1).is_well
    assert not RunResult(progress={AT.lane: AT}, failures={FLOW: "checkpoints: refused"}).is_well
    assert RunResult(progress={}).is_well


def test_a_flow_that_is_fenced_on_purpose_beside_one_that_is_mirrored_is_no_error() -> None:
    """After a failback the way there stays fenced for as long as the way back runs."""
    assert RunResult(progress={AT.lane: AT}, fenced=frozenset([FLOW])).is_well


def test_a_run_that_is_to_end_gives_up_clusters_that_are_not_there(
    spark: PlayedSpark,
    slots: PlayedSlots,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(leadership, "_PATIENCE_S", 0.5)

    result = run(once=True)

    assert "Connection refused" in result.failures[FLOW]
    assert not result.is_well
    (said,) = [each for each in caplog.records if "not mirrored" in each.message]
    assert said.levelname == "ERROR"
    assert "cluster B" in said.message


def test_a_service_is_served_from_before_spark_until_all_is_settled(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def service(live: LiveMirror) -> AsyncIterator[None]:
        seen.append((live.status(), tuple(spark.starts)))
        yield
        status = live.status()
        assert status is not None
        seen.append((tuple(status.progress), live.phase(), slots.told[-1]))

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await run_mirror(CONFIG, until=lambda _: True, services=[service])

    asyncio.run(bounded())

    assert seen == [(None, ()), ((AT.lane,), "settled", "stop")]


def test_a_service_that_cannot_be_served_keeps_the_mirror_from_beginning(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    @asynccontextmanager
    async def service(live: LiveMirror) -> AsyncIterator[None]:
        if live.status() is None:
            raise ConfigError("api.listen", ("is 127.0.0.1:1: Address already in use",))
        yield

    with pytest.raises(ConfigError, match="in use"):
        asyncio.run(run_mirror(CONFIG, services=[service]))

    assert spark.starts == []


def without_heartbeats(*flows: FlowConfig) -> MirrorConfig:
    quiet = FlowConfig(id=FLOW).heartbeats.model_copy(update={"enabled": False})
    return CONFIG.model_copy(
        update={"pairs": tuple(each.model_copy(update={"heartbeats": quiet}) for each in flows)}
    )


def changed_while_running(
    before: MirrorConfig,
    *offered: MirrorConfig,
    waits: Callable[[RunStatus], bool] = lambda _: False,
) -> tuple[list[MirrorConfig], ConfigChanges]:
    """What the mirror ran with after each was offered."""
    changes, ran = ConfigChanges(), list[MirrorConfig]()
    stop = StopRequest()

    @asynccontextmanager
    async def service(live: LiveMirror) -> AsyncIterator[None]:
        async def offer() -> None:
            while live.status() is None:
                await asyncio.sleep(0.01)
            for config in offered:
                changes.offer(config)
                await changes.followed()
                ran.append(live.config)
                while (status := live.status()) is not None and waits(status):
                    await asyncio.sleep(0.01)
            stop.make()

        offering = asyncio.create_task(offer())
        yield
        await offering

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await run_mirror(before, stop=stop, services=[service], changes=changes, lease=False)

    asyncio.run(bounded())
    return ran, changes


def test_a_change_reaches_slots_jobs_and_what_is_served(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    flow = FlowConfig(id=FLOW, enabled=True)
    one, other = (
        without_heartbeats(flow),
        without_heartbeats(flow.model_copy(update={"topics": ("x",), "tasks_max": 1})),
    )

    ran, changes = changed_while_running(one, other)

    assert ran == [other]
    assert "configure ['A', 'B']" in slots.told
    assert changes.status.changes == ("A->B: topics: .* -> x", "A->B: tasks.max: unset -> 1")
    assert changes.status.problem == ""


def test_a_change_that_needs_a_restart_changes_nothing_at_all(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    flow = FlowConfig(id=FLOW, enabled=True)
    one = without_heartbeats(flow)
    engine = one.engine.model_copy(update={"master": "local[9]"})
    other = without_heartbeats(flow.model_copy(update={"topics": ("x",)}))

    ran, changes = changed_while_running(one, other.model_copy(update={"engine": engine}))

    assert ran == [one]
    assert slots.told == ["start the session", "drain", "stop"]
    assert "master: unset -> local[9]: needs a restart" in changes.status.problem


def test_credentials_that_a_cluster_does_not_take_change_nothing(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    one = without_heartbeats(FlowConfig(id=FLOW, enabled=True))
    moved = ClusterConfig(alias=FLOW.target, bootstrap_servers=("127.0.0.1:2",))
    other = one.model_copy(update={"clusters": {**one.clusters, FLOW.target: moved}})

    ran, changes = changed_while_running(one, other)

    assert ran == [one]
    assert "cluster B: no broker answers" in changes.status.problem
    assert not changes.is_settled, "it is tried again"


def test_a_mirror_without_a_flow_starts_spark_when_one_comes_and_keeps_it_when_it_goes(
    spark: PlayedSpark, slots: PlayedSlots
) -> None:
    slots.lanes = {}
    none = without_heartbeats()
    one = without_heartbeats(FlowConfig(id=FLOW, enabled=True))

    ran, changes = changed_while_running(none, one, none, one, waits=lambda _: not slots.told[1:])

    assert ran == [one, none, one]
    assert spark.starts == ["start", "stop"]
    assert changes.status.changes == ("A->B: mirroring begins",)
