"""Children to be killed: processes of their own, forked from one that has everything imported.

Starting Python and importing Kafka's protocol takes a second of CPU, which is most of what a child
does here, and there are a hundred of them.
"""

from __future__ import annotations

import multiprocessing
import subprocess
from pathlib import Path
from typing import Final

_CARRIER: Final = "tests.crash.carrier"
FORKS: Final = multiprocessing.get_context("forkserver")
# The main module too, or each child would import pytest to find it. All that children ever need is
# named here, because there is one such server and the last list that it is given counts.
FORKS.set_forkserver_preload(
    ["__main__", _CARRIER, "tests.crash.failing_over", "tests.crash.failing_back"]
)


class Child:
    """Spoken to like `subprocess.Popen`; carries what the order in the file says."""

    def __init__(self, order: Path) -> None:
        self._process = FORKS.Process(target=_carry_out, args=(order,))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Minus the signal's number where one ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(_CARRIER, timeout_s or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _carry_out(order: Path) -> None:
    from tests.crash.carrier import carry_out

    carry_out(order)
