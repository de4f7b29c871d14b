"""What a task can book of a core: all of it before Spark 4.3. No I/O; runs on the driver."""

from __future__ import annotations

import math
import os
import re
from typing import Final

import pyspark

_FRACTIONS_SINCE: Final = (4, 3)
_THREADS: Final = re.compile(r"local(?:\[\s*(\d+|\*)\s*\])?$")


def knows_fractions(version: str = pyspark.__version__) -> bool:
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) >= _FRACTIONS_SINCE


def booked(cpus: float, version: str = pyspark.__version__) -> float:
    """What Spark counts for a task that is meant to have `cpus` cores."""
    return cpus if knows_fractions(version) else max(1, math.ceil(cpus))


def booking(cpus: float, version: str = pyspark.__version__) -> str:
    """As `spark.task.cpus` has it; older versions read no decimal point."""
    return f"{booked(cpus, version):g}"


def master_for(master: str, cpus: float, version: str = pyspark.__version__) -> str:
    """On this machine threads stand for cores, so fractions of a core become more threads."""
    match = _THREADS.match(master)
    if match is None or cpus >= 1 or knows_fractions(version):
        return master
    cores = match.group(1) or "1"
    count = (os.cpu_count() or 1) if cores == "*" else int(cores)
    return f"local[{max(1, int(count / cpus))}]"


def warning(master: str, cpus: float, version: str = pyspark.__version__) -> str | None:
    """What whoever set `slots.cpus` gets instead, where threads cannot stand for cores."""
    if knows_fractions(version) or booked(cpus, version) == cpus or _THREADS.match(master):
        return None
    return (
        f"PySpark {version} gives a task whole cores: each slot books {booking(cpus, version)} and "
        f"not {cpus:g} (slots.cpus); PySpark 4.3 or newer gives fractions"
    )
