"""What the steps of a failover share. Driver only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.broker.groups import GroupAdmin
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.failover.cut import CutPoint
from heliograph.failover.outputs import FailoverChoices, Mode
from heliograph.groups.placement import GroupMove, NoOffset
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.fence import Fence, topic_fences
from heliograph.ledger.locations import Wanted
from heliograph.model import TopicName
from heliograph.procedure.journal import Journal, StepKind
from heliograph.procedure.runner import Say, StepEvent


@dataclass(slots=True)
class Findings:
    """What this try found out and does not record; the report shows it."""

    source_problem: str = ""
    """Why the source did not answer when it was last asked."""
    moves: list[GroupMove] = field(default_factory=list)
    unplaced: list[NoOffset] = field(default_factory=list)
    cut: tuple[CutPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverContext:
    config: MirrorConfig
    flow: FlowConfig
    is_planned: bool
    skip_active: bool
    topics: tuple[TopicName, ...] | None
    """Those that are failed over, where it is not the whole flow."""
    cut_ms: int | None
    """The moment at which all topics are cut."""
    ledger: OpenLedger
    journal: Journal[FailoverChoices]
    groups: GroupAdmin
    """Of the target."""
    say: Say
    findings: Findings

    @property
    def mode(self) -> Mode:
        return "planned" if self.is_planned else "unplanned"

    @property
    def wanted(self) -> Wanted:
        """Whether the failover is about a topic; of a whole flow, those that were failed over
        alone before are not: their groups have gone on at the target."""
        if self.topics is not None:
            return frozenset(self.topics).__contains__
        fenced = topic_fences(self.ledger.store.view)
        return lambda topic: topic not in fenced

    def fences(self) -> Mapping[TopicName, Fence]:
        """Of the topics that are asked for, as far as they are up."""
        found = topic_fences(self.ledger.store.view)
        return {topic: fence for topic, fence in found.items() if topic in (self.topics or ())}

    def tell(self, step: StepKind[Any], text: str) -> None:
        """Report the progress of a step."""
        self.say(StepEvent(step=step.name, what="goes on", text=text))
