"""Queries of `tests.spark.faulty_query` in processes that are killed and started again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import psutil

from tests.kit.topics import wait_until
from tests.spark.faulty_query import FaultyOrder, held_folder
from tests.spark.kit import REPOSITORY

RUNS_MAX: Final = 40
_END_S_MAX: Final = 400.0
_STEP_S_MAX: Final = 150.0
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class FaultyRun:
    """One process, begun at once; what it says is in a file, since a full pipe would stop it."""

    def __init__(self, order: FaultyOrder, folder: Path) -> None:
        self.order, self._folder = order, folder
        name = f"run-{time.monotonic_ns()}"
        file, self._log = folder / f"{name}.json", folder / f"{name}.log"
        file.write_text(json.dumps(asdict(order)), encoding="utf-8")
        paths = os.pathsep.join(map(str, (REPOSITORY / "src", REPOSITORY)))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.faulty_query", str(file)],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
            )

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def await_begin(self) -> None:
        try:
            wait_until(
                lambda: self.has_ended or "begins" in self.said, "a query", timeout_s=_STEP_S_MAX
            )
        except AssertionError as exc:
            self.kill()  # nobody else would
            raise AssertionError(f"{exc}\n{self.said}") from exc

    def code(self, timeout_s: float = _END_S_MAX) -> int:
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """The driver first; then its JVM and workers, which would end a moment later."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait()

    def executors(self) -> list[psutil.Process]:
        found = []
        with suppress(psutil.NoSuchProcess):
            for member in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if any(_EXECUTOR in word for word in member.cmdline()):
                        found.append(member)
        return found

    def kill_executors(self, count: int) -> int:
        """One after the other, each some seconds after it has appeared; how many were."""
        seen, until = set[int](), time.monotonic() + 240
        while len(seen) < count and not self.has_ended and time.monotonic() < until:
            time.sleep(4)
            new = [member for member in self.executors() if member.pid not in seen]
            for member in new[:1]:
                seen.add(member.pid)
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        return len(seen)

    def finish(self) -> None:
        """To the end of the query, in a process of its own where this one fails."""
        if self.code() != 0:
            to_the_end(self.order, self._folder)


def to_the_end(order: FaultyOrder, folder: Path, kills: int = 0, seed: int = 0) -> None:
    """Run again and again, so many times only for some seconds of work; says how many were killed:
    a query that is done within its seconds is not."""
    drawn, said, killed = random.Random(seed), "", 0
    for run in range(RUNS_MAX):
        query = FaultyRun(order, folder)
        query.await_begin()
        try:
            code = query.code(drawn.uniform(1.0, 15.0) if run < kills else _END_S_MAX)
        except subprocess.TimeoutExpired:
            query.kill()
            killed += 1
            continue
        if code == 0:
            print(f"{order.kind}: killed {killed} times in {run + 1} runs")  # noqa: T201
            return
        said = query.said
    raise AssertionError(f"not at its end after {RUNS_MAX} runs: {said[-2_000:]}")


def disturbed(
    order: FaultyOrder,
    folder: Path,
    kill: Callable[[FaultyRun], None],
    mend: Callable[[], None] = lambda: None,
) -> None:
    """Run to the end; where the query holds something is killed, then it goes on, then `mend`."""
    held = held_folder(order)
    held.mkdir(parents=True)
    query = FaultyRun(order, folder)
    for number, step in enumerate(order.holds):
        while not (held / f"{number}.at").exists():
            if query.has_ended:
                assert query.code() != 0, f"ended before {step}: {query.said}"
                query = FaultyRun(order, folder)
            time.sleep(0.05)
        kill(query)
        (held / f"{number}.go").touch()
        mend()
    query.finish()
