"""`heliograph groups`: where consumer groups stand on both sides. Runs on the driver."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text as Styled

from heliograph.broker.group_view import GroupState
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OnlyFlow
from heliograph.cli.output import EXIT_FAILED, print_json, remarks, results
from heliograph.cli.tables import UNKNOWN, new_table, number_or_unknown
from heliograph.config.load import load_config
from heliograph.inspect.groups import (
    FlowGroups,
    GroupRow,
    Verdict,
    read_groups,
)
from heliograph.inspect.groups_document import GroupsDocument
from heliograph.words import counted

GROUPS_HELP: Final = """Show the offsets of consumer groups on the source and on the target.

For every group that the flow syncs: its committed offset on the source, the exact offset of the
same record on the target, and the committed offset of the group on the target; of share groups,
their start offsets. All of it is read from the clusters; the mirror need not run. The mirror never
writes to a group that has active members on the target; such groups are shown as active.

Exits with 1 when a flow could not be read, or no group matches --group.

Examples:

  heliograph groups mm2.properties

  heliograph groups mm2.properties --flow 'A->B' --group 'billing.*'

  heliograph groups mm2.properties --json
"""
_BAD: Final = frozenset({Verdict.AHEAD, Verdict.NOT_TRANSLATABLE, Verdict.UNKNOWN})
_NOTHING: Final = "-"
_CLAMPED: Final = {
    None: "",
    "before": "first mirrored ",
    "after": "mirrored so far ",
    "coarse": "known before ",
}


def groups(
    file: File,
    flow: OnlyFlow = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="REGEX", help="Only groups whose whole id matches this regex."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    try:
        wanted = re.compile(group if group is not None else ".*", re.DOTALL)
    except re.error as exc:
        raise typer.BadParameter(f"--group: {group!r} is not a regex: {exc}") from None
    config = load_config(file)
    flows = chosen_flows(config, flow)
    found = asyncio.run(read_groups(config, flows, lambda id: wanted.fullmatch(id) is not None))
    if as_json:
        print_json(GroupsDocument.of(found).plain())
    else:
        for each in found.flows:
            _print(each)
    matches_nothing = group is not None and not any(each.rows for each in found.flows)
    if matches_nothing:
        text = f"no group that is followed and has committed offsets matches {group}"
        remarks().print(text, soft_wrap=True)
    if matches_nothing or any(each.problems for each in found.flows):
        raise typer.Exit(EXIT_FAILED)


def _print(found: FlowGroups) -> None:
    console = results()
    console.print(Styled(flow_line(found), style="bold"))
    if found.rows:
        console.print(group_table(found))
    for problem in found.problems:
        console.print(Styled(f"problem: {problem}", style="red"), soft_wrap=True)
    console.print()


def flow_line(found: FlowGroups) -> str:
    groups = len({row.group for row in found.rows})
    counts = Counter(row.verdict.value.partition(":")[0] for row in found.rows)
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items()))
    writes = "" if found.writes_offsets else "; sync.group.offsets.enabled is false"
    return (
        f"{found.flow}: {counted(groups, 'group')}, {counted(len(found.rows), 'offset')}"
        f"{': ' if told else ''}{told}{writes}"
    )


def group_table(found: FlowGroups) -> RenderableType:
    table = new_table(
        [
            ("group", "left"),
            ("partition", "left"),
            ("source offset", "right"),
            ("exact on target", "right"),
            ("committed on target", "right"),
            ("lag on target", "right"),
            ("state on source", "left"),
            ("state on target", "left"),
            ("verdict", "left"),
        ]
    )
    for row in found.rows:
        table.add_row(
            _named(row),
            str(row.source),
            f"{row.source_offset:,}",
            _exact(row),
            _NOTHING if row.committed_offset is None else f"{row.committed_offset:,}",
            _NOTHING if row.committed_offset is None else number_or_unknown(row.lag_records),
            _state(row.source_state),
            _state(row.target_state),
            Styled(row.verdict.value, style="red" if row.verdict in _BAD else ""),
        )
    return table


def _named(row: GroupRow) -> str:
    """With its type where that is not a consumer's."""
    return f"{row.group} ({row.type})" if row.type in ("share", "streams") else row.group


def _exact(row: GroupRow) -> str:
    """With a word where the nearest offset that skips nothing stands in for an exact one."""
    if row.translated is None:
        return _NOTHING
    return f"{_CLAMPED[row.translated.side]}{row.translated.offset:,}"


def _state(state: GroupState | None) -> str:
    if state is None:
        return UNKNOWN
    return "absent" if state is GroupState.DEAD else state.value
