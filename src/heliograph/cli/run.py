"""`heliograph run`: mirror what a file says, until caught up or for ever. Runs on the driver."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from heliograph.audit.job import audit_runner
from heliograph.audit.loop import audit_jobs
from heliograph.broker.clients import Clients
from heliograph.broker.kerberos import require_kerberos
from heliograph.cli.live import Display, open_display
from heliograph.cli.output import start_logging
from heliograph.clock import monotonic_s
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.copy.flow import fetch_limits
from heliograph.drill.schedule import DrillJob
from heliograph.driver.jobs import periodic_jobs
from heliograph.driver.periodic import PeriodicJob, PeriodicJobs
from heliograph.driver.reconcile import Reconciler
from heliograph.engine.session import start_session, stop_session, task_slots
from heliograph.engine.slots import Slots
from heliograph.engine.task import make_shuttle
from heliograph.errors import LinkError
from heliograph.ledger.lease import Leases
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, LaneId, LaneProgress, Stalled

log = logging.getLogger("heliograph")

_TICK_S: Final = 0.25
_REBALANCE_S: Final = 30.0
_DRAIN_S_MAX: Final = 60.0
_CORES_PER_SLOT: Final = 2
"""One slot fills its target broker long before it fills a core; more of them only share that
broker."""
_LEASE_WAIT_S: Final = 3.0
_LOOPS_S_MAX: Final = 1.0
EXIT_STALLED: Final = 3

RUN_HELP: Final = """Mirror topics as FILE says, until told to stop.

Ctrl-C or SIGTERM drains: what was fetched is appended and settled, then the mirror ends. A second
one ends it at once. Either way nothing is lost and nothing repeated: the next run goes on exactly
there. A second driver of the same flows stands by and takes over when the first is gone. A flow
that `heliograph failover` has fenced is not carried by anybody until its fence is lifted.

Ends with 3 when a lane is stalled at the end, or waits for `heliograph adopt`, or a flow is fenced.

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
    raise typer.Exit(mirror(config, once=once, live=not quiet, lease=not no_lease))


def mirror(
    config: MirrorConfig,
    *,
    once: bool,
    live: bool,
    lease: bool = True,
    done: Callable[[Mapping[LaneId, LaneProgress]], bool] = lambda _: False,
) -> int:
    """Run all flows of `config`; the exit code says whether every lane was well at the end.

    It ends when told to by a signal, when `done` says so, or `once` every lane has caught up.
    """
    began_s = monotonic_s()

    def phase(what: str) -> None:
        log.info("[%.1f s] %s", monotonic_s() - began_s, what)

    def enough(steered: Reconciler, progress: Mapping[LaneId, LaneProgress]) -> bool:
        return done(progress) or (once and steered.finished(progress))

    with (
        _stop_signals() as stop,
        _leased(config, lease=lease) as (ledgers, leases),
        closing(Clients(config)) as clients,
    ):
        leads, why_fenced = _leading(config, leases), _fencing(leases)
        session = start_session(
            config.engine,
            clusters=config.clusters,
            secret_variables=config.secret_variables,
            say=phase,
        )
        phase("Spark is up")
        count = slot_count(config, task_slots(session, config.engine))
        slots = Slots(
            session,
            clusters=config.clusters,
            engine=config.engine,
            carrier=partial(make_shuttle, limits=fetch_limits(config)),
        )
        upkeep = periodic_jobs(config, clients, ledgers, slots.progress)
        loops = PeriodicJobs((*upkeep, *_proofs(config, session, ledgers, stop)), leads)
        try:
            slots.start(count)
            leases.slot_count = count
            leases.wait_known(_LEASE_WAIT_S)
            steered = Reconciler(config, ledgers, clients, count, leads, why_fenced)
            leases.carrying = _Carrying(steered, slots, loops)
            with open_display(live) as display:
                steered.reconcile(slots)
                phase(f"{len(steered.lanes)} lanes handed to {count} slots")
                loops.start()
                progress = _follow(steered, slots, loops, stop, display, enough)
            if once and not stop.wanted:
                phase("telling what was copied")
                loops.finish()
            loops.stop()
            if stop.wanted < 2:
                phase("draining")
                slots.drain(_DRAIN_S_MAX)
                progress = slots.progress() or progress
            phase("settled")
        finally:
            loops.stop()
            slots.stop()
            stop_session(session)
    return _verdict(progress, steered)


