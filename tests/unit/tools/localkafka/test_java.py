"""Which Java is taken, and the one sentence when none will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.java import java_executable, java_version


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers `-version` as a JVM of that version does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


def test_java_of_java_home_wins_over_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.1")

    found = java_executable({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})

    assert found == home
    assert java_version(found) == "21.0.1"


def test_java_of_path_is_taken_without_java_home(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "17")

    assert java_executable({"PATH": str(java.parent)}) == java


def test_missing_java_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError) as caught:
        java_executable({"PATH": str(tmp_path)})

    assert str(caught.value) == (
        "Java 17 or newer is needed, and there is no java: JAVA_HOME is not set and PATH has none"
    )


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_old_java_is_named_with_its_version_and_place(tmp_path: Path, version: str) -> None:
    java = fake_java(tmp_path, version)

    with pytest.raises(LocalClusterError) as caught:
        java_executable({"JAVA_HOME": str(tmp_path)})

    assert str(caught.value) == (
        f"Java 17 or newer is needed, and {java} (from JAVA_HOME) is Java {version}"
    )


def test_java_home_without_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match=r"JAVA_HOME is .*, which has no bin/java"):
        java_executable({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
