"""`heliograph offsets`: where groups go on at the target, and putting them there. Driver only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from heliograph.broker.groups import GroupAdmin
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.offset_tables import Answer, OffsetsDocument, headline, move_table, sentences
from heliograph.cli.options import AsJson, File, OneFlow, time_ms
from heliograph.cli.output import EXIT_FAILED, EXIT_REFUSED, remarks, results
from heliograph.cli.spark_checkpoint import translate_checkpoint_command
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.errors import MirrorError
from heliograph.groups.commit import commit_moves
from heliograph.groups.placement import Strategy, plan_group_offsets
from heliograph.groups.snapshot import FlowSnapshot, offsets_at, read_snapshot
from heliograph.model import FlowId, TopicPartition
from heliograph.topics.filters import group_filter

OFFSETS_HELP: Final = """Show where consumer groups would resume on the target, and move them there.

For every group and partition: its offset on the source and how old that is, the exact offset on
the target, the offset the group would get, its lag from there, and how many mirrored records it
would read twice or skip. Nothing is written without --commit.

--to chooses the offset. map: the exact one, by the ledger. checkpoint: that of the group's last
checkpoint. copy: the same number as on the source, for topics with the same offsets. time: the
first record that is not older than TIME, which follows FILE. earliest, latest: the start or the
end of the target partition.

If the source does not answer, the offsets of the last checkpoints are used. Groups with active
members on the target are refused; all groups are checked before the first is written. Exits with 1
when a group does not exist or could not be written, with 3 when groups were refused or a partition
has no offset on the target.

With --spark-checkpoint the checkpoint folder of a Structured Streaming query is translated
instead, into the folder --out.

Examples:

  heliograph offsets mm2.properties --flow 'A->B' --group billing

  heliograph offsets mm2.properties --group 'billing.*' --group audit --to map --commit

  heliograph offsets mm2.properties --group billing --to time 2026-01-31T04:03:00Z

  heliograph offsets mm2.properties --spark-checkpoint /data/query/checkpoint --out /data/query/on-B
