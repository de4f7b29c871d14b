"""`heliograph drill`: rehearse a failover and say what it would cost. Runs on the driver."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OneFlow
from heliograph.cli.output import EXIT_STALLED, print_json, remarks, results
from heliograph.cli.tables import UNKNOWN, new_table, number_or_unknown
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.drill.page import page
from heliograph.drill.report import (
    SAMPLE_RECORDS_DEFAULT,
    DrillOptions,
    DrillReport,
    as_document,
    seconds_text,
    visible,
)
from heliograph.drill.run import drill as rehearse
from heliograph.drill.run import wanted_groups
from heliograph.drill.schedule import note_last, set_schedule, summary_of
from heliograph.errors import BrokerError, MirrorError
from heliograph.ledger.drill_note import Schedule, every_s, next_due_ms
from heliograph.ledger.trail import Change, recorded
from heliograph.model import FlowId
from heliograph.processes import operator
from heliograph.words import counted, in_words

_OFF: Final = "off"
_BY_EFFECTIVE_IDS: Final = os.access in os.supports_effective_ids

DRILL_HELP: Final = """Rehearse a failover on live clusters, and touch nothing that is real.

As if the source were gone, groups are placed on the target by the map, but in the name of shadow
groups; an ordinary consumer reads on from there, and a sample is compared with what the real groups
would have read. Shown are RPO (what would be lost), RTO (seconds of each step), and per group the
records read again, lost or changed. Shadow groups are called heliograph-drill.GROUP and are removed
at the end, those of a drill that was killed by the next one.

With --every nothing is drilled now: `heliograph run` drills when it is due, raises an alarm when
one fails, and `heliograph status` shows the last.

Ends with 0 when the drill passed, with 3 when it failed, with 1 when it could not be done.

Examples:

  heliograph drill mm2.properties --flow 'A->B'

  heliograph drill mm2.properties --group 'billing.*' --report drill.html --rpo-max-seconds 5

  heliograph drill mm2.properties --flow 'A->B' --every 7d

  heliograph drill mm2.properties --flow 'A->B' --every off
