"""Which process this is, and whether another is alive. Runs anywhere."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import secrets
import socket
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

_MACHINE_DIGITS: Final = 16
_PROCESS_DIGITS: Final = 8
_OWN_DIGITS: Final = 8
_OPERATOR_CHARS_MAX: Final = 128


class Liveness(Enum):
    """What this machine can say of a process."""

    ALIVE = "alive"
    """A process of this machine has the pid."""
    GONE = "gone"
    """It was a process of this machine."""
    UNKNOWN = "unknown"
    """It is, or may be, a process of another machine."""


def machine_id() -> str:
    """Equal for processes that see each other's pids: one can then tell whether another is gone.

    A host's name is not enough: containers may share it and have pids of their own.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot_id}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()}/{platform.system()}"


def new_signature() -> str:
    """32 hexadecimal digits that no other call gives, here or elsewhere.

    The first 16 stand for the machine, the next 8 for this process on it: with them `liveness_of`
    can say more of its signatures than of any other 32 digits.
    """
    return _machine_digits() + _process_digits(os.getpid()) + secrets.token_hex(_OWN_DIGITS // 2)


def liveness_of(signature: str, pid: int) -> Liveness:
    """Of the process with that pid where it runs, by a `new_signature` it made."""
    if signature[:_MACHINE_DIGITS] != _machine_digits():
        return Liveness.UNKNOWN
    if pid == os.getpid():
        made_it = signature[_MACHINE_DIGITS:].startswith(_process_digits(pid))
        # One with this process's pid that is not this process was there before it.
        return Liveness.ALIVE if made_it else Liveness.GONE
    return Liveness.ALIVE if is_alive(pid) else Liveness.GONE


def is_alive(pid: int) -> bool:
    """Whether `pid` still runs here. A process of another user counts; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        # It ended while it was asked about, unless this is no Linux.
        return not Path("/proc/self/stat").exists()
    # A process that was killed and not yet waited for keeps its pid.
    return state.rpartition(")")[2].split()[0] != "Z"


def operator() -> str:
    """Who decides, as this machine knows the user."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"[:_OPERATOR_CHARS_MAX]


@cache
def _machine_digits() -> str:
    return hashlib.sha256(machine_id().encode()).hexdigest()[:_MACHINE_DIGITS]


@cache
def _process_digits(pid: int) -> str:
    """By pid, so that a forked child has digits of its own."""
    return secrets.token_hex(_PROCESS_DIGITS // 2)
