"""What the driver knows of a flow, and what it needs of slots. State of the driver's loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from heliograph.config.schema import FlowConfig
from heliograph.decisions.decision import Decision
from heliograph.driver.deletions import Absences
from heliograph.errors import BrokerError, GroupTaken, MirrorError
from heliograph.ledger.leadership import Trouble
from heliograph.model import FlowId, Lane, LaneId, LaneLoad, LaneProgress, SlotId, TopicName
from heliograph.takeover.pending import PendingAdoption
from heliograph.topics.deletions import GoneTopic


class SlotPool(Protocol):
    """What a reconciler needs of `heliograph.engine.slots.Slots`."""

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId],
        stuck: frozenset[LaneId],
    ) -> None: ...
    def resume(self, ids: Iterable[LaneId]) -> None: ...
    def throttle(self, limits: Mapping[str, int]) -> None: ...
    def progress(self) -> Mapping[LaneId, LaneProgress]: ...
    def loads(self) -> Mapping[LaneId, LaneLoad]: ...
    def current(self) -> Mapping[LaneId, SlotId]: ...


@dataclass(slots=True)
class FlowState:
    """A flow as the driver knows it; touched on its loop alone, but for planning."""

    config: FlowConfig
    adoption: PendingAdoption
    lanes: tuple[Lane, ...] = ()
    known: tuple[Lane, ...] = ()
    """As they were planned last, also while another driver leads."""
    ready: bool = False
    """Whether its lanes were planned at least once."""
    trouble: Trouble | None = None
    """Why it could not be planned, or not all of its topics be made ready."""
    unadopted: int = 0
    """Partitions that wait for `heliograph adopt`."""
    due_s: float = 0.0
    notes: set[str] = field(default_factory=set)
    absences: Absences = field(default_factory=Absences)
    gone: tuple[GoneTopic, ...] = ()
    """Mirrored topics to delete once no slot carries them."""
    fences: frozenset[str] = frozenset()
    """Ids of the fences of single topics by which it was planned."""

    def failed(self, error: MirrorError, due_s: float) -> None:
        """Lanes stay as they were planned last; but none begins while others copy its records."""
        self.trouble, self.due_s = Trouble.of(error, self.trouble), due_s
        if isinstance(error, GroupTaken):
            self.lanes = self.known = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFlow:
    """What planning a flow found out and made ready."""

    decisions: tuple[Decision, ...]
    """As they were when the flow was planned."""
    lanes: tuple[Lane, ...] = ()
    waiting: int = 0
    gone: tuple[GoneTopic, ...] = ()
    unready: Mapping[TopicName, BrokerError] = field(default_factory=dict)
    """Topics of the target that could not be made ready, and why."""
    expects_own_topics: bool = False
    """Whether the source's heartbeats or canary, which are mirrored, are only being created."""
