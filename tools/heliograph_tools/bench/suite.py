"""Run the rows: clusters up, topics filled, systems in alternating order. Runs on the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError, MirrorError
from heliograph_tools.bench.auditing import AuditRun, run_audit_row
from heliograph_tools.bench.copying import CopyRun, run_copy
from heliograph_tools.bench.drilling import DrillRun, run_drill
from heliograph_tools.bench.failing_over import FailoverRun, run_failover
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.floor import floor_rate
from heliograph_tools.bench.latency import LatencyRun, run_latency
from heliograph_tools.bench.ledger_years import LedgerRun, run_ledger
from heliograph_tools.bench.partitions import PartitionsRun, run_partitions
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import (
    AuditRow,
    CopyRow,
    DrillRow,
    FailoverRow,
    LatencyRow,
    LedgerRow,
    PartitionsRow,
    Row,
    System,
    TranslationRow,
    run_order,
)
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import mirror_maker_jars
from heliograph_tools.bench.translation import TranslationRun, run_translation

_WARM_UP_LAPS: Final = 2

ROUNDS: Final = 3

Run = (
    CopyRun
    | LatencyRun
    | PartitionsRun
    | TranslationRun
    | DrillRun
    | FailoverRun
    | AuditRun
    | LedgerRun
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run that gave no number; it stays in the results beside those that did."""

    system: System
    round_index: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    row: Row
    runs: tuple[Run, ...]
    failures: tuple[FailedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run, and how often."""

    rows: tuple[Row, ...]
    rounds: int = ROUNDS
    seconds_max: float | None = None
    """No further round is begun that would not end in time, judged by the one before."""
    heliograph_keys: Mapping[str, str] = field(default_factory=dict)


def run_suite(
    order: Order, folder: Path, say: Say, on_row: Callable[[RowResult], None] = lambda _: None
) -> tuple[RowResult, ...]:
    """Every row on the same two clusters; `on_row` gets each as soon as it is done."""
    began_s = monotonic_s()
    mirror_maker_jars()  # fetched before any clock runs
    results: list[RowResult] = []
    with open_stage(folder) as stage:
        say("two clusters are up")
        for row in order.rows:
            result = _run_row(stage, order, row, began_s, say)
            results.append(result)
            on_row(result)
    return tuple(results)


def _run_row(stage: Stage, order: Order, row: Row, began_s: float, say: Say) -> RowResult:
    topic = f"full-{row.name}"
    if isinstance(row, CopyRow):
        say(f"{row.name}: filling {row.records:,} records")
        fill(stage, row, topic)
    runs: list[Run] = []
    failures: list[FailedRun] = []
    for round_index in range(order.rounds):
        round_began_s = monotonic_s()
        for system in run_order(row.systems, round_index):
            try:
                run = _run_one(stage, row, topic, system, round_index, order.heliograph_keys)
            except MirrorError as exc:
                failures.append(FailedRun(system=system, round_index=round_index, why=str(exc)))
                say(f"{row.name}: {system.value} failed: {exc}")
                continue
            runs.append(run)
            say(f"{row.name}: round {round_index + 1}: {one_line(run)}")
        now_s = monotonic_s()
        if order.seconds_max is not None and (
            now_s + (now_s - round_began_s) - began_s > order.seconds_max
        ):
            break
    stage.drop_topics(topic)
    return RowResult(row=row, runs=tuple(runs), failures=tuple(failures))


def fill(stage: Stage, row: CopyRow, topic: str) -> None:
    stage.create_source_topic(topic, row.partitions)
    fill_topic(stage.source_address, topic, row)
    with RawConnection(stage.source_address) as connection:
        held = sum(connection.end_offsets(topic, row.partitions))
    if held != row.records:
        raise BenchError(f"{topic} was filled with {held} records, not {row.records}")
    _warm_up(stage, row, topic)


def _warm_up(stage: Stage, row: CopyRow, topic: str) -> None:
    """Let both brokers compile what a copy uses; the first system would pay for it otherwise."""
    for lap in range(_WARM_UP_LAPS):
        name = f"warmup{lap}.{topic}"
        floor_rate(stage, row, topic, name)
        stage.drop_topics(name)


def _run_one(
    stage: Stage,
    row: Row,
    topic: str,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> Run:
    match row:
        case CopyRow():
            return run_copy(stage, row, topic, system, round_index, heliograph_keys)
        case LatencyRow():
            return run_latency(stage, row, system, round_index, heliograph_keys)
        case PartitionsRow():
            return run_partitions(stage, row, system, round_index, heliograph_keys)
        case TranslationRow():
            return run_translation(stage, row, system, round_index, heliograph_keys)
        case DrillRow():
            return run_drill(stage, row, system, round_index, heliograph_keys)
        case FailoverRow():
            return run_failover(stage, row, system, round_index, heliograph_keys)
        case AuditRow():
            return run_audit_row(stage, row, system, round_index, heliograph_keys)
        case LedgerRow():
            return run_ledger(stage, row, system, round_index)
        case _:
            assert_never(row)


def one_line(run: Run) -> str:
    match run:
        case CopyRun():
            cpu = "" if run.cpu_s_per_gb is None else f", {run.cpu_s_per_gb:.1f} CPU s/GB"
            link = "" if run.link_share is None else f", {run.link_share:.0%} of the link"
            return f"{run.system.value} {run.records_per_s:,.0f} records/s{cpu}{link}"
        case LatencyRun():
            return f"{run.system.value} p50 {run.p50_ms:.2f} ms, p99 {run.p99_ms:.2f} ms"
        case PartitionsRun():
            return (
                f"{run.system.value} idle {run.idle_cpu_share:.1%} of a core, "
                f"{run.idle_rss_bytes / 1e6:,.0f} MB; lag at most {run.lag_s_max:.2f} s at "
                f"{run.busy_bytes_per_s / 1e6:.0f} MB/s"
            )
        case TranslationRun():
            worst = {lag: max(found, default=-1) for lag, found in run.read_again.items()}
            told = ", ".join(f"{lag:,}: {count:,}" for lag, count in worst.items())
            return f"{run.system.value} records read again by lag, worst partition: {told}"
        case DrillRun():
            return (
                f"{run.system.value} p99 {run.quiet_p99_ms:.2f} ms, {run.drilled_p99_ms:.2f} ms "
                f"beside {run.drills} drills of {run.drill_s:.2f} s, {len(run.problems)} problems"
            )
        case AuditRun():
            return (
                f"{run.system.value} {run.records:,} records on both sides: {run.audit_s:.2f} s, "
                f"with Spark's start {run.command_s:.2f} s; one side by a Python consumer "
                f"{run.python_consumer_s:.2f} s, by Kafka's own {run.java_consumer_s:.2f} s"
            )
        case FailoverRun():
            steps = ", ".join(f"{name} {seconds:.2f}" for name, seconds in run.step_s.items())
            return (
                f"{run.system.value} {run.groups} groups x {run.partitions} partitions: "
                f"{run.command_s:.2f} s, steps {run.rto_s:.2f} s ({steps})"
            )
        case LedgerRun():
            return (
                f"{run.system.value} {run.written_bytes / 1e6:,.0f} MB written, "
                f"{run.topic_bytes / 1e6:,.1f} MB left; a slot is ready in "
                f"{run.slot_ready_s:.2f} s with {run.slot_rss_mb:,.0f} MB; {run.moves} offsets of "
                f"groups are translated in {run.failover_ready_s:.2f} s with "
                f"{run.failover_rss_mb:,.0f} MB; `failover` takes {run.command_s:.2f} s (steps "
                f"{run.command_rto_s:.2f} s) with {run.command_rss_mb:,.0f} MB"
            )
        case _:
            assert_never(run)
