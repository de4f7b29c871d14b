"""`heliograph conflicts`: keys that were written on both sides at about the same time. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BeforeValidator
from rich.text import Text as Styled

from heliograph.audit.conflict_run import (
    PARQUET_FILE,
    ConflictQuestion,
    ConflictReport,
    find_conflicts,
    plan_conflicts,
)
from heliograph.cli.document import At, Document, OrNull, RoundedSeconds, Text
from heliograph.cli.options import AsJson, File, time_ms
from heliograph.cli.output import EXIT_FAILED, EXIT_REFUSED, remarks, results
from heliograph.cli.tables import Side, new_table
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.engine.session import start_session, stop_session
from heliograph.model import FlowId, TopicName
from heliograph.words import counted, seconds_of

CONFLICTS_HELP: Final = """Find keys written on both sides of a flow within a window of time.

For clusters that are both written to. A topic, under its own name, is read on both clusters of the
flow; what a mirror brought is left out, so what counts are writes of producers that are local to
each side. A key that both sides wrote not further apart than --window is a conflict: the side that
is read last has it differently. The keys with most such writes come first; --parquet writes all.

It is a Spark job and may run beside the mirror. Records of aborted transactions do not count, and
records without a key cannot be in conflict. Times are those of the records, as good as the clocks.

Exits with 0 when there is no conflict, with 3 when there is one, with 1 when a part could not be
read.

Examples:

  heliograph conflicts mm2.properties 'A->B/orders' --window 5m

  heliograph conflicts mm2.properties 'A->B/orders' 'A->B/customers' --since 2026-01-31T04:00:00Z

  heliograph conflicts mm2.properties 'A->B/orders' --parquet conflicts --json
"""
_SHOWN_MAX: Final = 20
_KEY_CHARS_MAX: Final = 40
_WHOLE_CORE: Final = 1.0
_KEYS: Final[tuple[tuple[str, Side], ...]] = (
    ("topic", "left"),
    ("key", "left"),
    ("in conflict", "right"),
    ("closest", "right"),
    ("on the source", "left"),
    ("on the target", "left"),
    ("last", "left"),
)
_TOPICS: Final[tuple[tuple[str, Side], ...]] = (
    ("topic", "left"),
    ("keys", "right"),
    ("on both sides", "right"),
    ("in conflict", "right"),
    ("source writes", "right"),
    ("target writes", "right"),
    ("in conflict", "right"),
)


def key_text(key: bytes) -> str:
    """As text where it is some; else in hexadecimal digits."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() else f"0x{key.hex()}"


def _place(place: Any) -> dict[str, int]:
    return {"partition": place.partition, "offset": place.offset, "timestamp_ms": place.at_ms}


class _Place(Document):
    partition: int
    offset: int
    timestamp_ms: int


class _Topic(Document):
    topic: str
    keys: int
    keys_on_both_sides: int = At("keys_on_both")
    keys_in_conflict: int
    writes: tuple[int, int]
    conflicting: tuple[int, int]


class _Key(Document):
    topic: str
    key: Annotated[str, BeforeValidator(key_text)]
    key_hex: Annotated[str, BeforeValidator(bytes.hex)] = At("key")
    writes: tuple[int, int]
    conflicting: tuple[int, int]
    closest_ms: int
    source: Annotated[_Place, BeforeValidator(lambda both: _place(both[0]))] = At("closest")
    target: Annotated[_Place, BeforeValidator(lambda both: _place(both[1]))] = At("closest")
    first_ms: int
    last_ms: int


class ConflictsDocument(Document):
    flow: Text = At("question.flow")
    window_ms: int = At("question.window_ms")
    since_ms: int = At("question.since_ms")
    seconds: RoundedSeconds
    conflicts: bool = At("is_bad")
    topics: tuple[_Topic, ...]
    worst: tuple[_Key, ...]
    mirrored_records: tuple[int, int] = At("counts.mirrored")
    keyless_records: tuple[int, int] = At("counts.keyless")
    damaged_records: tuple[int, int] = At("counts.damaged")
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    parquet: OrNull = At("file")


