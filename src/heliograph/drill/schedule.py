"""Drills inside `heliograph run`, when the ledger says that one is due. Runs on the driver.

Only the driver that leads the flow drills. What came of it is in the ledger, so a driver that takes
over neither repeats a drill nor forgets that the last one failed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import UTC, datetime
from typing import Final

from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.drill.background import drill_in_background
from heliograph.drill.report import DrillOptions, DrillReport
from heliograph.drill.run import sweep
from heliograph.errors import (
    BrokerUnreachable,
    DrillFailed,
    LeaderMoved,
    MirrorError,
)
from heliograph.ledger.access import open_ledger, require_ledger
from heliograph.ledger.drill_note import (
    LastDrill,
    Schedule,
    last_memo,
    last_of,
    next_due_ms,
    no_schedule,
    schedule_memo,
    schedule_of,
)
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId
from heliograph.procedure.hooks import hook_event, run_hooks
from heliograph.words import counted

log = logging.getLogger("heliograph")

_INTERVAL_S: Final = 30.0
_WRITE_S_MAX: Final = 30.0


class DrillJob:
    """Looks at the schedule now and then; does nothing where there is none."""

    what: Final = "drill"

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        ledgers: LedgerService,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self.flow: Final[FlowId] = flow.id
        self.interval_s: Final[float] = interval_s
        self._config, self._settings, self._ledgers = config, flow, ledgers
        self._has_swept = False

    def step(self) -> None:
        schedule, last = self._ledgers.ask(
            self.flow, lambda view: (schedule_of(view), last_of(view))
        )
        if schedule is None:
            return
        if now_ms() >= next_due_ms(schedule, last):
            last = self._drill(schedule, last)
        elif not self._has_swept:
            # The driver before this one may have been killed while it drilled.
            asyncio.run(sweep(self._config, self.flow))
        self._has_swept = True
        if last is not None and last.verdict != "pass":
            at = datetime.fromtimestamp(last.at_ms / 1000, tz=UTC)
            raise DrillFailed(f"the one of {at:%Y-%m-%d %H:%M:%S} UTC {last.sentence}")

    def finish(self) -> None:
        """A run that ends drills no more."""

    def _drill(self, schedule: Schedule, before: LastDrill | None) -> LastDrill:
        at_ms = now_ms()
        options = DrillOptions(
            sample_records=schedule.sample_records,
            group=schedule.group,
            rpo_s_max=schedule.rpo_s_max,
            rto_s_max=schedule.rto_s_max,
        )
        try:
            last = summary_of(drill_in_background(self._config, self.flow, options))
        except MirrorError as exc:
            host = socket.gethostname()
            last = LastDrill(at_ms=at_ms, verdict="not done", reasons=(str(exc),), host=host)
        # Before the alarm: an alarm that hangs must not have the drill done again.
        self._ledgers.note(self.flow, [last_memo(last)])
        if last.verdict == "pass":
            log.info("%s: drill passed: %s", self.flow, figures(last))
        # One that is tried again every few minutes raises the alarm when it begins to fail.
        elif last.verdict == "fail" or before is None or before.verdict != "not done":
            raise_alarm(self._config, self._settings, last)
        return last


async def set_schedule(
    config: MirrorConfig, flow: FlowId, schedule: Schedule | None
) -> LastDrill | None:
    """Write or remove it; whoever leads the flow sees it in a moment. Raises `BrokerError`.

    Returns the last drill, which says when the next is due.
    """
    entry = no_schedule() if schedule is None else schedule_memo(schedule)
    return last_of(await _write(config, flow, entry))


async def note_last(config: MirrorConfig, flow: FlowId, last: LastDrill) -> None:
    """Raises `BrokerError`."""
    await _write(config, flow, last_memo(last))


async def _write(config: MirrorConfig, flow: FlowId, entry: MemoEntry | Tombstone) -> LedgerView:
    async with open_ledger(config, flow) as ledger:
        try:
            async with asyncio.timeout(_WRITE_S_MAX):
                await ledger.store.catch_up()
                await ledger.store.write_or_refuse([entry])
        except TimeoutError as exc:
            raise BrokerUnreachable(
                f"cluster {flow.target}: the ledger did not answer in {_WRITE_S_MAX:.0f} s"
            ) from exc
        except LeaderMoved as exc:
            require_ledger(ledger.target, flow, exc)
            raise
        return ledger.store.view


def summary_of(report: DrillReport) -> LastDrill:
    return LastDrill(
        at_ms=report.began_ms,
        verdict="pass" if report.passed else "fail",
        reasons=report.reasons,
        rpo_records=report.rpo_records,
        rpo_s=report.rpo_s,
        rto_s=report.rto_s,
        groups=len(report.groups),
        compared_records=report.compared_records,
        repeated_records=report.repeated_records,
        lost_records=report.lost_records,
        host=report.host,
    )


def figures(last: LastDrill) -> str:
    """`RPO 0.4 s, RTO 1.2 s, 3 groups` for a line of a log."""
    rpo = "?" if last.rpo_s is None else f"{last.rpo_s:.1f}"
    rto = "?" if last.rto_s is None else f"{last.rto_s:.1f}"
    return f"RPO {rpo} s, RTO {rto} s, {counted(last.groups, 'group')}"


def raise_alarm(config: MirrorConfig, flow: FlowConfig, last: LastDrill) -> None:
    """Tell the hooks; what they could not do is in the log, for there is nobody else to tell."""
    event = hook_event(
        config,
        flow.id,
        "drill failed",
        primary=flow.id.source,
        detail={
            "drilled_ms": last.at_ms,
            "verdict": last.verdict,
            "reasons": list(last.reasons),
            "rpo_records": last.rpo_records,
            "rpo_s": last.rpo_s,
            "rto_s": last.rto_s,
            "lost_records": last.lost_records,
            "repeated_records": last.repeated_records,
        },
    )
    for outcome in run_hooks(flow.recovery, event):
        level = logging.INFO if outcome.ok else logging.ERROR
        log.log(level, "%s: drill alarm: %s: %s", flow.id, outcome.name, outcome.told)
