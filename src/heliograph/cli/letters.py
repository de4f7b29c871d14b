"""`heliograph letters`: dead letters listed, shown and replayed. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text as Styled

from heliograph.cli.decision_tables import time_words
from heliograph.cli.document import Document
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, DryRun, File, OnlyFlow, time_ms
from heliograph.cli.output import EXIT_FAILED, results
from heliograph.cli.transform import MaybeContent, shown_part
from heliograph.config.load import load_config
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.letters.command import How, ListedLetter, listed, replay_letters, replay_source
from heliograph.letters.reading import Wanted
from heliograph.letters.replay import Outcome, Replayed
from heliograph.model import OffsetRange, TopicName, TopicPartition
from heliograph.words import counted

LETTERS_HELP: Final = """List, show and replay the records that could not be mirrored.

`list` has a line for each dead letter of the flow: where it is from, when and why it came. `show`
has the whole record. `replay` puts the records behind the target partitions they belong to, each
once however often it is asked for, with a header that says where it is from; they go through the
flow's transforms as any other, after --transform repaired them.

With --source, `replay` takes records of the source itself: --topic, --partition and --offsets.

Exits with 1 when a record that was to be replayed fails.

Examples:

  heliograph letters mm2.properties list --topic orders --reason 'not JSON'

  heliograph letters mm2.properties replay --topic orders --transform my_repairs:quoted --dry-run

  heliograph letters mm2.properties replay --source --topic orders --partition 3 --offsets 100..200
