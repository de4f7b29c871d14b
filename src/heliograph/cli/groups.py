"""`heliograph groups`: where consumer groups stand on both sides. Runs on the driver."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from heliograph.broker.group_view import GroupState
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.output import EXIT_FAILED, print_json, results
from heliograph.cli.tables import UNKNOWN, counted, new_table
from heliograph.config.load import load_config
from heliograph.inspect.groups import (
    FlowGroups,
    GroupRow,
    GroupsStatus,
    Verdict,
    read_groups,
)

GROUPS_HELP: Final = """Show where consumer groups stand on the source and on the target.

Every group the flow follows, with its committed offset on the source, where exactly that is on the
target, and where the target's own group stands. Everything is read from the clusters; no mirror
needs to run. A group that is active on the target is left alone by the mirror and shown as such.

Ends with 1 when a flow could not be read.

Examples:

  heliograph groups mm2.properties

  heliograph groups mm2.properties --flow 'A->B' --group 'billing.*'

  heliograph groups mm2.properties --json
"""
_BAD: Final = frozenset({Verdict.AHEAD, Verdict.NOT_TRANSLATABLE, Verdict.UNKNOWN})
_NOTHING: Final = "-"
_CLAMPED: Final = {None: "", "before": "first mirrored ", "after": "mirrored so far "}


def groups(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file that `heliograph run` was given.")
    ],
    flow: Annotated[
        str | None, typer.Option("--flow", metavar="A->B", help="Only this flow.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="REGEX", help="Only groups whose whole id matches."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    try:
        wanted = re.compile(group if group is not None else ".*", re.DOTALL)
    except re.error as exc:
        raise typer.BadParameter(f"--group {group!r} is no regex: {exc}") from None
    config = load_config(file)
    flows = chosen_flows(config, flow)
    found = asyncio.run(read_groups(config, flows, lambda id: wanted.fullmatch(id) is not None))
    if as_json:
        print_json(as_document(found))
    else:
        for each in found.flows:
            _print(each)
    if any(each.problems for each in found.flows):
        raise typer.Exit(EXIT_FAILED)


def _print(found: FlowGroups) -> None:
    console = results()
    console.print(Text(flow_line(found), style="bold"))
    if found.rows:
        console.print(group_table(found))
    for problem in found.problems:
        console.print(Text(f"problem: {problem}", style="red"), soft_wrap=True)
    console.print()


def flow_line(found: FlowGroups) -> str:
    groups = len({row.group for row in found.rows})
    counts = Counter(row.verdict.value.partition(":")[0] for row in found.rows)
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items()))
    writes = "" if found.writes_offsets else "; sync.group.offsets.enabled is false"
    return (
        f"{found.flow}: {groups:,} groups, {len(found.rows):,} positions"
        f"{': ' if told else ''}{told}{writes}"
    )


def group_table(found: FlowGroups) -> RenderableType:
    table = new_table(
        [
            ("group", "left"),
            ("partition", "left"),
            ("source", "right"),
            ("exact on target", "right"),
            ("committed there", "right"),
            ("lag there", "right"),
            ("at source", "left"),
            ("at target", "left"),
            ("verdict", "left"),
        ]
    )
    for row in found.rows:
        table.add_row(
            row.group,
            str(row.source),
            f"{row.source_offset:,}",
            _exact(row),
            _NOTHING if row.committed_offset is None else f"{row.committed_offset:,}",
            _NOTHING if row.committed_offset is None else counted(row.lag_records),
            _state(row.source_state),
            _state(row.target_state),
            Text(row.verdict.value, style="red" if row.verdict in _BAD else ""),
        )
    return table


def as_document(found: GroupsStatus) -> dict[str, Any]:
    return {
        "at_ms": found.at_ms,
        "flows": [
            {
                "flow": str(each.flow),
                "writes_offsets": each.writes_offsets,
                "problems": list(each.problems),
                "groups": [_row_document(row) for row in each.rows],
            }
            for each in found.flows
        ],
    }


def _row_document(row: GroupRow) -> dict[str, Any]:
    return {
        "group": row.group,
        "topic": row.source.topic,
        "partition": row.source.partition,
        "target_topic": row.target.topic,
        "source_offset": row.source_offset,
        "target_offset": None if row.translated is None else row.translated.offset,
        "clamped": None if row.translated is None else row.translated.side,
        "committed_offset": row.committed_offset,
        "target_end_offset": row.target_end_offset,
        "lag_records": row.lag_records,
        "source_state": None if row.source_state is None else row.source_state.value,
        "target_state": None if row.target_state is None else row.target_state.value,
        "verdict": row.verdict.value,
    }


def _exact(row: GroupRow) -> str:
    """With a word where the nearest offset that skips nothing stands in for an exact one."""
    if row.translated is None:
        return _NOTHING
    return f"{_CLAMPED[row.translated.side]}{row.translated.offset:,}"


def _state(state: GroupState | None) -> str:
    if state is None:
        return UNKNOWN
    return "absent" if state is GroupState.DEAD else state.value
