"""Clusters that outlive the command that started them: `heliograph local up`. Runs on the driver.

`up` starts this module as a process of its own, the keeper, which owns the clusters until it is
told to stop. While it lives it holds a lock file, so the state of a dead keeper is never believed.
It takes orders on a loopback port; whoever can read its state file has the key.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import IO, Any, Final

from heliograph.cache import cache_folder
from heliograph.clock import monotonic_s
from heliograph.errors import LocalClusterError, MirrorError
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.localkafka.kafka import OnProgress
from heliograph_tools.localkafka.ports import LOOPBACK
from heliograph_tools.localkafka.sample import write_sample
from heliograph_tools.localkafka.storage import write_private

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
    running: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """What a keeper keeps."""

    clusters: list[BackgroundCluster]
    config: str | None
    """Path of a sample `mm2.properties`; None with a single cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What `up` asks the keeper for; travels over its stdin."""

    alias: str
    brokers: int
    tls: bool = False
    mutual_tls: bool = False
    sasl: str | None = None
    authorizer: bool = False
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def spec(self) -> ClusterSpec:
        return ClusterSpec(**{each.name: getattr(self, each.name) for each in fields(self)})


class _Files:
    def __init__(self, name: str) -> None:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise LocalClusterError(f"the name {name!r} may have letters, digits, - and _")
        folder = cache_folder() / "background"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise LocalClusterError(
                f"the cache folder {folder} cannot be made: {exc.strerror}; "
                "name another one in HELIOGRAPH_CACHE"
            ) from exc
        self.name = name
        self.state = folder / f"{name}.json"
        self.lock = folder / f"{name}.lock"
        self.log = folder / f"{name}.log"


def up(wanted: Sequence[Wanted], *, name: str = "default", on_progress: OnProgress) -> Background:
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


def status(*, name: str = "default") -> Background:
    """Where the clusters are, and which of them run; raises `LocalClusterError` when none is up."""
    return _parse_state(_ask(_Files(name), "status"))


def stop(alias: str, *, name: str = "default") -> None:
    """Kill the brokers of one cluster, as an outage would; their ports and data stay."""
    _ask(_Files(name), "stop", alias)


def start(alias: str, *, name: str = "default") -> None:
    """Start the brokers of a stopped cluster again, where they were."""
    _ask(_Files(name), "start", alias)


def down(*, name: str = "default") -> list[str]:
    """Stop what `up` started and wait until it is gone; the aliases, none when nothing was up."""
    files = _Files(name)
    state = _state_of(files)
    if state is None:
        files.state.unlink(missing_ok=True)
        return []
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
    """The keeper's life: take the lock, start, tell, take orders until a signal, stop."""

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
            tell(
                "failed",
                f"clusters named {name!r} are up already; `heliograph local status{option(name)}` "
                f"says where, `heliograph local down{option(name)}` stops them",
            )
            return 1
        try:
            with local_clusters(specs, on_progress=lambda text: tell("progress", text)) as clusters:
                kept = _Kept(clusters)
                write_private(files.state, json.dumps(kept.described() | kept.reach))
                threading.Thread(target=kept.take_orders, daemon=True).start()
                tell("ready", kept.described())
                answers.close()
                stopped.wait()
        except MirrorError as exc:
            tell("failed", str(exc))
            return 1
        files.state.unlink(missing_ok=True)
    return 0


class _Kept:
    """The keeper's clusters and its ear for orders."""

    def __init__(self, clusters: Mapping[str, LocalCluster]) -> None:
        self._clusters = clusters
        self._config = write_sample(clusters)
        self._key = secrets.token_bytes(16)
        self._listener = Listener((LOOPBACK, 0), authkey=self._key)

    @property
    def reach(self) -> dict[str, object]:
        return {"pid": os.getpid(), "address": self._listener.address, "key": self._key.hex()}

    def described(self) -> dict[str, object]:
        return {
            "clusters": [_described(cluster) for cluster in self._clusters.values()],
            "config": None if self._config is None else str(self._config),
        }

    def take_orders(self) -> None:
        """One after the other, for ever."""
        while True:
            try:
                with self._listener.accept() as asker:
                    what, alias = json.loads(asker.recv_bytes())
                    asker.send_bytes(json.dumps(self._obey(what, alias)).encode())
            except (AuthenticationError, EOFError, OSError, ValueError) as exc:
                sys.stderr.write(f"an order that cannot be read: {exc}\n")

    def _obey(self, what: str, alias: str | None) -> tuple[str, object]:
        try:
            if alias is not None and alias not in self._clusters:
                known = ", ".join(self._clusters)
                raise LocalClusterError(f"there is no cluster {alias}, only {known}")
            if alias is not None and what == "stop":
                self._clusters[alias].halt()
            elif alias is not None and what == "start":
                self._clusters[alias].revive()
        except MirrorError as exc:
            return "failed", str(exc)
        return "done", self.described()


def option(name: str) -> str:
    """What a command needs to mean the clusters of this name."""
    return "" if name == "default" else f" --name {name}"


def _described(cluster: LocalCluster) -> dict[str, object]:
    reach = BackgroundCluster(
        alias=cluster.alias,
        bootstrap_servers=cluster.bootstrap,
        security_protocol=cluster.spec.security_protocol,
        client_properties=str(cluster.client_properties_path),
        logs=tuple(str(broker.log_path) for broker in cluster.brokers),
        running=cluster.running,
    )
    return asdict(reach)


def _parse_state(content: dict[str, Any]) -> Background:
    return Background(
        clusters=[
            BackgroundCluster(**{**each, "logs": tuple(each["logs"])})
            for each in content["clusters"]
        ],
        config=content["config"],
    )


def _state_of(files: _Files) -> dict[str, Any] | None:
    """As the keeper wrote it; None where none lives."""
    if not files.state.exists() or not _is_held(files.lock):
        return None
    found: dict[str, Any] = json.loads(files.state.read_text())
    return found


def _ask(files: _Files, what: str, alias: str | None = None) -> dict[str, Any]:
    state = _state_of(files)
    if state is None:
        raise LocalClusterError(
            f"no clusters named {files.name!r} are up; "
            f"`heliograph local up{option(files.name)}` starts some"
        )
    address = (state["address"][0], state["address"][1])
    with Client(address, authkey=bytes.fromhex(state["key"])) as keeper:
        keeper.send_bytes(json.dumps([what, alias]).encode())
        kind, content = json.loads(keeper.recv_bytes())
    if kind == "failed":
        raise LocalClusterError(content)
    answer: dict[str, Any] = content
    return answer


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
