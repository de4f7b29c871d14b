"""From single runs to medians, goals and a results file. Pure but for the file; runs anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from heliograph_tools.bench.auditing import AuditRun
from heliograph_tools.bench.copying import CopyRun
from heliograph_tools.bench.drilling import DrillRun
from heliograph_tools.bench.failing_over import FailoverRun
from heliograph_tools.bench.latency import LatencyRun
from heliograph_tools.bench.ledger_years import LedgerRun
from heliograph_tools.bench.machine import Machine
from heliograph_tools.bench.partitions import PartitionsRun
from heliograph_tools.bench.rows import (
    AUDIT_GOAL_FACTOR,
    CPU_GOAL_FACTOR,
    DRILL_P99_GOAL_FACTOR,
    FAILOVER_GOAL_S,
    LAG_GOAL_S,
    LATENCY_P50_GOAL_FACTOR,
    LATENCY_P99_GOAL_FACTOR,
    LEDGER_FAILOVER_GOAL_S,
    LEDGER_GOAL_MB,
    LEDGER_SLOT_GOAL_S,
    LINK_SHARE_GOAL,
    QUICK_ROW,
    AuditRow,
    CopyRow,
    DrillRow,
    FailoverRow,
    LatencyRow,
    LedgerRow,
    System,
    TranslationRow,
)
from heliograph_tools.bench.suite import RowResult, Run
from heliograph_tools.bench.translation import TranslationRun

Medians = Mapping[System, float]

_MM2: Final = (System.MM2_DEFAULT, System.MM2_TUNED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One goal against what was measured."""

    measure: str
    goal: str
    got: str
    reached: bool


def rates(result: RowResult) -> Medians:
    """Records per second, the median of all rounds of each system."""
    return _medians(
        result.runs, lambda run: run.records_per_s if isinstance(run, CopyRun) else None
    )


def cpu_per_gb(result: RowResult) -> Medians:
    return _medians(result.runs, lambda run: run.cpu_s_per_gb if isinstance(run, CopyRun) else None)


def link_shares(result: RowResult) -> Medians:
    """Of the link to the far cluster, where the row has one."""
    return _medians(result.runs, lambda run: run.link_share if isinstance(run, CopyRun) else None)


def startups(result: RowResult) -> Medians:
    return _medians(result.runs, lambda run: run.startup_s if isinstance(run, CopyRun) else None)


def verdicts(result: RowResult) -> list[Verdict]:
    """Every goal of the row that both of its sides were measured for."""
    if isinstance(result.row, CopyRow):
        return _copy_verdicts(result, result.row)
    if isinstance(result.row, LatencyRow):
        return _latency_verdicts(result)
    if isinstance(result.row, TranslationRow):
        return _translation_verdicts(result)
    if isinstance(result.row, DrillRow):
        return _drill_verdicts(result)
    if isinstance(result.row, FailoverRow):
        return _failover_verdicts(result)
    if isinstance(result.row, AuditRow):
        return _audit_verdicts(result)
    if isinstance(result.row, LedgerRow):
        return _ledger_verdicts(result)
    worst = _medians(result.runs, lambda r: r.lag_s_max if isinstance(r, PartitionsRun) else None)
    if System.HELIOGRAPH not in worst:
        return []
    lag = worst[System.HELIOGRAPH]
    return [
        Verdict(
            measure=f"{result.row.name}: lag",
            goal=f"under {LAG_GOAL_S:.0f} s",
            got=f"{lag:.2f} s",
            reached=lag < LAG_GOAL_S,
        )
    ]


def quick_json(results: Sequence[RowResult]) -> dict[str, dict[str, int | None]]:
    """Exactly the first row's rates; null for a system that gave none."""
    (result,) = [each for each in results if each.row.name == QUICK_ROW]
    found = rates(result)
    row = {
        system.value: round(found[system]) if system in found else None
        for system in result.row.systems
    }
    return {QUICK_ROW: row}


def full_json(results: Sequence[RowResult], machine: Machine, began: str) -> dict[str, Any]:
    """All medians, verdicts and single runs, with where they come from."""
    return {
        "began": began,
        "machine": asdict(machine),
        "rows": {result.row.name: _row_json(result) for result in results},
    }


