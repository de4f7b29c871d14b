"""`heliograph adopt`: take over from a MirrorMaker 2. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text as Styled

from heliograph.cli.document import At, Bounds, Document, NameOf, OrNull, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, DryRun, File, OnlyFlow, Yes
from heliograph.cli.output import EXIT_FAILED, remarks, results
from heliograph.cli.tables import Side, new_table
from heliograph.config.load import load_config
from heliograph.ledger.trail import DONE, Change, noted
from heliograph.model import OffsetRange
from heliograph.processes import operator
from heliograph.takeover.adopt import FlowFinding, Progress, look
from heliograph.takeover.verdict import LaneFinding
from heliograph.takeover.walk import WalkFrom
from heliograph.takeover.write import write_adoption
from heliograph.words import counted

ADOPT_HELP: Final = """Take over from MirrorMaker 2, at exactly the next record.

MirrorMaker 2 must be stopped. The command reads the offsets that MirrorMaker 2 stored and compares
both clusters record by record from there on: records copied after the last stored offset, records
copied twice after a crash, and the end of the copy. A table shows each lane (one source partition
and its target partition); nothing is written before you confirm. Afterwards `heliograph run` with
the same file resumes there.

By default the comparison begins at the last offset sync before the stored offset. With --from
earliest all records that both clusters still have are compared, so that older offsets of consumer
groups translate exactly too. Exits with 1 when a lane or a flow cannot be adopted.

Examples:

  heliograph adopt mm2.properties --dry-run

  heliograph adopt mm2.properties --flow 'A->B' --from earliest --yes
"""

_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("lane", "left"),
    ("verdict", "left"),
    ("stored", "right"),
    ("resumes at", "right"),
    ("target offset", "right"),
    ("compared from", "right"),
    ("compared", "right"),
    ("copied twice", "right"),
    ("foreign", "right"),
    ("doubts", "left"),
)
_RANGES_SHOWN_MAX: Final = 20


class _Repeat(Document):
    source: Bounds
    target: Bounds
    records: int


class _ComparedFrom(Document):
    source: int
    target: int


class _Lane(Document):
    topic: str = At("lane.source.topic")
    partition: int = At("lane.source.partition")
    target_topic: str = At("target.topic")
    verdict: NameOf
    problem: OrNull
    stored_next_offset: int | None = At("stored_next")
    source_next_offset: int | None = At("next_source_offset")
    target_next_offset: int | None
    copied_beyond_stored: int | None = At("beyond_stored")
    compared_from: _ComparedFrom | None
    compared_records: int
    repeated_records: int
    repeats: tuple[_Repeat, ...]
    foreign_records: int
    foreign: tuple[Bounds, ...]
    missing_records: int
    missing: tuple[Bounds, ...]
    unsure: Bounds | None
    doubts: tuple[str, ...]
    notes: tuple[str, ...]


class _Flow(Document):
    flow: Text
    problem: OrNull
    connector: str
    offsets_topic: str
    notes: tuple[str, ...]
    lanes: tuple[_Lane, ...]


class AdoptDocument(Document):
    written_lanes: int
    flows: tuple[_Flow, ...]


def adopt(
    file: File,
    flow: OnlyFlow = None,
    begin: Annotated[
        WalkFrom, typer.Option("--from", help="Where the comparison begins.")
    ] = WalkFrom.SYNC,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    found: list[FlowFinding] = []
    for flow_id in chosen_flows(config, flow):
        with _bar(str(flow_id)) as progress:
            found.append(look(config, flow_id, begin, progress))
    if not as_json:
        for each in found:
            _print(each)
    wanted = [each for each in found if each.adoptable]
    written = 0
    if wanted and not dry_run and (yes or _agreed(wanted)):
        for each in wanted:
            work = write_adoption(config, each.flow, each.adoptable, each.source_cluster_id)
            lanes = counted(len(each.adoptable), "lane")
            change = Change(who=operator(), verb="adopt", what=f"{lanes} of {each.connector}")
            written += asyncio.run(work)
            asyncio.run(noted(config, each.flow, change.ended(DONE)))
    if as_json:
        AdoptDocument.of({"written_lanes": written, "flows": found}).print()
    else:
        _close(found, written)
    if any(each.has_problems for each in found):
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    """On a terminal a bar with the time left; elsewhere nothing."""
    console = remarks()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task(f"comparing {what}", total=None)
        yield Progress(
            total=lambda records: bar.update(task, total=records),
            read=lambda records: bar.advance(task, records),
        )


def _agreed(found: Sequence[FlowFinding]) -> bool:
    lanes = sum(len(each.adoptable) for each in found)
    doubtful = sum(bool(lane.doubts) for each in found for lane in each.adoptable)
    question = f"adopt {counted(lanes, 'lane')}" + (
        f", {doubtful} of them with doubts" if doubtful else ""
    )
    return typer.confirm(f"{question}?", err=True)


def _close(found: Sequence[FlowFinding], written: int) -> None:
    if written:
        remarks().print(f"adopted {counted(written, 'lane')}; `heliograph run` resumes them")
    elif any(each.adoptable or each.has_problems for each in found):
        remarks().print("nothing was changed")
    else:
        remarks().print("MirrorMaker 2 left nothing to adopt")


def _print(found: FlowFinding) -> None:
    console = results()
    console.print(Styled(str(found.flow), style="bold"))
    if found.problem:
        console.print(Styled(f"problem: {found.problem}", style="red"), soft_wrap=True)
        console.print()
        return
    console.print(f"  offsets stored by {found.connector} in {found.offsets_topic}")
    table = new_table(_COLUMNS)
    for lane in found.lanes:
        table.add_row(*_row(lane))
    console.print(table)
    for line in _lines(found.lanes):
        console.print(line, soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print()


def _row(lane: LaneFinding) -> list[str | Styled]:
    compared = "" if lane.compared_from is None else f"{lane.compared_from.source:,}"
    return [
        str(lane.lane.source),
        Styled(lane.verdict.value, style="red" if lane.problem else ""),
        "" if lane.stored_next is None else f"{lane.stored_next:,}",
        "" if lane.next_source_offset is None else f"{lane.next_source_offset:,}",
        "" if lane.target_next_offset is None else f"{lane.target_next_offset:,}",
        compared,
        f"{lane.compared_records:,}" if compared else "",
        f"{lane.repeated_records:,}" if compared else "",
        f"{lane.foreign_records:,}" if compared else "",
        str(len(lane.doubts)) if lane.doubts else "",
    ]


def _lines(lanes: Iterable[LaneFinding]) -> Iterator[str]:
    for lane in lanes:
        at = lane.lane.source
        if lane.problem:
            yield f"{at}: refused: {lane.problem}"
        for doubt in lane.doubts:
            yield f"{at}: doubt: {doubt}"
        for note in lane.notes:
            yield f"{at}: {note}"
        for repeat in lane.repeats[:_RANGES_SHOWN_MAX]:
            yield (
                f"{at}: source {_span(repeat.source)} was copied twice, again to target "
                f"{_span(repeat.target)}: {counted(repeat.records, 'record')}"
            )
        if len(lane.repeats) > _RANGES_SHOWN_MAX:
            more = len(lane.repeats) - _RANGES_SHOWN_MAX
            yield f"{at}: and {counted(more, 'more range')} copied twice; --json lists all"


def _span(part: OffsetRange) -> str:
    return f"[{part.start}, {part.end})"
