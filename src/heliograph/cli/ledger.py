"""`heliograph ledger`: what the target remembers, and translation. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, assert_never

import typer
from rich.text import Text

from heliograph.cli.options import AsJson, File, OnlyFlow
from heliograph.cli.output import EXIT_FAILED, print_json, results
from heliograph.cli.tables import ago, new_table
from heliograph.config.load import load_config
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import MirrorError
from heliograph.inspect.status import StatusReader
from heliograph.ledger.entries import FlowEntry, LeaseEntry
from heliograph.ledger.locations import LaneLocation, all_topics
from heliograph.ledger.translate import Clamped, Exact, Translation, Unsafe
from heliograph.model import FlowId

LEDGER_HELP: Final = """Show the ledger: what the target remembers of each flow.

The flow's producer, who carries it, and of every lane where it is, its runs (stretches where source
and target offset advance together), what was lost and where it started. Then which ACLs the flow
created on the target, and its memos: a fence, the steps of a failover, the schedule of drills. With
--translate an offset of one side is found on the other, exactly.

Examples:

  heliograph ledger mm2.properties --topic orders --runs

  heliograph ledger mm2.properties --flow 'A->B' --json

  heliograph ledger mm2.properties --translate 4711 --topic orders --partition 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLedger:
    flow: FlowId
    producer: FlowEntry | None
    holder: LeaseEntry | None
    garbage_records: int
    locations: tuple[LaneLocation, ...]
    acls: tuple[str, ...]
    memos: Mapping[str, str]


