"""Spark's classes are mapped from a file where that is safe; where it is not, nothing is said."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from heliograph.config.schema import EngineConfig
from heliograph.engine import class_archive, session
from heliograph.engine.class_archive import (
    OPTIONS_VARIABLE,
    archive_of,
    archive_options,
    record,
    record_later,
    size_of,
)
from heliograph.engine.java import Java

JAVA = Java(executable=Path("/usr/bin/java"), version="17.0.15", major=17)


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "core.jar").write_bytes(b"jar")
    monkeypatch.setattr(class_archive, "_find_spark_home", lambda: str(home))
    monkeypatch.setenv("HELIOGRAPH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(OPTIONS_VARIABLE, raising=False)
    return home


def an_archive() -> Path:
    archive = archive_of(JAVA)
    assert archive is not None
    archive.parent.mkdir(mode=0o700, parents=True)
    archive.write_bytes(b"classes")
    size_of(archive).write_text("7")
    return archive


def test_another_java_and_another_jar_have_another_archive(spark_home: Path) -> None:
    newer = Java(executable=JAVA.executable, version="17.0.16", major=17)

    first, of_newer = archive_of(JAVA), archive_of(newer)
    (spark_home / "jars" / "more.jar").write_bytes(b"jar")
    with_more = archive_of(JAVA)

    assert len({first, of_newer, with_more}) == 3


def test_without_spark_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_find_spark_home", lambda: "/nowhere")

    assert archive_of(JAVA) is None


def test_an_archive_that_is_there_is_used() -> None:
    archive = an_archive()

    assert f"-XX:SharedArchiveFile={archive}" in archive_options(archive, {})


def test_an_archive_that_was_cut_short_is_not_used() -> None:
    archive = an_archive()

    archive.write_bytes(b"class")

    assert archive_options(archive, {}) == ""


def test_a_jvm_that_dies_with_an_archive_is_started_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive, gateway = an_archive(), object()
    given = SparkConf(loadDefaults=False)
    conf = session._conf(EngineConfig(), tmp_path, given, has_secrets=False, archive=archive)
    tried: list[str] = []

    def launch(conf: SparkConf, stderr: object) -> object:
        tried.append(conf.get("spark.driver.extraJavaOptions", "") or "")
        if "Archive" in tried[-1]:
            raise PySparkRuntimeError("Java gateway process exited before sending its port number")
        return gateway

    monkeypatch.setattr(session, "_gateway", launch)
    monkeypatch.setattr(session, "SparkContext", lambda conf, gateway: gateway)

    started = session._start_context(conf, tmp_path / "log", archive)

    assert started is gateway
    assert len(tried) == 2
    assert not archive.exists()


def test_an_archive_that_is_missing_is_not_named() -> None:
    archive = archive_of(JAVA)

    assert archive is not None
    assert archive_options(archive, {}) == ""


@pytest.mark.parametrize("of", ["file", "folder"])
def test_what_others_may_have_written_is_not_run(of: str) -> None:
    archive = an_archive()

    (archive if of == "file" else archive.parent).chmod(0o777)

    assert archive_options(archive, {}) == ""


@pytest.mark.parametrize("told", ["-Xshare:off", "-XX:SharedArchiveFile=/own.jsa"])
def test_an_operators_word_on_archives_stands_alone(told: str) -> None:
    assert archive_options(an_archive(), {OPTIONS_VARIABLE: told}) == ""


class Recordings:
    """Instead of processes: what they would have been given."""

    def __init__(self) -> None:
        self.environments: list[dict[str, str]] = []

    def __call__(self, command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        self.environments.append(given["env"])
        return subprocess.CompletedProcess(command, 1, "", "Spark did not start")


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Recordings:
    made = Recordings()
    monkeypatch.setattr(subprocess, "run", made)
    return made


def test_a_recording_gets_no_variable_that_may_hold_a_secret(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")

    record(tmp_path / "cache" / "spark" / "some.jsa")

    (environment,) = recordings.environments
    assert environment["PATH"] == os.environ["PATH"]
    assert "hunter2" not in environment.values()


def test_nothing_is_recorded_where_memory_is_short(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(class_archive, "free_bytes", lambda: 900 << 20)

    record(tmp_path / "some.jsa")

    assert recordings.environments == []


def test_a_cache_that_cannot_be_written_is_no_error(recordings: Recordings, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")

    record(tmp_path / "cache" / "spark" / "some.jsa")

    assert recordings.environments == []


@pytest.mark.parametrize("made", [".jsa", ".failed"])
def test_what_was_tried_before_is_not_tried_again(
    made: str, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive()
    archive.unlink()
    archive.with_suffix(made).touch()
    monkeypatch.setattr(class_archive, "_RECORD_AFTER_S", 0.0)
    before = threading.active_count()

    record_later(archive)

    assert threading.active_count() == before
