"""`heliograph failback`: come back to a cluster that was left. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from heliograph.cli.failover import names_of, say
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import DryRun, File, StepsAsJson
from heliograph.cli.output import EXIT_STALLED, print_json, remarks, results, start_logging
from heliograph.cli.tables import Side, new_table
from heliograph.config.load import load_config
from heliograph.failback.command import (
    FailbackReport,
    Preview,
    abandon,
    fail_back,
    preview,
)
from heliograph.failback.context import FailbackOrder
from heliograph.failback.divergence import (
    DELETING,
    Choice,
    Resolution,
    TopicDivergence,
)
from heliograph.failback.document import preview_document, report_document
from heliograph.failback.export import FOLDER_DEFAULT
from heliograph.failback.outputs import GROUPS
from heliograph.model import FlowId, TopicName

FAILBACK_HELP: Final = """Come back to the source of a flow that was failed over.

Finds per partition where the two logs diverge, by the ledger and by comparing the records before
that; saves the records that were never mirrored, in a topic on the present primary and in Parquet
files; and lets the flow back (B->A, which must be in the file) start at exactly that offset.

Where topics have diverged you choose. --resync copies only the difference: topics with the same
offsets on both sides are deleted on A and copied from the divergence point, because Kafka cannot
cut the end of a log; to the others the difference is appended, by the map. --wipe deletes all
topics on A and copies everything. Nothing is deleted without --yes; --dry-run names each topic and
count. Where nothing has diverged neither is needed and nothing is deleted.

B stays primary. Going home is then `heliograph failover FILE --flow 'B->A' --planned`. Flows whose
mirrored topics have names of their own (A.orders) cannot diverge: there the flow is mirrored again
and groups go back by its map.

--topics brings back topics that were failed over alone, where mirrored topics have names of their
own; topics that keep their names come back with their whole flow.

Each step is recorded in the ledger. After a crash the same command resumes where it stopped;
--abandon abandons an unfinished failback. Ends with 3 when something stands in the way and nothing
is broken.

Examples:

  heliograph failback mm2.properties --flow 'A->B' --dry-run

  heliograph failback mm2.properties --flow 'A->B' --resync --yes

  heliograph failback mm2.properties --flow 'A->B' --wipe --export-dir /var/saved --yes