def ledger(
    file: File,
    flow: OnlyFlow = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only this topic, named as on the source.")
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="Every run, not only how many.")] = False,
    memos: Annotated[
        bool,
        typer.Option("--memos", help="Every memo and every ACL it created, not only how many."),
    ] = False,
    translate: Annotated[
        int | None,
        typer.Option(
            "--translate",
            min=0,
            metavar="OFFSET",
            help="Where a consumer that is at OFFSET of the source goes on at the target.",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Partition for --translate.")
    ] = None,
    back: Annotated[
        bool, typer.Option("--back", help="Translate from the target to the source.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if translate is None:
        found = asyncio.run(_read(config, flows, topic))
        if as_json:
            print_json({"flows": [_flow_document(each, runs=runs) for each in found]})
        else:
            for each in found:
                _print(each, runs=runs, memos=memos)
        return
    if topic is None or partition is None:
        raise typer.BadParameter("--translate needs --topic and --partition")
    if len(flows) != 1:
        raise typer.BadParameter(f"--translate needs --flow: {', '.join(map(str, flows))}")
    (only,) = asyncio.run(_read(config, flows, topic))
    _tell(only, translate, partition, topic=topic, back=back, as_json=as_json)


def chosen_flows(config: MirrorConfig, text: str | None) -> tuple[FlowId, ...]:
    """The flows a `--flow` option means; all of them without one. None is an error."""
    flows = tuple(flow.id for flow in config.flows)
    if not flows:
        raise typer.BadParameter(f"no flow is enabled: set {config.pairs[0].id}.enabled = true")
    if text is None:
        return flows
    chosen = tuple(flow for flow in flows if str(flow) == text.replace(" ", ""))
    if not chosen:
        known = ", ".join(map(str, flows))
        raise typer.BadParameter(f"{text!r} is not an enabled flow of the file: {known}")
    return chosen


async def _read(
    config: MirrorConfig, flows: Sequence[FlowId], topic: str | None
) -> list[FlowLedger]:
    reader = StatusReader(config, all_topics([topic] if topic is not None else []))
    try:
        return [await _read_flow(reader, config.flow(flow)) for flow in flows]
    finally:
        await reader.close()


async def _read_flow(reader: StatusReader, flow: FlowConfig) -> FlowLedger:
    locations = await reader.locations(flow)
    store = reader.ledger(flow.id)
    return FlowLedger(
        flow=flow.id,
        producer=store.view.flow,
        holder=store.view.holder,
        garbage_records=store.garbage_records,
        locations=tuple(locations),
        acls=tuple(sorted(map(str, store.view.acls))),
        memos=dict(sorted(store.view.memos.items())),
    )


def _tell(
    found: FlowLedger, offset: int, partition: int, *, topic: str, back: bool, as_json: bool
) -> None:
    location = next((p for p in found.locations if p.lane.source.partition == partition), None)
    if location is None:
        raise MirrorError(
            f"{found.flow}: the ledger knows no lane {topic}-{partition}; name the topic as on the "
            "source"
        )
    offsets = location.offset_map
    answer = offsets.to_source(offset) if back else offsets.to_target(offset)
    asked_at, given_at = (
        (location.target, location.lane.source) if back else (location.lane.source, location.target)
    )
    if as_json:
        print_json(
            {
                "flow": str(found.flow),
                "from": {"topic": asked_at.topic, "partition": partition, "offset": offset},
                "to": {"topic": given_at.topic, "partition": partition, "offset": _offset(answer)},
                "exact": isinstance(answer, Exact),
                "clamped": answer.side if isinstance(answer, Clamped) else None,
                "unsafe": answer.reason if isinstance(answer, Unsafe) else None,
            }
        )
    else:
        results().print(f"{asked_at} offset {offset:,} {meaning(answer, str(given_at))}")
    if isinstance(answer, Unsafe):
        raise typer.Exit(EXIT_FAILED)


def _offset(answer: Translation) -> int | None:
    return None if isinstance(answer, Unsafe) else answer.offset


def meaning(answer: Translation, there: str) -> str:
    """The rest of a sentence that begins with the offset that was asked for."""
    match answer:
        case Exact(offset=offset):
            return f"is {there} offset {offset:,}: exact"
        case Clamped(offset=offset, side="before"):
            return f"is {there} offset {offset:,}: before the first mirrored record, clamped to it"
        case Clamped(offset=offset, side="coarse"):
            return (
                f"is {there} offset {offset:,}: the last one known before it, since the ledger has "
                "forgotten the exact offsets there; a consumer reads some records again"
            )
        case Clamped(offset=offset):
            return (
                f"is {there} offset {offset:,}: past the last mirrored record, clamped to the end "
                "of what is mirrored; a consumer reads the rest again"
            )
        case Unsafe(reason=reason):
            return f"has no safe offset of {there}: {reason}"
        case _:
            assert_never(answer)


def _print(found: FlowLedger, *, runs: bool, memos: bool) -> None:
    console = results()
    producer, holder = found.producer, found.holder
    console.print(Text(str(found.flow), style="bold"))
    if producer is not None:
        console.print(
            f"  producer {producer.producer_id} epoch {producer.producer_epoch}, "
            f"source cluster {producer.source_cluster_id}, since {ago(producer.created_ms)}"
        )
    if holder is not None:
        console.print(f"  last mirrored by {holder.host} (pid {holder.pid}), {ago(holder.at_ms)}")
    if found.garbage_records:
        console.print(f"  {found.garbage_records} records in the ledger are not Heliograph's")
    if found.acls or found.memos:
        console.print(f"  ACLs it created: {len(found.acls):,}, memos: {len(found.memos):,}")
    table = new_table(
        [
            ("lane", "left"),
            ("target", "left"),
            ("position", "right"),
            ("source next", "right"),
            ("target next", "right"),
            ("runs", "right"),
            ("starts", "right"),
            ("lost", "right"),
            ("noted", "right"),
            ("state", "left"),
        ]
    )
    for location in found.locations:
        record = location.record
        table.add_row(
            str(location.lane.source),
            str(location.target),
            f"{location.position:,}",
            f"{location.source_next_offset:,}",
            f"{location.target_next_offset:,}",
            f"{len(record.runs):,}",
            str(len(record.starts)),
            f"{sum(loss.lost.count for loss in record.losses):,}",
            ago(record.head.at_ms) if record.head else "never",
            record.head.state if record.head else "",
        )
    console.print(table)
    for location in found.locations:
        for line in _remarks(location):
            console.print(line)
    if runs:
        console.print(_runs_table(found.locations))
    if memos:
        for binding in found.acls:
            console.print(Text(f"created ACL: {binding}"), soft_wrap=True)
        for subject, text in found.memos.items():
            console.print(Text(f"memo {subject}: {text}"), soft_wrap=True)


def _remarks(location: LaneLocation) -> Iterator[str]:
    lane, floor = location.lane.source, location.record.runs.floor
    if floor:
        yield (
            f"{lane}: offsets are exact from position {floor:,} on; the ledger has forgotten those "
            "before, which translate to the last one known before them"
        )
    for loss in location.record.losses:
        yield (
            f"{lane}: lost [{loss.lost.start}, {loss.lost.end}) of the source "
            f"at position {loss.position}: {loss.reason.value}, {ago(loss.at_ms)}"
        )


def _runs_table(locations: Sequence[LaneLocation]) -> object:
    table = new_table(
        [("lane", "left"), ("position", "right"), ("source", "right"), ("target", "right")]
    )
    for location in locations:
        for run in location.record.runs:
            table.add_row(
                str(location.lane.source),
                f"{run.position:,}",
                f"{run.source_offset:,}",
                f"{run.target_offset:,}",
            )
    return table


def _flow_document(found: FlowLedger, *, runs: bool) -> dict[str, Any]:
    producer, holder = found.producer, found.holder
    return {
        "flow": str(found.flow),
        "producer": None
        if producer is None
        else {
            "id": producer.producer_id,
            "epoch": producer.producer_epoch,
            "source_cluster_id": producer.source_cluster_id,
            "created_ms": producer.created_ms,
        },
        "lease": None if holder is None else asdict(holder),
        "foreign_ledger_records": found.garbage_records,
        "lanes": [_lane_document(location, runs=runs) for location in found.locations],
        "acls": list(found.acls),
        "memos": dict(found.memos),
    }


def _lane_document(location: LaneLocation, *, runs: bool) -> dict[str, Any]:
    record = location.record
    document: dict[str, Any] = {
        "topic": location.lane.source.topic,
        "partition": location.lane.source.partition,
        "target_topic": location.target.topic,
        "position": location.position,
        "position_is_exact": location.exact,
        "source_next_offset": location.source_next_offset,
        "target_next_offset": location.target_next_offset,
        "foreign_records": location.foreign_records,
        "head": None if record.head is None else asdict(record.head),
        "run_count": len(record.runs),
        "exact_from_position": record.runs.floor,
        "starts": [asdict(start) for start in record.starts],
        "losses": [
            {
                "position": loss.position,
                "lost_start": loss.lost.start,
                "lost_end": loss.lost.end,
                "reason": loss.reason.value,
                "at_ms": loss.at_ms,
            }
            for loss in record.losses
        ],
    }
    if runs:
        document["runs"] = [run._asdict() for run in record.runs]
    return document
