"""Slots on a real `local[2,F]`: lanes come and go, workers are killed, nothing else notices."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext

from heliograph.config.schema import ClusterConfig, EngineConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import TlsConfig
from heliograph.engine.session import start_session
from heliograph.engine.supervisor import SlotState
from heliograph.errors import EngineError
from heliograph.model import ClusterAlias, Copying, Idle, Paused, SlotId
from tests.kit.topics import wait_until
from tests.spark.fake_carrier import BrokenCarrier
from tests.spark.kit import (
    PATIENCE_S,
    OutsideSlots,
    engine,
    kill,
    running_session,
    running_slots,
    wait_moving,
    wait_replaced,
    wait_running,
)
from tests.unit.engine.lanes import lane

S0, S1 = SlotId(0), SlotId(1)
SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def config(event_log: Path) -> EngineConfig:
    return engine(
        "local[2]",
        spark={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": event_log.as_uri(),
        },
    )


@pytest.fixture(scope="module")
def session(config: EngineConfig) -> Iterator[SparkContext]:
    with running_session(config) as session:
        yield session


@pytest.fixture
def slots(session: SparkContext, config: EngineConfig) -> Iterator[OutsideSlots]:
    with running_slots(session, config) as slots:
        yield slots


def test_lanes_are_added_moved_and_removed_without_a_restart(slots: OutsideSlots) -> None:
    slots.apply({S0: (lane(0), lane(1)), S1: (lane(2),)})
    attempts = [slot.attempt for slot in wait_running(slots)]
    wait_moving(slots, lane(0).id, lane(1).id, lane(2).id)

    slots.apply({S0: (lane(0),), S1: (lane(1), lane(3))})
    moved = {lane(0).id: S0, lane(1).id: S1, lane(3).id: S1}
    wait_until(lambda: slots.current() == moved, "lanes where they are wanted", timeout_s=10)

    wait_moving(slots, lane(0).id, lane(1).id, lane(3).id)
    assert slots.progress().keys() == {lane(0).id, lane(1).id, lane(3).id}
    assert [slot.attempt for slot in slots.health()] == attempts


def test_lanes_pause_resume_and_are_throttled(slots: OutsideSlots) -> None:
    slots.apply({S0: (lane(0),), S1: (lane(1),)})
    wait_moving(slots, lane(0).id, lane(1).id)

    slots.apply({S0: (replace(lane(0), paused=True),), S1: (lane(1),)})
    wait_until(
        lambda: isinstance(slots.progress()[lane(0).id].state, Paused),
        "a paused lane",
        timeout_s=PATIENCE_S,
    )
    slots.resume([lane(0).id])
    wait_until(
        lambda: isinstance(slots.progress()[lane(0).id].state, Copying),
        "a lane that copies",
        timeout_s=PATIENCE_S,
    )
    limited = [replace(lane(number), limits=("narrow",)) for number in (0, 1)]
    slots.throttle({"narrow": 2})
    slots.apply({S0: (limited[0],), S1: (limited[1],)})
    time.sleep(0.5)
    throttled = [slots.progress()[lane(0).id].records]
    time.sleep(0.5)
    throttled.append(slots.progress()[lane(0).id].records)
    slots.throttle({})

    wait_moving(slots, lane(0).id, lane(1).id)
    assert throttled[0] == throttled[1]


def test_a_killed_worker_costs_only_its_own_slot(slots: OutsideSlots) -> None:
    slots.apply({S0: (lane(0),), S1: (lane(1),)})
    before = wait_running(slots)

    kill(before[1].pid)

    after = wait_replaced(slots, 1)
    wait_moving(slots, lane(0).id, lane(1).id)
    assert (after[0].attempt, after[0].pid) == (before[0].attempt, before[0].pid)
    assert after[1].generation == before[1].generation + 1
    assert after[1].pid != before[1].pid


def test_a_frozen_slot_loses_its_lanes_after_the_lease_and_not_before(
    slots: OutsideSlots, config: EngineConfig
) -> None:
    slots.apply({S0: (lane(0),), S1: (lane(1),)})
    frozen = wait_running(slots)[1]
    wait_moving(slots, lane(1).id)
    started_s = time.monotonic()

    os.kill(frozen.pid, signal.SIGSTOP)
    wait_until(lambda: slots.health()[1].state is SlotState.SILENT, "silence", timeout_s=PATIENCE_S)
    wait_until(lambda: slots.health()[1].replaced > 0, "another slot", timeout_s=PATIENCE_S)
    elapsed_s = time.monotonic() - started_s

    wait_running(slots)
    wait_moving(slots, lane(0).id, lane(1).id)
    # The last beat before the freeze may be an eighth of the lease old, and a report comes later.
    assert elapsed_s > 0.8 * config.lease_ms_max / 1000
    # Spark kills what it cancelled, frozen or not.
    wait_until(
        lambda: not psutil.pid_exists(frozen.pid), "the frozen one's end", timeout_s=PATIENCE_S
    )


def test_a_slot_that_fails_says_why_and_is_started_again(
    session: SparkContext, config: EngineConfig
) -> None:
    with running_slots(session, config, count=1, carrier=BrokenCarrier) as slots:
        slots.apply({S0: (lane(0),)})

        wait_until(
            lambda: slots.health()[0].replaced > 1, "a slot replaced twice", timeout_s=PATIENCE_S
        )

        assert "failed: carrier: ValueError: pretend bug" in slots.health()[0].detail


def test_growing_and_shrinking_leaves_the_other_slots_alone(slots: OutsideSlots) -> None:
    slots.apply({S0: (lane(0),), S1: (lane(1),)})
    before = wait_running(slots)

    slots.resize(3)
    grown = wait_running(slots)
    slots.resize(1)
    slots.apply({S0: (lane(0), lane(1))})
    wait_until(lambda: len(slots.health()) == 1, "one slot", timeout_s=PATIENCE_S)

    both = {lane(0).id: S0, lane(1).id: S0}
    wait_until(lambda: slots.current() == both, "both lanes in the slot that stays", timeout_s=10)
    assert len(grown) == 3
    assert slots.health()[0].attempt == before[0].attempt
    wait_moving(slots, lane(0).id, lane(1).id)


def test_draining_settles_every_lane_and_ends_every_task(slots: OutsideSlots) -> None:
    slots.apply({S0: (lane(0),), S1: (lane(1),)})
    wait_moving(slots, lane(0).id, lane(1).id)

    drained = slots.drain(20)

    assert drained
    assert [slot.state for slot in slots.health()] == [SlotState.ENDED, SlotState.ENDED]
    assert all(isinstance(settled.state, Idle) for settled in slots.progress().values())


def test_a_worker_serves_slot_after_slot(session: SparkContext, config: EngineConfig) -> None:
    pids = []
    for _ in range(2):
        with running_slots(session, config, count=1) as slots:
            slots.apply({S0: (lane(0),)})
            pids.append(wait_running(slots)[0].pid)
            slots.drain(20)

    alive = [pid for pid in pids if psutil.pid_exists(pid)]
    assert alive == pids


def test_credentials_show_nowhere(
    session: SparkContext, config: EngineConfig, event_log: Path
) -> None:
    alias = ClusterAlias("A")
    cluster = ClusterConfig(
        alias=alias,
        bootstrap_servers=("127.0.0.1:1",),
        security={"tls": TlsConfig(key_pem=Secret(SECRET))},  # type: ignore[arg-type]
    )
    with running_slots(session, config, clusters={alias: cluster}) as slots:
        slots.apply({S0: (lane(0),), S1: (lane(1),)})
        token = slots.token
        kill(wait_running(slots)[1].pid)
        wait_replaced(slots, 1)

        commands = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"])]
        slots.drain(20)
        events = b"".join(file.read_bytes() for file in event_log.rglob("*") if file.is_file())
        spoken = repr((commands, session.getConf().getAll(), slots.health()))

    assert b"SparkListenerTaskEnd" in events
    for hidden in (SECRET, token.hex(), repr(token)):
        assert hidden.encode() not in events
        assert hidden not in spoken


def test_a_second_session_in_one_process_is_refused(
    session: SparkContext, config: EngineConfig
) -> None:
    with pytest.raises(EngineError, match="already running"):
        start_session(config)
