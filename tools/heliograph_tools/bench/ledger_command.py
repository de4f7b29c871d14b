"""`heliograph failover` on a ledger after long use, as a process of its own. Runs on the driver.

Nobody answers for the source. Where groups stood is in MirrorMaker 2's checkpoints, as a driver
would have left them; the mirrored logs end where the ledger's heads say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BenchError
from heliograph.ledger.entries import FlowEntry
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint, encode_checkpoint
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.ledger_reader import LANES_OF_A_GROUP, LONG_LANE, short_lane
from heliograph_tools.bench.raw import RawConnection, produce_frame
from heliograph_tools.bench.rows import CopyRow, LedgerRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import (
    Route,
    compiled_environment,
    keys_for_groups,
    properties_text,
)

SHORT_LANE_RECORDS: Final = 100
_NOBODY: Final = "127.0.0.1:1"
_COMMAND_S_MAX: Final = 300.0
_CHECKPOINTS_PER_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    command_s: float
    """Start of Python and imports (compiled before) included."""
    rto_s: float
    rss_mb: float
    moves: int
    exact_moves: int


def flow_entry(alias: str) -> FlowEntry:
    """Of a producer that no log knows: the brokers have forgotten it."""
    return FlowEntry(
        flow=FlowId(source=ClusterAlias(alias), target=ClusterAlias("target")),
        producer_id=2**40,
        producer_epoch=0,
        source_cluster_id="",
        created_ms=now_ms(),
    )


def make_logs(stage: Stage, row: LedgerRow, alias: str, long_lane_records: int) -> None:
    """The mirrored topics, each log as long as its lane's head says."""
    lanes = ((LONG_LANE, 1, long_lane_records), (short_lane(0), row.lanes, SHORT_LANE_RECORDS))
    for lane, partitions, records in lanes:
        topic = f"{alias}.{lane.topic}"
        stage.create_target_topic(topic, partitions)
        filling = CopyRow(
            name=row.name,
            records=records * partitions,
            record_bytes=9,
            batch_bytes=min(900_000, 64 * records),
            partitions=partitions,
            systems=row.systems,
            goals=(),
        )
        fill_topic(stage.target_address, topic, filling)


def write_checkpoints(stage: Stage, row: LedgerRow, alias: str, long_lane_end: int) -> None:
    """Each group stood somewhere in the long lane, and in some of the others."""
    topic = f"{alias}.checkpoints.internal"
    stage.create_target_topic(topic, 1)
    random = Random(2)
    checkpoints: list[Checkpoint] = []
    for number in range(row.groups):
        some = random.sample(range(row.lanes), min(LANES_OF_A_GROUP, row.lanes))
        stood = [(LONG_LANE, random.randrange(long_lane_end + 1))]
        stood += [(short_lane(lane), random.randrange(SHORT_LANE_RECORDS + 1)) for lane in some]
        checkpoints += [_checkpoint(alias, number, lane, offset) for lane, offset in stood]
    with RawConnection(stage.target_address) as connection:
        for first in range(0, len(checkpoints), _CHECKPOINTS_PER_BATCH):
            batch = _batch(checkpoints[first : first + _CHECKPOINTS_PER_BATCH])
            connection.send(produce_frame(topic, [(0, batch)]))
            connection.receive_produced()


def _checkpoint(alias: str, group: int, lane: TopicPartition, offset: int) -> Checkpoint:
    return Checkpoint(
        group=f"{alias}-{group}",
        topic=TopicName(f"{alias}.{lane.topic}"),
        partition=lane.partition,
        upstream_offset=offset,
        downstream_offset=0,
        metadata="",
    )


def _batch(checkpoints: Iterable[Checkpoint]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 900_000)
    for index, checkpoint in enumerate(checkpoints):
        key, value = encode_checkpoint(checkpoint)
        if builder.append(index, now_ms(), key, value, []) is None:
            raise BenchError("a batch of checkpoints is too large")
    return bytes(builder.build())


def run_command(stage: Stage, row: LedgerRow, alias: str) -> CommandRun:
    route = Route(
        source_alias=alias,
        source_bootstrap=_NOBODY,
        target_bootstrap=stage.target.bootstrap,
        topic=f"{LONG_LANE.topic}, {short_lane(0).topic}",
    )
    folder = stage.folder / "runs" / alias
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "source-down.properties"
    file.write_text(properties_text(System.HELIOGRAPH, route, {}, keys_for_groups(alias)))
    environment = compiled_environment(folder.parent)
    heliograph = [sys.executable, "-m", "heliograph"]
    # Once for the compiled modules.
    subprocess.run(
        [*heliograph, "offsets", str(file), "--group", ".*", "--json"],
        env=environment,
        capture_output=True,
        check=False,
        timeout=_COMMAND_S_MAX,
    )
    words = [*heliograph, "failover", str(file), "--yes", "--json"]
    report, command_s, rss_mb = _timed(words, environment, folder)
    moves = [move for group in report["groups"] for move in group["partitions"]]
    lanes = 1 + min(LANES_OF_A_GROUP, row.lanes)
    if len(report["moved_groups"]) != row.groups or len(moves) != row.groups * lanes:
        raise BenchError(f"{len(report['moved_groups'])} groups, {len(moves)} offsets were moved")
    return CommandRun(
        command_s=command_s,
        rto_s=float(report["rto_s"]),
        rss_mb=rss_mb,
        moves=len(moves),
        exact_moves=sum(move["clamped"] is None for move in moves),
    )


def _timed(
    words: list[str], environment: dict[str, str], folder: Path
) -> tuple[dict[str, Any], float, float]:
    """What the command reports, its seconds, and the most memory it had in MB."""
    out, problems = folder / "failover.json", folder / "failover.err"
    began_s = monotonic_s()
    with out.open("wb") as stdout, problems.open("wb") as stderr:
        command = subprocess.Popen(words, env=environment, stdout=stdout, stderr=stderr)
        _, status, used = os.wait4(command.pid, 0)
        command.returncode = os.waitstatus_to_exitcode(status)
    seconds = monotonic_s() - began_s
    if command.returncode != 0:
        told = problems.read_text(errors="replace")[-2_000:]
        raise BenchError(f"failover ended with {command.returncode}: {told}")
    report: dict[str, Any] = json.loads(out.read_bytes())
    return report, seconds, used.ru_maxrss / 1024
