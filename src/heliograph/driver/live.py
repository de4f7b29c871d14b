"""A mirror while it runs, as others see it. Runs on the driver; used on its loop alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.orders import FlowOrders
from heliograph.driver.changes import ConfigStatus
from heliograph.driver.lag_book import lag_not_kept, no_lag
from heliograph.driver.periodic import JobFigures
from heliograph.engine.jvm import JvmFigures
from heliograph.engine.supervisor import SlotHealth
from heliograph.engine.tally import SlotTally
from heliograph.lag.figures import LagReport
from heliograph.lag.history import LaneHistory
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.leadership import Leaderships
from heliograph.ledger.pipeline_note import PipelineFigures
from heliograph.model import FlowId, LaneId, LaneLoad, LaneProgress, SlotId

Progress = Mapping[LaneId, LaneProgress]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How a running mirror is at one moment."""

    progress: Progress
    slots: Sequence[SlotHealth]
    problems: Mapping[FlowId, str]
    """Why a flow is not mirrored, or a job of it does not work."""
    standby: Mapping[FlowId, str] = field(default_factory=dict)
    """Which driver mirrors a flow that this one stands by for."""
    decided: Mapping[FlowId, tuple[str, ...]] = field(default_factory=dict)
    """What operators decided about a flow, in words."""
    slots_why: str = ""
    """How many slots there should be and why, in words."""
    moved: Mapping[LaneId, str] = field(default_factory=dict)
    """Why lanes were moved to other slots lately, where they made no progress."""
    held_back: int | None = None
    """Bytes a second that lanes which are not critical may copy together, where that is bounded."""
    lag: Callable[[], LagReport] = no_lag
    """How far behind it is; made on the loop when it is asked for."""
    config: ConfigStatus = field(default_factory=ConfigStatus)
    """Whether the mirror runs with what its file says by now."""
    at_s: float = field(default_factory=monotonic_s)


@dataclass(slots=True, kw_only=True)
class LiveMirror:
    """A mirror while it runs, for what is served beside it. Used on its loop alone."""

    config: MirrorConfig
    """As it runs at this moment: the mirror sets another one when it follows a change."""
    ledgers: LedgerAccess
    leaderships: Leaderships
    status: Callable[[], RunStatus | None]
    """As last reported, at most a second ago; None before the slots were started."""
    phase: Callable[[], str]
    """What the run was last heard to do, in a few words."""
    decided: Callable[[FlowId], FlowOrders]
    """What operators decided about a flow, as this driver follows it."""
    placed: Callable[[], Mapping[LaneId, SlotId]]
    loads: Callable[[], Mapping[LaneId, LaneLoad]]
    """Not before there is a status."""
    resume: Callable[[Iterable[LaneId]], None]
    """On lanes of the status; a lane that is stalled is tried again by it."""
    lag: Callable[[], Awaitable[LagReport]] = lag_not_kept
    """How far behind every lane, topic and flow is, at most some seconds ago."""
    history: Callable[[LaneId], LaneHistory | None] = lambda _: None
    """What was seen of a lane in the last minutes."""
    tally: Callable[[], SlotTally] = SlotTally
    """What slots have done as a whole."""
    jobs: Callable[[], Sequence[JobFigures]] = tuple
    """How the last steps of the periodic jobs went."""
    jvm: Callable[[], JvmFigures | None] = lambda: None
    """Of Spark on this machine; blocks."""
    changed: Callable[[], ConfigStatus] = ConfigStatus
    """Whether what it was told last is what it runs with."""
    pipelines: Callable[[], Mapping[tuple[FlowId, str], PipelineFigures]] = dict
    """Of flows that this driver leads, by name."""


Service = Callable[[LiveMirror], AbstractAsyncContextManager[object]]
"""Something served beside a mirror, from before its first lease until it has settled.

Entered and left on the mirror's loop. What raises on entering keeps the mirror from beginning.
"""
