"""Whether a process is alive: one answer for leases, slots, drills and failbacks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from heliograph.processes import Liveness, is_alive, liveness


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


def test_a_process_of_this_host_is_alive_or_gone() -> None:
    here = socket.gethostname()
    child = ended_child()

    assert liveness("box", os.getpid(), here="box") is Liveness.ALIVE
    assert liveness("box", child, here="box") is Liveness.GONE
    assert liveness(here, os.getpid()) is Liveness.ALIVE


def test_nothing_is_known_of_a_process_of_another_host() -> None:
    assert liveness("other", os.getpid(), here="box") is Liveness.UNKNOWN
    assert liveness("other", ended_child(), here="box") is Liveness.UNKNOWN


@pytest.mark.parametrize("here", ["localhost", "localhost.localdomain"])
def test_a_process_of_a_host_called_localhost_is_never_known_to_be_gone(here: str) -> None:
    assert liveness(here, os.getpid(), here=here) is Liveness.ALIVE
    assert liveness(here, ended_child(), here=here) is Liveness.UNKNOWN


def ended_child() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid
