"""`heliograph transform`: what transforms make of records, before and after. Runs on the driver."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer
from pydantic import BeforeValidator
from rich.text import Text as Styled

from heliograph.audit.trial import Fate, Trial, TriedRecord, try_transforms
from heliograph.cli.document import Document, OrNull, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OnlyFlow
from heliograph.cli.output import EXIT_FAILED, results
from heliograph.config.load import load_config
from heliograph.model import TopicName
from heliograph.words import counted

TRANSFORM_HELP: Final = """Show what the transforms of a flow make of a topic's newest records.

Reads the last records of the topic from the source, puts them through the transforms of FILE as a
slot would, and shows each before and after. Nothing is written, and no driver need run.

Exits with 1 when a record fails, which `heliograph run` would stall on or skip.

Examples:

  heliograph transform mm2.properties --topic orders

  heliograph transform mm2.properties --topic orders --sample 100 --json
"""
_SHOWN_CHARS_MAX: Final = 400


def _text(found: bytes | None) -> str | None:
    return None if found is None else found.decode("utf-8", "backslashreplace")


def _content(content: tuple[object, ...] | None) -> dict[str, object] | None:
    if content is None:
        return None
    timestamp_ms, key, value, headers = content
    return {"timestamp_ms": timestamp_ms, "key": key, "value": value, "headers": headers}


_Bytes = Annotated[str | None, BeforeValidator(_text)]


class _Content(Document):
    timestamp_ms: int
    key: _Bytes
    value: _Bytes
    headers: tuple[tuple[str, _Bytes], ...]


MaybeContent = Annotated[_Content | None, BeforeValidator(_content)]


class _Record(Document):
    partition: int
    offset: int
    fate: Fate
    why: OrNull
    before: MaybeContent
    after: MaybeContent


class _Trial(Document):
    flow: Text
    topic: str
    target_topic: str
    transforms: tuple[str, ...]
    records: tuple[_Record, ...]


class TransformDocument(Document):
    flows: tuple[_Trial, ...]


def transform(
    file: File,
    topic: Annotated[
        str, typer.Option("--topic", metavar="NAME", help="The topic, as the source calls it.")
    ],
    sample: Annotated[
        int,
        typer.Option("--sample", min=1, max=10_000, help="How many records, of all partitions."),
    ] = 20,
    flow: OnlyFlow = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    trials = [
        asyncio.run(try_transforms(config, config.flow(each), TopicName(topic), sample))
        for each in chosen_flows(config, flow)
    ]
    if as_json:
        TransformDocument.of({"flows": trials}).print()
    else:
        for trial in trials:
            _print(trial)
    if any(trial.count(Fate.FAILED) for trial in trials):
        raise typer.Exit(EXIT_FAILED)


def _print(trial: Trial) -> None:
    console = results()
    steps = ", ".join(trial.transforms) or "no transform: batches travel unopened"
    console.print(Styled(f"{trial.flow}: {trial.topic}: {steps}", style="bold"), soft_wrap=True)
    for record in trial.records:
        head = f"{trial.topic}-{record.partition} offset {record.offset}: {record.fate.value}"
        style = "red" if record.fate is Fate.FAILED else ""
        console.print(Styled(f"{head} {record.why}".rstrip(), style=style), soft_wrap=True)
        for line in record_lines(record):
            console.print(Styled(f"  {line}"), soft_wrap=True)
    told = [f"{trial.count(fate)} {fate.value}" for fate in Fate if trial.count(fate)]
    looked = counted(len(trial.records), "record")
    console.print(f"{looked}: {', '.join(told)}" if told else looked, soft_wrap=True)


def record_lines(record: TriedRecord) -> list[str]:
    """The parts that differ, before and after; of a record that is dropped, all that it was."""
    names = ("timestamp", "key", "value", "headers")
    lines: list[str] = []
    for number, name in enumerate(names):
        before = record.before[number]
        if record.after is None:
            lines.append(f"{name}: {shown_part(before)}")
        elif record.after[number] != before:
            lines.append(f"{name}: {shown_part(before)} -> {shown_part(record.after[number])}")
    return lines


def shown_part(part: object) -> str:
    """A key, value, time or headers as text, cut where it is long."""
    if isinstance(part, bytes):
        part = _text(part)
    elif isinstance(part, tuple):
        part = {name: _text(value) for name, value in part}
    text = "null" if part is None else str(part)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
