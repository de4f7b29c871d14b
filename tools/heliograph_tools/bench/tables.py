"""The results as tables for a terminal. Runs on the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table

from heliograph_tools.bench.auditing import AuditRun
from heliograph_tools.bench.copying import CopyRun
from heliograph_tools.bench.drilling import DrillRun
from heliograph_tools.bench.failing_over import FailoverRun
from heliograph_tools.bench.latency import LatencyRun
from heliograph_tools.bench.ledger_years import LedgerRun
from heliograph_tools.bench.partitions import PartitionsRun
from heliograph_tools.bench.report import cpu_per_gb, link_shares, rates, startups, verdicts
from heliograph_tools.bench.rows import (
    AuditRow,
    CopyRow,
    DrillRow,
    FailoverRow,
    LatencyRow,
    LedgerRow,
    PartitionsRow,
    System,
    TranslationRow,
)
from heliograph_tools.bench.suite import RowResult
from heliograph_tools.bench.translation import TranslationRun

_COLUMNS: Final = (System.HELIOGRAPH, System.MM2_DEFAULT, System.MM2_TUNED, System.FLOOR)

_PHASE: Final = re.compile(r"\[\d+\.\d s\] (?P<text>.*)")
"""How `heliograph run` marks the steps of its start."""


def result_tables(results: Sequence[RowResult]) -> Iterator[Table]:
    """Rates, then what each live row found, then goals against numbers."""
    copies = [result for result in results if isinstance(result.row, CopyRow)]
    if copies:
        yield _copy_table(copies)
    for result in results:
        if isinstance(result.row, LatencyRow):
            yield _latency_table(result)
        elif isinstance(result.row, PartitionsRow):
            yield _partitions_table(result)
        elif isinstance(result.row, TranslationRow):
            yield _translation_table(result)
        elif isinstance(result.row, DrillRow):
            yield _drill_table(result)
        elif isinstance(result.row, FailoverRow):
            yield _failover_table(result)
        elif isinstance(result.row, AuditRow):
            yield _audit_table(result)
        elif isinstance(result.row, LedgerRow):
            yield _ledger_table(result)
    yield _verdict_table(results)
    if any(result.failures for result in results):
        yield _failure_table(results)


def _copy_table(results: Sequence[RowResult]) -> Table:
    table = Table(title="copying a full topic, medians", title_justify="left")
    table.add_column("row")
    table.add_column("measure")
    for system in _COLUMNS:
        table.add_column(system.value, justify="right")
    for result in results:
        for name, found, digits in (
            ("records/s", rates(result), 0),
            ("CPU s/GB", cpu_per_gb(result), 2),
            ("start-up s", startups(result), 1),
            ("share of the link", link_shares(result), 3),
        ):
            if not found:
                continue
            cells = [f"{found[s]:,.{digits}f}" if s in found else "" for s in _COLUMNS]
            table.add_row(result.row.name, name, *cells)
        table.add_section()
    return table


def _latency_table(result: RowResult) -> Table:
    table = Table(title=f"{result.row.name}, every run", title_justify="left")
    for name in ("system", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "seen", "missing", "CPU"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for run in result.runs:
        if isinstance(run, LatencyRun):
            times = (run.p50_ms, run.p99_ms, run.p999_ms, run.max_ms)
            cells = [f"{value:.2f}" for value in times]
            counts = [f"{run.seen:,}", f"{run.missing:,}", f"{run.cpu_share:.0%}"]
            table.add_row(run.system.value, *cells, *counts)
    return table


def _partitions_table(result: RowResult) -> Table:
    table = Table(title=f"{result.row.name}, every run", title_justify="left")
    names = (
        "system",
        "start s",
        "idle CPU",
        "idle MB",
        "MB/s",
        "busy CPU",
        "busy MB",
        "lag s",
        "p99",
    )
    for name in names:
        table.add_column(name, justify="left" if name == "system" else "right")
    for run in result.runs:
        if isinstance(run, PartitionsRun):
            table.add_row(
                run.system.value,
                f"{run.startup_s:.1f}",
                f"{run.idle_cpu_share:.1%}",
                f"{run.idle_rss_bytes / 1e6:,.0f}",
                f"{run.busy_bytes_per_s / 1e6:.1f}",
                f"{run.busy_cpu_share:.0%}",
                f"{run.busy_rss_bytes_max / 1e6:,.0f}",
                f"{run.lag_s_max:.2f}",
                f"{run.lag_s_p99:.2f}",
            )
    return table


def _translation_table(result: RowResult) -> Table:
    """Of all rounds: the mean over partitions and the worst one."""
    table = Table(title=f"{result.row.name}, records read again", title_justify="left")
    for name in ("system", "lag", "mean", "worst", "partitions without a place"):
        table.add_column(name, justify="left" if name == "system" else "right")
    runs = [run for run in result.runs if isinstance(run, TranslationRun)]
    for system in result.row.systems:
        own = [run for run in runs if run.system is system]
        for lag in own[0].read_again if own else ():
            again = [count for run in own for count in run.read_again[lag]]
            mean = f"{sum(again) / len(again):,.0f}" if again else ""
            worst = f"{max(again):,}" if again else ""
            without = sum(run.without_place[lag] for run in own)
            table.add_row(system.value, f"{lag:,}", mean, worst, str(without))
    return table


def _drill_table(result: RowResult) -> Table:
    table = Table(title=f"{result.row.name}, every run", title_justify="left")
    for name in ("system", "lap", "p50 ms", "p99 ms", "seen", "missing", "drills", "s each"):
        table.add_column(name, justify="left" if name in ("system", "lap") else "right")
    for run in result.runs:
        if isinstance(run, DrillRun):
            quiet = [f"{run.quiet_p50_ms:.2f}", f"{run.quiet_p99_ms:.2f}", f"{run.quiet_seen:,}"]
            beside = [f"{run.drilled_p50_ms:.2f}", f"{run.drilled_p99_ms:.2f}"]
            table.add_row(run.system.value, "quiet", *quiet, f"{run.missing:,}", "", "")
            drills = [str(run.drills), f"{run.drill_s:.2f}"]
            table.add_row("", "drilled", *beside, f"{run.drilled_seen:,}", "", *drills)
    return table


def _audit_table(result: RowResult) -> Table:
    table = Table(title=f"{result.row.name}, every run", title_justify="left")
    columns = ("system", "records", "audit s", "command s", "Python consumer s", "Kafka's own s")
    for name in columns:
        table.add_column(name, justify="left" if name == "system" else "right")
    for run in result.runs:
        if isinstance(run, AuditRun):
            times = (run.audit_s, run.command_s, run.python_consumer_s, run.java_consumer_s)
            table.add_row(run.system.value, f"{run.records:,}", *(f"{one:.2f}" for one in times))
    return table


def _ledger_table(result: RowResult) -> Table:
    table = Table(title=f"{result.row.name}, every run", title_justify="left")
    columns = ("system", "runs", "lanes", "heads", "written MB", "left MB", "slot s", "slot MB")
    for name in (*columns, "groups s", "failover s", "failover MB", "offsets", "exact"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for run in result.runs:
        if isinstance(run, LedgerRun):
            table.add_row(
                run.system.value,
                f"{run.runs:,}",
                f"{run.lanes:,}",
                f"{run.lanes * run.head_ticks:,}",
                f"{run.written_bytes / 1e6:,.0f}",
                f"{run.topic_bytes / 1e6:,.1f}",
                f"{run.slot_ready_s:.2f}",
                f"{run.slot_rss_mb:,.0f}",
                f"{run.failover_ready_s:.2f}",
                f"{run.command_s:.2f}",
                f"{run.command_rss_mb:,.0f}",
                f"{run.command_moves:,}",
                f"{run.command_exact_moves:,}",
            )
    return table


def _failover_table(result: RowResult) -> Table:
    table = Table(title=f"{result.row.name}, every run", title_justify="left")
    for name in ("system", "groups", "partitions", "command s", "steps s", "slowest step"):
        table.add_column(name, justify="left" if name in ("system", "slowest step") else "right")
    for run in result.runs:
        if isinstance(run, FailoverRun):
            slowest = max(run.step_s, key=lambda name: run.step_s[name])
            table.add_row(
                run.system.value,
                str(run.groups),
                str(run.partitions),
                f"{run.command_s:.2f}",
                f"{run.rto_s:.2f}",
                f"{slowest} {run.step_s[slowest]:.2f}",
            )
    return table


def _verdict_table(results: Sequence[RowResult]) -> Table:
    table = Table(title="goals", title_justify="left")
    for name in ("measure", "goal", "got", "reached"):
        table.add_column(name)
    for result in results:
        for verdict in verdicts(result):
            reached = "[green]yes[/]" if verdict.reached else "[red]no[/]"
            table.add_row(verdict.measure, verdict.goal, verdict.got, reached)
    return table


def _failure_table(results: Sequence[RowResult]) -> Table:
    table = Table(title="runs that gave no number", title_justify="left")
    for name in ("row", "system", "round", "why"):
        table.add_column(name)
    for result in results:
        for failure in result.failures:
            place = (result.row.name, failure.system.value, str(failure.round_index + 1))
            table.add_row(*place, failure.why)
    return table


def startup_lines(results: Sequence[RowResult], system: System) -> list[str]:
    """The phases the mirror told while it started, in seconds since then; of its last run."""
    for result in results:
        for run in reversed(result.runs):
            if isinstance(run, CopyRun) and run.system is system and run.startup_s is not None:
                phases = [
                    f"{line.at_s:7.2f} s  {found['text']}"
                    for line in run.startup_lines
                    if (found := _PHASE.search(line.text)) is not None
                ]
                return [*phases, f"{run.startup_s:7.2f} s  first record on the target"]
    return []
