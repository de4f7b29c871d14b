"""What the steps of a failover share. Driver only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heliograph.broker.groups import GroupAdmin
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.failover.outputs import FailoverChoices, Mode
from heliograph.groups.placement import GroupMove, NoOffset
from heliograph.ledger.access import OpenLedger
from heliograph.procedure.journal import Journal, StepKind
from heliograph.procedure.runner import Say, StepEvent


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
    journal: Journal[FailoverChoices]
    groups: GroupAdmin
    """Of the target."""
    say: Say
    findings: Findings

    @property
    def mode(self) -> Mode:
        return "planned" if self.is_planned else "unplanned"

    def tell(self, step: StepKind[Any], text: str) -> None:
        """Report the progress of a step."""
        self.say(StepEvent(step=step.name, what="goes on", text=text))
