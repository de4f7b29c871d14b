"""One run of the load test: the ordinary engine copies as fast as it can. Driver only; blocks."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.driver.live import LiveMirror, Progress, RunStatus
from heliograph.driver.run import run
from heliograph.driver.stop import StopRequest
from heliograph.engine.supervisor import SlotState
from heliograph.engine.tally import SlotTally
from heliograph.errors import MirrorError
from heliograph.model import Stalled
from heliograph.tune.knee import Side, Step, measured

_START_S_MAX: Final = 120.0
_SETTLE_S: Final = 1.0
"""Slots report their figures once a second."""


class NoRoom(MirrorError):
    """Spark has not as many cores as slots were asked for."""


def run_step(config: MirrorConfig, slots: int, *, seconds_max: float) -> Step:
    """Copy until all is there or the time is over. Raises `MirrorError`; `NoRoom` where not all
    slots could be started; `KeyboardInterrupt` where a signal came meanwhile."""
    watched = _Watched(slots, seconds_max)
    with _stopped_by_signals() as stop:
        run(
            config,
            stop=stop,
            until=watched.is_over,
            on_progress=watched.hear,
            services=(watched.service,),
        )
    if stop.is_made:
        # Also where all was copied by then: more steps may follow, and are not wanted.
        raise KeyboardInterrupt
    return watched.step()


@contextmanager
def _stopped_by_signals() -> Iterator[StopRequest]:
    """The first signal ends the run, drained; the second does not wait for that."""
    stop = StopRequest()

    def hear(number: int, frame: FrameType | None) -> None:
        if stop.is_made:
            raise KeyboardInterrupt
        stop.make()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watched:
    def __init__(self, slots: int, seconds_max: float) -> None:
        self._slots, self._seconds_max = slots, seconds_max
        self._samples: list[tuple[float, int, int]] = []
        self._running = 0
        self._live: LiveMirror | None = None
        self._began_s = monotonic_s()
        self._first_s: float | None = None
        self._done_s: float | None = None
        self._problem = self._latest = ""

    @asynccontextmanager
    async def service(self, live: LiveMirror) -> AsyncIterator[None]:
        self._live = live
        yield

    def hear(self, status: RunStatus) -> None:
        running = sum(slot.state is SlotState.RUNNING for slot in status.slots)
        self._running = max(self._running, running)
        lanes = status.progress.values()
        records = sum(at.records for at in lanes)
        self._samples.append((status.at_s, records, sum(at.bytes for at in lanes)))
        if records and self._first_s is None:
            self._first_s = status.at_s
        for at in lanes:
            if isinstance(at.state, Stalled) and not at.state.retrying:
                self._problem = f"{at.state.reason.value} ({at.state.detail})"
        # What is wrong while all begins may pass.
        self._latest = "; ".join(status.problems.values())

    def is_over(self, progress: Progress) -> bool:
        now_s = monotonic_s()
        if self._problem:
            return True
        if self._first_s is None:
            return now_s - self._began_s > _START_S_MAX
        copied = all(at.source_end_offset >= 0 and at.lag_records == 0 for at in progress.values())
        if self._done_s is None and (copied or now_s - self._first_s > self._seconds_max):
            self._done_s = now_s
        return self._done_s is not None and now_s - self._done_s >= _SETTLE_S

    def step(self) -> Step:
        if self._problem:
            raise MirrorError(f"the load test could not copy: {self._problem}")
        if self._first_s is None:
            why = f": {self._latest}" if self._latest else ""
            raise MirrorError(f"no record was copied within {_START_S_MAX:g} s{why}")
        if self._running < self._slots:
            raise NoRoom(f"Spark has room for {self._running} slots at the moment")
        seconds, records, size = measured(self._samples)
        tally = SlotTally() if self._live is None else self._live.tally()
        copied = max(1, self._samples[-1][2])
        # CPU was counted for all of it, the rate for what was seen to move.
        share = size / copied
        cpu_s = sum(each["user_s"] + each["system_s"] for each in tally.slots.values())
        return Step(
            slots=self._slots,
            seconds=seconds,
            records=records,
            bytes=size,
            cpu_s=cpu_s * share,
            source=_side(tally, "from"),
            target=_side(tally, "to"),
        )


def _side(tally: SlotTally, way: str) -> Side:
    counters = [total.counters for (_, which), total in tally.links.items() if which == way]
    requests = sum(each["requests"] for each in counters)
    return Side(
        bytes=sum(each["bytes"] for each in counters),
        requests=requests,
        answer_ms=sum(each["answer_ms"] for each in counters) / requests if requests else None,
        throttle_ms=sum(each["throttle_ms"] for each in counters),
    )
