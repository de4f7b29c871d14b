"""Audits inside `heliograph run`: what was mirrored since the last look. Runs on the driver.

Only the driver that leads the flow audits. How far it came is in the ledger, so a driver that takes
over goes on there. What differs stays the flow's problem until somebody runs `heliograph audit`
and finds it gone, or repairs it.
"""

from __future__ import annotations

import logging
from typing import Final

from heliograph.audit.plan import AuditOptions
from heliograph.audit.run import AuditReport, NothingMirrored, Runner, audit_flow
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import AuditDiffers, BrokerError
from heliograph.ledger.locations import all_topics
from heliograph.model import FlowId
from heliograph.procedure.hooks import hook_event, run_hooks

log = logging.getLogger("heliograph")

_NAMED_MAX: Final = 20


class AuditJob:
    """Compares a flow's new records every so often."""

    what: Final = "audit"

    def __init__(
        self, config: MirrorConfig, flow: FlowConfig, interval_s: float, run: Runner
    ) -> None:
        self.flow: Final[FlowId] = flow.id
        self.interval_s: Final[float] = interval_s
        self._config, self._settings, self._run = config, flow, run
        self._differs = ""

    def step(self) -> None:
        choice = AuditOptions(resume=True, only_new=True)
        try:
            report = audit_flow(self._config, self.flow, choice, all_topics(), self._run)
        except NothingMirrored:
            return
        if report.differs:
            self._differs = sentence(report)
            log.error("%s: audit: %s", self.flow, self._differs)
            self._raise_alarm(report)
        elif report.records:
            log.info(
                "%s: audit: %d records equal in %.1f s", self.flow, report.records, report.seconds
            )
        if report.problems:
            raise BrokerError(f"not compared: {'; '.join(report.problems[:3])}")
        if self._differs:
            raise AuditDiffers(self._differs)

    def finish(self) -> None:
        """A run that ends begins no audit: the next one goes on where this one was."""

    def _raise_alarm(self, report: AuditReport) -> None:
        event = hook_event(
            self._config,
            self.flow,
            "audit differs",
            primary=self.flow.source,
            detail={
                "target": str(self.flow.target),
                "records": report.records,
                "differs": sentence(report),
                "ranges": ranges(report),
            },
        )
        for outcome in run_hooks(self._settings.recovery, event):
            if not outcome.ok:
                log.error("%s: %s: %s", self.flow, outcome.name, outcome.told)


def sentence(report: AuditReport) -> str:
    """What differs, in figures, and where it begins."""
    told = ", ".join(f"{count:,} {kind.value}" for kind, count in report.counts.items())
    first = ranges(report)[:1]
    return f"{told} (first: {first[0]})" if first else told


def ranges(report: AuditReport) -> list[str]:
    """The first places that differ, as a person reads them."""
    lines: list[str] = []
    for one in report.findings[:_NAMED_MAX]:
        source, target = one.finding.source, one.finding.target
        lines.append(
            f"{one.finding.kind.value} {one.lane.source}"
            + (f" source [{source.start}, {source.end})" if source else "")
            + (f" target [{target.start}, {target.end})" if target else "")
        )
    return lines


def audit_jobs(config: MirrorConfig, run: Runner) -> tuple[AuditJob, ...]:
    """One for each flow whose `audit.interval.seconds` is set."""
    return tuple(
        AuditJob(config, flow, float(flow.recovery.audit_interval_s), run)
        for flow in config.flows
        if flow.recovery.audit_interval_s is not None
    )
