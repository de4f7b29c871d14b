"""What the steps of a failover share. Driver only."""

from __future__ import annotations

from dataclasses import dataclass, field

from heliograph.broker.groups import GroupAdmin
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.groups.placement import GroupMove, NoOffset
from heliograph.ledger.access import OpenLedger
from heliograph.procedure.steps import Journal, Say, StepEvent


@dataclass(slots=True)
class Findings:
    """What this try found out and does not record; the report shows it."""

    source_problem: str = ""
    """Why the source did not answer when it was last asked."""
    moves: list[GroupMove] = field(default_factory=list)
    unplaced: list[NoOffset] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverContext:
    config: MirrorConfig
    flow: FlowConfig
    is_planned: bool
    skip_active: bool
    ledger: OpenLedger
    journal: Journal
    groups: GroupAdmin
    """Of the target."""
    say: Say
    findings: Findings

    @property
    def mode(self) -> str:
        return "planned" if self.is_planned else "unplanned"

    def tell(self, step: str, text: str) -> None:
        """How a step comes along."""
        self.say(StepEvent(step=step, what="goes on", text=text))
