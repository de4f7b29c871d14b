"""Spark starts from the archive of its classes, and without one that is no archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from heliograph.engine.class_archive import OPTIONS_VARIABLE, archive_of, size_of
from heliograph.engine.java import check_java
from tests.spark.kit import PATIENCE_S, REPOSITORY

_START = """
from pathlib import Path
from pyspark import SparkContext
from heliograph.config.schema import EngineConfig
from heliograph.engine.session import start_session, stop_session

context = start_session(EngineConfig(master="local[1]"))
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
stop_session(context)
print(sorted({line.rpartition("/")[2] for line in maps.splitlines() if "/spark/" in line
              and line.endswith(".jsa")}))
"""


def mapped(cache: Path | None = None) -> str:
    """What a Spark says that is started now: the archives its JVM has mapped."""
    environment = {n: value for n, value in os.environ.items() if n != OPTIONS_VARIABLE}
    started = subprocess.run(
        [sys.executable, "-c", _START],
        cwd=REPOSITORY,
        env=environment | ({} if cache is None else {"HELIOGRAPH_CACHE": str(cache)}),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    return started.stdout.strip()


def test_spark_starts_from_the_archive_that_was_recorded() -> None:
    archive = archive_of(check_java())

    assert archive is not None
    assert mapped() == str([archive.name])


def test_an_archive_that_is_none_is_left_alone_without_a_word(tmp_path: Path) -> None:
    archive = archive_of(check_java())
    assert archive is not None
    damaged = tmp_path / "spark" / archive.name
    damaged.parent.mkdir(mode=0o700)
    damaged.write_bytes(bytes(1_000_000))
    size_of(damaged).write_text("1000000")

    assert mapped(tmp_path) == "[]"