def conflicts(
    file: File,
    what: Annotated[
        list[str],
        typer.Argument(metavar="A->B/TOPIC...", help="A flow and a topic that both sides have."),
    ],
    window: Annotated[
        str,
        typer.Option("--window", metavar="TIME", help="How close two writes must be, as 30s, 5m."),
    ] = "5m",
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only records since this time, ISO 8601."),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(
            "--parquet", metavar="DIR", help=f"Write every key in conflict to DIR/{PARQUET_FILE}."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master; overrides the file. Default: local[*]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flow, topics = _asked(config, what)
    since_ms = 0 if since is None else max(0, time_ms(since, "--since"))
    if since_ms > now_ms():
        raise typer.BadParameter(f"--since: {since} is in the future, so there is nothing to read")
    question = ConflictQuestion(
        flow=flow, topics=topics, window_ms=_window_ms(window), since_ms=since_ms, parquet=parquet
    )
    report = _found(config, question, master)
    if as_json:
        ConflictsDocument.of(report).print()
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
    if report.keys:
        raise typer.Exit(EXIT_REFUSED)


def _asked(config: MirrorConfig, what: Sequence[str]) -> tuple[FlowId, tuple[TopicName, ...]]:
    flows: set[FlowId] = set()
    topics: list[TopicName] = []
    known = {str(pair.id): pair.id for pair in config.pairs}
    for word in what:
        name, found, topic = word.partition("/")
        if not found or not topic:
            raise typer.BadParameter(f"{word!r} is not a flow and a topic such as 'A->B/orders'")
        if name not in known:
            raise typer.BadParameter(f"there is no flow {name!r}; FILE has {', '.join(known)}")
        flows.add(known[name])
        topics.append(TopicName(topic))
    if len(flows) != 1:
        raise typer.BadParameter("one flow at a time: name several topics of it")
    return flows.pop(), tuple(dict.fromkeys(topics))


def _window_ms(text: str) -> int:
    seconds = seconds_of(text)
    if seconds is None:
        raise typer.BadParameter(f"--window: {text!r} is not a time such as 30s, 5m or 2h")
    return 1000 * seconds


def _found(config: MirrorConfig, question: ConflictQuestion, master: str | None) -> ConflictReport:
    """Spark is started once it is known that there is something to read."""
    plan = plan_conflicts(config, question)
    update: dict[str, object] = {"slot_cpus": _WHOLE_CORE}
    if master is not None:
        update["master"] = master
    settings = config.engine.model_copy(update=update)
    started: list[Any] = []

    def session() -> Any:
        started.append(
            start_session(
                settings,
                clusters=config.clusters,
                secret_variables=config.secret_variables,
            )
        )
        return started[0]

    try:
        return find_conflicts(session, plan, question)
    finally:
        for each in started:
            stop_session(each)


def _print(report: ConflictReport) -> None:
    console = results()
    table = new_table(_TOPICS)
    for each in report.topics:
        table.add_row(
            each.topic,
            f"{each.keys:,}",
            f"{each.keys_on_both:,}",
            Styled(f"{each.keys_in_conflict:,}", style="red" if each.keys_in_conflict else ""),
            f"{each.writes[0]:,}",
            f"{each.writes[1]:,}",
            f"{sum(each.conflicting):,}",
        )
    console.print(table)
    if report.worst:
        _print_keys(report)
    for problem in report.problems:
        console.print(Styled(f"not read: {problem}", style="red"), soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
    left_out = (
        (sum(report.counts.mirrored), "mirrored record"),
        (sum(report.counts.keyless), "record without a key"),
        (sum(report.counts.damaged), "damaged record"),
    )
    told = ", ".join(_plural(count, noun) for count, noun in left_out if count)
    if told:
        console.print(f"left out: {told}", soft_wrap=True)
    window = report.question.window_ms // 1000
    console.print(
        f"{counted(report.keys, 'key')} written on both sides within {window:,} s, "
        f"found in {report.seconds:.1f} s",
        soft_wrap=True,
    )
    if report.file:
        remarks().print(f"all of them are in {report.file}", soft_wrap=True)


def _plural(count: int, noun: str) -> str:
    head, found, rest = noun.partition(" without")
    return f"{counted(count, head)}{found}{rest}"


def _print_keys(report: ConflictReport) -> None:
    table = new_table(_KEYS)
    for one in report.worst[:_SHOWN_MAX]:
        ours, theirs = one.closest
        shown = key_text(one.key)
        at = datetime.fromtimestamp(one.last_ms / 1000, UTC).isoformat(timespec="seconds")
        table.add_row(
            one.topic,
            shown if len(shown) <= _KEY_CHARS_MAX else f"{shown[:_KEY_CHARS_MAX]}…",
            f"{one.records:,}",
            f"{one.closest_ms:,} ms",
            f"{ours.partition}@{ours.offset}",
            f"{theirs.partition}@{theirs.offset}",
            at,
        )
    results().print(table)
    if report.keys > _SHOWN_MAX:
        results().print(f"and {report.keys - _SHOWN_MAX:,} keys more; --parquet has all")
