"""Memory of this process, and what its machine has left, as Linux tells it. Runs anywhere."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

_UNLIMITED: Final = 1 << 62
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_RESIDENT, _DATA = 1, 5
"""Columns of /proc/self/statm."""
_LIMITS: Final = resource.getrlimit(resource.RLIMIT_DATA)
"""Of this process when it began: what it may have, and what it may ever be given."""


class Used(NamedTuple):
    resident_bytes: int
    data_bytes: int
    """What `RLIMIT_DATA` counts: all that the process asked for and may write to."""


def used() -> Used | None:
    """None where the system does not tell."""
    columns = _text("/proc/self/statm").split()
    if len(columns) <= _DATA:
        return None
    return Used(*(int(columns[at]) * _PAGE_BYTES for at in (_RESIDENT, _DATA)))


def free_bytes() -> int:
    """What the machine, or the container, has to spare."""
    free = _UNLIMITED
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, taken = _text("/sys/fs/cgroup/memory.max"), _text("/sys/fs/cgroup/memory.current")
    if limit.isdecimal() and taken.isdecimal():
        free = min(free, int(limit) - int(taken))
    return free


def limit_data(bytes_max: int | None) -> None:
    """Have the system refuse this process more than so much; None is what it had at first."""
    soft, hard = _LIMITS
    if bytes_max is not None and (soft == resource.RLIM_INFINITY or bytes_max < soft):
        soft = bytes_max
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
