"""Clusters that outlive the command that started them: `heliograph local up`. Runs on the driver.

`up` starts this module as a process of its own, the keeper, which owns the clusters until it is
told to stop. While it lives it holds a lock file, so the state of a dead keeper is never believed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from heliograph.clock import monotonic_s
from heliograph.errors import LocalClusterError, MirrorError
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.localkafka.kafka import OnProgress, cache_folder

_DOWN_TIMEOUT_S: Final = 60
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCluster:
    """How to reach one cluster of the keeper."""

    alias: str
    bootstrap_servers: str
    security_protocol: str
    client_properties: str
    """Path of a file with everything a client needs, credentials included."""
    logs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What `up` asks the keeper for; travels over its stdin."""

    alias: str
    brokers: int
    tls: bool
    sasl: str | None

    def spec(self) -> ClusterSpec:
        return ClusterSpec(alias=self.alias, brokers=self.brokers, tls=self.tls, sasl=self.sasl)


class _Files:
    def __init__(self, name: str) -> None:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise LocalClusterError(f"the name {name!r} may have letters, digits, - and _")
        folder = cache_folder() / "background"
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / f"{name}.json"
        self.lock = folder / f"{name}.lock"
        self.log = folder / f"{name}.log"


def up(
    wanted: Sequence[Wanted], *, name: str = "default", on_progress: OnProgress
) -> list[BackgroundCluster]:
    """Start clusters that stay; raises `LocalClusterError` when `name` is up already."""
    for each in wanted:
        each.spec()  # a spec that cannot be is told before anything starts
    files = _Files(name)
    with files.log.open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "heliograph_tools.localkafka.background", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with keeper.stdin, keeper.stdout:
        keeper.stdin.write(json.dumps([asdict(each) for each in wanted]).encode())
        keeper.stdin.close()
        for line in keeper.stdout:
            kind, content = json.loads(line)
            if kind == "progress":
                on_progress(content)
            elif kind == "failed":
                keeper.wait()
                raise LocalClusterError(content)
            else:
                # It goes on by itself; Popen would warn about a child nobody waited for.
                keeper.returncode = 0
                return _parse_state(content)
    keeper.wait()
    lines = files.log.read_text(errors="replace").splitlines()[-10:]
    raise LocalClusterError("the keeper ended; its last lines:\n" + "\n".join(lines))


def down(*, name: str = "default") -> list[str]:
    """Stop what `up` started and wait until it is gone; the aliases, none when nothing was up."""
    files = _Files(name)
    if not files.state.exists() or not _is_held(files.lock):
        files.state.unlink(missing_ok=True)
        return []
    state = json.loads(files.state.read_text())
    os.kill(state["pid"], signal.SIGTERM)
    deadline_s = monotonic_s() + _DOWN_TIMEOUT_S
    while _is_held(files.lock):
        if monotonic_s() > deadline_s:
            raise LocalClusterError(
                f"the keeper with pid {state['pid']} did not stop in {_DOWN_TIMEOUT_S} s"
            )
        time.sleep(_POLL_S)
    return [cluster["alias"] for cluster in state["clusters"]]


def keep(name: str, orders: IO[bytes], answers: IO[bytes]) -> int:
    """The keeper's life: take the lock, start, tell, wait for a signal, stop."""

    def tell(kind: str, content: object) -> None:
        answers.write(json.dumps([kind, content]).encode() + b"\n")
        answers.flush()

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: stopped.set())
    specs = [Wanted(**wanted).spec() for wanted in json.loads(orders.read())]
    files = _Files(name)
    with files.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("failed", f"clusters named {name!r} are up already; `local down` stops them")
            return 1
        try:
            with local_clusters(specs, on_progress=lambda text: tell("progress", text)) as clusters:
                state = [_described(cluster) for cluster in clusters.values()]
                _write_state(files.state, state)
                tell("ready", state)
                answers.close()
                stopped.wait()
        except MirrorError as exc:
            tell("failed", str(exc))
            return 1
        files.state.unlink(missing_ok=True)
    return 0


def _described(cluster: LocalCluster) -> dict[str, object]:
    reach = BackgroundCluster(
        alias=cluster.alias,
        bootstrap_servers=cluster.bootstrap,
        security_protocol=cluster.spec.security_protocol,
        client_properties=str(cluster.client_properties_path),
        logs=tuple(str(broker.log_path) for broker in cluster.brokers),
    )
    return asdict(reach)


def _write_state(path: Path, clusters: list[dict[str, object]]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"pid": os.getpid(), "clusters": clusters}))
    fresh.replace(path)


def _parse_state(content: list[dict[str, str]]) -> list[BackgroundCluster]:
    return [
        BackgroundCluster(
            alias=each["alias"],
            bootstrap_servers=each["bootstrap_servers"],
            security_protocol=each["security_protocol"],
            client_properties=each["client_properties"],
            logs=tuple(each["logs"]),
        )
        for each in content
    ]


def _is_held(lock_path: Path) -> bool:
    if not lock_path.exists():
        return False
    with lock_path.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer))