def _proofs(
    config: MirrorConfig, session: Any, ledgers: LedgerService, stop: StopSignals
) -> tuple[PeriodicJob, ...]:
    """What proves the copy while it is made: drills as scheduled, audits as the file asks."""
    clusters = {
        flow.id: (config.source_of(flow.id), config.target_of(flow.id)) for flow in config.flows
    }
    drills = [DrillJob(config, flow, ledgers) for flow in config.flows]
    return (*drills, *audit_jobs(config, audit_runner(session, clusters, lambda: not stop.wanted)))


@contextmanager
def _leased(config: MirrorConfig, *, lease: bool) -> Iterator[tuple[LedgerService, Leases]]:
    """The ledgers and the leases, claimed while Spark starts; without `lease` only fences count."""
    ledgers = LedgerService(config.clusters)
    leases = Leases(config, ledgers, exclusive=lease)
    try:
        leases.start()
        yield ledgers, leases
    finally:
        leases.release()
        ledgers.close()


def _leading(config: MirrorConfig, leases: Leases) -> Callable[[FlowId], bool]:
    """Whether a pair is ours to look after; one that mirrors nothing has no lease and is."""

    def leads(flow: FlowId) -> bool:
        return not config.flow(flow).enabled or leases.leads(flow)

    return leads


def _fencing(leases: Leases) -> Callable[[FlowId], str]:
    """Why a flow is fenced; nothing where it is not."""

    def why(flow: FlowId) -> str:
        fence = leases.fence(flow)
        return "" if fence is None else fence.why

    return why


class _Carrying:
    """What must be over before a fenced flow's lease is let go: its lanes and its loops."""

    def __init__(self, steered: Reconciler, slots: Slots, loops: PeriodicJobs) -> None:
        self._steered, self._slots, self._loops = steered, slots, loops
        self._given_up_s: dict[FlowId, float] = {}

    def give_up(self, flow: FlowId) -> None:
        self._given_up_s.setdefault(flow, monotonic_s())
        with suppress(LinkError):  # the run is ending, and its slots with it
            self._steered.drop_lost_flows(self._slots)

    def carries(self, flow: FlowId) -> bool:
        try:
            if any(lane.flow == flow for lane in self._slots.current()):
                return True
        except LinkError:
            return False
        # A step that waits for a dead source fails in the end and has written nothing; failing
        # over does not wait for it.
        given_up_s = self._given_up_s.get(flow, monotonic_s())
        return self._loops.is_busy(flow) and monotonic_s() - given_up_s < _LOOPS_S_MAX


def slot_count(config: MirrorConfig, room: int) -> int:
    """As many slots as asked for, or one for every two cores; never more than Spark can run.

    `tasks.max` bounds a flow; where every flow has one, their sum bounds the run.
    """
    engine = config.engine
    cores = max(1, round(room * engine.slot_cpus))
    wanted = engine.slots or max(1, cores // _CORES_PER_SLOT)
    bounds = [flow.tasks_max for flow in config.flows if flow.tasks_max is not None]
    most = sum(bounds) if bounds and len(bounds) == len(config.flows) else room
    return min(room, wanted, most)


def _follow(
    steered: Reconciler,
    slots: Slots,
    loops: PeriodicJobs,
    stop: StopSignals,
    display: Display,
    enough: Callable[[Reconciler, Mapping[LaneId, LaneProgress]], bool],
) -> Mapping[LaneId, LaneProgress]:
    rebalance_s = monotonic_s() + _REBALANCE_S
    first = True
    while True:
        progress = steered.apply_policies(slots)
        display.show(progress, slots.health(), {**loops.problems, **steered.problems})
        if first and any(at.records for at in progress.values()):
            log.info("first records mirrored")
            first = False
        if stop.wanted or enough(steered, progress):
            return progress
        if steered.due:
            steered.reconcile(slots)
        elif monotonic_s() >= rebalance_s:
            steered.rebalance(slots)
            rebalance_s = monotonic_s() + _REBALANCE_S
        time.sleep(_TICK_S)


def _verdict(progress: Mapping[LaneId, LaneProgress], steered: Reconciler) -> int:
    stalled = [at for at in progress.values() if isinstance(at.state, Stalled)]
    for at in stalled:
        if isinstance(at.state, Stalled):
            log.error("%s: stalled: %s: %s", at.lane, at.state.reason, at.state.detail)
    records = sum(at.records for at in progress.values())
    log.info("%d lanes, %d records mirrored by this run", len(progress), records)
    return EXIT_STALLED if stalled or steered.unadopted or steered.fenced else 0


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
