"""A drill in a process of its own that lets everybody else go first. Runs on the driver.

Linux gives each session its share of the cores before it looks at how nice a thread is (autogroup),
so a nice thread of a driver still takes from brokers and slots what they need. A process that leads
a session can have the whole session stand back. And whoever wakes up must wait for the turn of a
nice process to end, but never for one that is scheduled as idle.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from heliograph.config.schema import MirrorConfig
from heliograph.drill.report import DrillOptions, DrillReport
from heliograph.drill.run import drill
from heliograph.errors import EngineError, MirrorError
from heliograph.model import FlowId

_NICENESS: Final = 19
_AUTOGROUP: Final = Path("/proc/self/autogroup")
_END_S_MAX: Final = 10.0


def drill_aside(config: MirrorConfig, flow: FlowId, options: DrillOptions) -> DrillReport:
    """As `drill`; blocks. Raises `MirrorError`.

    Settings and secrets go through a pipe, never on a command line. A driver that is killed leaves
    the drill to end, and to clear up, by itself.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_drill, args=(there, config, flow, options), daemon=True)
    child.start()
    there.close()
    try:
        found = here.recv()
    except EOFError:
        child.join(_END_S_MAX)
        raise EngineError(f"the drill's process ended with {child.exitcode}") from None
    finally:
        here.close()
        child.join(_END_S_MAX)
        if child.is_alive():
            child.kill()
    if isinstance(found, DrillReport):
        return found
    raise found


def _drill(there: Connection, config: MirrorConfig, flow: FlowId, options: DrillOptions) -> None:
    """The process."""
    lower_priority()
    found: DrillReport | MirrorError
    try:
        found = asyncio.run(drill(config, flow, options))
    except MirrorError as exc:
        found = exc
    with suppress(BrokenPipeError):  # the driver is gone, and there is nobody to tell
        there.send(found)


def lower_priority() -> None:
    # Nothing is wrong where one of these is not allowed; the drill only competes as an equal then.
    with suppress(OSError):
        os.setsid()
    with suppress(OSError):
        os.nice(_NICENESS)
    with suppress(OSError):
        _AUTOGROUP.write_text(str(_NICENESS), encoding="ascii")
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