def write_results(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _row_json(result: RowResult) -> dict[str, Any]:
    document: dict[str, Any] = {
        "row": asdict(result.row),
        "verdicts": [asdict(verdict) for verdict in verdicts(result)],
        "runs": [asdict(run) for run in result.runs],
        "failures": [asdict(failure) for failure in result.failures],
    }
    if isinstance(result.row, CopyRow):
        document["records_per_s"] = dict(rates(result))
        document["cpu_s_per_gb"] = dict(cpu_per_gb(result))
        document["startup_s"] = dict(startups(result))
        document["link_share"] = dict(link_shares(result))
    return document


def _copy_verdicts(result: RowResult, row: CopyRow) -> list[Verdict]:
    found = rates(result)
    told: list[Verdict] = []
    if System.HELIOGRAPH not in found:
        return told
    for goal in row.goals:
        if not found.get(goal.against):
            continue
        factor = found[System.HELIOGRAPH] / found[goal.against]
        told.append(
            Verdict(
                measure=f"{row.name}: rate",
                goal=f"{goal.factor:g} x {goal.against.value}",
                got=f"{factor:.2f} x",
                reached=factor >= goal.factor,
            )
        )
    used = link_shares(result).get(System.HELIOGRAPH)
    if used is not None:
        told.append(
            Verdict(
                measure=f"{row.name}: share of the link",
                goal=f"{LINK_SHARE_GOAL:.0%}",
                got=f"{used:.1%}",
                reached=used >= LINK_SHARE_GOAL,
            )
        )
    return told + _share_verdicts(f"{row.name}: CPU per GB", cpu_per_gb(result), CPU_GOAL_FACTOR)


def _latency_verdicts(result: RowResult) -> list[Verdict]:
    p50 = _medians(result.runs, lambda run: run.p50_ms if isinstance(run, LatencyRun) else None)
    p99 = _medians(result.runs, lambda run: run.p99_ms if isinstance(run, LatencyRun) else None)
    return [
        *_share_verdicts(f"{result.row.name}: p50", p50, LATENCY_P50_GOAL_FACTOR),
        *_share_verdicts(f"{result.row.name}: p99", p99, LATENCY_P99_GOAL_FACTOR),
    ]


def _translation_verdicts(result: RowResult) -> list[Verdict]:
    own = [
        run
        for run in result.runs
        if isinstance(run, TranslationRun) and run.system is System.HELIOGRAPH
    ]
    if not own:
        return []
    again = max(abs(count) for run in own for found in run.read_again.values() for count in found)
    without = sum(sum(run.without_place.values()) for run in own)
    return [
        Verdict(
            measure=f"{result.row.name}: records read again",
            goal="0 in every row",
            got=f"{again}, {without} partitions without a place",
            reached=again == 0 and without == 0,
        )
    ]


def _drill_verdicts(result: RowResult) -> list[Verdict]:
    own = [run for run in result.runs if isinstance(run, DrillRun)]
    if not own:
        return []
    factor = median(run.drilled_p99_ms / run.quiet_p99_ms for run in own)
    failed = sum(len(run.problems) for run in own)
    return [
        Verdict(
            measure=f"{result.row.name}: p99 while it is drilled",
            goal=f"at most {DRILL_P99_GOAL_FACTOR:g} x without",
            got=f"{factor:.3f} x, {failed} drills failed",
            reached=factor <= DRILL_P99_GOAL_FACTOR and not failed,
        )
    ]


def _audit_verdicts(result: RowResult) -> list[Verdict]:
    own = [run for run in result.runs if isinstance(run, AuditRun)]
    if not own:
        return []
    plain_s = {
        "a Python consumer": median(run.python_consumer_s for run in own),
        "Kafka's own consumer": median(run.java_consumer_s for run in own),
    }
    audit_s, command_s = (
        median(run.audit_s for run in own),
        median(run.command_s for run in own),
    )
    differing = sum(run.findings for run in own)
    return [
        Verdict(
            measure=f"{result.row.name}: both sides compared, against one pass of {who}",
            goal=f"at most {AUDIT_GOAL_FACTOR:g} x its {seconds:.2f} s",
            got=f"{audit_s / seconds:.2f} x, with Spark's start {command_s / seconds:.2f} x",
            reached=audit_s <= AUDIT_GOAL_FACTOR * seconds and not differing,
        )
        for who, seconds in plain_s.items()
    ]


def _ledger_verdicts(result: RowResult) -> list[Verdict]:
    own = [run for run in result.runs if isinstance(run, LedgerRun)]
    if not own:
        return []
    seconds = (
        ("a slot is ready", LEDGER_SLOT_GOAL_S, [run.slot_ready_s for run in own]),
        (
            "offsets of groups are translated",
            LEDGER_FAILOVER_GOAL_S,
            [run.failover_ready_s for run in own],
        ),
        ("the whole failover command", LEDGER_FAILOVER_GOAL_S, [run.command_s for run in own]),
    )
    memory = [max(run.slot_rss_mb, run.failover_rss_mb, run.command_rss_mb) for run in own]
    return [
        *(
            Verdict(
                measure=f"{result.row.name}: {what}",
                goal=f"within {goal:g} s",
                got=f"{median(found):.2f} s, slowest {max(found):.2f} s",
                reached=max(found) <= goal,
            )
            for what, goal, found in seconds
        ),
        Verdict(
            measure=f"{result.row.name}: memory",
            goal=f"within {LEDGER_GOAL_MB:g} MB",
            got=f"{max(memory):.0f} MB",
            reached=max(memory) <= LEDGER_GOAL_MB,
        ),
    ]


def _failover_verdicts(result: RowResult) -> list[Verdict]:
    own = [run.command_s for run in result.runs if isinstance(run, FailoverRun)]
    if not own:
        return []
    return [
        Verdict(
            measure=f"{result.row.name}: the whole command, source down",
            goal=f"under {FAILOVER_GOAL_S:g} s",
            got=f"{median(own):.2f} s, slowest {max(own):.2f} s",
            reached=max(own) < FAILOVER_GOAL_S,
        )
    ]


def _share_verdicts(measure: str, found: Medians, goal: float) -> list[Verdict]:
    """Goals where less is better: at most `goal` times what MirrorMaker 2 needs."""
    if System.HELIOGRAPH not in found:
        return []
    told: list[Verdict] = []
    for other in _MM2:
        if found.get(other):
            share = found[System.HELIOGRAPH] / found[other]
            told.append(
                Verdict(
                    measure=measure,
                    goal=f"at most {goal:.2f} x {other.value}",
                    got=f"{share:.3f} x",
                    reached=share <= goal,
                )
            )
    return told


def _medians(runs: Iterable[Run], value: Callable[[Run], float | None]) -> Medians:
    by_system: dict[System, list[float]] = {}
    for run in runs:
        number = value(run)
        if number is not None:
            by_system.setdefault(run.system, []).append(number)
    return {system: median(numbers) for system, numbers in by_system.items()}
