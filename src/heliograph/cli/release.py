"""`heliograph release`: hand flows back to MirrorMaker 2. Runs on the driver."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer
from pydantic import BeforeValidator
from rich.text import Text as Styled

from heliograph.cli.document import At, Document, NameOf, OrNull, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, DryRun, File, OnlyFlow, Yes
from heliograph.cli.output import EXIT_FAILED, remarks, results
from heliograph.cli.tables import Side, new_table
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.ledger.trail import Change, recorded
from heliograph.model import FlowId
from heliograph.processes import operator
from heliograph.takeover.release import FlowRelease, LaneRelease
from heliograph.takeover.release import release as release_flow
from heliograph.wire.mirror_records import OffsetSync
from heliograph.words import counted

RELEASE_HELP: Final = """Hand flows back to MirrorMaker 2, at exactly the next record.

Stop `heliograph run` first. The offset of every lane (one source partition and its target
partition) is written where MirrorMaker 2 looks for it, Connect's offsets topic on the target, with
one offset sync each, and the lanes are marked as released. To mirror them with Heliograph again,
run `heliograph adopt`. A table shows each lane; nothing is written before you confirm.

Examples:

  heliograph release mm2.properties --dry-run

  heliograph release mm2.properties --flow 'A->B' --yes
"""

_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("lane", "left"),
    ("verdict", "left"),
    ("resumes at", "right"),
    ("instead of", "right"),
    ("offset sync", "right"),
)


def _both_offsets(sync: OffsetSync) -> tuple[int, int]:
    return sync.upstream_offset, sync.downstream_offset


class _Lane(Document):
    topic: str = At("lane.source.topic")
    partition: int = At("lane.source.partition")
    target_topic: str = At("target.topic")
    verdict: NameOf = At("action")
    problem: OrNull
    source_next_offset: int = At("next_source_offset")
    stored_next_offset: int | None = At("stored_next")
    offset_sync: Annotated[tuple[int, int], BeforeValidator(_both_offsets)] | None = At("sync")


class _Flow(Document):
    flow: Text
    problem: OrNull
    connector: str
    offsets_topic: str
    written: bool
    notes: tuple[str, ...]
    lanes: tuple[_Lane, ...]


class ReleaseDocument(Document):
    written_lanes: int
    flows: tuple[_Flow, ...]


def release(
    file: File,
    flow: OnlyFlow = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    found = [_released(config, each, write=False) for each in flows]
    if not as_json:
        for each in found:
            _print(each)
    wanted = [each.flow for each in found if each.releasable]
    written = 0
    if wanted and not dry_run and (yes or _agreed(found)):
        done = {each: _released(config, each, write=True) for each in wanted}
        found = [done.get(each.flow, each) for each in found]
        written = sum(len(each.releasable) for each in done.values() if each.written)
    if as_json:
        ReleaseDocument.of({"written_lanes": written, "flows": found}).print()
    elif written:
        remarks().print(
            f"released {counted(written, 'lane')}; start MirrorMaker 2 with the same file"
        )
    else:
        remarks().print("nothing was changed")
    failed = [each for each in found if each.has_problems]
    for each in failed:
        if each.problem and not as_json:
            remarks().print(f"problem: {each.problem}", soft_wrap=True)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _released(config: MirrorConfig, flow: FlowId, *, write: bool) -> FlowRelease:
    work = release_flow(config, flow, write=write)
    change = Change(who=operator(), verb="release", what="to MirrorMaker 2")
    return asyncio.run(recorded(config, flow, change, work) if write else work)


def _agreed(found: list[FlowRelease]) -> bool:
    lanes = sum(len(each.releasable) for each in found)
    return typer.confirm(f"release {counted(lanes, 'lane')} to MirrorMaker 2?", err=True)


def _print(found: FlowRelease) -> None:
    console = results()
    console.print(Styled(str(found.flow), style="bold"))
    if found.lanes:
        console.print(f"  offsets of {found.connector} in {found.offsets_topic}")
        table = new_table(_COLUMNS)
        for lane in found.lanes:
            table.add_row(*_row(lane))
        console.print(table)
    for lane in found.lanes:
        if lane.problem:
            console.print(f"{lane.lane.source}: refused: {lane.problem}", soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print()


def _row(lane: LaneRelease) -> list[str | Styled]:
    sync = lane.sync
    return [
        str(lane.lane.source),
        Styled(lane.action.value, style="red" if lane.problem else ""),
        f"{lane.next_source_offset:,}",
        "" if lane.stored_next is None else f"{lane.stored_next:,}",
        "" if sync is None else f"{sync.upstream_offset:,} = {sync.downstream_offset:,}",
    ]
