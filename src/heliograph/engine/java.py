"""Finds the Java that Spark will take, before Spark fails on it. Runs on the driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from heliograph.errors import EngineError

JAVA_VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S_MAX: Final = 30


def check_java(environ: Mapping[str, str] | None = None) -> int:
    """The major version. Raises `EngineError` with one sentence when Java is missing or old."""
    java = _find(os.environ if environ is None else environ)
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise EngineError(f"{java} does not run: Spark needs Java {JAVA_VERSION_MIN}") from exc
    said = _VERSION.search(answer.stderr + answer.stdout)
    if said is None:
        raise EngineError(f"{java} does not tell its version: Spark needs Java {JAVA_VERSION_MIN}")
    major = int(said.group(1))
    if major < JAVA_VERSION_MIN:
        raise EngineError(
            f"{java} is Java {major}: Spark needs Java {JAVA_VERSION_MIN} or newer, "
            "found through JAVA_HOME or PATH"
        )
    return major


def _find(environ: Mapping[str, str]) -> str:
    """Looks where bin/spark-class looks, in its order."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise EngineError(f"JAVA_HOME is {home}, which has no bin/java")
        return str(java)
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise EngineError(
            f"no Java found: install Java {JAVA_VERSION_MIN} or newer, "
            "or set JAVA_HOME to where it is"
        )
    return found
