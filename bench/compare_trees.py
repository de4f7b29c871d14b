"""CPU per GB and records/s of two source trees, in alternating rounds on one pair of clusters.

    python -m bench.compare_trees BEFORE_SRC AFTER_SRC --rounds 5 --out FILE.json

BEFORE_SRC and AFTER_SRC are folders that hold the package `heliograph`. Brokers, filling and
watching are those of the tree this runs in; only the mirror's process gets the one or the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from heliograph_tools.bench import copying
from heliograph_tools.bench.rows import ROWS, CopyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.suite import fill
from heliograph_tools.bench.systems import Launch, prepare


def main() -> None:
    asked = _arguments()
    row = next(row for row in ROWS if isinstance(row, CopyRow) and row.name == asked.row)
    trees = {"before": asked.before, "after": asked.after}
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, open_stage(Path(folder)) as stage:
        topic = f"full-{row.name}"
        fill(stage, row, topic)
        for index in range(asked.rounds):
            for name in trees if index % 2 == 0 else reversed(trees):
                found.append(_measured(stage, row, topic, len(found), trees[name]))
                found[-1] |= {"tree": name, "round": index}
                print(json.dumps(found[-1]), flush=True)
                asked.out.write_text(json.dumps({"row": row.name, "runs": found}, indent=1))
    for name in trees:
        of_tree = [run for run in found if run["tree"] == name]
        cpu, rate = (
            statistics.median(run[key] for run in of_tree)
            for key in ("cpu_s_per_gb", "records_per_s")
        )
        print(f"{name}: medians {cpu:.2f} CPU s/GB, {rate:,.0f} records/s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", default="plain_16k")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def _measured(stage: Stage, row: CopyRow, topic: str, number: int, tree: Path) -> dict[str, Any]:
    def prepared(*arguments: Any, **options: Any) -> Launch:
        launch = prepare(*arguments, **options)
        environment: Mapping[str, str] = {**launch.environment, "PYTHONPATH": str(tree.resolve())}
        return dataclasses.replace(launch, environment=environment)

    with mock.patch.object(copying, "prepare", prepared):
        run = copying.run_copy(stage, row, topic, System.HELIOGRAPH, number, {})
    return {
        "path": str(tree),
        "load": os.getloadavg()[0],
        "cpu_s": run.cpu_s,
        "cpu_s_per_gb": run.cpu_s_per_gb,
        "records_per_s": run.records_per_s,
        "cpu_startup_s": run.cpu_startup_s,
    }


if __name__ == "__main__":
    main()
