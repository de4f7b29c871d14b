"""What `heliograph tune` finds on this machine with 1, 2 and 4 slots, as a user runs it.

    python -m bench.tune [--slots 1,2,4] [--mb 2000] [--seconds 20]

Two runs of the command on two real one-broker clusters: with its scratch topic of 1 kB records, and
with a backlog of 100 B records (`--topics`) in 8 partitions. What the command says, its document,
its chart and the file it proposes are kept in bench/results/sight. Needs Spark. Five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.sight import RESULTS
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.rows import CopyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare

_TOPIC: Final = "orders"
_PARTITIONS: Final = 8
_RECORD_BYTES: Final = 100
_S_MAX: Final = 400.0


def tuned(stage: Stage, name: str, words: Sequence[str], out: Path) -> dict[str, Any]:
    """One run of the command; its document."""
    folder = stage.folder / name
    launch = prepare(System.HELIOGRAPH, stage.route("one", _TOPIC), folder, {})
    *program, _, file = launch.argv
    chart, advice = out / f"tune-{name}.svg", out / f"tune-{name}.properties"
    command = [*program, "tune", file, *words, "--yes", "--json"]
    command += ["--out", str(chart), "--advice", str(advice)]
    advice.unlink(missing_ok=True)
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_S_MAX, check=False
    )
    print(ended.stderr, flush=True)
    if ended.returncode:
        raise SystemExit(f"{name}: exit code {ended.returncode}\n{ended.stdout}")
    print(advice.read_text(), flush=True)
    left = [topic for topic in stage.topics() if "heliograph-tune-" in topic]
    if left:
        raise SystemExit(f"{name}: topics are left: {left}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--slots", default="1,2,4")
    asked.add_argument("--mb", type=int, default=2_000)
    asked.add_argument("--seconds", type=int, default=20)
    asked.add_argument("--out", type=Path, default=RESULTS)
    order = asked.parse_args()
    out: Path = order.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    # More slots than cores: Spark is told that there is room, so that what more slots do is seen.
    most = max(int(each) for each in order.slots.split(","))
    words = ["--slots", order.slots, "--seconds", str(order.seconds), "--master", f"local[{most}]"]
    records = order.mb * 1_000_000 // _RECORD_BYTES // _PARTITIONS * _PARTITIONS
    row = CopyRow(
        name=_TOPIC,
        records=records,
        record_bytes=_RECORD_BYTES,
        batch_bytes=16_384,
        partitions=_PARTITIONS,
        systems=(),
        goals=(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-tune-") as scratch,
        open_stage(Path(scratch)) as stage,
    ):
        runs = {"scratch": tuned(stage, "scratch", [*words, "--mb", str(order.mb)], out)}
        stage.create_source_topic(_TOPIC, _PARTITIONS)
        fill_topic(stage.source_address, _TOPIC, row)
        runs["backlog"] = tuned(stage, "backlog", [*words, "--topics", _TOPIC], out)
    found = {"runs": runs, "load_before": load_before, "machine": asdict(this_machine())}
    (out / "tune.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
