"""Whether a process is alive: one answer for leases, slots, drills and failbacks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from heliograph.processes import is_alive


def test_a_running_process_is_alive() -> None:
    assert is_alive(os.getpid())


def test_a_zombie_is_not_alive_though_it_still_has_its_pid() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not is_alive(child.pid)

    child.wait()
    assert not is_alive(child.pid)


def test_a_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)

    assert is_alive(os.getpid())
