"""Tables of lanes and flows, readable without colour; one look for all. Runs on the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from heliograph.clock import now_ms
from heliograph.model import FlowId, LaneId, LaneProgress, TopicName, badge

UNKNOWN: Final = "?"
_BAR_WIDTH_MIN: Final = 4
_BAR_WIDTH_MAX: Final = 20
_WIDTHS_MIN: Final = {"topic": 10, "state": 8, "left": 7}
Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic of a flow, or one lane of it; None is unknown."""

    flow: FlowId
    topic: str
    lanes: int
    state: str
    mirrored: int
    lag_records: int | None
    lag_s: float | None
    records_per_s: float | None
    remarks: str = ""


def topic_table(rows: Iterable[TopicRow], *, remarks: bool = False) -> Table:
    """State, mirrored, lag, rate, and a bar with time left while it catches up."""
    columns: list[tuple[str, Side]] = [
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
    ]
    table = new_table([*columns, ("remarks", "left")] if remarks else columns)
    for row in rows:
        bar: RenderableType = ""
        if row.lag_records:
            total = row.mirrored + row.lag_records
            bar = ProgressBar(total=total, completed=row.mirrored)
        cells: list[RenderableType] = [
            str(row.flow),
            row.topic,
            str(row.lanes),
            Text(row.state, style="red" if row.state.startswith("stalled") else ""),
            f"{row.mirrored:,}",
            number_or_unknown(row.lag_records),
            UNKNOWN if row.lag_s is None else f"{row.lag_s:.1f}",
            "" if row.records_per_s is None else f"{row.records_per_s:,.0f}",
            bar,
            time_left(row.lag_records, row.records_per_s),
        ]
        table.add_row(*cells, *([row.remarks] if remarks else []))
    return table


def flow_table(
    progress: Mapping[LaneId, LaneProgress],
    rates: Mapping[LaneId, float],
    problems: Mapping[FlowId, str],
) -> RenderableType:
    """What `run` shows: one row a topic."""
    topics: defaultdict[tuple[FlowId, TopicName], list[LaneProgress]] = defaultdict(list)
    for at in progress.values():
        topics[at.lane.flow, at.lane.source.topic].append(at)
    rows = [
        TopicRow(
            flow=flow,
            topic=topic,
            lanes=len(lanes),
            state=states(badge(at.state) for at in lanes),
            mirrored=sum(at.position for at in lanes),
            lag_records=sum(at.lag_records for at in lanes),
            lag_s=lag_s(lanes),
            records_per_s=sum(rates.get(at.lane, 0.0) for at in lanes),
        )
        for (flow, topic), lanes in sorted(topics.items())
    ]
    troubles = [Text(f"{flow}: {text}", style="red") for flow, text in problems.items()]
    return Group(topic_table(rows), *troubles)


def new_table(columns: Sequence[tuple[str, Side]], title: str | None = None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for name, justify in columns:
        if not name:
            table.add_column(name, min_width=_BAR_WIDTH_MIN, max_width=_BAR_WIDTH_MAX)
        else:
            # Names are for copying, so they fold rather than end in dots; numbers stay whole.
            table.add_column(
                name,
                justify=justify,
                overflow="fold",
                no_wrap=justify == "right",
                min_width=_WIDTHS_MIN.get(name),
            )
    return table


def states(found: Iterable[str]) -> str:
    return ", ".join(sorted(set(found)))


def number_or_unknown(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def ago(at_ms: int) -> str:
    """How long ago, in words short enough for a table."""
    seconds = max(0.0, (now_ms() - at_ms) / 1000)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d ago"


def lag_s(lanes: list[LaneProgress]) -> float:
    """Age of the oldest record that waits; 0 when none does."""
    waiting = [at.behind_since_ms for at in lanes if at.behind_since_ms >= 0 and at.lag_records]
    return max(0.0, (now_ms() - min(waiting)) / 1000) if waiting else 0.0


def time_left(lag_records: int | None, records_per_s: float | None) -> str:
    if not lag_records:
        return ""
    if not records_per_s:
        return UNKNOWN
    seconds = int(lag_records / records_per_s)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
