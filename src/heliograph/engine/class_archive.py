"""An archive of the classes that Spark's JVM loads: it starts in half the time. Runs on the driver.

Most of a JVM's start is loading and checking some thousand classes. Java maps them from a file
instead (class data sharing, JEP 350). The file is made once, by a Spark of its own beside a mirror
that already runs (`class_recording`), and is good for one Java and one Spark. Java itself refuses a
file that does not fit and starts without it. So a file that is missing, stale or damaged, or a
folder that cannot be written, means a slower start and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.find_spark_home import _find_spark_home

from heliograph.cache import cache_folder
from heliograph.engine.java import Java
from heliograph.memory import free_bytes

_log: Final = logging.getLogger(__name__)
OPTIONS_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""What an operator adds to the command of the driver's JVM."""
_RECORD_AFTER_S: Final = 30.0
"""A command that ends sooner has no time to spare, and a mirror that starts none to share."""
RECORDING_S_MAX: Final = 300
_RECORDING_BYTES: Final = 1 << 30
"""Twice what a recording takes; where less is free nothing is recorded."""
_VARIABLES: Final = frozenset(
    {"PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "HELIOGRAPH_CACHE"}
)
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def archive_of(java: Java) -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None where none may be."""
    try:
        jars = Path(_find_spark_home(), "jars")
        # Java compares what is on the class path with what it was when it recorded.
        seen = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in _jars(jars))
        folder = cache_folder() / "spark"
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        return None
    bound_to = [java.version, str(java.executable.resolve()), pyspark.__version__, str(jars)]
    digest = hashlib.sha256("\n".join([*bound_to, *map(str, seen)]).encode()).hexdigest()
    return folder / f"{digest[:16]}.jsa"


def archive_options(archive: Path, environ: Mapping[str, str] | None = None) -> str:
    """For the JVM's command: how it starts from the archive; nothing where it should not."""
    if _is_told_otherwise(environ) or not _is_trusted(archive):
        return ""
    # Java says on stdout, where data goes, that it cannot use an archive.
    return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto -Xlog:disable -Xlog:all=error:stderr'


def record_later(archive: Path) -> None:
    """Make the archive beside this process, once it has run for a while."""
    if archive.exists() or failure_of(archive).exists() or _is_told_otherwise():
        return
    timer = threading.Timer(_RECORD_AFTER_S, record, (archive,))
    timer.daemon = True
    timer.start()


def record(archive: Path) -> None:
    """Make the archive now, in a process of low priority; waits for it. Raises nothing."""
    free = free_bytes()
    if free < _RECORDING_BYTES:
        _log.debug("no archive of Spark's classes is made: only %d bytes of memory are free", free)
        return
    try:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        recording = subprocess.run(
            [sys.executable, "-m", "heliograph.engine.class_recording", str(archive)],
            env={name: value for name, value in os.environ.items() if _is_needed(name)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RECORDING_S_MAX,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        _log.debug("no archive of Spark's classes was made: %s", exc)
        return
    if recording.returncode:
        _log.debug("no archive of Spark's classes was made: %s", recording.stderr[-2_000:])


def failure_of(archive: Path) -> Path:
    """The file that says that this Java makes no archive of this Spark: not tried again."""
    return archive.with_suffix(".failed")


def size_of(archive: Path) -> Path:
    """The file that says how large the archive was when it was made."""
    return archive.with_suffix(".size")


def _is_told_otherwise(environ: Mapping[str, str] | None = None) -> bool:
    """Whether an operator has an archive of their own, or wants none."""
    options = (os.environ if environ is None else environ).get(OPTIONS_VARIABLE, "")
    return "Archive" in options or "-Xshare" in options


def _is_needed(variable: str) -> bool:
    """Any other may hold a secret, and a recording needs none."""
    return variable in _VARIABLES or variable.startswith("PYTHON")


def _jars(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix == ".jar"]


def _is_trusted(archive: Path) -> bool:
    """What is in an archive is run: only this user, or root, may have been able to write it. And
    Java dies of one that was cut short."""
    try:
        found = [archive.stat(), archive.parent.stat()]
        is_whole = int(size_of(archive).read_text()) == found[0].st_size
    except (OSError, ValueError):
        return False
    return is_whole and all(
        at.st_uid in (0, os.geteuid()) and not at.st_mode & _OTHERS_MAY_WRITE for at in found
    )
