"""Whether a process is alive: of this machine, or as a ledger names it. Runs anywhere."""

from __future__ import annotations

import os
import socket
from enum import Enum
from pathlib import Path


class Liveness(Enum):
    """What this machine can say of a process that is known by its host's name and its pid."""

    ALIVE = "alive"
    """A process of this machine has the pid."""
    GONE = "gone"
    """It was a process of this machine."""
    UNKNOWN = "unknown"
    """It is, or may be, a process of another machine."""


def liveness(host: str, pid: int, *, here: str | None = None) -> Liveness:
    """`here` is this machine's name, where it is not the one it gives itself."""
    here = socket.gethostname() if here is None else here
    if host != here:
        return Liveness.UNKNOWN
    if is_alive(pid):
        return Liveness.ALIVE
    # The process may live on another machine of that name.
    return Liveness.GONE if names_one_host(here) else Liveness.UNKNOWN


def names_one_host(host: str) -> bool:
    """Any number of machines call themselves localhost."""
    return not host.startswith("localhost")


def is_alive(pid: int) -> bool:
    """Whether `pid` still runs here. A process of another user counts; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    stat = Path(f"/proc/{pid}/stat")
    # A process that was killed and not yet waited for keeps its pid.
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
