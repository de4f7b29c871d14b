"""Tables of lanes and flows, readable without colour; one look for all. Runs on the driver."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text

from heliograph.cli.fitting import FittingTable, Side
from heliograph.clock import now_ms
from heliograph.lag.figures import NEVER, Lag, LagReport, seconds_words
from heliograph.lag.folding import fold, known_sum
from heliograph.model import Copying, FlowId, Idle, LaneId, LaneProgress, TopicName, badge
from heliograph.words import counted

__all__ = ["Side"]

UNKNOWN: Final = "?"
STALLED: Final = "stalled"
WAITING: Final = "waiting"
_DECISIONS_SHOWN: Final = 5


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
    catch_up_s: float | None = None
    """As `heliograph.lag` has it; None leaves it to lag and rate."""


def topic_table(rows: Iterable[TopicRow], *, remarks: bool = False) -> FittingTable:
    """State, mirrored, lag, rate, and a bar with time left; stalled and waiting topics first."""
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
    for row in sorted(rows, key=lambda row: (_rank(row.state), row.flow, row.topic)):
        bar: RenderableType = ""
        if row.lag_records:
            total = row.mirrored + row.lag_records
            bar = ProgressBar(total=total, completed=row.mirrored)
        cells: list[RenderableType] = [
            str(row.flow),
            row.topic,
            str(row.lanes),
            Text(row.state, style="red" if STALLED in row.state else ""),
            f"{row.mirrored:,}",
            number_or_unknown(row.lag_records),
            UNKNOWN if row.lag_s is None else f"{row.lag_s:.1f}",
            "" if row.records_per_s is None else f"{row.records_per_s:,.0f}",
            bar,
            time_left(row.lag_records, row.records_per_s)
            if row.catch_up_s is None or not row.lag_records
            else seconds_words(row.catch_up_s),
        ]
        table.add_row(*cells, *([row.remarks] if remarks else []))
    return table


def flow_table(
    progress: Mapping[LaneId, LaneProgress],
    rates: Mapping[LaneId, float],
    problems: Mapping[FlowId, str],
    standby: Mapping[FlowId, str],
    decided: Mapping[FlowId, Sequence[str]] | None = None,
    load: Sequence[str] = (),
    lag: LagReport | None = None,
    config_problem: str = "",
) -> RenderableType:
    """What `run` shows: the total, what is wrong, what is said of slots, one row a topic.

    A terminal shows the first lines of what is higher than itself, so the worst comes first.
    """
    topics: defaultdict[tuple[FlowId, TopicName], list[LaneProgress]] = defaultdict(list)
    for at in progress.values():
        topics[at.lane.flow, at.lane.source.topic].append(at)
    rows = [
        TopicRow(
            flow=flow,
            topic=topic,
            lanes=len(lanes),
            state=states(badge_at(at, rates.get(at.lane, 0.0)) for at in lanes),
            mirrored=sum(at.position for at in lanes),
            lag_records=known_sum([at.lag_records for at in lanes]),
            lag_s=lag_s(lanes),
            records_per_s=sum(rates.get(at.lane, 0.0) for at in lanes),
            catch_up_s=_catch_up_s(lag, flow, topic),
        )
        for (flow, topic), lanes in topics.items()
    ]
    total = total_line(
        [(badge_at(at, rates.get(lane, 0.0)), at.lag_records) for lane, at in progress.items()],
        topics=len(topics),
        records_per_s=sum(rates.values()),
    )
    parts: list[RenderableType] = [Text(total, style="bold")]
    parts += [Text(config_problem, style="red")] if config_problem else []
    parts += [Text(f"{flow}: {text}", style="red") for flow, text in problems.items()]
    for flow, of_flow in ({} if lag is None else lag.flows).items():
        parts += [Text(f"{flow}: {text}", style="red") for text in overrun_words([of_flow])]
    parts += [Text(f"{flow}: {text}") for flow, text in standby.items()]
    for flow, texts in (decided or {}).items():
        more = f"{flow}: and {len(texts) - _DECISIONS_SHOWN} more decisions"
        parts += [Text(f"{flow}: {text}") for text in texts[:_DECISIONS_SHOWN]]
        parts += [Text(more)] if len(texts) > _DECISIONS_SHOWN else []
    parts += map(Text, load)
    return Group(*parts, *([topic_table(rows)] if rows else []))


def overrun_words(lags: Iterable[Lag | None]) -> list[str]:
    """When the source deletes what waits, where that is near enough to be known."""
    known = [lag for lag in lags if lag is not None]
    first = fold(known) if known else None
    if first is None or first.overrun_s is None or first.overrun_s == NEVER:
        return []
    if not first.overrun_s:
        return [f"records that wait may be deleted on the source now ({first.overrun_by})"]
    when = seconds_words(first.overrun_s)
    return [f"records that wait may be deleted on the source in {when} ({first.overrun_by})"]


def _catch_up_s(lag: LagReport | None, flow: FlowId, topic: TopicName) -> float | None:
    found = None if lag is None else lag.topics.get((flow, topic))
    return None if found is None else found.catch_up_s


def badge_at(at: LaneProgress, records_per_s: float) -> str:
    """A lane that has caught up for a moment and still copies does not look idle."""
    return badge(Copying() if isinstance(at.state, Idle) and records_per_s else at.state)


def total_line(
    lanes: Iterable[tuple[str, int | None]], *, topics: int, records_per_s: float | None = None
) -> str:
    """Lanes by state, those that do not go on first, and their lag: `(state, lag)` each."""
    found = list(lanes)
    counts = Counter(state.partition(":")[0] for state, _ in found)
    by_state = ", ".join(
        f"{count:,} {state}"
        for state, count in sorted(counts.items(), key=lambda each: (_rank(each[0]), each[0]))
    )
    parts = [
        f"{counted(len(found), 'lane')} of {counted(topics, 'topic')}: {by_state or 'none'}",
        f"lag {lag_words([lag for _, lag in found])}",
        *([] if records_per_s is None else [f"{records_per_s:,.0f} records/s"]),
    ]
    return "; ".join(parts)


def lag_words(lags: Sequence[int | None]) -> str:
    """`250`, or `? (at least 250)` where that of some lanes is unknown."""
    known = sum(lag for lag in lags if lag is not None)
    if all(lag is not None for lag in lags):
        return f"{known:,}"
    return f"{UNKNOWN} (at least {known:,})" if known else UNKNOWN


def new_table(columns: Sequence[tuple[str, Side]]) -> FittingTable:
    return FittingTable(columns)


def states(found: Iterable[str]) -> str:
    """One state, or how many lanes are in each; those that do not go on first."""
    counts = Counter(found)
    if len(counts) == 1:
        return next(iter(counts))
    ordered = sorted(counts.items(), key=lambda each: (_rank(each[0]), each[0]))
    return ", ".join(f"{count} {state}" for state, count in ordered)


def _rank(state: str) -> int:
    """0 for what needs an operator, 1 for what waits, 2 for what goes on."""
    if STALLED in state:
        return 0
    return 1 if WAITING in state else 2


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


def lag_s(lanes: list[LaneProgress]) -> float | None:
    """Age of the oldest record that waits; 0 when none does, None where that is unknown."""
    if any(at.lag_records is None for at in lanes):
        return None
    waiting = [at.behind_since_ms for at in lanes if at.behind_since_ms >= 0 and at.lag_records]
    return max(0.0, (now_ms() - min(waiting)) / 1000) if waiting else 0.0


def time_left(lag_records: int | None, records_per_s: float | None) -> str:
    if not lag_records:
        return ""
    if not records_per_s:
        return UNKNOWN
    seconds = int(lag_records / records_per_s)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
