"""Whether a process of this machine is alive. Runs anywhere."""

from __future__ import annotations

import os
from pathlib import Path


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
