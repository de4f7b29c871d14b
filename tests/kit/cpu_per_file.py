"""Where the CPU of a test session goes: `pytest -p tests.kit.cpu_per_file --cpu-json FILE …`.

Seconds of CPU per file and test, of the test process and of all that it started (brokers, Spark,
Python workers, commands), looked at ten times a second. What runs in the background, such as the
clusters of a session, counts for the test that runs meanwhile. Only on Linux, where /proc is. Of a
session cut short, `python -m tests.kit.cpu_per_file FILE.jsonl FILE.json` sums up the tests.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

_LOOK_S: Final = 0.1
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_KINDS: Final = (
    ("kafka.Kafka", "brokers"),
    ("org.apache.spark", "Spark"),
    ("connect.mirror", "MirrorMaker 2"),
    ("pyspark.daemon", "Python workers"),
    ("java", "other Java"),
)


@dataclass(slots=True)
class _Member:
    """One process of the session, until it is gone."""

    started: str
    kind: str = ""
    ticks: int = 0


@dataclass(slots=True)
class Meter:
    """CPU of a process and its descendants, those that have ended or lost their parent too."""

    _members: dict[int, _Member] = field(default_factory=dict)
    _strangers: dict[int, str] = field(default_factory=dict)
    _ticks: Counter[str] = field(default_factory=Counter)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> Counter[str]:
        """Seconds so far, by kind of process."""
        with self._guard:
            self._look()
            return Counter({kind: ticks / _TICKS_S for kind, ticks in self._ticks.items()})

    def _look(self) -> None:
        pids = sorted(int(at.name) for at in Path("/proc").iterdir() if at.name.isdigit())
        alive = set(pids)
        for gone in self._members.keys() - alive:
            del self._members[gone]
        for gone in self._strangers.keys() - alive:
            del self._strangers[gone]
        for pid in pids:
            self._look_at(pid)

    def _look_at(self, pid: int) -> None:
        if pid in self._strangers and pid not in self._members:
            return
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return
        parent, ticks, started = int(words[1]), int(words[11]) + int(words[12]), words[19]
        member = self._members.get(pid)
        if member is None or member.started != started:
            if pid != os.getpid() and parent not in self._members:
                self._strangers[pid] = started
                return
            member = self._members[pid] = _Member(started)
        if not member.kind or member.kind == "commands":
            # A child is a copy of its parent until it runs a program of its own.
            member.kind = _kind(pid)
        self._ticks[member.kind] += ticks - member.ticks
        member.ticks = ticks


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "test process"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "commands"
    if not command[0].endswith("java"):
        command = [word for word in command if word == "pyspark.daemon"]
    line = " ".join(command)
    return next((kind for word, kind in _KINDS if word in line), "commands")


class CpuPerFile:
    """Reads the meter after each test; every process of the session adds lines to one file, so that
    a session that is cut short has told what it knew."""

    def __init__(self, out: Path, *, is_worker: bool) -> None:
        self._out, self._lines = out, out.with_suffix(".jsonl")
        self._is_worker = is_worker
        self._meter = Meter()
        self._stop = threading.Event()
        self._looking = threading.Thread(target=self._keep_looking, daemon=True)

    def _keep_looking(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._meter.read()

    def pytest_sessionstart(self) -> None:
        if not self._is_worker:
            self._lines.write_text("")
        self._looking.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before, began_s = self._meter.read(), time.monotonic()
        result = yield
        used = self._meter.read() - before
        line = {
            "test": item.nodeid,
            "cpu_s": sum(used.values()),
            "wall_s": time.monotonic() - began_s,
            **used,
        }
        with self._lines.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        return result

    def pytest_sessionfinish(self) -> None:
        self._stop.set()
        if not self._is_worker:
            write_document(self._lines, self._out)


def write_document(lines: Path, out: Path) -> None:
    tests = {}
    for line in lines.read_text().splitlines():
        used = json.loads(line)
        tests[used.pop("test")] = used
    out.write_text(json.dumps(_document(tests), indent=1) + "\n")


def _document(tests: Mapping[str, Mapping[str, float]]) -> dict[str, object]:
    files: dict[str, Counter[str]] = {}
    for test, used in tests.items():
        files.setdefault(test.partition("::")[0], Counter()).update({**used, "tests": 1})
    whole: Counter[str] = Counter()
    for used in files.values():
        whole.update(used)
    by_cpu = sorted(files, key=lambda file: -files[file]["cpu_s"])
    return {
        "whole": _rounded(whole),
        "files": {file: _rounded(files[file]) for file in by_cpu},
        "tests": {
            test: _rounded(used)
            for test, used in sorted(tests.items(), key=lambda one: -one[1]["cpu_s"])
        },
    }


def _rounded(used: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in sorted(used.items())}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-json", metavar="FILE", help="Write seconds of CPU per file there.")


def pytest_configure(config: pytest.Config) -> None:
    out = config.getoption("--cpu-json")
    if out is not None:
        is_worker = hasattr(config, "workerinput")
        config.pluginmanager.register(CpuPerFile(Path(out).absolute(), is_worker=is_worker))


if __name__ == "__main__":
    write_document(Path(sys.argv[1]), Path(sys.argv[2]))