"""
_CLOSE_MAX: Final = 3
_CLOSE_ENOUGH: Final = 0.8


def offsets(
    file: File,
    time: Annotated[
        str | None,
        typer.Argument(metavar="TIME", help="For `--to time`, such as 2026-01-31T04:03:00Z."),
    ] = None,
    flow: OneFlow = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="REGEX", help="Groups whose whole id matches; repeatable."),
    ] = None,
    to: Annotated[
        Strategy, typer.Option("--to", help="How the target offset is chosen.")
    ] = Strategy.MAP,
    commit: Annotated[
        bool,
        typer.Option(
            "--commit", help="Write the offsets to the target; without it nothing is written."
        ),
    ] = False,
    skip_active: Annotated[
        bool,
        typer.Option("--skip-active", help="Skip groups with active members and write the others."),
    ] = False,
    without_source: Annotated[
        bool,
        typer.Option("--without-source", help="Do not connect to the source."),
    ] = False,
    spark_checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--spark-checkpoint",
            metavar="DIR",
            help="Translate the checkpoint of a Structured Streaming query.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder for the translated checkpoint."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if len(flows) != 1:
        raise typer.BadParameter(
            f"the file has several flows; name one with --flow: {', '.join(map(str, flows))}"
        )
    if spark_checkpoint is not None:
        if out is None or group or time is not None or to is not Strategy.MAP or commit:
            raise typer.BadParameter(
                "--spark-checkpoint needs --out and excludes --group, --to and --commit"
            )
        translate_checkpoint_command(config, flows[0], spark_checkpoint, out, as_json)
        return
    if out is not None:
        raise typer.BadParameter("--out needs --spark-checkpoint")
    asked = _Asked(
        groups=_Choice(group or []),
        to=to,
        time_ms=asked_time_ms(to, time),
        ask_source=not without_source,
        commit=commit,
        skip_active=skip_active,
    )
    answer = asyncio.run(_answer(config, flows[0], asked))
    if as_json:
        OffsetsDocument.of(answer).print()
    else:
        _print(answer, skip_active=skip_active)
    code = exit_code(answer, skip_active=skip_active)
    if code:
        raise typer.Exit(code)


def asked_time_ms(to: Strategy, text: str | None) -> int | None:
    """The time that goes with `--to time`; raises `typer.BadParameter`."""
    if to is not Strategy.TIME:
        if text is not None:
            raise typer.BadParameter(f"TIME: {text!r} needs `--to time`")
        return None
    if text is None:
        raise typer.BadParameter("`--to time` needs a time, such as 2026-01-31T04:03:00Z")
    return time_ms(text, "TIME")


class _Choice:
    """The groups that `--group` means; an id with signs of a regex in it means itself too."""

    def __init__(self, texts: list[str]) -> None:
        if not texts:
            raise typer.BadParameter("--group is needed: an id, or a regex such as '.*' for all")
        self._patterns: dict[str, re.Pattern[str]] = {}
        for text in texts:
            try:
                self._patterns[text] = re.compile(text, re.DOTALL)
            except re.error as exc:
                raise typer.BadParameter(f"--group: {text!r} is not a regex: {exc}") from None

    def wants(self, group: str) -> bool:
        return any(self._means(text, group) for text in self._patterns)

    def require_all(self, known: FlowSnapshot) -> None:
        """Raises `MirrorError` for groups that are nowhere: nothing is done for the others."""
        problems = [
            self._missing(text, known)
            for text in self._patterns
            if not any(self._means(text, group) for group in known.groups)
        ]
        if problems:
            why = f" (the source: {known.source_problem})" if known.source_problem else ""
            raise MirrorError(f"{known.flow.id}: {'; '.join(problems)}{why}")

    def _means(self, text: str, group: str) -> bool:
        return text == group or self._patterns[text].fullmatch(group) is not None

    def _missing(self, text: str, known: FlowSnapshot) -> str:
        if any(self._means(text, group) for group in known.seen_groups):
            return f"group {text} has no committed offsets in mirrored topics"
        if not group_filter(known.flow).should_follow(text):
            return f"group {text} is excluded by `groups` or `groups.exclude`"
        close = get_close_matches(text, sorted(known.seen_groups), _CLOSE_MAX, _CLOSE_ENOUGH)
        return f"there is no group {text}" + (
            f"; did you mean {', '.join(close)}?" if close else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    groups: _Choice
    to: Strategy
    time_ms: int | None
    ask_source: bool
    commit: bool
    skip_active: bool


async def _answer(config: MirrorConfig, flow: FlowId, asked: _Asked) -> Answer:
    known = await read_snapshot(config, flow, asked.groups.wants, ask_source=asked.ask_source)
    asked.groups.require_all(known)
    time_offsets: Mapping[TopicPartition, int] = {}
    if asked.time_ms is not None:
        targets = [place.target for place in known.locations.values()]
        time_offsets = await offsets_at(config, flow, targets, asked.time_ms)
    placing = plan_group_offsets(known, asked.to, time_offsets=time_offsets)
    report = None
    if asked.commit:
        groups = GroupAdmin(config.target_of(flow))
        report = await commit_moves(groups, placing.moves, skip_active=asked.skip_active)
    return Answer(
        flow=flow,
        at_ms=now_ms(),
        time_ms=asked.time_ms,
        known=known,
        placing=placing,
        report=report,
    )


def exit_code(answer: Answer, *, skip_active: bool) -> int:
    report = answer.report
    if report is None:
        return 0
    if report.problems and not report.is_refused:
        return EXIT_FAILED
    if report.is_refused or answer.placing.unplaced or (report.active and not skip_active):
        return EXIT_REFUSED
    return 0


def _print(answer: Answer, *, skip_active: bool) -> None:
    console, known = results(), answer.known
    console.print(Text(headline(answer), style="bold"))
    console.print(move_table(answer.placing))
    for sentence in sentences(answer, skip_active=skip_active):
        remarks().print(sentence, soft_wrap=True)
    for problem in known.problems:
        remarks().print(Text(f"problem: {problem}", style="red"), soft_wrap=True)