"""

_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("topic", "left"),
    ("partitions", "right"),
    ("never mirrored", "right"),
    ("offsets", "right"),
    ("expired", "right"),
    ("diverged", "left"),
    ("what becomes of it", "left"),
)
_UNDECIDED: Final = "choose --resync or --wipe"
_NOTES_SHOWN_MAX: Final = 20


def failback(
    file: File,
    flow: Annotated[
        str | None,
        typer.Option("--flow", metavar="A->B", help="The flow that was failed over."),
    ] = None,
    resync: Annotated[
        bool, typer.Option("--resync", help="Where topics have diverged, copy the difference.")
    ] = False,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Delete the topics on A and copy everything.")
    ] = False,
    export_topic: Annotated[
        str | None,
        typer.Option(
            "--export-topic",
            metavar="NAME",
            help="Topic on B for what was never mirrored [default: heliograph-unmirrored.A].",
        ),
    ] = None,
    export_dir: Annotated[
        Path, typer.Option("--export-dir", metavar="DIR", help="Directory for the Parquet files.")
    ] = FOLDER_DEFAULT,
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics",
            metavar="NAMES",
            help="Only these source topics, by comma, that were failed over alone.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Topics may be deleted on A.")] = False,
    give_up: Annotated[
        bool, typer.Option("--abandon", help="Abandon an unfinished failback.")
    ] = False,
    as_json: StepsAsJson = False,
) -> None:
    start_logging()
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if flow is None and len(flows) != 1:
        raise typer.BadParameter(f"failback needs --flow: {', '.join(map(str, flows))}")
    if resync and wipe:
        raise typer.BadParameter("--resync and --wipe are two ways; choose one")
    if give_up:
        if resync or wipe or dry_run or topics is not None:
            raise typer.BadParameter("--abandon goes with no other choice")
        left = asyncio.run(abandon(config, flows[0]))
        if as_json:
            print_json({"flow": str(flows[0]), "state": "abandoned", "told": left})
        else:
            remarks().print(left, soft_wrap=True)
        return
    order = FailbackOrder(
        flow=flows[0],
        choice=Choice.RESYNC if resync else Choice.WIPE if wipe else Choice.NONE,
        export_topic=None if export_topic is None else TopicName(export_topic),
        export_dir=export_dir,
        may_delete=yes,
        topics=names_of(topics),
    )
    if dry_run:
        _show(asyncio.run(preview(config, order)), as_json=as_json)
        return
    report = asyncio.run(fail_back(config, order, say))
    if as_json:
        print_json(report_document(report))
    else:
        _print_report(report)
    if _problems(report):
        raise typer.Exit(EXIT_STALLED)


def _problems(report: FailbackReport) -> Mapping[str, str]:
    groups = report.procedure.output(GROUPS)
    return {} if groups is None else groups.problems


def _show(found: Preview, *, as_json: bool) -> None:
    flow = found.order.flow
    if as_json:
        print_json(preview_document(found))
        return
    console = results()
    if found.finished is not None:
        console.print(f"{flow} was failed back already; there is nothing left to do")
        return
    if found.unfinished is not None:
        done = ", ".join(step.name for step in found.unfinished.done) or "nothing"
        console.print(f"an unfinished failback would be resumed; done: {done}", soft_wrap=True)
    if found.is_renaming:
        console.print(
            f"only {flow} writes its topics on {flow.target}: they cannot have diverged, nothing "
            f"is deleted; its fence is lifted and groups go back to {flow.source}",
            soft_wrap=True,
        )
    else:
        _print_topics(flow, found.divergences, found.resolutions)
    remarks().print("nothing was changed")


def _print_topics(
    flow: FlowId,
    divergences: Sequence[TopicDivergence],
    resolutions: Mapping[TopicName, Resolution | None],
) -> None:
    console = results()
    console.print(Text(f"{flow}: topics on {flow.source}", style="bold"))
    table = new_table(_COLUMNS)
    for each in divergences:
        what = resolutions[each.topic]
        style = "red" if what is None or what in DELETING else ""
        table.add_row(
            each.topic,
            str(len(each.partitions)),
            f"{each.unmirrored_records:,}",
            f"{each.source_records:,}",
            f"{each.expired_records:,}",
            _divergence(each),
            Text(_UNDECIDED if what is None else what.text(flow.source), style=style),
        )
    console.print(table)
    notes = [note for each in divergences for note in each.notes]
    for note in notes[:_NOTES_SHOWN_MAX]:
        console.print(f"note: {note}", soft_wrap=True)
    if len(notes) > _NOTES_SHOWN_MAX:
        console.print(f"and {len(notes) - _NOTES_SHOWN_MAX} more notes; --json has them all")
    _print_sums(flow, divergences, resolutions)


def _print_sums(
    flow: FlowId,
    divergences: Iterable[TopicDivergence],
    resolutions: Mapping[TopicName, Resolution | None],
) -> None:
    console = results()
    deleted = [each for each in divergences if resolutions[each.topic] in DELETING]
    for each in deleted:
        lost = (
            f"; {each.expired_records:,} of them {flow.target} has deleted by now"
            if each.expired_records
            else ""
        )
        where = (
            f"what was before the divergence point is then only on {flow.target}"
            if resolutions[each.topic] is Resolution.RECREATE
            else f"{flow.target}'s copy takes their place"
        )
        console.print(
            f"deleted on {flow.source}: {each.topic}, {each.source_records:,} offsets in "
            f"{each.source_partition_count} partitions, {each.unmirrored_records:,} of them saved "
            f"first; {where}{lost}",
            soft_wrap=True,
        )


def _divergence(topic: TopicDivergence) -> str:
    if topic.is_recreated:
        return "created again"
    if topic.target_topic_id is None:
        return "only on the old side"
    if topic.source_topic_id is None:
        return "only on the new side"
    return "yes" if topic.has_diverged else "no"


def _print_report(report: FailbackReport) -> None:
    console = results()
    if report.was_over:
        console.print(f"{report.order.flow} was failed back already; nothing was done now")
        for step in report.procedure.done:
            console.print(f"{step.name}: {step.summary}", soft_wrap=True)
    elif not report.is_renaming:
        _print_topics(report.order.flow, report.divergences, report.resolutions)
    for group, why in _problems(report).items():
        console.print(f"group {group}: {why}", soft_wrap=True)
    console.print(report.next_line, soft_wrap=True)
