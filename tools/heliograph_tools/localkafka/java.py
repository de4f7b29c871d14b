"""Find the Java that Kafka and Spark run on. Runs on the driver."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from heliograph.errors import LocalClusterError

JAVA_VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?P<text>(?P<major>\d+)(?:\.(?P<minor>\d+))?[^"]*)"')
_ANSWER_TIMEOUT_S: Final = 30


def java_executable(environ: Mapping[str, str] | None = None) -> Path:
    """The `java` of JAVA_HOME, else of PATH; raises `LocalClusterError` with one sentence."""
    env = os.environ if environ is None else environ
    java, place = _candidate(env)
    major, text = _version(java)
    if major < JAVA_VERSION_MIN:
        raise LocalClusterError(
            f"Java {JAVA_VERSION_MIN} or newer is needed, and {java} ({place}) is Java {text}"
        )
    return java


def java_version(java: Path) -> str:
    """The version as Java writes it, such as `17.0.15`."""
    return _version(java)[1]


def _candidate(environ: Mapping[str, str]) -> tuple[Path, str]:
    home = environ.get("JAVA_HOME", "")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise LocalClusterError(
                f"Java {JAVA_VERSION_MIN} or newer is needed, and JAVA_HOME is {home},"
                " which has no bin/java"
            )
        return java, "from JAVA_HOME"
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise LocalClusterError(
            f"Java {JAVA_VERSION_MIN} or newer is needed, and there is no java:"
            " JAVA_HOME is not set and PATH has none"
        )
    return Path(found), "from PATH"


@functools.cache
def _version(java: Path) -> tuple[int, str]:
    try:
        # Java writes its version to stderr.
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LocalClusterError(f"{java} does not run: {exc}") from exc
    match = _VERSION.search(answer.stderr)
    if match is None:
        first_line = (answer.stderr.strip() or "it says nothing").splitlines()[0]
        raise LocalClusterError(f"{java} does not tell its version: {first_line}")
    major = int(match["major"])
    # Java 8 and older call themselves 1.8.
    return (int(match["minor"] or 0) if major == 1 else major), match["text"]
