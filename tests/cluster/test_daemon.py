"""`heliograph run --daemon`: back at once with a mirror that stays, and ends with a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames, is_alive
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import START_S_MAX, STOP_S_MAX, WITHOUT_SPARK
from tests.kit.topics import wait_until

_RECORDS = 200


def test_a_run_in_the_background_mirrors_alone_and_drains_when_told(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("daemon"))
    number = name.rpartition("-")[2]
    source, target = f"daA{number}", f"daB{number}"
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": name}},
        top=RECORDS_ONLY,
    )
    way = route(file, (source, pair["A"]), (target, pair["B"]))
    pid_file, log = tmp_path / "mm2.properties.pid", tmp_path / "own.log"
    command = [sys.executable, *WITHOUT_SPARK, "run", str(file), "--daemon", "--log-file", str(log)]

    def called() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=START_S_MAX
        )

    first = called()
    pid = int(pid_file.read_text())
    try:
        second = called()
        produce(pair["A"], name, numbered(_RECORDS))
        way.await_records(name, _RECORDS)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid), "its end", timeout_s=STOP_S_MAX)
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)

    assert first.returncode == 0, first.stderr
    assert f"runs in the background (pid {pid})" in first.stderr
    assert second.returncode == 1
    assert f"a run is in the background already (pid {pid})" in second.stderr
    assert way.assert_arrives(name) == _RECORDS
    assert pid_file.read_text() == ""
    assert "settled" in log.read_text()
