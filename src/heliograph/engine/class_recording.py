"""Records the classes that Spark's JVM loads until a first task has run.

Runs on the driver's machine, in a process of its own: `python -m heliograph.engine.class_recording
ARCHIVE`, begun by `class_archive.record`.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from heliograph.config.schema import EngineConfig
from heliograph.engine.class_archive import OPTIONS_VARIABLE, failure_of, size_of
from heliograph.engine.session import start_session, stop_session

_NICENESS: Final = 19
_UNUSED_S_MAX: Final = 90 * 86_400
_MASTER: Final = "local[2]"


def main(archive: Path) -> int:
    os.nice(_NICENESS)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another process records it
        if archive.exists():
            return 0
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".recording-") as scratch:
            made = Path(scratch, "made.jsa")
            _record(made)
            if not made.exists():
                failure_of(archive).touch()
                return 1
            # At once or not at all, also if the machine dies now: a JVM that starts finds a whole
            # file, or none.
            with made.open("rb") as written:
                os.fsync(written.fileno())
            size_of(archive).write_text(str(made.stat().st_size))
            made.rename(archive)
    _forget_unused(archive)
    return 0


def _record(made: Path) -> None:
    """Raises `RuntimeError` where the JVM was killed on the way: the file may not be whole."""
    os.environ[OPTIONS_VARIABLE] = f'"-XX:ArchiveClassesAtExit={made}" -Xlog:disable'
    context = start_session(EngineConfig(master=_MASTER))
    context.setJobGroup("recording", "recording")
    context.parallelize([0], 1).mapPartitions(list).collect()
    context.cancelJobGroup("recording")
    jvm = SparkContext._gateway.proc
    stop_session(context)
    jvm.stdin.close()
    if jvm.wait() != 0:
        raise RuntimeError(f"the JVM ended with {jvm.returncode}")


def _forget_unused(archive: Path) -> None:
    """Those of a Java or a Spark that is gone; each is a hundred megabytes."""
    oldest_s = time.time() - _UNUSED_S_MAX
    for other in archive.parent.glob("*.jsa"):
        if other != archive and other.stat().st_atime < oldest_s:
            other.unlink(missing_ok=True)
            size_of(other).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
