"""`heliograph connect` as a process of its own, and Connect's REST API as its clients call it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import psutil

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import wait_until

START_S_MAX: Final = 90.0
_STOP_S_MAX: Final = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Worker:
    """One worker on its port."""

    def __init__(self, file: Path, port: int, log: Path) -> None:
        self.port, self._log = port, log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [
                    *(sys.executable, "-m", "heliograph", "connect", str(file)),
                    *("--master", "local[2]", "--slots", "1"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            wait_until(self._is_up, "the worker", timeout_s=START_S_MAX)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.said[-4_000:]}") from exc

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and document; None where there is no body."""
        request = Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urlopen(request, timeout=90) as response:
                status, text = response.status, response.read()
        except HTTPError as exc:
            status, text = exc.code, exc.read()
        return status, json.loads(text) if text else None

    def await_state(self, connector: str, state: str, task: str | None = None) -> Any:
        """The status once the connector and its tasks are so."""
        found: Any = None

        def is_so() -> bool:
            nonlocal found
            _, found = self.call("GET", f"/connectors/{connector}/status")
            tasks = {each["state"] for each in found["tasks"]}
            return found["connector"]["state"] == state and (task is None or tasks == {task})

        try:
            wait_until(is_so, f"{connector} {state} {task}", timeout_s=START_S_MAX)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{found}\n{self.said[-4_000:]}") from exc
        return found

    def stop(self) -> int:
        self._child.send_signal(signal.SIGTERM)
        return self._child.wait(_STOP_S_MAX)

    def kill(self) -> None:
        """Whatever is left of it."""
        if self._child.poll() is None:
            family = [psutil.Process(self._child.pid)]
            family += family[0].children(recursive=True)
            for member in family:
                member.kill()
            self._child.wait(_STOP_S_MAX)

    def _is_up(self) -> bool:
        if self._child.poll() is not None:
            raise AssertionError(f"ended with {self._child.returncode}:\n{self.said[-4_000:]}")
        try:
            return self.call("GET", "/health")[0] == 200
        except URLError:
            return False


def write_worker_file(path: Path, cluster: LocalCluster, name: str, port: int) -> Path:
    """As the one that comes with Kafka; `name` keeps tests on shared clusters apart."""
    lines = [
        f"bootstrap.servers={cluster.bootstrap}",
        f"group.id=connect-{name}",
        "key.converter=org.apache.kafka.connect.json.JsonConverter",
        "value.converter=org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable=true",
        f"offset.storage.topic=connect-offsets-{name}",
        "offset.storage.replication.factor=1",
        f"config.storage.topic=connect-configs-{name}",
        "config.storage.replication.factor=1",
        f"status.storage.topic=connect-status-{name}",
        "offset.flush.interval.ms=10000",
        f"rest.port={port}",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def connect_worker(file: Path, port: int) -> Iterator[Worker]:
    """Up and answering; killed with the block if it still runs."""
    worker = Worker(file, port, file.with_suffix(".log"))
    try:
        yield worker
    finally:
        worker.kill()
