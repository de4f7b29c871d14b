from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_TOLD_TO_STOP = """
import os, signal, time
from heliograph.cli.run import stop_signals

with stop_signals() as stop:
    if {told}:
        os.kill(os.getpid(), signal.SIGTERM)
        while not stop.is_made:
            time.sleep(0.01)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
"""


@pytest.mark.parametrize(("told", "code"), [(True, 128 + signal.SIGTERM), (False, -signal.SIGTERM)])
def test_a_second_signal_after_the_drain_ends_a_command_with_its_own_exit_code(
    *, told: bool, code: int
) -> None:
    """The drain may end between the first signal and the second, and Python's handler be back."""
    done = subprocess.run(
        [sys.executable, "-c", _TOLD_TO_STOP.format(told=told)], timeout=60, check=False
    )

    assert done.returncode == code


_TOLD_WHILE_PYTHON_ENDS = """
import os, signal
from heliograph.cli.run import stop_signals

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)

with stop_signals() as stop:
    stop.make()
last = Last()
"""


def test_a_second_signal_while_python_takes_itself_apart_leaves_the_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", _TOLD_WHILE_PYTHON_ENDS], timeout=60, check=False)

    assert done.returncode == 0
