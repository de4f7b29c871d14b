"""`heliograph tune`: how many slots are of use, and how much is left at the peak. Driver only."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text as Styled

from heliograph.cli.document import At, Document, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OneFlow, Yes
from heliograph.cli.output import EXIT_REFUSED, remarks, results, start_logging
from heliograph.cli.tables import Side, new_table
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.errors import MirrorError
from heliograph.model import FlowId, TopicName
from heliograph.tune.advice import FIRST_WORDS, bars, picture, proposal, sentences
from heliograph.tune.command import TuneReport, TuneWishes, default_slots, tune_flow
from heliograph.words import bytes_words

TUNE_HELP: Final = """Find how many slots are of use, and how much is left at the peak.

A load test copies a scratch topic with 1, 2, 4, 8, 16, 24 and 32 slots, as far as cores go, with
the ordinary engine, and says where more stops helping and what each run cost both sides. The
scratch topic, its copies and their ledgers have names of their own and are removed at the end, also
after Ctrl-C; the user's flow is not touched, but it shares the clusters with the test. --topics
copies what these topics hold, under other names, instead of a scratch topic.

The busiest hour of the last days is read from the timestamps in the logs of mirrored topics, and
compared with the rate of the test. What to set is written to a file to review: FILE stays as it is.

Ends with 3 when the flow could not keep up with its peak.

Examples:

  heliograph tune mm2.properties --flow 'A->B' --out tune.svg

  heliograph tune mm2.properties --slots 1,2,4 --mb 2000 --yes

  heliograph tune mm2.properties --no-load --days 7 --json
"""
_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("slots", "right"),
    ("MB/s", "right"),
    ("records/s", "right"),
    ("seconds", "right"),
    ("CPU s/GB", "right"),
    ("MB read", "right"),
    ("source answers", "right"),
    ("MB written", "right"),
    ("target answers", "right"),
    ("throttled", "right"),
)
_DAY_HOURS: Final = 24
_DAYS_MAX: Final = 30
_SLOTS_MAX: Final = 1_000
_TOPICS_SHOWN: Final = 5
_ADVICE: Final = Path("heliograph-tune.properties")


class _Side(Document):
    bytes: int
    requests: int
    answer_ms: float | None
    throttle_ms: int


class _Step(Document):
    slots: int
    seconds: float
    records: int
    bytes: int
    bytes_per_s: float
    records_per_s: float
    cpu_s: float
    cpu_s_per_gb: float | None
    source: _Side
    target: _Side


class _Knee(Document):
    slots: int
    bytes_per_s: float
    is_open: bool


class _Peak(Document):
    at_ms: int
    hours: int
    bytes_per_s: float
    records_per_s: float
    mean_bytes_per_s: float
    topics: tuple[tuple[str, float], ...]


class TuneDocument(Document):
    flow: Text
    at_ms: int
    load: str
    steps: tuple[_Step, ...]
    knee: _Knee | None
    peak: _Peak | None
    headroom: float | None
    catch_up_s: float | None = At("catch_up_s")
    notes: tuple[str, ...]


def tune(
    file: File,
    flow: OneFlow = None,
    slots: Annotated[
        str | None,
        typer.Option("--slots", metavar="N,N", help="Numbers to try, such as 1,2,4."),
    ] = None,
    mb: Annotated[int, typer.Option("--mb", min=1, help="Size of the scratch topic.")] = 1_000,
    record_bytes: Annotated[
        int, typer.Option("--record-bytes", min=1, max=900_000, help="Size of its records.")
    ] = 1_000,
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="NAMES", help="Copy these source topics, by comma."),
    ] = None,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Most time of each run.")] = 30,
    days: Annotated[
        int, typer.Option("--days", min=0, max=_DAYS_MAX, help="Days to find the peak in.")
    ] = 3,
    no_load: Annotated[
        bool, typer.Option("--no-load", help="Only the peak; nothing is written.")
    ] = (False),
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.svg", help="Write the chart as SVG.")
    ] = None,
    advice: Annotated[Path, typer.Option("--advice", help="Where to write what to set.")] = _ADVICE,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master; overrides the file. Default: local[*]."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    start_logging()
    config = load_config(file)
    if master is not None:
        engine = config.engine.model_copy(update={"master": master})
        config = config.model_copy(update={"engine": engine})
    wishes = TuneWishes(
        flow=_one_flow(config, flow),
        slots=() if no_load else _counts(slots) or default_slots(config),
        topics=_names(topics),
        size_bytes=1_000_000 * mb,
        record_bytes=record_bytes,
        seconds_max=float(seconds),
        hours=_DAY_HOURS * days,
    )
    _require_writable(advice, file)
    if wishes.slots and not yes:
        _ask(wishes)
    # What it made is removed then as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = tune_flow(config, wishes, lambda text: remarks().print(text, soft_wrap=True))
    if report.steps:
        advice.write_text(proposal(report, config), encoding="utf-8")
    if out is not None:
        out.write_text(picture(report), encoding="utf-8")
    if as_json:
        TuneDocument.of(report).print()
    else:
        _print(report)
    if report.steps:
        remarks().print(f"what to set is in {advice}", soft_wrap=True)
    if report.headroom is not None and report.headroom < 1:
        raise typer.Exit(EXIT_REFUSED)


def _one_flow(config: MirrorConfig, flow: str | None) -> FlowId:
    flows = chosen_flows(config, flow)
    if len(flows) != 1:
        raise typer.BadParameter(f"tune needs --flow: {', '.join(map(str, flows))}")
    return flows[0]


def _counts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() and 1 <= int(word) <= _SLOTS_MAX for word in words):
        raise typer.BadParameter(f"--slots: {text!r} is not a list such as 1,2,4")
    return tuple(sorted({int(word) for word in words}))


def _names(topics: str | None) -> tuple[TopicName, ...]:
    if topics is None:
        return ()
    names = tuple(TopicName(name.strip()) for name in topics.split(",") if name.strip())
    if not names:
        raise typer.BadParameter("--topics names no topic")
    return names


def _require_writable(advice: Path, file: Path) -> None:
    """The user's files stay as they are."""
    if not advice.exists():
        return
    if advice.resolve() == file.resolve() or not advice.read_text(
        encoding="utf-8", errors="replace"
    ).startswith(FIRST_WORDS):
        raise MirrorError(f"{advice} is there and was not written by tune: name another --advice")


