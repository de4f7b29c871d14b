"""`heliograph audit`: prove that both sides hold the same records. Runs on the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import not_
from typing import Annotated, Any, Final

import typer
from pydantic import BeforeValidator
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text as Styled

from heliograph.audit.findings import FindingKind, UnitOutcome
from heliograph.audit.job import new_order, run_audit
from heliograph.audit.plan import AuditOptions
from heliograph.audit.repair import RepairReport, repair
from heliograph.audit.run import (
    AuditProgress,
    AuditReport,
    LaneFinding,
    NothingMirrored,
    OnProgress,
    TopicTally,
    audit_flow,
)
from heliograph.audit.units import AuditUnit
from heliograph.cli.document import At, Bounds, Document, RoundedSeconds, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OnlyFlow, time_ms
from heliograph.cli.output import EXIT_FAILED, EXIT_REFUSED, remarks, results
from heliograph.cli.tables import Side, new_table
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.engine.session import start_session, stop_session
from heliograph.ledger.locations import Wanted
from heliograph.model import FlowId, LaneId, OffsetRange
from heliograph.words import counted

AUDIT_HELP: Final = """Compare source and target record by record, and list the differences.

Every mirrored record is looked up on both clusters by the exact offset map in the ledger: key,
value, headers, timestamp and order must be the same. Batches with equal bytes are not opened.
Records that are repeated, changed, reordered, missing or foreign are listed with their offsets.
Records that retention or compaction removed on one side are counted and are not a fault.

The audit is a Spark job. It may run beside the mirror and compares what was mirrored when the
audit began. Its progress is written to the ledger: --resume continues there, or, after an audit
that finished, compares what was mirrored since.

--repair appends missing records to the end of their partition, with a header `heliograph.origin`
that names their source offset; later audits recognise them. Nothing else can be repaired.

Exits with 0 when source and target are equal, with 3 when they differ, with 1 when a part could
not be compared.

Examples:

  heliograph audit mm2.properties

  heliograph audit mm2.properties --flow 'A->B' --topic 'orders.*' --since 2026-01-31T04:00:00Z

  heliograph audit mm2.properties --sample 0.05 --json

  heliograph audit mm2.properties --resume --repair
