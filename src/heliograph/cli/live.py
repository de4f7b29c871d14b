"""What `heliograph run` shows: a live table on a terminal, or changes. Runs on the driver."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live

from heliograph.cli.tables import flow_table, lag_words
from heliograph.clock import monotonic_s
from heliograph.driver.live import RunStatus
from heliograph.model import ClusterAlias, FlowId, LaneId, LaneProgress, Stalled, Waiting, badge
from heliograph.words import counted

log = logging.getLogger("heliograph")

_SUMMARY_S: Final = 10.0
_LANES_NAMED_MAX: Final = 10
"""Of lanes that stall together, as those of a dead cluster do, only the first is named."""


class Display(Protocol):
    def show(self, at: RunStatus) -> None: ...


@contextmanager
def open_display(live: bool) -> Iterator[Display]:
    """A live table where there is a terminal to draw on, lines in the log otherwise.

    Without `live` only changes are said.
    """
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not (live and console.is_terminal):
        yield Lines(with_summary=live)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as screen:
        yield _Table(screen)


class Changes:
    """Says when a lane stalls or goes on again, meets what nobody knows, or a slot was replaced.

    That a lane was moved, or that there are more or fewer slots, the driver logs itself.
    """

    def __init__(self) -> None:
        self._stalled: dict[LaneId, str] = {}
        self._replaced: dict[int, int] = {}
        self._met_unknown: set[LaneId] = set()
        self._seen: Mapping[LaneId, LaneProgress] = {}

    def show(self, at: RunStatus) -> None:
        for slot in at.slots:
            if slot.replaced != self._replaced.get(slot.slot, 0):
                self._replaced[slot.slot] = slot.replaced
                log.warning("slot %d was replaced: %s", slot.slot, slot.detail)
        if at.progress is not self._seen:
            self._seen = at.progress
            self._show_lanes(at.progress)

    def _show_lanes(self, progress: Mapping[LaneId, LaneProgress]) -> None:
        for lane, each in progress.items():
            if each.unknown_control_records and lane not in self._met_unknown:
                self._met_unknown.add(lane)
                log.warning(
                    "%s: control records of a kind this version does not know are skipped, %s so "
                    "far; a later Kafka writes them",
                    lane,
                    f"{each.unknown_control_records:,}",
                )
        stalled = {
            lane: badge(each.state)
            for lane, each in progress.items()
            if isinstance(each.state, Stalled)
        }
        began: defaultdict[tuple[FlowId, str], list[LaneProgress]] = defaultdict(list)
        for lane, state in stalled.items():
            if self._stalled.get(lane) != state:
                began[lane.flow, state].append(progress[lane])
        ended: defaultdict[tuple[FlowId, str], list[LaneProgress]] = defaultdict(list)
        for lane, state in self._stalled.items():
            # A lane that left goes on elsewhere, or with another plan, which says so itself.
            if lane not in stalled and lane in progress:
                ended[lane.flow, state].append(progress[lane])
        for (flow, state), lanes in began.items():
            _say(logging.WARNING, flow, state, lanes)
        for (flow, state), lanes in ended.items():
            _say(logging.INFO, flow, f"no longer {state}", lanes)
        self._stalled = stalled


class Lines:
    """Changes, and unless they were all that was asked for a summary while anything moves."""

    def __init__(self, *, with_summary: bool) -> None:
        self._with_summary = with_summary
        self._changes = Changes()
        self._next_s = monotonic_s() + _SUMMARY_S
        self._before: Mapping[LaneId, LaneProgress] = {}
        self._summaries = Summaries()
        self._said = ""

    def show(self, at: RunStatus) -> None:
        self._changes.show(at)
        if not self._with_summary or monotonic_s() < self._next_s:
            return
        self._next_s = monotonic_s() + _SUMMARY_S
        before, self._before = self._before, at.progress
        new = 0
        if before is not at.progress:
            lanes = at.progress.values()
            new = sum(_since(before, each, lambda lane: lane.records) for each in lanes)
        said = self._summaries.of(at)
        if new or said != self._said:
            carried = "".join(_carried(before, at.progress.values()))
            log.info("%s, %.0f records/s%s", said, new / _SUMMARY_S, carried)
        self._said = said


class _Table:
    def __init__(self, screen: Live) -> None:
        self._screen = screen
        self._changes = Changes()
        self._last: tuple[float, dict[LaneId, int]] = (monotonic_s(), {})
        self._rates: dict[LaneId, float] = {}

    def show(self, at: RunStatus) -> None:
        self._changes.show(at)
        at_s, before = self._last
        elapsed_s = monotonic_s() - at_s
        if elapsed_s >= 1.0:
            records = {lane: each.records for lane, each in at.progress.items()}
            self._rates = {
                lane: max(0, count - before.get(lane, 0)) / elapsed_s
                for lane, count in records.items()
            }
            self._last = (monotonic_s(), records)
        lines = tuple(load_lines(at))
        self._screen.update(
            flow_table(
                at.progress,
                self._rates,
                at.problems,
                at.standby,
                at.decided,
                load=lines,
                lag=at.lag(),
                config_problem=at.config.problem,
            )
        )


def _say(level: int, flow: FlowId, what: str, lanes: Sequence[LaneProgress]) -> None:
    if len(lanes) > _LANES_NAMED_MAX:
        first = lanes[0]
        count = counted(len(lanes), "lane")
        log.log(level, "%s: %s %s, first %s%s", flow, count, what, first.lane.source, _why(first))
        return
    for at in lanes:
        log.log(level, "%s: %s%s", at.lane, what, _why(at))


def _why(at: LaneProgress) -> str:
    return f": {at.state.detail}" if isinstance(at.state, Stalled) else ""


def _since(
    before: Mapping[LaneId, LaneProgress], at: LaneProgress, count: Callable[[LaneProgress], int]
) -> int:
    """A lane that left, or was taken anew, counts from 0: that is no negative rate."""
    earlier = before.get(at.lane)
    return max(0, count(at) - (count(earlier) if earlier is not None else 0))


def _carried(before: Mapping[LaneId, LaneProgress], lanes: Iterable[LaneProgress]) -> Iterator[str]:
    """What crossed the links since, cluster by cluster."""
    moved: defaultdict[tuple[str, ClusterAlias], int] = defaultdict(int)
    for at in lanes:
        moved["from", at.lane.flow.source] += _since(before, at, lambda lane: lane.received_bytes)
        moved["to", at.lane.flow.target] += _since(before, at, lambda lane: lane.sent_bytes)
    for (way, cluster), count in moved.items():
        if count:
            yield f", {count / _SUMMARY_S / 1e6:.1f} MB/s {way} {cluster}"


def load_lines(at: RunStatus) -> Iterator[str]:
    """How many slots there are and why, and which lanes were moved lately."""
    if at.slots_why:
        yield at.slots_why
    for lane, why in islice(at.moved.items(), _LANES_NAMED_MAX):
        yield f"{lane} moved: {why}"


class Summaries:
    """A run in one line, asked for every second: lanes are counted only where there is news."""

    def __init__(self) -> None:
        self._seen: Mapping[LaneId, LaneProgress] | None = None
        self._counts = ("", "")

    def of(self, at: RunStatus) -> str:
        if at.progress is not self._seen:
            self._seen, self._counts = at.progress, _counts(at.progress)
        lanes, lag = self._counts
        troubled = f", {counted(len(at.problems), 'flow')} with problems" if at.problems else ""
        if at.config.problem:
            troubled += ", a changed configuration that is not followed"
        return f"{lanes}{troubled}, {lag}"


def _counts(progress: Mapping[LaneId, LaneProgress]) -> tuple[str, str]:
    """Lanes by state, and their lag."""
    stalled = sum(isinstance(each.state, Stalled) for each in progress.values())
    waiting = sum(isinstance(each.state, Waiting) for each in progress.values())
    parts = [
        counted(len(progress), "lane"),
        *([f"{stalled:,} stalled"] if stalled else []),
        *([f"{waiting:,} waiting"] if waiting else []),
    ]
    # With nothing carried there is nothing to be up to date with.
    lags = [each.lag_records for each in progress.values()] or [None]
    return ", ".join(parts), f"lag {lag_words(lags)} records"
