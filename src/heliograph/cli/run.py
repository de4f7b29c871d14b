"""`heliograph run`: mirror what a file says, until caught up or for ever. Runs on the driver."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from heliograph.broker.kerberos import require_kerberos
from heliograph.cli.live import open_display
from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED, start_logging
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.driver.run import Progress, RunResult
from heliograph.driver.run import run as run_mirror
from heliograph.driver.stop import StopRequest
from heliograph.model import Stalled
from heliograph.words import counted

log = logging.getLogger("heliograph")

_AT_ONCE_S: Final = 2.0

RUN_HELP: Final = """Mirror topics as FILE says, until told to stop.

Ctrl-C or SIGTERM drains: what was fetched is appended and settled, then the mirror ends. A second
one ends it at once. Either way nothing is lost and nothing repeated: the next run goes on exactly
there. A second driver of the same flows stands by and takes over when the first is gone. A flow
that `heliograph failover` has fenced is mirrored by no driver until its fence is lifted.

Ends with 1 when a flow or topic cannot be mirrored (a cluster does not answer, a topic cannot be
created) or a job such as checkpoints fails; with 3 when a lane is stalled at the end or waits for
`heliograph adopt`, or all flows are fenced. With --once such a flow is given up after 10 seconds,
and a lane that is stalled after a minute.

Examples:

  heliograph run mm2.properties

  heliograph run mm2.properties --once --master 'local[4]'
"""


def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An mm2.properties file, with or without own keys."),
    ],
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
    no_lease: Annotated[
        bool,
        typer.Option(
            "--no-lease", help="Mirror even where another driver leads. Nothing breaks; both work."
        ),
    ] = False,
) -> None:
    start_logging()
    config = load_config(file)
    require_kerberos(config.clusters.values())
    for note in config.notes:
        log.info("%s", note)
    if master is not None or slots is not None:
        engine = config.engine
        update = {"master": master or engine.master, "slots": slots or engine.slots}
        config = config.model_copy(update={"engine": engine.model_copy(update=update)})
    raise typer.Exit(_verdict(mirror(config, once=once, live=not quiet, lease=not no_lease)))


def mirror(
    config: MirrorConfig,
    *,
    once: bool = False,
    live: bool = True,
    lease: bool = True,
    until: Callable[[Progress], bool] = lambda _: False,
) -> RunResult:
    """Run a mirror as a command does: signals stop it, and its progress is shown."""
    stop = StopRequest()
    with _stop_signals(stop), open_display(live) as display:
        return run_mirror(
            config,
            once=once,
            lease=lease,
            until=until,
            stop=stop,
            on_progress=display.show,
        )


def _verdict(result: RunResult) -> int:
    for at in result.stalled:
        if isinstance(at.state, Stalled):
            log.error("%s: stalled: %s: %s", at.lane, at.state.reason, at.state.detail)
    for flow, why in result.failures.items():
        log.error("%s: %s", flow, why)
    records = counted(sum(at.records for at in result.progress.values()), "record")
    log.info("%s, %s mirrored by this run", counted(len(result.progress), "lane"), records)
    if result.failures:
        return EXIT_FAILED
    return 0 if result.is_well else EXIT_STALLED


@contextmanager
def _stop_signals(stop: StopRequest) -> Iterator[None]:
    """The first signal drains, the second one ends the process at once."""

    def hear(number: int, frame: FrameType | None) -> None:
        if stop.is_made:
            # Slots see their driver vanish and stop by themselves; the target log has all that
            # counts. What is tidied up on the way out may wait for a drain that does not end.
            end = threading.Timer(_AT_ONCE_S, os._exit, (128 + number,))
            end.daemon = True
            end.start()
            raise SystemExit(128 + number)
        log.info("draining in-flight batches; press Ctrl-C again to exit immediately")
        stop.make()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
