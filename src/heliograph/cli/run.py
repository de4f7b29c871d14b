"""`heliograph run`: mirror what a file says, until caught up or for ever. Runs on the driver."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from heliograph.cli.live import Display, open_display
from heliograph.clock import monotonic_s
from heliograph.config.load import load_config
from heliograph.config.schema import EngineConfig, MirrorConfig
from heliograph.model import LaneId, LaneProgress, Stalled
from heliograph.services.desk import LedgerDesk
from heliograph.services.steer import Mirror
from heliograph.spark.session import start_session, stop_session, task_slots
from heliograph.spark.slots import Slots

log = logging.getLogger("heliograph")

_TICK_S: Final = 0.25
_REBALANCE_S: Final = 30.0
_DRAIN_S_MAX: Final = 60.0
_CORES_PER_SLOT: Final = 2
"""One slot fills its target broker long before it fills a core; more of them only share that
broker."""
EXIT_STALLED: Final = 3


def run(
    file: Annotated[Path, typer.Argument(help="An mm2.properties file, with or without own keys.")],
    once: Annotated[
        bool, typer.Option("--once", help="Catch up with the source, settle and end.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master; overrides the file. Default: local[*]."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Spark tasks that carry lanes.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No live table; only what changes is said.")
    ] = False,
) -> None:
    """Mirror topics as FILE says.

    Ctrl-C or SIGTERM drains: what was fetched is appended and settled, then the mirror ends. A
    second one
    ends it at once. Either way nothing is lost and nothing repeated: the next run goes on exactly
    there.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    config = load_config(file)
    for note in config.notes:
        log.info("%s", note)
    if master is not None or slots is not None:
        engine = config.engine
        update = {"master": master or engine.master, "slots": slots or engine.slots}
        config = config.model_copy(update={"engine": engine.model_copy(update=update)})
    raise typer.Exit(mirror(config, once=once, live=not quiet))


def mirror(config: MirrorConfig, *, once: bool, live: bool) -> int:
    """Run all flows of `config`; the exit code says whether every lane was well at the end."""
    began_s = monotonic_s()

    def phase(what: str) -> None:
        log.info("[%.1f s] %s", monotonic_s() - began_s, what)

    with _stop_signals() as stop:
        session = start_session(config.engine, say=phase)
        phase("Spark is up")
        desk = LedgerDesk(config.clusters)
        count = slot_count(config.engine, task_slots(session, config.engine))
        slots = Slots(session, clusters=config.clusters, engine=config.engine)
        try:
            slots.start(count)
            steered = Mirror(config, desk, count)
            with open_display(live) as display:
                steered.steer(slots)
                phase(f"{len(steered.lanes)} lanes handed to {count} slots")
                progress = _follow(steered, slots, stop, display, once=once)
            if stop.wanted < 2:
                phase("draining")
                slots.drain(_DRAIN_S_MAX)
                progress = slots.progress() or progress
            phase("settled")
        finally:
            slots.stop()
            desk.close()
            stop_session(session)
    return _verdict(progress, config)


def slot_count(engine: EngineConfig, room: int) -> int:
    """As many slots as asked for, or one for every two cores; never more than Spark can run at
    once."""
    cores = max(1, round(room * engine.slot_cpus))
    return min(room, engine.slots or max(1, cores // _CORES_PER_SLOT))


def _follow(
    steered: Mirror, slots: Slots, stop: StopSignals, display: Display, *, once: bool
) -> Mapping[LaneId, LaneProgress]:
    rebalance_s = monotonic_s() + _REBALANCE_S
    first = True
    while True:
        progress = steered.watch(slots)
        display.show(progress, slots.health(), steered.problems)
        if first and any(at.records for at in progress.values()):
            log.info("first records mirrored")
            first = False
        if stop.wanted or (once and steered.finished(progress)):
            return progress
        if steered.due:
            steered.steer(slots)
        elif monotonic_s() >= rebalance_s:
            steered.rebalance(slots)
            rebalance_s = monotonic_s() + _REBALANCE_S
        time.sleep(_TICK_S)


def _verdict(progress: Mapping[LaneId, LaneProgress], config: MirrorConfig) -> int:
    stalled = [at for at in progress.values() if isinstance(at.state, Stalled)]
    for at in stalled:
        if isinstance(at.state, Stalled):
            log.error("%s: stalled: %s: %s", at.lane, at.state.reason, at.state.detail)
    records = sum(at.records for at in progress.values())
    log.info("%d lanes, %d records mirrored by this run", len(progress), records)
    return EXIT_STALLED if stalled else 0


class StopSignals:
    """How often somebody asked to stop."""

    def __init__(self) -> None:
        self.wanted = 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.wanted += 1
        if self.wanted == 1:
            log.info("stopping: settling what is on its way; once more ends at once")
        else:
            # Slots see their driver vanish and stop by themselves; the target log has all that
            # counts.
            raise SystemExit(128 + number)


@contextmanager
def _stop_signals() -> Iterator[StopSignals]:
    stop = StopSignals()
    before = {
        number: signal.signal(number, stop.hear) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
