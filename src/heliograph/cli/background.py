"""A run in the background: forked, with a pid file, a log, and word when it runs. Driver only.

The pid file is locked as long as the process lives, so a second run is refused whatever the file
says, and a file that a killed run left behind refuses nobody.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from pathlib import Path

import typer

from heliograph.cli.output import EXIT_FAILED, remarks
from heliograph.errors import MirrorError

_RUNS = b"runs"


class Background:
    """In the process that stays: says once to the one that was called that it runs."""

    def __init__(self, told: int | None = None) -> None:
        self._told = told

    def runs(self) -> None:
        if self._told is not None:
            os.write(self._told, _RUNS)
            os.close(self._told)
            self._told = None


def go_to_background(pid_file: Path, log_file: Path) -> Background:
    """Returns in the process that stays; the one that was called ends when that one runs.

    Only for a process without other threads. Raises `MirrorError` where one runs already.
    """
    pid_fd = _locked(pid_file)
    log_fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    hears, tells = os.pipe()
    child = os.fork()
    if child:
        os.close(tells)
        raise typer.Exit(_word_of(child, hears, log_file))
    os.close(hears)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, stream in ((nothing, 0), (log_fd, 1), (log_fd, 2)):
        os.dup2(fd, stream)
    os.truncate(pid_fd, 0)
    os.write(pid_fd, f"{os.getpid()}\n".encode())
    atexit.register(os.truncate, pid_fd, 0)
    return Background(tells)


def _locked(pid_file: Path) -> int:
    """The open file; the lock lasts until the last process that has it open is gone."""
    found = os.open(pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(found, 32).decode(errors="replace").strip()
        os.close(found)
        raise MirrorError(
            f"{pid_file}: a run is in the background already{f' (pid {pid})' if pid else ''}; stop "
            f"it with `kill {pid or 'PID'}`, or name another --pid-file"
        ) from None
    return found


def _word_of(child: int, hears: int, log_file: Path) -> int:
    """Wait until the child runs or has ended; the exit code of the process that was called."""
    if os.read(hears, len(_RUNS)):
        remarks().print(
            f"runs in the background (pid {child}); log: {log_file}; stop it with `kill {child}`",
            soft_wrap=True,
        )
        return 0
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    remarks().print(f"the run ended with {code}; its log: {log_file}", soft_wrap=True)
    return code if code > 0 else EXIT_FAILED
