"""A run in the background: one at a time, with word when it runs. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CALL = """
import sys, time
from pathlib import Path
from heliograph.cli.background import go_to_background
from heliograph.errors import MirrorError
import typer
folder, what = Path(sys.argv[1]), sys.argv[2]
try:
    background = go_to_background(folder / "pid", folder / "log")
except typer.Exit as ended:
    sys.exit(ended.exit_code)
except MirrorError as refused:
    sys.exit(str(refused))
print("in the log", flush=True)
if what == "fails":
    sys.exit(3)
background.runs()
time.sleep(60)
"""


def called(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CALL, str(folder), what]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def pid(tmp_path: Path) -> int:
    ended = called(tmp_path, "stays")
    assert ended.returncode == 0, ended.stderr
    return int((tmp_path / "pid").read_text())


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_second_one_is_refused_while_the_first_lives_and_not_after(
    tmp_path: Path, pid: int
) -> None:
    try:
        second = called(tmp_path, "stays")
        is_leader = os.getsid(pid) == pid
    finally:
        os.kill(pid, signal.SIGKILL)

    assert second.returncode == 1
    assert f"a run is in the background already (pid {pid})" in second.stderr
    assert is_leader
    assert (tmp_path / "log").read_text() == "in the log\n"
    assert gone(pid)

    third = called(tmp_path, "fails")
    assert third.returncode == 3
    assert "the run ended with 3" in third.stderr
    assert (tmp_path / "pid").read_text() == ""
