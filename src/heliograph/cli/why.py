"""`heliograph why`: why a topic is mirrored, or why it is not. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.text import Text as Styled

from heliograph.cli.groups import group_table
from heliograph.cli.options import AsJson, File, OnlyFlow
from heliograph.cli.output import (
    EXIT_FAILED,
    EXIT_REFUSED,
    print_json,
    remarks,
    results,
)
from heliograph.cli.tables import number_or_unknown, states
from heliograph.config.explain import flow_values
from heliograph.config.load import load_explained
from heliograph.config.schema import MirrorConfig
from heliograph.inspect.groups import FlowGroups
from heliograph.inspect.why import FlowWhy, Reason, Standing
from heliograph.inspect.why_document import WhyDocument
from heliograph.inspect.why_group import GroupWhy
from heliograph.inspect.why_reading import Why, read_why
from heliograph.model import FlowId, TopicName
from heliograph.takeover.pending import pending_adoptions
from heliograph.words import counted

WHY_HELP: Final = """Say why a topic is mirrored or not, and which line of FILE decides.

For every flow of FILE: the name of the topic on the target, since when it is mirrored, and how its
lanes are; or the rule that leaves it out, with its key and line, and what is missing: the topic, a
permission, a leader, `heliograph adopt`, a driver. Names and patterns that nearly match are named.

With --group: whether the position of that group on the topic is translated, where the group would
go on at the target, and why not.

Exits with 0 when a flow mirrors the topic (and, with --group, translates the group), with 3 when
none does, with 1 when a cluster could not be asked.

Examples:

  heliograph why mm2.properties orders

  heliograph why mm2.properties orders --group billing --flow 'A->B'

  heliograph why mm2.properties orders --json
"""


def why(
    file: File,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of the source.")],
    group: Annotated[
        str | None, typer.Option("--group", metavar="ID", help="Also about this consumer group.")
    ] = None,
    flow: OnlyFlow = None,
    as_json: AsJson = False,
) -> None:
    explained = load_explained(file)
    config = explained.config
    found = asyncio.run(
        read_why(
            config,
            TopicName(topic),
            pairs=chosen_pairs(config, flow),
            group=group,
            adoptions=pending_adoptions(config),
            values=lambda pair: flow_values(explained, pair),
        )
    )
    if as_json:
        print_json(WhyDocument.of(found).plain())
    else:
        _print(found)
    code = exit_code(found, group)
    if code:
        raise typer.Exit(code)


def chosen_pairs(config: MirrorConfig, text: str | None) -> tuple[FlowId, ...]:
    """Every pair, enabled or not; those that mirror first."""
    pairs = sorted(config.pairs, key=lambda pair: not pair.enabled)
    ids = tuple(pair.id for pair in pairs)
    if text is None:
        return ids
    chosen = tuple(pair for pair in ids if str(pair) == text.replace(" ", ""))
    if not chosen:
        raise typer.BadParameter(f"{text!r} is no flow of the file: {', '.join(map(str, ids))}")
    return chosen


def exit_code(found: Why, group: str | None) -> int:
    """What could not be asked comes first, unless a flow that was asked mirrors the topic."""
    is_answered = found.is_mirrored and (
        group is None or any(each.translated for each in found.groups)
    )
    if is_answered:
        return 0
    return EXIT_REFUSED if found.is_known else EXIT_FAILED


def _print(found: Why) -> None:
    console = results()
    for each in found.flows:
        is_well = each.standing is Standing.MIRRORED
        console.print(Styled(headline(found.topic, each), style="bold"), soft_wrap=True)
        for line in reason_lines(each.reasons):
            console.print(Styled(f"  {line}", style="" if is_well else "yellow"), soft_wrap=True)
    for one in found.groups:
        console.print()
        console.print(Styled(group_line(one), style="bold"), soft_wrap=True)
        if one.rows:
            rows = FlowGroups(flow=one.flow, writes_offsets=True, rows=one.rows)
            console.print(group_table(rows))
        for line in reason_lines(one.reasons):
            console.print(f"  {line}", soft_wrap=True)
    for hint in found.hints:
        remarks().print(hint, soft_wrap=True)


def headline(topic: str, each: FlowWhy) -> str:
    if each.standing is Standing.DISABLED:
        return f"{each.flow}: not enabled"
    name = "" if each.target is None else f" as {each.target}"
    since = "" if each.since_ms is None else f", since {_time(each.since_ms)}"
    head = {
        Standing.UNKNOWN: f"{topic} could not be looked up",
        Standing.NOT_MIRRORED: f"{topic} is not mirrored",
        Standing.HELD: f"{topic} is kept from being mirrored{name}{since}",
        Standing.STALLED: f"{topic} is stalled{name}{since}",
        Standing.WAITING: f"{topic} waits to be mirrored{name}{since}",
        Standing.MIRRORED: f"{topic} is mirrored{name}{since}",
    }[each.standing]
    if not each.states:
        return f"{each.flow}: {head}"
    lanes = [state for state, count in each.states.items() for _ in range(count)]
    lag = number_or_unknown(each.lag_records)
    return f"{each.flow}: {head}; {counted(len(lanes), 'lane')}: {states(lanes)}; lag {lag}"


def reason_lines(reasons: tuple[Reason, ...]) -> Iterator[str]:
    for reason in reasons:
        yield f"{reason}; {reason.fix}" if reason.fix else str(reason)


def group_line(one: GroupWhy) -> str:
    if not one.followed:
        said = "is not followed"
    elif not one.rows:
        said = "has no position to translate"
    else:
        known = sum(row.translated is not None for row in one.rows)
        said = f"position translated on {known} of {counted(len(one.rows), 'partition')}"
    return f"{one.flow}: group {one.group}: {said}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