"""


class Action(StrEnum):
    LIST = "list"
    SHOW = "show"
    REPLAY = "replay"


class _Letter(Document):
    flow: str
    topic: str
    partition: int
    offset: int
    at_ms: int
    stage: str
    by: str
    error: str
    message: str
    replayed: bool
    record: MaybeContent


class _Outcome(Document):
    flow: str
    topic: str
    partition: int
    offset: int
    outcome: Outcome
    why: str


class LettersDocument(Document):
    letters: tuple[_Letter, ...]


class ReplayDocument(Document):
    dry_run: bool
    records: tuple[_Outcome, ...]


def letters(
    file: File,
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    flow: OnlyFlow = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="REGEX", help="Topics, as the source has them.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only this partition.")
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option("--offsets", metavar="A..B", help="Source offsets from A up to before B."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="REGEX", help="Found in stage, transform or error."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Written at this time or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Written before this time.")
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(
            "--transform", metavar="MODULE:FUNCTION", help="Repairs each record before its replay."
        ),
    ] = None,
    source: Annotated[
        bool, typer.Option("--source", help="Replay records of the source, not letters.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed before.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = [config.flow(each) for each in chosen_flows(config, flow)]
    wanted = Wanted(
        topic=topic,
        partition=partition,
        offsets=_range(offsets),
        reason=reason,
        since_ms=None if since is None else time_ms(since, "--since"),
        until_ms=None if until is None else time_ms(until, "--until"),
    )
    if action is Action.REPLAY:
        how = How(repair=transform, again=again, writes=not dry_run)
        _replay(config, flows, wanted, how, from_source=source, as_json=as_json)
    elif source or transform is not None or again:
        raise typer.BadParameter("--source, --transform and --again are for `replay`")
    else:
        _show(config, flows, wanted, whole=action is Action.SHOW, as_json=as_json)


def _range(text: str | None) -> OffsetRange | None:
    if text is None:
        return None
    start, found, end = text.partition("..")
    if not (found and start.isdecimal() and end.isdecimal() and int(start) < int(end)):
        raise typer.BadParameter(f"--offsets: {text!r} is not a range such as 100..200")
    return OffsetRange(start=int(start), end=int(end))


def _show(
    config: MirrorConfig, flows: Sequence[FlowConfig], wanted: Wanted, *, whole: bool, as_json: bool
) -> None:
    found = [
        (flow, each)
        for flow in flows
        if flow.writes_letters or len(flows) == 1
        for each in asyncio.run(listed(config, flow, wanted))
    ]
    if as_json:
        letters_document(found, whole=whole).print()
        return
    console = results()
    table = Table("record", "written", "by", "why", "replayed", box=None, pad_edge=False)
    for flow, each in found:
        letter, failure = each.letter, each.letter.failure
        head = f"{flow.id}: {letter.source} offset {letter.offset}"
        why = f"{failure.error}: {failure.why}"
        if not whole:
            by = failure.step if failure.stage == "TRANSFORMATION" else "the target"
            replayed = "yes" if each.is_replayed else ""
            table.add_row(head, time_words(letter.at_ms), by, Styled(why), replayed)
            continue
        console.print(Styled(f"{head}: {failure}", style="bold"), soft_wrap=True)
        for name, part in zip(
            ("timestamp", "key", "value", "headers"), letter.content, strict=True
        ):
            console.print(Styled(f"  {name}: {shown_part(part)}"), soft_wrap=True)
    if not whole and found:
        console.print(table)
    console.print(counted(len(found), "letter"), soft_wrap=True)


def letters_document(
    found: Sequence[tuple[FlowConfig, ListedLetter]], *, whole: bool
) -> LettersDocument:
    return LettersDocument(letters=tuple(_letter(flow, each, whole=whole) for flow, each in found))


def replay_document(
    found: Sequence[tuple[FlowConfig, Replayed]], *, dry_run: bool
) -> ReplayDocument:
    records = tuple(_outcome(flow, each) for flow, each in found)
    return ReplayDocument(dry_run=dry_run, records=records)


def _letter(flow: FlowConfig, listed_letter: ListedLetter, *, whole: bool) -> _Letter:
    letter = listed_letter.letter
    return _Letter(
        flow=str(flow.id),
        topic=letter.source.topic,
        partition=letter.source.partition,
        offset=letter.offset,
        at_ms=letter.at_ms,
        stage=letter.failure.stage,
        by=letter.failure.step,
        error=letter.failure.error,
        message=letter.failure.why,
        replayed=listed_letter.is_replayed,
        record=letter.content if whole else None,  # type: ignore[arg-type]  # read by its validator
    )


def _replay(
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    wanted: Wanted,
    how: How,
    *,
    from_source: bool,
    as_json: bool,
) -> None:
    if from_source:
        if len(flows) > 1 or not wanted.topic or wanted.partition is None or not wanted.offsets:
            raise typer.BadParameter(
                "--source needs --topic, --partition and --offsets, and --flow where there are "
                "several"
            )
        at = TopicPartition(topic=TopicName(wanted.topic), partition=wanted.partition)
        done = asyncio.run(replay_source(config, flows[0], at, wanted.offsets, how))
        found = [(flows[0], each) for each in done]
    else:
        found = [
            (flow, each)
            for flow in flows
            if flow.writes_letters or len(flows) == 1
            for each in asyncio.run(replay_letters(config, flow, wanted, how))
        ]
    if as_json:
        replay_document(found, dry_run=not how.writes).print()
    else:
        _print_replayed(found, how)
    if any(each.outcome is Outcome.FAILED for _, each in found):
        raise typer.Exit(EXIT_FAILED)


def _outcome(flow: FlowConfig, each: Replayed) -> _Outcome:
    return _Outcome(
        flow=str(flow.id),
        topic=each.replay.source.topic,
        partition=each.replay.source.partition,
        offset=each.replay.offset,
        outcome=each.outcome,
        why=each.why,
    )


def _print_replayed(found: Sequence[tuple[FlowConfig, Replayed]], how: How) -> None:
    console = results()
    for flow, each in found:
        if each.outcome is Outcome.FAILED:
            where = f"{flow.id}: {each.replay.source} offset {each.replay.offset}"
            console.print(Styled(f"{where}: failed {each.why}", style="red"), soft_wrap=True)
    counts = Counter(each.outcome for _, each in found)
    told = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    looked = counted(len(found), "record")
    line = f"{looked}: {', '.join(told)}" if told else looked
    console.print(line if how.writes else f"{line} (dry run, nothing was written)", soft_wrap=True)