"""
_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("topic", "left"),
    ("lanes", "right"),
    ("records", "right"),
    ("MB read", "right"),
    ("unopened", "right"),
    ("expired", "right"),
    ("repaired", "right"),
    *((kind.value, "right") for kind in FindingKind),
)
_LISTED_MAX: Final = 50
_MB: Final = 1_000_000
_WHOLE_CORE: Final = 1.0


def _records(kind: FindingKind) -> BeforeValidator:
    return BeforeValidator(lambda counts: counts[kind])


def _by_lane(appended: Mapping[LaneId, Sequence[OffsetRange]]) -> list[dict[str, object]]:
    return [
        {"topic": lane.source.topic, "partition": lane.source.partition, "source": parts}
        for lane, parts in appended.items()
    ]


class _Topic(Document):
    topic: str
    target_topic: str
    lanes: int
    records: int
    bytes: int
    unopened_records: int
    expired_records: int
    left_out_records: int
    brought_records: int
    others_records: int
    repaired_records: int
    timestamps_compared: bool
    missing: Annotated[int, _records(FindingKind.MISSING)] = At("counts")
    repeated: Annotated[int, _records(FindingKind.REPEATED)] = At("counts")
    changed: Annotated[int, _records(FindingKind.CHANGED)] = At("counts")
    swapped: Annotated[int, _records(FindingKind.SWAPPED)] = At("counts")
    foreign: Annotated[int, _records(FindingKind.FOREIGN)] = At("counts")


class _Finding(Document):
    topic: str = At("lane.source.topic")
    partition: int = At("lane.source.partition")
    target_topic: str = At("target.topic")
    kind: FindingKind = At("finding.kind")
    source: Bounds | None = At("finding.source")
    target: Bounds | None = At("finding.target")
    records: int = At("finding.records")
    note: str = At("finding.note")


class _Flow(Document):
    flow: Text
    equal: Annotated[bool, BeforeValidator(not_)] = At("differs")
    records: int
    seconds: RoundedSeconds
    compared_units: int
    units: int = At("unit_count")
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    topics: tuple[_Topic, ...]
    findings: tuple[_Finding, ...]


class _Appended(Document):
    topic: str
    partition: int
    source: tuple[Bounds, ...]


class _Refused(Document):
    topic: str = At("lane.source.topic")
    partition: int = At("lane.source.partition")
    kind: FindingKind
    source: Bounds | None
    target: Bounds | None
    records: int
    why: str


class _Repair(Document):
    appended_records: int = At("records")
    appended: Annotated[tuple[_Appended, ...], BeforeValidator(_by_lane)]
    refused: tuple[_Refused, ...]


class AuditDocument(Document):
    spark_start_seconds: RoundedSeconds
    flows: tuple[_Flow, ...]
    repairs: tuple[_Repair, ...]


def audit(
    file: File,
    flow: OnlyFlow = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="REGEX", help="Only source topics that match this regex; repeatable."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only records since this time, such as 2026-01-31T04:03:00Z.",
        ),
    ] = None,
    sample: Annotated[
        float,
        typer.Option("--sample", help="Compare only this share of the records, such as 0.05."),
    ] = 1.0,
    seed: Annotated[
        int,
        typer.Option("--seed", help="Which records --sample takes; the same seed takes the same."),
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue where the last audit of each lane ended.")
    ] = False,
    mend: Annotated[
        bool,
        typer.Option("--repair", help="Append missing records, with their origin in a header."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master; overrides the file. Default: local[*]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    wanted = _wanted(topic or [])
    choice = AuditOptions(
        since_ms=None if since is None else _since_ms(since),
        sample=_share(sample),
        seed=seed,
        resume=resume,
    )
    reports, absent = [], []
    with _engine(config, flows, master) as engine:
        for one in flows:
            try:
                with _bar(str(one)) as on_progress:
                    reports.append(audit_flow(config, one, choice, wanted, engine, on_progress))
            except NothingMirrored as exc:
                absent.append(exc)
    if absent and not reports:
        raise absent[0]
    differing = [report for report in reports if report.findings]
    repairs = [repair(config, one.flow, one.findings) for one in differing] if mend else []
    if as_json:
        AuditDocument.of(
            {"spark_start_seconds": engine.start_s, "flows": reports, "repairs": repairs}
        ).print()
    else:
        for report in reports:
            _print(report)
        for repaired in repairs:
            _print_repair(repaired)
    raise typer.Exit(_verdict(reports))


def _verdict(reports: Sequence[AuditReport]) -> int:
    if any(report.differs for report in reports):
        return EXIT_REFUSED
    return EXIT_FAILED if any(report.problems for report in reports) else 0


def _since_ms(text: str) -> int:
    at_ms = time_ms(text, "--since")
    if at_ms > now_ms():
        raise typer.BadParameter(
            f"--since: {text} is in the future, so there is nothing to compare"
        )
    return max(0, at_ms)


def _share(sample: float) -> float:
    if not 0 < sample <= 1:
        raise typer.BadParameter(
            f"--sample: {sample:g} is not a share: give a number above 0, at most 1"
        )
    return sample


def _wanted(patterns: Sequence[str]) -> Wanted:
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as exc:
        raise typer.BadParameter(f"--topic: {exc.pattern!r} is not a regex: {exc}") from exc
    return lambda name: not compiled or any(one.fullmatch(name) for one in compiled)


class _Engine:
    """Starts Spark when the first unit is to be compared: a mistake is told before that."""

    def __init__(self, config: MirrorConfig, flows: Sequence[FlowId], master: str | None) -> None:
        self._config = config
        update: dict[str, object] = {"slot_cpus": _WHOLE_CORE}
        if master is not None:
            update["master"] = master
        self._settings = config.engine.model_copy(update=update)
        self._order = new_order(
            {flow: (config.source_of(flow), config.target_of(flow)) for flow in flows}
        )
        self._session: Any = None
        self.start_s = 0.0
        """How long Spark took to start; 0 where it was not needed."""

    def __call__(
        self, units: Sequence[AuditUnit], on_outcome: Callable[[UnitOutcome], None]
    ) -> None:
        if self._session is None:
            began_s = monotonic_s()
            self._session = start_session(
                self._settings,
                clusters=self._config.clusters,
                secret_variables=self._config.secret_variables,
            )
            self.start_s = monotonic_s() - began_s
        run_audit(self._session, self._order, units, on_outcome)

    def close(self) -> None:
        if self._session is not None:
            stop_session(self._session)


@contextmanager
def _engine(config: MirrorConfig, flows: Sequence[FlowId], master: str | None) -> Iterator[_Engine]:
    engine = _Engine(config, flows, master)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _bar(what: str) -> Iterator[OnProgress]:
    """On a terminal a bar with records, speed and findings; elsewhere nothing."""
    console = remarks()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    began_s = monotonic_s()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"comparing {what}", total=None, told="")

        def show(progress: AuditProgress) -> None:
            rate = progress.bytes / _MB / max(0.001, monotonic_s() - began_s)
            told = f"{progress.records:,} records  {rate:,.0f} MB/s"
            if progress.differing_records:
                told += f"  {progress.differing_records:,} differ"
            bar.update(task, total=progress.records_total, completed=progress.records, told=told)

        yield show


def _print(report: AuditReport) -> None:
    console = results()
    console.print(Styled(str(report.flow), style="bold"))
    table = new_table(_COLUMNS)
    for topic in report.topics:
        table.add_row(*_row(topic))
    console.print(table)
    for one in report.findings[:_LISTED_MAX]:
        console.print(_line(one), soft_wrap=True)
    if len(report.findings) > _LISTED_MAX:
        more = len(report.findings) - _LISTED_MAX
        console.print(f"and {counted(more, 'more range')}; --json lists all", soft_wrap=True)
    for problem in report.problems:
        console.print(Styled(f"not compared: {problem}", style="red"), soft_wrap=True)
    for topic in report.topics:
        for told in _left_out(topic, report.flow):
            console.print(f"{topic.topic}: {told}", soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(_sentence(report), soft_wrap=True)


def _left_out(topic: TopicTally, flow: FlowId) -> Iterator[str]:
    if not topic.timestamps_compared:
        yield "timestamps were not compared, the target stamps its own"
    if topic.left_out_records:
        yield f"transforms leave out {counted(topic.left_out_records, 'record')}"
    if topic.brought_records:
        brought = counted(topic.brought_records, "record")
        yield f"{brought} on {flow.source} left out: a mirror brought them there"
    if topic.others_records:
        others = counted(topic.others_records, "record")
        yield f"{others} on {flow.target} left out: written there, or brought by another flow"


def _sentence(report: AuditReport) -> str:
    looked = f"{counted(report.records, 'record')} compared in {report.seconds:.1f} s"
    if report.compared_units < report.unit_count and not report.problems:
        share = report.compared_units / report.unit_count
        looked += f", {share:.0%} of all ({report.compared_units} of {report.unit_count} units)"
    if report.differs:
        told = ", ".join(f"{count:,} {kind.value}" for kind, count in report.counts.items())
        return f"different: {told}; {looked}"
    return f"{'equal where compared' if report.problems else 'equal'}; {looked}"


def _row(topic: TopicTally) -> list[str | Styled]:
    unopened = topic.unopened_records / topic.records if topic.records else 0.0
    return [
        topic.topic,
        str(topic.lanes),
        f"{topic.records:,}",
        f"{topic.bytes / _MB:,.1f}",
        f"{unopened:.0%}",
        f"{topic.expired_records:,}",
        f"{topic.repaired_records:,}",
        *(
            Styled(f"{topic.counts[kind]:,}", style="red" if topic.counts[kind] else "")
            for kind in FindingKind
        ),
    ]


def _line(one: LaneFinding) -> str:
    finding = one.finding
    parts = [f"{one.lane.source}: {finding.records:,} {finding.kind.value}"]
    if finding.source is not None:
        parts.append(f"source {_span(finding.source)}")
    if finding.target is not None:
        parts.append(f"{one.target} {_span(finding.target)}")
    return ", ".join(parts) + (f" ({finding.note})" if finding.note else "")


def _span(part: OffsetRange) -> str:
    return f"[{part.start}, {part.end})" if part.count else f"at {part.start}"


def _print_repair(report: RepairReport) -> None:
    console = results()
    for lane, parts in report.appended.items():
        told = ", ".join(_span(part) for part in parts)
        console.print(f"{lane.source}: repaired: appended source {told}", soft_wrap=True)
    for one in report.refused:
        place = f"source {_span(one.source)}" if one.source else "target " + _target(one.target)
        console.print(
            f"{one.lane.source}: {one.kind.value}, {place}: not repaired: {one.why}", soft_wrap=True
        )


def _target(part: OffsetRange | None) -> str:
    return "?" if part is None else _span(part)
