"""`heliograph offsets --spark-checkpoint`: a query's checkpoint, translated. Runs on the driver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from heliograph.cli.output import print_json, results
from heliograph.cli.tables import counted, new_table
from heliograph.config.schema import MirrorConfig
from heliograph.ledger.translate import Side
from heliograph.model import FlowId
from heliograph.spark_checkpoint.move import CheckpointTranslation, translate_checkpoint
from heliograph.spark_checkpoint.translate import PartitionMove

_NOTHING: Final = "-"
_CLAMPED: Final[dict[Side | None, str]] = {
    None: "",
    "before": "first mirrored ",
    "after": "mirrored so far ",
}


def translate_checkpoint_command(
    config: MirrorConfig, flow: FlowId, directory: Path, out: Path, as_json: bool
) -> None:
    """Write the copy and say what is in it; raises `MirrorError` where nothing was written."""
    made = asyncio.run(translate_checkpoint(config, flow, directory, out))
    if as_json:
        print_json(as_document(made))
        return
    console = results()
    console.print(Text(head_line(made), style="bold"))
    console.print(move_table(made))
    for line in remark_lines(made):
        console.print(Text(line), soft_wrap=True)


def head_line(made: CheckpointTranslation) -> str:
    if made.batch is None:
        at = "no batch planned yet"
    elif made.is_committed:
        at = f"after batch {made.batch:,}"
    else:
        at = f"batch {made.batch:,} is run again"
    layout = "" if made.layout is None else f", offsets log v{made.layout}"
    exact = "exact" if made.is_exact else "not exact everywhere"
    return f"{made.flow}: {len(made.moves):,} partitions, {at}{layout}: {exact}"


def move_table(made: CheckpointTranslation) -> RenderableType:
    planned = not made.is_committed
    table = new_table(
        [
            ("query source", "left"),
            ("partition", "left"),
            ("source", "right"),
            ("on target", "left"),
            ("goes on at", "right"),
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
            _NOTHING if move.target_offset is None else counted(move.lag_records),
        )
    return table


def remark_lines(made: CheckpointTranslation) -> list[str]:
    lines = [f"{move.source}: {note}" for move in made.moves for note in move.notes]
    if any("after" in (move.clamped, move.planned_clamped) for move in made.moves):
        lines.append("If the mirror still runs: let it catch up and translate again.")
    if made.untouched_sources:
        lines.append(
            f"Copied as they are, since they read nothing {made.flow} mirrors: sources "
            f"{', '.join(made.untouched_sources)} of the query."
        )
    if made.left_out_batches:
        lines.append(f"Older batches that are not in the copy: {made.left_out_batches:,}.")
    lines.append(f"Written to {made.out}. Start the query with it as checkpointLocation, and with")
    lines.append(f"  kafka.bootstrap.servers = {','.join(made.bootstrap_servers)}")
    lines += [f"  {now} in the place of {was}" for was, now in sorted(made.renamed.items())]
    return lines


def as_document(made: CheckpointTranslation) -> dict[str, Any]:
    return {
        "flow": str(made.flow),
        "directory": str(made.directory),
        "out": str(made.out),
        "layout": made.layout,
        "batch": made.batch,
        "is_committed": made.is_committed,
        "is_exact": made.is_exact,
        "left_out_batches": made.left_out_batches,
        "untouched_sources": list(made.untouched_sources),
        "bootstrap_servers": list(made.bootstrap_servers),
        "renamed": dict(made.renamed),
        "partitions": [_move_document(move) for move in made.moves],
    }


def _move_document(move: PartitionMove) -> dict[str, Any]:
    return {
        "query_source": move.query_source,
        "topic": move.source.topic,
        "partition": move.source.partition,
        "target_topic": move.target.topic,
        "source_offset": move.source_offset,
        "target_offset": move.target_offset,
        "clamped": move.clamped,
        "planned_source_offset": move.planned_source_offset,
        "planned_target_offset": move.planned_target_offset,
        "planned_clamped": move.planned_clamped,
        "lag_records": move.lag_records,
        "is_exact": move.is_exact,
        "notes": list(move.notes),
    }


def _number(offset: int | None) -> str:
    return _NOTHING if offset is None else f"{offset:,}"


def _planned(move: PartitionMove) -> str:
    return f"{_CLAMPED[move.planned_clamped]}{_number(move.planned_target_offset)}"
