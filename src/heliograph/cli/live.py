"""What `heliograph run` shows: a live table on a terminal, or changes. Runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live

from heliograph.cli.tables import flow_table
from heliograph.clock import monotonic_s
from heliograph.engine.supervisor import SlotHealth
from heliograph.model import FlowId, LaneId, LaneProgress, badge

log = logging.getLogger("heliograph")

_SUMMARY_S: Final = 10.0


class Display(Protocol):
    def show(
        self,
        progress: Mapping[LaneId, LaneProgress],
        health: Sequence[SlotHealth],
        problems: Mapping[FlowId, str],
    ) -> None: ...


@contextmanager
def open_display(live: bool) -> Iterator[Display]:
    """A live table where there is a terminal to draw on, lines in the log otherwise."""
    console = Console(stderr=True)
    if not (live and console.is_terminal):
        yield _Lines()
        return
    with Live(console=console, refresh_per_second=4, transient=False) as screen:
        yield _Table(screen)


class _Lines:
    """Says when a lane's state changes, and a summary now and then."""

    def __init__(self) -> None:
        self._badges: dict[LaneId, str] = {}
        self._next_s = monotonic_s() + _SUMMARY_S
        self._records: Mapping[LaneId, int] = {}
        self._replaced: dict[int, int] = {}

    def show(
        self,
        progress: Mapping[LaneId, LaneProgress],
        health: Sequence[SlotHealth],
        problems: Mapping[FlowId, str],
    ) -> None:
        for slot in health:
            if slot.replaced != self._replaced.get(slot.slot, 0):
                self._replaced[slot.slot] = slot.replaced
                log.warning("slot %d was replaced: %s", slot.slot, slot.detail)
        for lane, at in progress.items():
            state = badge(at.state)
            if state.startswith("stalled") and self._badges.get(lane) != state:
                log.warning("%s: %s: %s", lane, state, getattr(at.state, "detail", ""))
            elif self._badges.get(lane, "").startswith("stalled") and state != self._badges[lane]:
                log.info("%s: %s", lane, state)
            self._badges[lane] = state
        if monotonic_s() >= self._next_s:
            self._next_s = monotonic_s() + _SUMMARY_S
            records = {lane: at.records for lane, at in progress.items()}
            lag = sum(at.lag_records for at in progress.values())
            # A lane that left, or was taken anew, counts from 0: that is no negative rate.
            new = sum(max(0, n - self._records.get(lane, 0)) for lane, n in records.items())
            rate = new / _SUMMARY_S
            self._records = records
            log.info("%d lanes, lag %d records, %.0f records/s", len(progress), lag, rate)


class _Table:
    def __init__(self, screen: Live) -> None:
        self._screen = screen
        self._last: tuple[float, dict[LaneId, int]] = (monotonic_s(), {})
        self._rates: dict[LaneId, float] = {}

    def show(
        self,
        progress: Mapping[LaneId, LaneProgress],
        health: Sequence[SlotHealth],
        problems: Mapping[FlowId, str],
    ) -> None:
        at_s, before = self._last
        elapsed_s = monotonic_s() - at_s
        if elapsed_s >= 1.0:
            records = {lane: at.records for lane, at in progress.items()}
            self._rates = {
                lane: max(0, count - before.get(lane, 0)) / elapsed_s
                for lane, count in records.items()
            }
            self._last = (monotonic_s(), records)
        self._screen.update(flow_table(progress, self._rates, problems))
