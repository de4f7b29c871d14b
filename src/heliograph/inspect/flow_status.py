"""How lanes and flows are, as values; `status` reads them. No I/O; runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.decisions.orders import FREE, FlowOrders, LaneOrders
from heliograph.inspect.waiting import WaitingLane
from heliograph.lag.figures import LaneLag
from heliograph.lag.folding import known_sum
from heliograph.ledger.canary_note import CanaryNote
from heliograph.ledger.drill_note import LastDrill
from heliograph.ledger.entries import RELEASED, FlowEntry, LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.ledger.outage_note import OutageNote
from heliograph.ledger.pipeline_note import PipelineFigures
from heliograph.ledger.standby_note import StandbyDriver
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition

STOPPED: Final = "stopped"
FENCED: Final = "fenced"
EXCLUDED: Final = "excluded"
PAUSED: Final = "paused"

NOTHING_DECIDED: Final = FlowOrders()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    lane: LaneId
    target: TopicPartition
    state: str
    detail: str
    position: int
    position_is_exact: bool
    source_start_offset: int | None
    source_next_offset: int
    source_end_offset: int | None
    target_next_offset: int
    lag_records: int | None
    lag_s: float | None
    mapped_because: str
    """Nothing while offsets are identical on both sides."""
    lost_records: int
    foreign_records: int
    noted_ms: int | None
    """When the ledger was last told about the lane."""
    records_per_s: float | None = None
    """None until two samples are there."""
    decided: LaneOrders = FREE
    """What operators decided about the lane."""
    lag: LaneLag | None = None
    """Rates and times count from the second sample on; None where no sample was taken."""

    @property
    def offsets(self) -> str:
        return "mapped" if self.mapped_because else "identical"

    @property
    def is_stalled(self) -> bool:
        return self.state.startswith("stalled")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOverTopic:
    topic: TopicName
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    flow: FlowId
    producer: FlowEntry | None
    holder: LeaseEntry | None
    """The driver whose lease on the flow has not expired."""
    lanes: tuple[LaneStatus, ...]
    problem: str = ""
    slots_why: str = ""
    """How many slots the holder has, and why."""
    standbys: tuple[StandbyDriver, ...] = ()
    """Drivers that take over when the holder is gone."""
    config_problem: str = ""
    """Why the holder does not follow its changed file; nothing where it does."""
    fence: Fence | None = None
    """Why no driver may mirror the flow."""
    failed_over: tuple[FailedOverTopic, ...] = ()
    """Topics that no driver may mirror, in order; the others go on."""
    dead_letters: int = 0
    """Records that could not be mirrored and are kept in a topic of their own."""
    last_drill: LastDrill | None = None
    outage: OutageNote | None = None
    """The longest that a driver noted; None where none has looked yet."""
    canary: CanaryNote | None = None
    """None where none was ever sent, or the flow sends none."""
    pipelines: tuple[PipelineFigures, ...] = ()
    """Those of the file that a driver has run, as it said last."""
    waiting: tuple[WaitingLane, ...] = ()
    """Lanes that have not begun; none where they were not asked for."""
    orders: FlowOrders = NOTHING_DECIDED
    is_known: bool = True
    """False where the target does not tell about any lane."""

    @property
    def every(self) -> tuple[LaneStatus | WaitingLane, ...]:
        """Lanes that have begun, then those that wait."""
        return (*self.lanes, *self.waiting)

    @property
    def to_mirror(self) -> tuple[LaneStatus | WaitingLane, ...]:
        """As `every`, without topics that were failed over: nobody waits for what they lack."""
        fenced = {each.topic for each in self.failed_over}
        return tuple(lane for lane in self.every if lane.lane.source.topic not in fenced)

    @property
    def mirrored_records(self) -> int | None:
        return sum(lane.position for lane in self.lanes) if self.is_known else None

    @property
    def lag_records(self) -> int | None:
        if not self.is_known:
            return None
        return known_sum([lane.lag_records for lane in self.to_mirror])

    @property
    def lost_records(self) -> int | None:
        return sum(lane.lost_records for lane in self.lanes) if self.is_known else None

    @property
    def foreign_records(self) -> int | None:
        return sum(lane.foreign_records for lane in self.lanes) if self.is_known else None

    @property
    def lacks_driver(self) -> bool:
        """Whether no driver is seen to mirror it though one should: it is neither fenced nor
        handed to MirrorMaker 2."""
        if not self.is_known or self.holder is not None or self.fence is not None:
            return False
        states = {lane.state for lane in self.lanes}
        # A mirror without a lease is seen only while it copies.
        return "copying" not in states and states != {RELEASED}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    at_ms: int
    flows: tuple[FlowStatus, ...]
    unreachable: Mapping[ClusterAlias, str]

    @property
    def lanes(self) -> tuple[LaneStatus, ...]:
        return tuple(lane for flow in self.flows for lane in flow.lanes)
