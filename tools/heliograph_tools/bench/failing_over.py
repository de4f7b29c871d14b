"""How long an unplanned failover takes, with the mirror running and the source gone. Runs on the
driver.

The command is a process of its own, timed from its start to its end. It is given a file in which
nobody answers for the source, which is what a dead one looks like; the mirror that it takes the
flow from carries it meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from heliograph.broker.records import read_records
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BenchError
from heliograph.model import ClusterAlias, TopicName
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, FailoverRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import (
    Route,
    compiled_environment,
    keys_for_groups,
    prepare,
    properties_text,
)
from heliograph_tools.bench.translation import commit_group
from heliograph_tools.bench.watch import wait_until

_NOBODY: Final = "127.0.0.1:1"
_FAILOVER_S_MAX: Final = 120.0
_RECORDS_PER_PARTITION: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRun:
    system: System
    round_index: int
    groups: int
    partitions: int
    command_s: float
    """Of the whole command, start of Python and imports (compiled before) included."""
    rto_s: float
    """From the first step to the end of the last, as the command's report has it."""
    step_s: Mapping[str, float]


def run_failover(
    stage: Stage,
    row: FailoverRow,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> FailoverRun:
    alias = f"{system.value.replace('_', '')}{round_index}{row.name}"
    topic = f"left-{alias}"
    stage.create_source_topic(topic, row.partitions)
    route = stage.route(alias, topic)
    folder = stage.folder / "runs" / alias
    keys = keys_for_groups(alias)
    launch = prepare(system, route, folder, heliograph_keys, keys)
    dead = folder / "source-down.properties"
    gone = replace(route, source_bootstrap=_NOBODY)
    dead.write_text(properties_text(system, gone, heliograph_keys, keys))
    try:
        with running(launch, folder / "mirror.log") as mirror:
            _make_ready(stage, row, mirror, route)
            return _measure(row, system, round_index, dead)
    finally:
        stage.drop_topics(alias)


def _make_ready(stage: Stage, row: FailoverRow, mirror: MirrorProcess, route: Route) -> None:
    """Records mirrored, groups placed, and all their checkpoints written."""
    records = row.partitions * _RECORDS_PER_PARTITION
    filling = CopyRow(
        name=row.name,
        records=records,
        record_bytes=100,
        batch_bytes=16_384,
        partitions=row.partitions,
        systems=row.systems,
        goals=(),
    )
    fill_topic(stage.source_address, route.topic, filling)
    with RawConnection(stage.target_address) as connection:
        wait_until(
            lambda: (
                connection.serves(route.target_topic, row.partitions)
                and sum(connection.end_offsets(route.target_topic, row.partitions)) >= records
            ),
            mirror.ensure_alive,
            f"{records} records in {route.target_topic}",
        )
    for number in range(row.groups):
        at = dict.fromkeys(range(row.partitions), number % _RECORDS_PER_PARTITION)
        commit_group(stage, f"{route.source_alias}-{number}", route.topic, at, mirror)
    wait_until(
        lambda: _checkpoint_count(stage, route) >= row.groups * row.partitions,
        mirror.ensure_alive,
        "checkpoints of all groups",
    )


def _checkpoint_count(stage: Stage, route: Route) -> int:
    target = ClusterConfig(
        alias=ClusterAlias(route.target_alias), bootstrap_servers=(stage.target.bootstrap,)
    )
    topic = TopicName(f"{route.source_alias}.checkpoints.internal")
    return len({record.key for record in read_records(target, topic)})


def _measure(row: FailoverRow, system: System, round_index: int, dead: Path) -> FailoverRun:
    heliograph = [sys.executable, "-m", "heliograph"]
    environment = compiled_environment(dead.parent.parent)
    subprocess.run([*heliograph, "--version"], env=environment, capture_output=True, check=True)
    began_s = monotonic_s()
    done = subprocess.run(
        [*heliograph, "failover", str(dead), "--yes", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_FAILOVER_S_MAX,
    )
    command_s = monotonic_s() - began_s
    if done.returncode != 0:
        raise BenchError(f"failover ended with {done.returncode}: {done.stderr[-2_000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    moved = sum(len(each["partitions"]) for each in report["groups"])
    if len(report["moved_groups"]) != row.groups or moved != row.groups * row.partitions:
        raise BenchError(f"{len(report['moved_groups'])} groups on {moved} partitions were moved")
    return FailoverRun(
        system=system,
        round_index=round_index,
        groups=row.groups,
        partitions=row.partitions,
        command_s=command_s,
        rto_s=float(report["rto_s"]),
        step_s={step["name"]: float(step["seconds"]) for step in report["steps"]},
    )