"""


def drill(
    file: File,
    flow: OneFlow = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="REGEX", help="Only groups whose whole id matches."),
    ] = None,
    sample: Annotated[
        int,
        typer.Option(
            "--sample", min=1, max=100_000, help="Records compared, of each sampled partition."
        ),
    ] = SAMPLE_RECORDS_DEFAULT,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Write a page with charts, too."),
    ] = None,
    rpo_max: Annotated[
        float | None,
        typer.Option("--rpo-max-seconds", min=0, help="Fail where more would be lost."),
    ] = None,
    rto_max: Annotated[
        float | None,
        typer.Option("--rto-max-seconds", min=0, help="Fail where it would take longer."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="7d",
            help="Let `run` drill at this interval (s, m, h, d, w), or `off`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    options = DrillOptions(sample_records=sample, group=group, rpo_s_max=rpo_max, rto_s_max=rto_max)
    try:
        wanted_groups(group)
    except re.error as exc:
        raise typer.BadParameter(f"--group {group!r} is no regex: {exc}") from None
    if report is not None and every is not None:
        raise typer.BadParameter("--every drills later, so there is no --report to write now")
    if report is not None:
        _require_writable(report)
    schedule = _schedule(every, options)
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if len(flows) != 1:
        raise typer.BadParameter(f"drill needs --flow: {', '.join(map(str, flows)) or 'none'}")
    if every is not None:
        _set(config, flows[0], schedule, as_json=as_json)
        return
    found = _drill(config, flows[0], options)
    if as_json:
        print_json(as_document(found))
    else:
        for part in rendered(found):
            results().print(part, soft_wrap=isinstance(part, Text))
    if report is not None:
        _write_page(report, found)
    if not found.passed:
        raise typer.Exit(EXIT_STALLED)


def rendered(report: DrillReport) -> Iterator[RenderableType]:
    """What a person sees; the verdict first and its reasons last, where the eye ends up."""
    yield Text(f"{report.flow}: {headline(report)}", style="bold")
    yield ""
    yield _steps(report)
    lagging = [topic for topic in report.topics if topic.lag_records != 0]
    if lagging:
        table = new_table(
            [("topic", "left"), ("lanes", "right"), ("lag", "right"), ("lag s", "right")]
        )
        for topic in lagging:
            seconds = UNKNOWN if topic.lag_s is None else f"{topic.lag_s:.1f}"
            table.add_row(
                topic.topic, str(topic.lanes), number_or_unknown(topic.lag_records), seconds
            )
        yield ""
        yield table
    if report.groups:
        yield ""
        yield _groups(report)
    yield ""
    for note in report.notes:
        yield Text(f"note: {visible(note)}")
    for reason in report.reasons:
        yield Text(f"failed: {visible(reason)}", style="red")
    yield Text("the drill passed" if report.passed else "the drill failed", style="bold")


def headline(report: DrillReport) -> str:
    return (
        f"RPO {seconds_text(report.rpo_s)} ({number_or_unknown(report.rpo_records)} records), "
        f"RTO {seconds_text(report.rto_s)}, {counted(len(report.groups), 'group')}: "
        f"{counted(report.repeated_records, 'record')} read again, {report.lost_records:,} lost, "
        f"{report.differing_records:,} changed or out of order; "
        f"{report.compared_records:,} compared"
    )


def _steps(report: DrillReport) -> RenderableType:
    table = new_table(
        [("step", "left"), ("seconds", "right"), ("in RTO", "left"), ("what", "left")]
    )
    for step in report.steps:
        mark = "yes" if step.in_rto else ""
        table.add_row(step.name, f"{step.seconds:.2f}", mark, step.told)
    return table


def _groups(report: DrillReport) -> RenderableType:
    table = new_table(
        [
            ("group", "left"),
            ("partitions", "right"),
            ("no place", "right"),
            ("read again", "right"),
            ("never read", "right"),
            ("equal", "right"),
            ("lost", "right"),
            ("changed", "right"),
            ("out of order", "right"),
            ("notes", "left"),
        ]
    )
    for group in report.groups:
        table.add_row(
            Text(visible(group.group), style="" if group.is_well else "red"),
            f"{group.partitions:,}",
            f"{len(group.unplaced):,}",
            f"{group.repeated_records:,}",
            f"{group.skipped_records:,}",
            f"{group.equal_records:,}" if group.sampled_partitions else "",
            f"{group.lost_records:,}",
            f"{group.changed_records:,}",
            f"{group.disordered_records:,}",
            visible("; ".join(group.notes)),
        )
    return table


def _schedule(every: str | None, options: DrillOptions) -> Schedule | None:
    """None where it is to be switched off, or where nobody asked."""
    if every is None or every == _OFF:
        return None
    try:
        seconds = every_s(every)
    except ValueError as exc:
        raise typer.BadParameter(f"--every {exc}") from None
    return Schedule(
        every_s=seconds,
        set_ms=now_ms(),
        sample_records=options.sample_records,
        group=options.group,
        rpo_s_max=options.rpo_s_max,
        rto_s_max=options.rto_s_max,
    )


def _set(config: MirrorConfig, flow: FlowId, schedule: Schedule | None, *, as_json: bool) -> None:
    every = "never" if schedule is None else f"every {in_words(schedule.every_s)}"
    change = Change(who=operator(), verb="schedule drills", what=every)
    last = asyncio.run(recorded(config, flow, change, set_schedule(config, flow, schedule)))
    due_ms = None if schedule is None else next_due_ms(schedule, last)
    if as_json:
        document: dict[str, Any] = {
            "flow": str(flow),
            "every_s": None if schedule is None else schedule.every_s,
            "next_due_ms": due_ms,
        }
        print_json(document)
        return
    if schedule is None or due_ms is None:
        results().print(f"{flow}: `heliograph run` does not drill it any more")
        return
    if due_ms <= now_ms():
        when = "within a minute, if the flow is carried"
    else:
        when = f"at {datetime.fromtimestamp(due_ms / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"
    results().print(f"{flow}: drilled every {in_words(schedule.every_s)}; next {when}")


def _drill(config: MirrorConfig, flow: FlowId, options: DrillOptions) -> DrillReport:
    groups = "all groups" if options.group is None else f"groups {options.group}"
    change = Change(who=operator(), verb="drill", what=groups)
    with remarks().status(f"{flow}: drill") as shown:
        work = rehearse(config, flow, options, lambda step: shown.update(f"{flow}: {step}"))
        found = asyncio.run(recorded(config, flow, change, work))
    if options.group is None:
        try:
            asyncio.run(note_last(config, flow, summary_of(found)))
        except BrokerError as exc:
            remarks().print(f"the result is not in the ledger: {exc}", soft_wrap=True)
    return found


def _require_writable(path: Path) -> None:
    """Before anything is drilled: a drill takes minutes, and its page is what it was wanted for."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"--report {path}: there is no such folder")
    if path.is_dir():
        raise typer.BadParameter(f"--report {path}: is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK, effective_ids=_BY_EFFECTIVE_IDS):
        raise typer.BadParameter(f"--report {path}: may not be written")


def _write_page(path: Path, report: DrillReport) -> None:
    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as exc:
        raise MirrorError(f"--report {path}: {exc.strerror}") from exc
    remarks().print(f"wrote {path}", soft_wrap=True)
