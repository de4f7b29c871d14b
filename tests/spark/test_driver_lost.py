"""A driver that freezes: its slots stop by themselves, and are started again when it wakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.topics import wait_until
from tests.spark.kit import PATIENCE_S, REPOSITORY

LEASE_MS = 3_000
DRIVER = f"""
import sys, time
from pathlib import Path
from heliograph.model import SlotId
from tests.spark.kit import engine, running_session, running_slots
from tests.unit.engine.lanes import lane

config = engine("local[2]", lease_ms={LEASE_MS}, journal=Path(sys.argv[1]))
with running_session(config) as session, running_slots(session, config) as slots:
    slots.apply({{SlotId(0): (lane(0),), SlotId(1): (lane(1),)}})
    sys.stdin.read()
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def driver(journal: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(journal)], cwd=REPOSITORY, stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    with process:
        yield process
        process.send_signal(signal.SIGCONT)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            for member in family:
                if member.is_running():
                    member.kill()


def written(journal: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in journal.glob("*.log")}


def last_record_s(journal: Path) -> float:
    return max(
        float(file.read_text(encoding="utf-8").splitlines()[-1].split()[0])
        for file in journal.glob("*.log")
    )


def test_slots_of_a_frozen_driver_stop_within_the_lease_and_return_when_it_wakes(
    driver: subprocess.Popen[bytes], journal: Path
) -> None:
    wait_until(lambda: len(written(journal)) == 2, "two slots that write", timeout_s=PATIENCE_S)
    frozen_s = time.monotonic()

    os.kill(driver.pid, signal.SIGSTOP)
    time.sleep(LEASE_MS / 1000 * 1.5)
    stopped = written(journal)
    carried_on_s = last_record_s(journal) - frozen_s
    time.sleep(0.5)
    still = written(journal)
    os.kill(driver.pid, signal.SIGCONT)

    assert stopped == still
    assert carried_on_s < LEASE_MS / 1000 + 0.5
    wait_until(
        lambda: sum(written(journal).values()) > sum(still.values()), "slots that write again"
    )


def test_a_master_that_is_wrong_is_one_sentence_that_names_it() -> None:
    script = """
from heliograph.engine.session import start_session
from heliograph.errors import EngineError
from tests.spark.kit import engine
try:
    start_session(engine("bogus"))
except EngineError as exc:
    print(exc)
"""
    driver = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    (sentence,) = driver.stdout.splitlines()
    assert sentence.startswith("Spark did not start on bogus: ")
    assert "Master" in sentence, driver.stderr
    assert "Traceback" not in driver.stderr
