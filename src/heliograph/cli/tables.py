"""Tables of lanes and flows, readable without colour. Runs on the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from heliograph.clock import now_ms
from heliograph.model import FlowId, LaneId, LaneProgress, TopicName, badge


def flow_table(
    progress: Mapping[LaneId, LaneProgress],
    rates: Mapping[LaneId, float],
    problems: Mapping[FlowId, str],
) -> RenderableType:
    """One row a topic: lanes, state, mirrored, lag, rate, and a bar with time left while it
    catches up."""
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("flow", "left"),
        ("topic", "left"),
        ("lanes", "right"),
        ("state", "left"),
        ("mirrored", "right"),
        ("lag", "right"),
        ("lag s", "right"),
        ("records/s", "right"),
        ("", "left"),
        ("left", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    topics: defaultdict[tuple[FlowId, TopicName], list[LaneProgress]] = defaultdict(list)
    for at in progress.values():
        topics[at.lane.flow, at.lane.source.topic].append(at)
    for (flow, topic), lanes in sorted(topics.items()):
        lag = sum(at.lag_records for at in lanes)
        done = sum(at.position for at in lanes)
        rate = sum(rates.get(at.lane, 0.0) for at in lanes)
        bar: RenderableType = ""
        if lag:
            bar = ProgressBar(total=done + lag, completed=done, width=20)
        table.add_row(
            str(flow),
            topic,
            str(len(lanes)),
            ", ".join(sorted({badge(at.state) for at in lanes})),
            f"{done:,}",
            f"{lag:,}",
            f"{lag_s(lanes):.1f}",
            f"{rate:,.0f}",
            bar,
            time_left(lag, rate),
        )
    troubles = [Text(f"{flow}: {text}", style="red") for flow, text in problems.items()]
    return Group(table, *troubles)


def lag_s(lanes: list[LaneProgress]) -> float:
    """Age of the oldest record that waits; 0 when none does."""
    waiting = [at.behind_since_ms for at in lanes if at.behind_since_ms >= 0 and at.lag_records]
    return max(0.0, (now_ms() - min(waiting)) / 1000) if waiting else 0.0


def time_left(lag_records: int, records_per_s: float) -> str:
    if not lag_records:
        return ""
    if records_per_s <= 0:
        return "?"
    seconds = int(lag_records / records_per_s)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
