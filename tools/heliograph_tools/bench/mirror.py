"""One mirror running: its log, CPU and memory with all its children. Runs on the driver."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError
from heliograph_tools.bench.systems import Launch

_DRAIN_S_MAX: Final = 30.0
_KEPT_LINES_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    at_s: float
    """Since the process was started."""
    text: str


@dataclass(slots=True, kw_only=True)
class MirrorProcess:
    launch: Launch
    log_path: Path
    started_s: float
    child: subprocess.Popen[bytes]
    lines: list[LogLine] = field(default_factory=list)

    def ensure_alive(self) -> None:
        code = self.child.poll()
        if code is not None:
            raise BenchError(
                f"{self.launch.system} ended with exit code {code}:\n{self.last_words()}"
            )

    def last_words(self, count: int = 20) -> str:
        return "\n".join(line.text for line in self.lines[-count:])

    def cpu_s(self) -> float:
        """CPU seconds of the whole tree so far, the children it has already buried included."""
        spent = 0.0
        for member in self._tree():
            try:
                times = member.cpu_times()
            except psutil.NoSuchProcess:
                continue
            spent += times.user + times.system + times.children_user + times.children_system
        return spent

    def rss_bytes(self) -> int:
        resident = 0
        for member in self._tree():
            try:
                resident += member.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return resident

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self.child.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess as exc:
            raise BenchError(f"{self.launch.system} is gone:\n{self.last_words()}") from exc


@contextmanager
def running(launch: Launch, log_path: Path) -> Iterator[MirrorProcess]:
    """The mirror, until the block ends; then it is asked to drain, and ended if it does not."""
    started_s = monotonic_s()
    child = subprocess.Popen(
        launch.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **launch.environment},
    )
    mirror = MirrorProcess(launch=launch, log_path=log_path, started_s=started_s, child=child)
    listener = threading.Thread(target=_listen, args=(mirror,), name="log", daemon=True)
    listener.start()
    try:
        yield mirror
    finally:
        _end(mirror)
        listener.join(timeout=5.0)


def _listen(mirror: MirrorProcess) -> None:
    stream = mirror.child.stdout
    if stream is None:
        return
    with stream, mirror.log_path.open("wb") as log:
        for raw in stream:
            log.write(raw)
            log.flush()
            if len(mirror.lines) < _KEPT_LINES_MAX:
                text = raw.decode(errors="replace").rstrip()
                mirror.lines.append(LogLine(at_s=monotonic_s() - mirror.started_s, text=text))


def _end(mirror: MirrorProcess) -> None:
    # Listed before the root goes: afterwards its children belong to somebody else.
    members = mirror._tree() if mirror.child.poll() is None else []
    mirror.child.terminate()
    _, left = psutil.wait_procs(members, timeout=_DRAIN_S_MAX)
    for member in left:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    mirror.child.wait(timeout=_DRAIN_S_MAX)
