"""`heliograph run`: mirror what a file says, until caught up or for ever. Runs on the driver."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from heliograph.broker.kerberos import require_kerberos
from heliograph.cli.background import Background, go_to_background
from heliograph.cli.live import Summaries, open_display
from heliograph.cli.options import File, OnlyFlows
from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED, start_logging
from heliograph.cli.service import ServiceNotes
from heliograph.config.api import ApiConfig, listen_address
from heliograph.config.choice import choose
from heliograph.config.explain import flow_values
from heliograph.config.load import ExplainedConfig, load_explained, real_environment
from heliograph.config.mm2.values import BadValue
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.driver.heap import settled_heap
from heliograph.driver.live import Progress, RunStatus, Service
from heliograph.driver.result import RunResult
from heliograph.driver.run import run as run_mirror
from heliograph.driver.schedule import run_every
from heliograph.driver.stop import StopRequest
from heliograph.driver.watching import WatchedFile
from heliograph.errors import ConfigError
from heliograph.inspect.why_reading import Values, no_values
from heliograph.model import Stalled
from heliograph.words import counted, seconds_of

log = logging.getLogger("heliograph")

_AT_ONCE_S: Final = 2.0

RUN_HELP: Final = """Mirror topics as FILE says, until told to stop.

Ctrl-C or SIGTERM drains: what was fetched is appended and settled, then the mirror ends. A second
one ends it at once. Either way nothing is lost and nothing repeated: the next run goes on exactly
there. A second driver of the same flows stands by and takes over when the first is gone; with
--clusters or --flow several drivers share the flows of one file. A flow that `heliograph failover`
has fenced is mirrored by no driver until its fence is lifted.

With --once --every 1h the mirror catches up every hour: runs never overlap, FILE is read again
before each, a signal between two ends it at once, and the exit code is that of the last run.

FILE and the files it names are watched: what is changed there acts while the mirror runs, without
touching lanes it does not concern. A file with a problem, or with a key that needs a restart,
changes nothing and is shown as a problem. SIGHUP has FILE read at once.

Ends with 1 when a flow or topic cannot be mirrored (a cluster does not answer, a topic cannot be
created) or a job such as checkpoints fails; with 3 when a lane is stalled at the end or waits for
`heliograph adopt`, or all flows are fenced. With --once such a flow is given up after 10 seconds,
and a lane that is stalled after a minute.

Examples:

  heliograph run mm2.properties

  heliograph run mm2.properties --once --master 'local[4]'

  heliograph run mm2.properties --clusters B C

  heliograph run mm2.properties --daemon --log-file /var/log/heliograph.log
"""


def run(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Catch up with the source, settle and end.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="With --once: again every 30m, 1h, 7d."),
    ] = None,
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            "--clusters", metavar="B C …", help="Only flows with one of these targets; after FILE."
        ),
    ] = None,
    flow: OnlyFlows = None,
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
    api: Annotated[
        str | None,
        typer.Option(
            "--api", metavar="HOST:PORT", help="Serve the REST API there; overrides `api.listen`."
        ),
    ] = None,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="Run in the background; returns once it runs.")
    ] = False,
    pid_file: Annotated[
        Path | None, typer.Option("--pid-file", help="Of --daemon; FILE.pid by default.")
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option("--log-file", help="Of --daemon; FILE.log by default.")
    ] = None,
) -> None:
    every_s = _every_s(every, once=once)
    if not daemon and (pid_file or log_file):
        raise typer.BadParameter("--pid-file and --log-file need --daemon")
    start_logging()

    def loaded(around: Environment) -> ExplainedConfig:
        explained = load_explained(file, around)
        config = choose(explained.config, clusters=clusters or (), flows=flow or ())
        return replace(explained, config=as_told(config, master=master, slots=slots, api=api))

    behind = (pid_file or Path(f"{file}.pid"), log_file or Path(f"{file}.log"))
    how = Running(
        once=once,
        every_s=every_s,
        quiet=quiet,
        lease=not no_lease,
        background=behind if daemon else None,
    )
    raise typer.Exit(keep_running(loaded, how))


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How a command mirrors."""

    once: bool
    every_s: int | None = None
    quiet: bool
    lease: bool = True
    background: tuple[Path, Path] | None
    """Pid file and log file of a run that goes to the background."""
    until: Callable[[Progress], bool] = lambda _: False
    """Ends the run, drained, once it is true."""


