"""Masters that are wrong, absent, silent or without workers get a sentence."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from heliograph.engine import master
from heliograph.engine.master import (
    executors_watched,
    register_in_time,
    require_answer,
)
from heliograph.errors import EngineError


@pytest.mark.parametrize("url", ["local[*]", "yarn", "k8s://https://there:443", ""])
def test_only_a_standalone_master_is_asked(url: str) -> None:
    require_answer(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("spark://127.0.0.1:1", "127.0.0.1:1: Connection refused"),
        ("spark://127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1: Connection refused"),
        ("spark://nowhere", "'nowhere' is not HOST:PORT"),
        ("spark://127.0.0.1:70000", "127.0.0.1:70000"),
    ],
)
def test_a_master_where_nothing_listens_is_named(url: str, why: str) -> None:
    with pytest.raises(EngineError) as raised:
        require_answer(url)

    assert str(raised.value).startswith(f"Spark did not start on {url}: the master does not answer")
    assert why in str(raised.value)


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as standby:
        require_answer(f"spark://127.0.0.1:1,127.0.0.1:{standby.getsockname()[1]}")


class Jvm:
    def __init__(self) -> None:
        self.killed = threading.Event()

    def kill(self) -> None:
        self.killed.set()


def start(jvm: Jvm) -> None:
    """As py4j does: waits, and fails when the JVM is gone."""
    jvm.killed.wait(10)
    raise OSError("Answer from Java side is empty")


def test_a_master_that_accepts_and_is_silent_is_given_up_with_its_jvm() -> None:
    jvm = Jvm()

    with (
        pytest.raises(EngineError, match=r"spark://h:1: the master does not answer within 0\.1 s"),
        register_in_time("spark://h:1", jvm, 0.1),
    ):
        start(jvm)


def test_a_jvm_that_works_is_not_taken_for_one_that_waits_for_its_master() -> None:
    """On a busy machine Spark takes longer to start than a master may be silent."""
    code = "import time\nwhile True: sum(range(10**5))"
    with subprocess.Popen([sys.executable, "-c", code]) as busy:
        try:
            with register_in_time("spark://h:1", busy, 1.5):
                assert busy.poll() is None
                time.sleep(4)
            assert busy.poll() is None
        finally:
            busy.kill()


def test_what_goes_wrong_in_time_is_told_as_it_is() -> None:
    with pytest.raises(OSError, match="no such host"), register_in_time("spark://h:1", Jvm(), 60):
        raise OSError("no such host")


class Context:
    """A context with so many executors, the driver counted."""

    master = "spark://h:1"

    def __init__(self, executors: int) -> None:
        status = SimpleNamespace(size=lambda: executors)
        scala = SimpleNamespace(getExecutorMemoryStatus=lambda: status)
        self._jsc = SimpleNamespace(sc=lambda: scala)
        self.cancelled = threading.Event()

    def cancelAllJobs(self) -> None:
        self.cancelled.set()


def watched(context: Context) -> Any:
    return executors_watched(cast("SparkContext", context), silent_s=0.0)


def test_a_wait_for_executors_is_said_and_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(master, "_LOOK_S", 0.01)
    monkeypatch.setattr(master, "_EXECUTOR_S_MAX", 0.05)
    context = Context(executors=1)

    with pytest.raises(EngineError, match="no worker with enough free cores"), watched(context):
        context.cancelled.wait(10)
        raise EngineError("the job was cancelled")

    assert "spark://h:1 has no worker with enough free cores and memory" in caplog.text
    assert "waiting for one" in caplog.text


def test_nothing_is_said_where_there_are_executors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(master, "_LOOK_S", 0.01)

    with watched(Context(executors=2)):
        threading.Event().wait(0.1)

    assert caplog.text == ""