def _ask(wishes: TuneWishes) -> None:
    source = (
        f"copies {', '.join(wishes.topics)} of {wishes.flow.source}"
        if wishes.topics
        else f"writes {bytes_words(wishes.size_bytes)} to a scratch topic on {wishes.flow.source}"
        " and copies it"
    )
    remarks().print(
        f"The test {source} to {wishes.flow.target}, once with each of "
        f"{', '.join(map(str, wishes.slots))} slots, as fast as they take it; then its topics are "
        "removed.",
        soft_wrap=True,
    )
    if not typer.confirm("run it?", err=True):
        remarks().print("nothing was changed")
        raise typer.Exit(EXIT_REFUSED)


def _print(report: TuneReport) -> None:
    console = results()
    if report.steps:
        table = new_table(_COLUMNS)
        for step in report.steps:
            best = report.knee is not None and step.slots == report.knee.slots
            table.add_row(
                Styled(str(step.slots), style="bold green" if best else ""),
                f"{step.bytes_per_s / 1e6:,.1f}",
                f"{step.records_per_s:,.0f}",
                f"{step.seconds:.1f}",
                "?" if step.cpu_s_per_gb is None else f"{step.cpu_s_per_gb:.1f}",
                f"{step.source.bytes / 1e6:,.1f}",
                _ms(step.source.answer_ms),
                f"{step.target.bytes / 1e6:,.1f}",
                _ms(step.target.answer_ms),
                _ms(float(step.source.throttle_ms + step.target.throttle_ms)),
            )
        console.print(table)
        for line in bars(report.steps):
            console.print(line, soft_wrap=True)
    for text in sentences(report):
        console.print(text, soft_wrap=True)
    if report.peak is not None:
        for topic, rate in report.peak.topics[:_TOPICS_SHOWN]:
            console.print(f"  {topic}: {bytes_words(round(rate))}/s in that hour", soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f} ms"
