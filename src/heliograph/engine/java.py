"""Finds the Java that Spark will take, before Spark fails on it. Runs on the driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heliograph.errors import EngineError

JAVA_VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')
_RELEASE: Final = re.compile(r'^JAVA_VERSION="((?:1\.)?(\d+)[^"]*)"', re.MULTILINE)
_ANSWER_S_MAX: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    executable: Path
    version: str
    """As Java writes it: `17.0.15`."""
    major: int


def check_java(environ: Mapping[str, str] | None = None) -> Java:
    """Raises `EngineError` with one sentence when Java is missing or old."""
    java = _find(os.environ if environ is None else environ)
    said = _release(Path(java)) or _answer(java)
    if said is None:
        raise EngineError(f"{java} does not tell its version: Spark needs Java {JAVA_VERSION_MIN}")
    major = int(said.group(2))
    if major < JAVA_VERSION_MIN:
        raise EngineError(
            f"{java} is Java {major}: Spark needs Java {JAVA_VERSION_MIN} or newer, "
            "found through JAVA_HOME or PATH"
        )
    return Java(executable=Path(java), version=said.group(1), major=major)


def _release(java: Path) -> re.Match[str] | None:
    """From the file beside it, where there is one: to ask Java is to start it."""
    try:
        text = (java.resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except (OSError, IndexError):
        return None
    return _RELEASE.search(text)


def _answer(java: str) -> re.Match[str] | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise EngineError(f"{java} does not run: Spark needs Java {JAVA_VERSION_MIN}") from exc
    return _VERSION.search(answer.stderr + answer.stdout)


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
