"""A real MirrorMaker 2 as a process, and a shuttle without Spark beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.copy.shuttle import Shuttle
from heliograph.model import FlowId, Idle, Stalled
from heliograph.takeover.mm2_state import running_workers
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.selection import select_topics
from heliograph_tools.bench.systems import mirror_maker_jars
from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.java import java_executable
from tests.kit.topics import wait_until

_MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
_STOP_S_MAX: Final = 30.0
_CARRY_S_MAX: Final = 60.0
_JVM: Final = (
    "-Xmx512M",
    "-XX:+UseSerialGC",
    # Started three times and fed little, so half of its life would be compiling.
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def mm2_properties(
    path: Path,
    source: tuple[str, LocalCluster],
    target: tuple[str, LocalCluster],
    topics: str,
    more: Mapping[str, str] | None = None,
) -> Path:
    """A file both MirrorMaker 2 and Heliograph take; workers are given up for dead quickly."""
    from_alias, to_alias = source[0], target[0]
    keys = {
        "clusters": f"{from_alias}, {to_alias}",
        f"{from_alias}.bootstrap.servers": source[1].bootstrap,
        f"{to_alias}.bootstrap.servers": target[1].bootstrap,
        f"{from_alias}->{to_alias}.enabled": "true",
        f"{from_alias}->{to_alias}.topics": topics,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        # Other tests leave heartbeats behind, which would be lanes that no test counts.
        "heartbeats.replication.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "2",
        f"{to_alias}.session.timeout.ms": "6000",
        f"{to_alias}.heartbeat.interval.ms": "1000",
        # By default the tasks of a worker that died wait five minutes for its return.
        f"{to_alias}.scheduled.rebalance.max.delay.ms": "0",
        **(more or {}),
    }
    path.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
    return path


class MirrorMaker:
    """`connect-mirror-maker.sh FILE` without the shell."""

    def __init__(self, config: Path) -> None:
        self._log_path = config.with_suffix(f".{time.monotonic_ns()}.mm2.log")
        classpath = os.pathsep.join(str(jar) for jar in mirror_maker_jars())
        with self._log_path.open("wb") as log:
            self._child = subprocess.Popen(
                [str(java_executable()), *_JVM, "-cp", classpath, _MAIN, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> MirrorMaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def last_words(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace")[-4_000:]

    def require_alive(self) -> None:
        if self._child.poll() is not None:
            raise AssertionError(f"MirrorMaker 2 ended:\n{self.last_words}")

    def kill(self) -> None:
        """kill -9: what it has copied since it last stored its position is stored nowhere."""
        self._child.kill()
        self._child.wait(_STOP_S_MAX)

    def stop(self) -> None:
        """As an operator does: it stores its position and leaves its group."""
        self._child.terminate()
        self._child.wait(_STOP_S_MAX)


def await_no_workers(config: MirrorConfig, flow: FlowId) -> None:
    wait_until(
        lambda: not asyncio.run(running_workers(config, flow)),
        f"the Connect group of {flow} to be empty",
        timeout_s=40.0,
        poll_s=0.3,
    )


def carry_once(path: Path, flow: FlowId) -> None:
    """The real shuttle, without Spark, until everything is mirrored."""
    config = load_config(path)
    source = ClusterAdmin(config.source_of(flow)).describe()
    target = ClusterAdmin(config.target_of(flow)).describe()
    chosen = config.flow(flow)
    lanes = plan_lanes(chosen, select_topics(chosen, source.topics), source, target)

    async def carry() -> None:
        shuttle = Shuttle(dict(config.clusters))
        running = asyncio.create_task(shuttle.run())
        shuttle.add(lanes)
        async with asyncio.timeout(_CARRY_S_MAX):
            while True:
                await asyncio.sleep(0.05)
                states = [at.state for at in shuttle.progress()]
                stalled = [s for s in states if isinstance(s, Stalled) and not s.retrying]
                if stalled:
                    raise AssertionError(f"stalled: {stalled}")
                if len(states) == len(lanes) and all(isinstance(s, Idle) for s in states):
                    break
        await shuttle.drain()
        await shuttle.close()
        await running

    asyncio.run(carry())
