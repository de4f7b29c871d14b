"""`heliograph doctor`: what is wrong, or will be, and how to fix it. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text as Styled

from heliograph.cli.options import AsJson, File
from heliograph.cli.output import EXIT_FAILED, EXIT_REFUSED, print_json, remarks, results
from heliograph.cli.tables import new_table
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.doctor.document import ReportDocument
from heliograph.doctor.examine import Report, Scope, examine
from heliograph.doctor.executors import look_from_executors
from heliograph.doctor.finding import Finding, Severity
from heliograph.doctor.place import PlaceOrder, PlaceSeen
from heliograph.engine.session import is_local, start_session, stop_session
from heliograph.model import ClusterAlias
from heliograph.takeover.pending import pending_adoptions

DOCTOR_HELP: Final = """Examine clusters, network and machines, and say how to fix what is wrong.

Looks at every advertised listener from this machine and from the executors, at certificates,
versions, permissions, clocks, socket buffers against round trips, replicas, limits of the target,
outages that could not be made up for, the standby's capacity, which side is the bottleneck, and, of
a cluster with racks, at what the loss of each site would do. Each finding says what, why it
matters and how to fix it.

Nothing is written. Some megabytes of mirrored topics are read to measure the link, unless
--no-bandwidth says otherwise. With --try a scratch topic is made on each target, written to and
deleted: it tells the clock of every broker and how fast the target takes records.

Exits with 0 when no problem was found, with 3 when one was, with 1 when a cluster could not be
asked at all.

Examples:

  heliograph doctor mm2.properties

  heliograph doctor mm2.properties --cluster B --no-bandwidth

  heliograph doctor mm2.properties --executors --try --json
"""
_STYLES: Final = {Severity.PROBLEM: "red", Severity.WARN: "yellow"}


def doctor(
    file: File,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="ALIAS", help="Only this cluster; repeatable."),
    ] = None,
    executors: Annotated[
        bool | None,
        typer.Option(
            "--executors/--no-executors",
            help="Ask executors by a Spark job. Default: unless the master is local.",
        ),
    ] = None,
    bandwidth: Annotated[
        bool,
        typer.Option("--bandwidth/--no-bandwidth", help="Read some megabytes to measure the link."),
    ] = True,
    trial: Annotated[
        bool, typer.Option("--try", help="Write to a scratch topic on each target, and delete it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    clusters = _chosen(config, cluster or [])
    asks = not is_local(config.engine.master or "local[*]") if executors is None else executors
    scope = Scope(
        clusters=clusters,
        executors=(lambda order: _from_executors(config, order)) if asks else None,
        bandwidth=bandwidth,
        tries=trial,
    )
    if not as_json:
        remarks().print(f"examining {', '.join(sorted(clusters))} …", soft_wrap=True)
    found = asyncio.run(examine(config, scope, pending_adoptions(config)))
    if as_json:
        print_json(ReportDocument.of(found).plain())
    else:
        results().print(report_table(found))
        results().print(Styled(summary(found), style="bold"), soft_wrap=True)
    code = exit_code(found)
    if code:
        raise typer.Exit(code)


def exit_code(found: Report) -> int:
    """What was not examined comes first: the rest says nothing about it."""
    if found.unreachable:
        return EXIT_FAILED
    return EXIT_REFUSED if found.has_problems else 0


def _chosen(config: MirrorConfig, wanted: list[str]) -> frozenset[ClusterAlias]:
    unknown = [alias for alias in wanted if alias not in config.clusters]
    if unknown:
        known = ", ".join(config.clusters)
        raise typer.BadParameter(f"--cluster: {unknown[0]!r} is no cluster of the file: {known}")
    return frozenset(map(ClusterAlias, wanted)) or frozenset(config.clusters)


def _from_executors(config: MirrorConfig, order: PlaceOrder) -> tuple[PlaceSeen, ...]:
    session = start_session(
        config.engine,
        clusters=config.clusters,
        secret_variables=config.secret_variables,
    )
    try:
        return look_from_executors(session, order)
    finally:
        stop_session(session)


def report_table(found: Report) -> RenderableType:
    """The worst first, what is well last."""
    table = new_table(
        [
            ("severity", "left"),
            ("check", "left"),
            ("about", "left"),
            ("finding", "left"),
        ]
    )
    for finding in found.findings:
        style = _STYLES.get(finding.severity, "")
        table.add_row(
            Styled(finding.severity.value, style=style),
            finding.check,
            finding.about,
            told(finding),
        )
    return table


def told(finding: Finding) -> str:
    """What, why it matters, how to fix it: a line each."""
    lines = [finding.what]
    lines += [f"why: {finding.why}"] if finding.why else []
    lines += [f"fix: {finding.fix}"] if finding.fix else []
    return "\n".join(lines)


def summary(found: Report) -> str:
    counts = Counter(finding.severity for finding in found.findings)
    told = ", ".join(f"{counts[each]} {each.value}" for each in Severity if counts[each])
    return f"{told or 'nothing was examined'}; {found.seconds:.1f} s"
