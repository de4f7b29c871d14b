"""The owner's side of a supervised broker: start it, signal it, end it. Runs on the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from heliograph.errors import LocalClusterError

_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_LOG_LINES_MAX: Final = 20
_END_TIMEOUT_S: Final = 60


class Supervised:
    """One running JVM. It dies when this object's owner dies, however that happens."""

    def __init__(self, *, command: list[str], log_path: Path, folder: Path) -> None:
        self.log_path = log_path
        self._log_start_bytes = log_path.stat().st_size if log_path.exists() else 0
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(log_path), str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal reaches every process of its group; brokers end with their owner.
            start_new_session=True,
        )
        assert self._supervisor.stdout is not None
        first_line = self._supervisor.stdout.readline()
        if not first_line.strip():
            self._supervisor.wait()
            raise LocalClusterError(f"the supervisor of {folder} did not start")
        self.pid = int(first_line)

    @property
    def running(self) -> bool:
        return self._supervisor.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._supervisor.poll()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the JVM and wait until it is gone; what it wrote stays."""
        if self.running:
            os.kill(self.pid, number)
        self._wait()

    def end(self) -> None:
        """Kill the JVM and remove its folder."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        self._wait()

    def last_lines(self) -> list[str]:
        """What the JVM said last since it was started, without the frames of its stack traces."""
        if not self.log_path.exists():
            return []
        with self.log_path.open("rb") as log:
            log.seek(self._log_start_bytes)
            lines = log.read().decode(errors="replace").splitlines()
        told = [line for line in lines if not line.startswith("\t") and line.strip()]
        return told[-_LOG_LINES_MAX:]

    def _wait(self) -> None:
        try:
            self._supervisor.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired as exc:
            raise LocalClusterError(
                f"broker with pid {self.pid} did not end in {_END_TIMEOUT_S} s"
            ) from exc
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        self._supervisor.stdout.close()
