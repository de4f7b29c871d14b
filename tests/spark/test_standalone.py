"""Slots on a standalone master with two workers, one of which is killed with all it runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from heliograph.model import SlotId
from tests.spark.kit import (
    LIGHT_JVM,
    engine,
    executor_of,
    kill,
    running_session,
    running_slots,
    wait_moving,
    wait_replaced,
    wait_running,
)
from tests.unit.spark.lanes import lane

S0, S1 = SlotId(0), SlotId(1)
SPARK_HOME = Path(pyspark.__file__).parent
START_S_MAX = 60.0


def spark_class(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            stdout=output,
            stderr=output,
            env=os.environ
            | {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": LIGHT_JVM,
            },
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_log(log: Path, text: str) -> None:
    deadline_s = time.monotonic() + START_S_MAX
    while text not in log.read_text(encoding="utf-8"):
        if time.monotonic() > deadline_s:
            raise TimeoutError(log.read_text(encoding="utf-8")[-2_000:])
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    places = ("--host", "127.0.0.1", "--webui-port", "0")
    processes = [
        spark_class(
            tmp_path / "master.log",
            "org.apache.spark.deploy.master.Master",
            *places,
            *("--port", str(port)),
        )
    ]
    processes += [
        spark_class(
            tmp_path / f"worker-{number}.log",
            "org.apache.spark.deploy.worker.Worker",
            *places,
            *("--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"w{number}")),
            url,
        )
        for number in range(2)
    ]
    try:
        for number in range(2):
            wait_for_log(tmp_path / f"worker-{number}.log", "Successfully registered with master")
        yield url
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_killed_worker_node_costs_only_its_own_slot(master: str) -> None:
    config = engine(
        master,
        lease_ms=6_000,
        link_host="127.0.0.1",
        spark={
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.pyspark.python": sys.executable,
        },
    ).model_copy(update={"slot_cpus": 0.5})
    with running_session(config) as session, running_slots(session, config) as slots:
        slots.apply({S0: (lane(0),), S1: (lane(1),)})
        before = wait_running(slots)
        wait_moving(slots, lane(0).id, lane(1).id)
        executor = executor_of(before[1].pid)
        other = executor_of(before[0].pid)

        for pid in (executor.ppid(), executor.pid):
            kill(pid)

        after = wait_replaced(slots, 1)
        wait_moving(slots, lane(0).id, lane(1).id)
        assert not psutil.pid_exists(before[1].pid)
        assert after[1].generation > before[1].generation
        if other.pid != executor.pid:
            assert (after[0].attempt, after[0].pid) == (before[0].attempt, before[0].pid)