def keep_running(load: Callable[[Environment], ExplainedConfig], how: Running) -> int:
    """Mirror what `load` says, follow what it reads, and say with which exit code it ended."""
    latest: list[ExplainedConfig] = []

    def loaded(around: Environment) -> MirrorConfig:
        latest[:] = [load(around)]
        return latest[0].config

    watched = WatchedFile(loaded)
    config = watched.load()
    for note in config.notes:
        log.info("%s", note)
    background = Background() if how.background is None else go_to_background(*how.background)
    service, summaries = ServiceNotes(), Summaries()

    def runs(status: str) -> None:
        background.runs()
        service.running(status)

    with (
        stop_signals(service.stopping) as stop,
        nullcontext() if how.once else reload_signal(watched, stop),
    ):

        def mirrored(config: MirrorConfig) -> int:
            result = mirror(
                config,
                watched=None if how.once else watched,
                once=how.once,
                live=not how.quiet,
                lease=how.lease,
                until=how.until,
                stop=stop,
                heard=lambda at: runs(summaries.of(at)),
                values=lambda pair: flow_values(latest[0], pair),
            )
            return _verdict(result)

        if how.every_s is None:
            return mirrored(config)
        # Read again each time: what was changed in between counts from the next run on.
        return run_every(
            how.every_s,
            lambda: mirrored(loaded(real_environment())),
            stop,
            failed=EXIT_FAILED,
            on_wait=runs,
        )


def mirror(
    config: MirrorConfig,
    *,
    watched: WatchedFile | None = None,
    once: bool = False,
    live: bool = True,
    lease: bool = True,
    until: Callable[[Progress], bool] = lambda _: False,
    stop: StopRequest | None = None,
    heard: Callable[[RunStatus], None] = lambda _: None,
    values: Values = no_values,
) -> RunResult:
    """Run a mirror as a command does: its progress is shown, what is `watched` is followed, and
    unless the caller has its own `stop`, signals stop it."""
    with (
        stop_signals() if stop is None else nullcontext(stop) as stopping,
        open_display(live) as display,
    ):

        def show(at: RunStatus) -> None:
            display.show(at)
            heard(at)

        return run_mirror(
            config,
            once=once,
            lease=lease,
            until=until,
            stop=stopping,
            on_progress=show,
            services=(*_services(config, values), *([] if watched is None else [watched.followed])),
            changes=None if watched is None else watched.changes,
        )


def as_told(
    config: MirrorConfig, *, master: str | None, slots: int | None, api: str | None
) -> MirrorConfig:
    """What the command line says is stronger than the file."""
    require_kerberos(config.clusters.values())
    engine = config.engine
    update = {"master": master or engine.master, "slots": slots or engine.slots}
    config = config.model_copy(update={"engine": engine.model_copy(update=update)})
    if api is None:
        return config
    return config.model_copy(update={"api": _served_at(config.api, api)})


def _served_at(config: ApiConfig, where: str) -> ApiConfig:
    try:
        # A model that is copied is not checked: whether the address is safe depends on the rest.
        return ApiConfig.model_validate({**dict(config), "listen": listen_address(where)})
    except BadValue as exc:
        raise ConfigError("--api", (f"is {exc.why}",)) from None
    except ValidationError as exc:
        sentence = exc.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError("--api", (sentence,)) from None


def _services(config: MirrorConfig, values: Values) -> tuple[Service, ...]:
    # Loaded where they are asked for: a run without them starts sooner.
    services: list[Service] = [settled_heap]
    if config.api.listen is not None:
        from heliograph.api.server import api_service

        services.append(api_service(config.api, values))
    if config.api.ureplicator_listen is not None:
        from heliograph.api.ureplicator import ureplicator_service

        services.append(ureplicator_service(config.api))
    if config.api.metrics.otlp_endpoint is not None:
        from heliograph.metrics.push import push_service

        services.append(push_service(config.api.metrics))
    return tuple(services)


def _every_s(text: str | None, *, once: bool) -> int | None:
    if text is None:
        return None
    if not once:
        raise typer.BadParameter("--every needs --once: a run that does not end is not repeated")
    seconds = seconds_of(text)
    if seconds is None:
        raise typer.BadParameter(f"--every: {text!r} is no time such as 30m, 1h or 7d")
    return seconds


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
def stop_signals(on_stop: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """The first signal drains, the second one ends the process at once."""
    stop = StopRequest()

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
        on_stop()

    # First registered is last called: whatever else ends with the process can still be interrupted.
    atexit.register(_ignore_signals, stop)
    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        # A command that was told to stop is on its way out. Python's own handler would let a second
        # signal end it as killed, though everything had settled.
        for number, handler in before.items():
            signal.signal(number, _end_at_once if stop.is_made else handler)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _ignore_signals(stop: StopRequest) -> None:
    # While Python takes itself apart it puts the kernel's default in the place of every handler, so
    # a second signal in those milliseconds would kill a command that has only its exit code left.
    # It leaves alone what is ignored.
    if stop.is_made:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def reload_signal(watched: WatchedFile, stop: StopRequest) -> Iterator[None]:
    """SIGHUP has the file read; from a terminal that is gone it drains, as other commands end."""
    has_terminal = os.isatty(0)

    def hear(number: int, frame: FrameType | None) -> None:
        if has_terminal and not os.isatty(0):
            stop.make()
        else:
            log.info("SIGHUP: reading the configuration again")
            watched.look_now()

    before = signal.signal(signal.SIGHUP, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
