"""`heliograph reset`: lanes go on at a chosen source offset. Runs on the driver."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from heliograph.cli.document import Document, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OneFlow
from heliograph.cli.output import remarks, results
from heliograph.cli.tables import Side, new_table
from heliograph.config.load import load_config
from heliograph.errors import MirrorError
from heliograph.inspect.reset import TO_EARLIEST, LaneReset, reset_lanes
from heliograph.ledger.locations import all_topics
from heliograph.ledger.trail import Change, recorded
from heliograph.processes import operator

RESET_HELP: Final = """Resume lanes at another source offset, as Kafka Connect alters offsets.

A lane is one source partition and its target partition. Nothing is removed from the target: an
earlier offset copies records a second time, a later one skips records. Without --yes the table
shows what would change and nothing is written. Stop the mirror first.

A lane that is stalled because a topic was deleted and created again goes on after a reset: with the
new source topic behind what was mirrored of the old one, or anew on the new target topic.

Examples:

  heliograph reset mm2.properties --flow 'A->B' --topic orders --to earliest

  heliograph reset mm2.properties --flow 'A->B' --topic orders --partition 3 --to 4711 --yes
"""

_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("lane", "left"),
    ("resumes at", "right"),
    ("instead of", "right"),
    ("copied again", "right"),
    ("skipped", "right"),
    ("remark", "left"),
)


class _Lane(Document):
    lane: Text
    position: int
    before_offset: int | None
    offset: int
    repeated: int
    skipped: int
    remark: Text


class ResetDocument(Document):
    flow: Text
    written: bool
    lanes: tuple[_Lane, ...]


def reset(
    file: File,
    topic: Annotated[str, typer.Option("--topic", help="The topic, by its name on the source.")],
    to: Annotated[
        str, typer.Option("--to", metavar="OFFSET", help="A source offset, or `earliest`.")
    ],
    flow: OneFlow = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only this partition.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the offsets.")] = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if len(flows) != 1:
        raise typer.BadParameter(
            f"the file has several flows; name one with --flow: {', '.join(map(str, flows))}"
        )
    if to != TO_EARLIEST and not to.isdecimal():
        raise typer.BadParameter(f"--to: {to!r} is neither an offset nor `{TO_EARLIEST}`")
    target = to if to == TO_EARLIEST else int(to)
    work = reset_lanes(
        config, flows[0], all_topics([topic]), target, partition=partition, write=yes
    )
    lanes = topic if partition is None else f"{topic}-{partition}"
    change = Change(who=operator(), verb="reset", what=f"{lanes} to {to}")
    found = asyncio.run(recorded(config, flows[0], change, work) if yes else work)
    if not found:
        raise MirrorError(
            f"{flows[0]}: the ledger has no lane for {lanes}; has the topic been mirrored?"
        )
    if as_json:
        ResetDocument.of({"flow": flows[0], "written": yes, "lanes": found}).print()
        return
    _print(found)
    remarks().print(
        "written to the ledger; the next `heliograph run` resumes there"
        if yes
        else "nothing was changed; add --yes to write it"
    )


def _print(found: tuple[LaneReset, ...]) -> None:
    table = new_table(_COLUMNS)
    for each in found:
        table.add_row(
            str(each.lane),
            str(each.offset),
            "-" if each.before_offset is None else str(each.before_offset),
            str(each.repeated),
            str(each.skipped),
            each.remark,
        )
    results().print(table)
