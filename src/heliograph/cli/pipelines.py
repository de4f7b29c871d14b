"""Pipelines on the command line: their rows of `status`, and how they are named. Runs on the
driver."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import RenderableType
from rich.text import Text as Styled

from heliograph.cli.document import Document, OrNull
from heliograph.cli.tables import ago, new_table, number_or_unknown
from heliograph.config.schema import MirrorConfig
from heliograph.inspect.flow_status import FlowStatus
from heliograph.ledger.pipeline_note import PipelineState
from heliograph.model import FlowId


class PipelineDocument(Document):
    name: str
    state: str
    reason: OrNull
    at_ms: int
    batch: int | None
    batch_ms: int | None
    batch_at_ms: int | None
    records_read: int
    rows_written: int
    rows_left_out: int
    records_per_s: float | None
    lag_records: int | None
    restarts: int


def as_topics(config: MirrorConfig, flows: Sequence[FlowId], names: Sequence[str]) -> list[str]:
    """What decisions name these pipelines by. Raises `typer.BadParameter`."""
    found: list[str] = []
    for flow in flows:
        known = {each.name: each.as_topic for each in config.flow(flow).pipelines}
        for name in names:
            if name not in known:
                has = ", ".join(known) or "none"
                raise typer.BadParameter(f"--pipeline: {flow} has no pipeline {name} ({has})")
            found.append(known[name])
    return list(dict.fromkeys(found))


def is_any_stalled(flows: Sequence[FlowStatus]) -> bool:
    return any(each.state is PipelineState.STALLED for flow in flows for each in flow.pipelines)


def pipeline_table(flows: Sequence[FlowStatus]) -> RenderableType:
    table = new_table(
        [
            ("pipeline", "left"),
            ("state", "left"),
            ("batch", "right"),
            ("took", "right"),
            ("written", "right"),
            ("lag", "right"),
            ("records/s", "right"),
            ("remarks", "left"),
        ]
    )
    for flow in flows:
        for each in flow.pipelines:
            is_stalled = each.state is PipelineState.STALLED
            took = "?" if each.batch_ms is None else f"{each.batch_ms / 1000:,.1f} s"
            rate = None if each.records_per_s is None else round(each.records_per_s)
            restarts = f"started again {each.restarts:,} times" if each.restarts else ""
            seen = "" if flow.holder is not None else f"as of {ago(each.at_ms)}"
            table.add_row(
                f"{flow.flow}/{each.name}",
                Styled(each.state.value, style="red" if is_stalled else ""),
                number_or_unknown(each.batch),
                took,
                f"{each.rows_written:,}",
                number_or_unknown(each.lag_records),
                number_or_unknown(rate),
                "; ".join(filter(None, (each.reason, restarts, seen))),
            )
    return table
