"""A standalone Spark master with workers, each a process of its own, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pyspark

from heliograph_tools.localkafka.ports import accepts
from tests.kit.spark_start import light_jvm
from tests.kit.topics import wait_until

_SPARK_HOME: Final = Path(pyspark.__file__).parent
_START_S_MAX: Final = 60.0
_PLACES: Final = ("--host", "127.0.0.1", "--webui-port", "0")


class Standalone:
    """Made by `standalone`; workers have one core each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = f"spark://127.0.0.1:{self._port}"
        self._start("master", "master.Master", "--port", str(self._port))

    def wait_up(self) -> None:
        wait_until(lambda: accepts(self._port), "a master", timeout_s=_START_S_MAX)

    def start_worker(self) -> psutil.Process:
        """Returns at once; Spark waits for workers by itself."""
        # A worker that is ahead of its master comes back ten seconds later.
        self.wait_up()
        name = f"worker-{len(self._processes)}"
        place = ("--work-dir", str(self._folder / name))
        return self._start(
            name, "worker.Worker", "--cores", "1", "--memory", "600m", *place, self.url
        )

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, name: str, role: str, *arguments: str) -> psutil.Process:
        with (self._folder / f"{name}.log").open("wb") as output:
            started = subprocess.Popen(
                [
                    str(_SPARK_HOME / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{role}",
                    *_PLACES,
                    *arguments,
                ],
                stdout=output,
                stderr=output,
                env=os.environ
                | {
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": light_jvm(),
                },
            )
        self._processes.append(started)
        return psutil.Process(started.pid)


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    folder.mkdir()
    cluster = Standalone(folder)
    try:
        yield cluster
    finally:
        cluster.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
