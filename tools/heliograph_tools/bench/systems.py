"""The mirrors under test as processes: their properties, their command lines. Runs on the driver.

All get the same file but for the few keys named here, and a source alias of their own in every run,
so that each starts on an empty target topic with no position of an earlier run to find.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heliograph.errors import BenchError
from heliograph_tools.bench.rows import System
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.kafka import kafka_classpath
from heliograph_tools.localkafka.versions import KAFKA_VERSION

_MM2_MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
_MM2_JVM: Final = (
    # What connect-mirror-maker.sh passes where the operator says nothing.
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_MM2_LOGGING: Final = (
    # Warnings only, where the shipped configuration writes every client's settings: in its favour.
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

MM2_TUNING: Final[Mapping[str, str]] = {
    "{source}.consumer.max.partition.fetch.bytes": "8388608",
    "{target}.producer.batch.size": "524288",
    "{target}.producer.linger.ms": "20",
}

_NOT_COMPILED: Final = "PYTHONDONTWRITEBYTECODE"
TASKS_MAX: Final = 4
"""MirrorMaker 2's own default is 1; four partitions get four tasks, for every system."""

_COMMON: Final[Mapping[str, str]] = {
    "tasks.max": str(TASKS_MAX),
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "refresh.topics.enabled": "false",
    "refresh.groups.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """From where to where, under which names."""

    source_alias: str
    source_bootstrap: str
    target_bootstrap: str
    topic: str
    target_alias: str = "target"

    @property
    def target_topic(self) -> str:
        return f"{self.source_alias}.{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, and with which words."""

    system: System
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def prepare(
    system: System,
    route: Route,
    folder: Path,
    heliograph_keys: Mapping[str, str],
    row_keys: Mapping[str, str] | None = None,
) -> Launch:
    """Write the system's properties into `folder` and say how to start it.

    `row_keys` are for every system and win over the common ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mm2.properties"
    path.write_text(properties_text(system, route, heliograph_keys, row_keys or {}))
    if system is System.HELIOGRAPH:
        return Launch(system=system, argv=(sys.executable, "-m", "heliograph", "run", str(path)))
    if system is System.FLOOR:
        raise BenchError("the floor is no process")
    classpath = os.pathsep.join(str(jar) for jar in mirror_maker_jars())
    words = (*_MM2_JVM, *_MM2_LOGGING, "-cp", classpath, _MM2_MAIN, str(path))
    argv = (str(java_executable()), *words)
    return Launch(system=system, argv=argv)


def compiled_environment(folder: Path) -> dict[str, str]:
    """Ours, with modules compiled into `folder` once and for all.

    Installed packages come compiled; a checkout may be kept from it, and would pay every time.
    """
    kept = {name: value for name, value in os.environ.items() if name != _NOT_COMPILED}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def keys_for_groups(alias: str) -> Mapping[str, str]:
    """What a row needs whose groups are called `<alias>-…`: found and told within a second."""
    return {
        "emit.checkpoints.enabled": "true",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.enabled": "true",
        "refresh.groups.interval.seconds": "1",
        "groups": f"{alias}-.*",
    }


def properties_text(
    system: System,
    route: Route,
    heliograph_keys: Mapping[str, str],
    row_keys: Mapping[str, str],
) -> str:
    source, target = route.source_alias, route.target_alias
    keys = {
        "clusters": f"{source}, {target}",
        f"{source}.bootstrap.servers": route.source_bootstrap,
        f"{target}.bootstrap.servers": route.target_bootstrap,
        f"{source}->{target}.enabled": "true",
        f"{target}->{source}.enabled": "false",
        f"{source}->{target}.topics": route.topic,
        **_COMMON,
        **row_keys,
    }
    if system is System.MM2_TUNED:
        for key, value in MM2_TUNING.items():
            keys[key.format(source=source, target=target)] = value
    if system is System.HELIOGRAPH:
        keys.update(heliograph_keys)
    return "".join(f"{key} = {value}\n" for key, value in keys.items())


def mirror_maker_jars() -> list[Path]:
    """MirrorMaker 2 with all it needs, resolved into the cache the first time."""
    return kafka_classpath(KAFKA_VERSION, ("connect-mirror", "connect-runtime"))
