"""Make Spark start in half the time: its classes are recorded once and mapped from then on.

The whole suite starts Spark some forty times, and most of a start is the JVM loading classes. The
archive is kept in the cache folder, beside the one that brokers start from. So are the compiled
modules of the package, where the machine was told not to write them beside their sources.

Every Python process that tests start imports what an installed one would, and no hypothesis.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
import pytest

from heliograph_tools.localkafka.java import java_executable, java_version
from heliograph_tools.localkafka.kafka import cache_folder, file_lock

OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""What Spark adds to the command of the driver's JVM, and of no other."""
_PATH: Final = "PYTHONPATH"
_AS_INSTALLED: Final = Path(__file__).parent / "as_installed"
_NOT_COMPILED: Final = "PYTHONDONTWRITEBYTECODE"
_TESTS: Final = Path(__file__).parents[1]
_WITH_SPARK: Final = tuple(_TESTS / name for name in ("cluster", "crash", "spark"))
LIGHT_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MAPPED: Final = "-XX:SharedArchiveFile="
_RECORDING_S_MAX: Final = 180
_RECORDED: Final = """
from pyspark import SparkContext
from heliograph.model import SlotId
from tests.spark.kit import engine, running_session, running_slots, wait_moving
from tests.unit.engine.lanes import lane

config = engine("local[2]")
with running_session(config) as session, running_slots(session, config, count=1) as slots:
    slots.apply({SlotId(0): (lane(0),)})
    wait_moving(slots, lane(0).id)
jvm = SparkContext._gateway.proc
jvm.stdin.close()
jvm.wait()
"""


def light_jvm() -> str:
    """Options for JVMs of Spark beside the driver's: they compile little and load no classes."""
    options = os.environ.get(OPTIONS, "")
    # While it is recorded, no other JVM than the driver's may write the archive.
    return f"{LIGHT_JVM} {options}" if _MAPPED in options else LIGHT_JVM


@pytest.fixture(scope="session", autouse=True)
def spark_starts_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """For every process of this session; nothing where no test needs Spark."""
    paths = [item.path for item in request.session.items]
    if not any(path.is_relative_to(folder) for path in paths for folder in _WITH_SPARK):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_PATH, str(_AS_INSTALLED), prepend=os.pathsep)
        patch.setenv(OPTIONS, f"{_MAPPED}{_archive()} -Xshare:auto")
        if _NOT_COMPILED in os.environ:
            patch.delenv(_NOT_COMPILED)
            patch.setenv("PYTHONPYCACHEPREFIX", str(cache_folder() / "ready" / "compiled"))
        yield


def _archive() -> Path:
    java, jars = java_executable(), Path(pyspark.__file__).parent / "jars"
    # A JVM that finds another classpath than was recorded starts without the archive, slowly.
    bound_to = "\n".join([java_version(java), str(java.resolve()), pyspark.__version__, str(jars)])
    digest = hashlib.sha256(bound_to.encode()).hexdigest()[:12]
    archive = cache_folder() / "ready" / f"spark-{digest}.jsa"
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(archive.with_suffix(".lock")):
            if not archive.is_file():
                _record(archive)
    return archive


def _record(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    recording = subprocess.run(
        [sys.executable, "-c", _RECORDED],
        cwd=_TESTS.parent,
        env=os.environ | {OPTIONS: f"-XX:ArchiveClassesAtExit={made}"},
        capture_output=True,
        text=True,
        timeout=_RECORDING_S_MAX,
        check=False,
    )
    assert recording.returncode == 0, recording.stderr[-4_000:]
    made.rename(archive)
