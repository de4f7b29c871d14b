"""`heliograph run` as a process of its own: start it, find its parts, kill them, end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from tests.kit.clusters import is_alive
from tests.kit.topics import wait_until

ROOT: Final = Path(__file__).parents[2]
HELIOGRAPH: Final = ("-m", "heliograph")
WITHOUT_SPARK: Final = (
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    "from tests.kit.without_spark import main; main()",
)
"""The same command with slots that are threads, for runs whose subject is not Spark."""
START_S_MAX: Final = 180.0
STOP_S_MAX: Final = 90.0
ONCE_S_MAX: Final = 180.0
_WORDS_S_MAX: Final = 60.0
_ORPHAN_S_MAX: Final = 20.0
_LAST_WORDS: Final = 4_000
# What only the process itself knows, and says in its log: here and nowhere else in the tests.
_RUNNING: Final = " handed to "
_COPYING: Final = "first records mirrored"


class MirrorRun:
    """One `heliograph run`, in a process group of its own, as a terminal would start it."""

    def __init__(
        self,
        config: Path,
        log_path: Path,
        *arguments: str,
        program: Sequence[str] = HELIOGRAPH,
    ) -> None:
        self.config = config
        self._log_path = log_path
        self._seen: dict[int, psutil.Process] = {}
        with log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, *program, "run", str(config), "--quiet", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def said(self) -> str:
        """Everything the process wrote, Spark's own words included."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def last_words(self) -> str:
        return self.said[-_LAST_WORDS:]

    @property
    def complaints(self) -> list[str]:
        """Lines of the log that are errors."""
        return [line for line in self.said.splitlines() if " ERROR " in line]

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def wait_for_words(self, *words: str, timeout_s: float = _WORDS_S_MAX) -> str:
        """The first line that holds all of these; fails with the log's end when there is none.

        For words that are the subject of a test. What can be asked of a ledger or a cluster is
        asked there.
        """
        found = ""

        def heard() -> bool:
            nonlocal found
            lines = self.said.splitlines()
            found = next((line for line in lines if all(word in line for word in words)), "")
            if not found and self.exit_code is not None:
                raise AssertionError(f"ended with {self.exit_code}:\n{self.last_words}")
            return bool(found)

        try:
            wait_until(heard, f"a line with {words}", timeout_s=timeout_s)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.last_words}") from exc
        return found

    def await_running(self) -> None:
        """Its lanes are in the slots."""
        self.wait_for_words(_RUNNING, timeout_s=START_S_MAX)

    def await_copying(self) -> None:
        """This very run has mirrored records."""
        self.wait_for_words(_COPYING, timeout_s=START_S_MAX)
        self.family()

    def send_signal(self, number: signal.Signals) -> None:
        """As `stop`, without waiting for the end."""
        self._child.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, group: bool = False) -> int:
        """Ask it to end; the exit code. A terminal's Ctrl-C reaches the whole `group`."""
        if group:
            os.killpg(self._child.pid, number)
        else:
            self._child.send_signal(number)
        return self.wait()

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.last_words}") from exc

    def family(self) -> list[psutil.Process]:
        """Driver, JVMs and Python workers that are alive; remembered, for when the driver is not.

        The JVM has a session of its own but stays the driver's child while the driver lives.
        """
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self._child.pid)
            for member in (driver, *driver.children(recursive=True)):
                self._seen[member.pid] = member
        for member in list(self._seen.values()):
            # Workers outlive their parents for a moment and then belong to nobody.
            with suppress(psutil.NoSuchProcess):
                for child in member.children(recursive=True):
                    self._seen[child.pid] = child
        return [member for member in self._seen.values() if is_alive(member.pid)]

    def workers(self) -> list[psutil.Process]:
        """Python workers that run a task: forks of PySpark's daemon."""
        return [
            member
            for member in self.family()
            if _is_daemon(member) and (parent := _parent(member)) is not None and _is_daemon(parent)
        ]

    def executors(self) -> list[psutil.Process]:
        """JVMs of executors, where they are processes of their own (`local-cluster`)."""
        return [
            member
            for member in self.family()
            if any("CoarseGrainedExecutor" in word for word in _command(member))
        ]

    def await_worker(self) -> psutil.Process:
        wait_until(lambda: bool(self.workers()), "a Python worker", timeout_s=START_S_MAX)
        return self.workers()[0]

    def kill_driver(self) -> None:
        """kill -9 of the driver alone; all it had started goes by itself, and soon."""
        self.family()
        self._child.kill()
        self._child.wait()
        wait_until(
            lambda: not self.family(),
            f"the end of {[(p.pid, _command(p)[:4]) for p in self.family()]}",
            timeout_s=_ORPHAN_S_MAX,
        )

    def kill(self) -> None:
        """Whatever is left of it, at once."""
        for member in self.family():
            with suppress(psutil.NoSuchProcess):
                member.kill()
        self._child.wait(STOP_S_MAX)


@contextmanager
def running_mirror(
    config: Path, *arguments: str, program: Sequence[str] = HELIOGRAPH
) -> Iterator[MirrorRun]:
    """Up and carrying lanes; whatever is left of it at the end is killed."""
    with mirror_runs() as runs:
        runs.append(MirrorRun(config, _new_log(config), *arguments, program=program))
        runs[0].await_running()
        yield runs[0]


def mirror_once(config: Path, *, program: Sequence[str] = HELIOGRAPH) -> MirrorRun:
    """`run --once`, ended by itself."""
    with mirror_runs() as runs:
        runs.append(MirrorRun(config, _new_log(config), "--once", program=program))
        runs[0].wait(ONCE_S_MAX)
        return runs[0]


@contextmanager
def mirror_runs() -> Iterator[list[MirrorRun]]:
    """Runs appended to this list are ended with the block."""
    runs: list[MirrorRun] = []
    try:
        yield runs
    finally:
        for run in runs:
            run.kill()


def _new_log(config: Path) -> Path:
    return config.with_suffix(f".{time.monotonic_ns()}.log")


def _parent(member: psutil.Process) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        return member.parent()
    return None


def _command(member: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return member.cmdline()
    return []


def _is_daemon(member: psutil.Process) -> bool:
    return "pyspark.daemon" in _command(member)
