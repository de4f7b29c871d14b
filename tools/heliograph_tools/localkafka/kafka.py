"""Fetch Apache Kafka once into the cache folder, with PySpark's Ivy. Runs on the driver."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from heliograph.cache import cache_folder
from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.versions import KAFKA_VERSION, needs_log4j

BROKER_ARTIFACTS: Final = ("kafka_2.13",)
_KAFKA_ORGANISATION: Final = "org.apache.kafka"
# Kafka brings the SLF4J API and no binding, so without one a broker dies without a word.
_LOGGING: Final = ("org.slf4j", "slf4j-simple", "1.7.36")
_LOG4J: Final = ("ch.qos.reload4j", "reload4j", "1.2.25")
_RESOLVE_TIMEOUT_S: Final = 900
_LOG_LINES_MAX: Final = 15

OnProgress = Callable[[str], None]


def kafka_classpath(
    version: str = KAFKA_VERSION,
    artifacts: Sequence[str] = BROKER_ARTIFACTS,
    *,
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
) -> list[Path]:
    """The jars of `artifacts` and all they need, in a fixed order; fetched when first asked for.

    Safe to call from several processes at once: one fetches, the others wait for it. A fetch that
    is cut short leaves nothing that would be taken for complete.
    """
    root = cache_folder() if cache is None else cache
    folder = root / "kafka" / f"{version}-{'+'.join(sorted(artifacts))}"
    if not folder.is_dir():
        # One lock for all versions: Ivy does not share its own cache safely.
        with file_lock(root / "ivy.lock"):
            if not folder.is_dir():
                if on_progress is not None:
                    on_progress(f"fetching Apache Kafka {version} into {folder}, once")
                _resolve(version, artifacts, folder, ivy_cache=root / "ivy")
    # One path however the cache is reached: an archive of classes is bound to it.
    return sorted(folder.resolve().glob("*.jar"))


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold `path` against other processes and threads; waits for its turn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _resolve(version: str, artifacts: Sequence[str], folder: Path, ivy_cache: Path) -> None:
    java = java_executable()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        wanted = Path(scratch) / "ivy.xml"
        wanted.write_text(_ivy_module(version, artifacts))
        jars = Path(scratch) / "jars"
        command = [str(java), "-jar", str(_ivy_jar()), "-cache", str(ivy_cache)]
        command += ["-ivy", str(wanted), "-confs", "default"]
        command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise LocalClusterError(
                f"Apache Kafka {version} could not be fetched in {_RESOLVE_TIMEOUT_S} s"
            ) from exc
        missing = [a for a in artifacts if not (jars / f"{a}-{version}.jar").is_file()]
        if answer.returncode != 0 or missing:
            lines = (answer.stdout + answer.stderr).splitlines()
            told = [line.strip() for line in lines if line.strip(" \t:")][-_LOG_LINES_MAX:]
            raise LocalClusterError(
                f"Apache Kafka {version} could not be fetched; Ivy's last lines:\n"
                + "\n".join(f"  {line}" for line in told)
            )
        shutil.move(jars, folder)


def _ivy_jar() -> Path:
    # Looked up without importing it: pyspark belongs to heliograph.engine.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LocalClusterError("pyspark is not installed, and Kafka is fetched with its Ivy")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise LocalClusterError(f"no ivy-*.jar beside {spec.origin}, and Kafka is fetched with it")
    return found[-1]


def _ivy_module(version: str, artifacts: Sequence[str]) -> str:
    wanted = [(_KAFKA_ORGANISATION, artifact, version) for artifact in artifacts] + [_LOGGING]
    if needs_log4j(version):
        wanted.append(_LOG4J)
    lines = [
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="default->default"/>'
        for org, name, rev in wanted
    ]
    return (
        '<ivy-module version="2.0"><info organisation="org.heliograph" module="local"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>\n"
    )
