"""Run a drill in a process of the lowest priority, beside a mirror. Runs on the driver.

The process has a session of its own, nice 19 for itself and the session, and SCHED_IDLE: Linux
shares the cores among sessions first (autogroup), so a nice thread of the driver's session would
still take time from brokers and slots, and a nice process that runs would let them wait its turn.
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


def drill_in_background(config: MirrorConfig, flow: FlowId, options: DrillOptions) -> DrillReport:
    """As `run.drill`; blocks. Raises `MirrorError`.

    Settings and secrets go through a pipe, never on a command line. A drill outlives a driver that
    is killed: it ends, and removes its shadow groups, by itself.
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
