"""`heliograph offsets --spark-checkpoint`: a query's checkpoint, translated. Runs on the driver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.text import Text as Styled

from heliograph.cli.document import At, Document, Text
from heliograph.cli.output import results
from heliograph.cli.tables import new_table, number_or_unknown
from heliograph.config.schema import MirrorConfig
from heliograph.ledger.translate import Side
from heliograph.model import FlowId
from heliograph.spark_checkpoint.move import CheckpointTranslation, translate_checkpoint
from heliograph.spark_checkpoint.translate import PartitionMove
from heliograph.words import counted

_NOTHING: Final = "-"
_CLAMPED: Final[dict[Side | None, str]] = {
    None: "",
    "before": "first mirrored ",
    "after": "mirrored so far ",
    "coarse": "known before ",
}


class _Partition(Document):
    query_source: str
    topic: str = At("source.topic")
    partition: int = At("source.partition")
    target_topic: str = At("target.topic")
    source_offset: int | None
    target_offset: int | None
    clamped: str | None
    planned_source_offset: int | None
    planned_target_offset: int | None
    planned_clamped: str | None
    lag_records: int | None
    is_exact: bool
    notes: tuple[str, ...]


class CheckpointDocument(Document):
    flow: Text
    directory: Text
    out: Text
    layout: int | None
    batch: int | None
    is_committed: bool
    is_exact: bool
    left_out_batches: int
    untouched_sources: tuple[str, ...]
    bootstrap_servers: tuple[str, ...]
    renamed: dict[str, str]
    partitions: tuple[_Partition, ...] = At("moves")


def translate_checkpoint_command(
    config: MirrorConfig, flow: FlowId, directory: Path, out: Path, as_json: bool
) -> None:
    """Write the copy and say what is in it; raises `MirrorError` where nothing was written."""
    made = asyncio.run(translate_checkpoint(config, flow, directory, out))
    if as_json:
        CheckpointDocument.of(made).print()
        return
    console = results()
    console.print(Styled(head_line(made), style="bold"))
    console.print(move_table(made))
    for line in remark_lines(made):
        console.print(Styled(line), soft_wrap=True)


def head_line(made: CheckpointTranslation) -> str:
    if made.batch is None:
        at = "no batch planned yet"
    elif made.is_committed:
        at = f"after batch {made.batch:,}"
    else:
        at = f"batch {made.batch:,} will run again"
    layout = "" if made.layout is None else f", offsets log v{made.layout}"
    exact = "exact" if made.is_exact else "not exact everywhere"
    return f"{made.flow}: {counted(len(made.moves), 'partition')}, {at}{layout}: {exact}"


def move_table(made: CheckpointTranslation) -> RenderableType:
    planned = not made.is_committed
    table = new_table(
        [
            ("query source", "left"),
            ("partition", "left"),
            ("source", "right"),
            ("on target", "left"),
            ("resumes at", "right"),
            *((("batch ends", "right"), ("ends at", "right")) if planned else ()),
            ("lag there", "right"),
        ]
    )
    for move in made.moves:
        table.add_row(
            move.query_source,
            str(move.source),
            _number(move.source_offset),
            str(move.target),
            f"{_CLAMPED[move.clamped]}{_number(move.target_offset)}",
            *((_number(move.planned_source_offset), _planned(move)) if planned else ()),
            _NOTHING if move.target_offset is None else number_or_unknown(move.lag_records),
        )
    return table


def remark_lines(made: CheckpointTranslation) -> list[str]:
    lines = [f"{move.source}: {note}" for move in made.moves for note in move.notes]
    if any("after" in (move.clamped, move.planned_clamped) for move in made.moves):
        lines.append("If the mirror is running, let it catch up and translate again.")
    if made.untouched_sources:
        lines.append(
            f"Not translated, because they read no topic that {made.flow} mirrors: query sources "
            f"{', '.join(made.untouched_sources)}."
        )
    if made.left_out_batches:
        lines.append(f"Older batches left out of the copy: {made.left_out_batches:,}.")
    lines.append(f"Written to {made.out}. Start the query with that checkpointLocation and with")
    lines.append(f"  kafka.bootstrap.servers = {','.join(made.bootstrap_servers)}")
    lines += [f"  {now} instead of {was}" for was, now in sorted(made.renamed.items())]
    return lines


def _number(offset: int | None) -> str:
    return _NOTHING if offset is None else f"{offset:,}"


def _planned(move: PartitionMove) -> str:
    return f"{_CLAMPED[move.planned_clamped]}{_number(move.planned_target_offset)}"
