"""Drill a flow each time a line arrives on stdin. Runs on the driver, as a process of its own.

`python -m heliograph_tools.bench.driller FILE FLOW`; one line of JSON for each drill. The start of
Python is over before anything is measured, as it is where `heliograph run` drills by its schedule.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from heliograph.clock import monotonic_s
from heliograph.config.load import load_config
from heliograph.drill.background import drill_in_background
from heliograph.drill.report import DrillOptions
from heliograph.errors import MirrorError


def main(path: str, name: str) -> None:
    config = load_config(Path(path))
    flow = next(each.id for each in config.flows if str(each.id) == name)
    _tell({"ready": True})
    for _ in sys.stdin:
        began_s = monotonic_s()
        try:
            report = drill_in_background(config, flow, DrillOptions())
            problems = list(report.reasons)
        except MirrorError as exc:
            problems = [str(exc)]
        _tell({"seconds": monotonic_s() - began_s, "problems": problems})


def _tell(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
