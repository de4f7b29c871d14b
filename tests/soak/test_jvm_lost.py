"""Spark's JVM is killed under its driver: slots go on in another, or one sentence says why not.

`make test` kills the JVM of a whole mirror (`tests/cluster/test_mirror_restarts.py`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spark.kit import REPOSITORY

DRIVER_WITHOUT_JVM = """
import os, sys, threading
from pathlib import Path
import psutil
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.engine.application import SparkApplication
from heliograph.errors import EngineError
from heliograph.model import SlotId
from tests.spark.kit import OutsideSlots, engine, wait_moving, wait_running
from tests.unit.engine.lanes import lane

def kill_jvm():
    for child in psutil.Process().children():
        if "java" in child.name():
            child.kill()
            child.wait()

settings = engine("local[2]", journal=Path(sys.argv[1]))
spark = SparkApplication(MirrorConfig(clusters={}, pairs=(), engine=settings), print)
spark.start()
gone = threading.Event()
slots = OutsideSlots(settings, on_spark_gone=gone.set)
slots.start(spark.session, 1)
slots.apply({SlotId(0): (lane(0),)})
wait_moving(slots, lane(0).id)
kill_jvm()
gone.wait(60)
spark.start_again()
slots.use(spark.session)
wait_running(slots)
wait_moving(slots, lane(0).id)
print("goes on")
slots.stop()
kill_jvm()
os.environ["JAVA_HOME"] = "/nonexistent"
try:
    spark.start_again()
except EngineError as exc:
    print(exc)
"""


def test_slots_go_on_in_a_new_session_when_the_jvm_is_killed(tmp_path: Path) -> None:
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER_WITHOUT_JVM, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert driver.returncode == 0, driver.stderr
    assert "goes on" in driver.stdout
    assert driver.stdout.splitlines()[-1] == (
        "Spark is gone: its JVM ended or the application was stopped, and cannot be started again: "
        "JAVA_HOME is /nonexistent, which has no bin/java"
    )
