"""A missing or old Java is one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.engine.java import check_java
from heliograph.errors import EngineError


def a_java_that_says(folder: Path, version_line: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


def test_the_java_of_java_home_counts_before_that_of_path(tmp_path: Path) -> None:
    home = a_java_that_says(tmp_path, 'openjdk version "21.0.2" 2024-01-16')

    assert check_java({"JAVA_HOME": str(home), "PATH": "/nowhere"}).major == 21


@pytest.mark.parametrize(
    ("line", "major"), [('java version "1.8.0_401"', 8), ('openjdk version "11.0.22"', 11)]
)
def test_an_old_java_is_named_with_its_version(tmp_path: Path, line: str, major: int) -> None:
    home = a_java_that_says(tmp_path, line)

    with pytest.raises(EngineError, match=f"is Java {major}: Spark needs Java 17 or newer"):
        check_java({"JAVA_HOME": str(home)})


def test_no_java_says_what_to_install() -> None:
    with pytest.raises(EngineError, match="no Java found: install Java 17 or newer"):
        check_java({"PATH": "/nowhere"})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="which has no bin/java"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_the_version_is_read_from_the_file_beside_java_where_there_is_one(tmp_path: Path) -> None:
    home = a_java_that_says(tmp_path, "this Java was asked, which takes a tenth of a second")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.4"\n', encoding="utf-8")

    java = check_java({"JAVA_HOME": str(home)})

    assert (java.major, java.version) == (21, "21.0.4")
