"""Where a result was measured, and with which versions. Runs on the driver."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil

from heliograph_tools.localkafka.java import java_executable, java_version
from heliograph_tools.localkafka.versions import KAFKA_VERSION

_PACKAGES: Final = ("heliograph", "pyspark", "aiokafka", "crc32c", "cramjam", "kio", "psutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    system: str
    processor: str
    cores: int
    memory_bytes: int
    load_before: float
    """Runnable processes over the last minute, before anything of ours ran."""
    python: str
    java: str
    kafka: str
    packages: dict[str, str]


def this_machine() -> Machine:
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_bytes=int(psutil.virtual_memory().total),
        load_before=os.getloadavg()[0],
        python=platform.python_version(),
        java=java_version(java_executable()),
        kafka=KAFKA_VERSION,
        packages={name: metadata.version(name) for name in _PACKAGES},
    )


def source_tree(checkout: Path) -> str:
    """Git's id of the package's sources: the same id, the same program. `+` where files differ."""

    def git(*command: str) -> str:
        argv = ["git", "-C", str(checkout), *command]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "HEAD:src") + ("+" if git("status", "--porcelain", "src") else "")


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return platform.processor()
    for line in listing.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor()
