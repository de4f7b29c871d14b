"""Whether a process is alive: one answer for leases, slots, drills and failbacks."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph import processes
from heliograph.processes import (
    Liveness,
    is_alive,
    liveness_of,
    machine_id,
    new_signature,
)


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


def test_a_process_that_ends_while_it_is_asked_about_is_not_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pid is there for kill, and its folder in /proc is gone a moment later."""
    monkeypatch.setattr(os, "kill", lambda pid, number: None)

    assert not is_alive(ended_child())


def test_signatures_are_32_hexadecimal_digits_and_never_the_same() -> None:
    signatures = {new_signature() for _ in range(100)}

    assert len(signatures) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", signature) for signature in signatures)


def test_a_signature_tells_whether_its_maker_is_alive() -> None:
    assert liveness_of(new_signature(), os.getpid()) is Liveness.ALIVE
    assert liveness_of(new_signature(), os.getppid()) is Liveness.ALIVE
    assert liveness_of(new_signature(), ended_child()) is Liveness.GONE


def test_a_signature_of_an_earlier_process_with_this_ones_pid_is_of_one_that_is_gone() -> None:
    """A container that is started again has the same pid."""
    code = "from heliograph.processes import new_signature; print(new_signature())"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert liveness_of(made.stdout.strip(), os.getpid()) is Liveness.GONE


def test_a_machine_is_a_boot_and_a_pid_namespace_not_a_host_name() -> None:
    """Containers that share a host's name have pids of their own."""
    assert str(Path("/proc/self/ns/pid").readlink()) in machine_id()
    assert platform.node() not in machine_id()


def test_nothing_is_known_of_a_process_in_another_pid_namespace_of_the_same_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = new_signature()

    monkeypatch.setattr(processes, "machine_id", lambda: "same boot/pid:[4026532000]")
    processes._machine_digits.cache_clear()
    try:
        assert liveness_of(before, os.getpid()) is Liveness.UNKNOWN
        assert liveness_of(before, ended_child()) is Liveness.UNKNOWN
    finally:
        monkeypatch.undo()
        processes._machine_digits.cache_clear()


def ended_child() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid
