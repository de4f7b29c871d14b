"""What the routes answer, as types: OpenAPI is made from them. Driver only."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from heliograph.api.lanes import LaneRow, TopicRow
from heliograph.api.operations import OperationBody
from heliograph.engine.supervisor import SlotState
from heliograph.ledger.drill_note import LastDrill, Schedule


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, from_attributes=True)


class HealthBody(Body):
    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class ReadyBody(Body):
    ready: bool
    reasons: list[str]
    """Why not; only for callers that may look at every flow."""


class VersionBody(Body):
    version: str
    """Of Heliograph."""
    python: str
    began_ms: int
    """When this driver began to serve."""
    phase: str
    """What the run was last heard to do."""


class FenceBody(Body):
    at_ms: int
    why: str


class HolderBody(Body):
    host: str
    pid: int


class FlowBody(Body):
    flow: str
    source: str
    target: str
    state: Literal["leading", "standby", "lapsed", "fenced"]
    """What this driver is to the flow."""
    leader: HolderBody | None
    """The driver that leads the flow, where it is another one."""
    fence: FenceBody | None
    problem: str | None
    """Why the flow is not mirrored, or what of its jobs does not work."""
    lanes: int
    states: dict[str, int]
    """How many lanes are in which state."""
    topics: int
    lag_records: int | None
    """None where that of one lane is not known."""
    bytes_per_s: float
    records: int
    """Mirrored since the slots took their lanes."""
    bytes: int
    operation: str | None
    """The operation that is running."""


class FlowsBody(Body):
    at_ms: int
    flows: list[FlowBody]


class LanesBody(Body):
    at_ms: int
    total: int
    next_page_token: str | None
    lanes: list[LaneRow]


class TopicsBody(Body):
    at_ms: int
    total: int
    next_page_token: str | None
    topics: list[TopicRow]


class SlotBody(Body):
    slot: int
    state: SlotState
    generation: int
    replaced: int
    """How often the slot was lost and started anew."""
    attempt: str
    """Spark's id of the task attempt; empty before the slot was heard."""
    pid: int
    lanes: int
    silent_ms: int
    detail: str
    """Why it was last replaced, or ended."""


class SlotsBody(Body):
    at_ms: int
    slots: list[SlotBody]


class LossBody(Body):
    flow: str
    topic: str
    partition: int
    position: int
    lost_offsets: tuple[int, int]
    """Source offsets `[start, end)`."""
    lost_records_max: int
    reason: str
    at_ms: int


class FlowProblem(Body):
    flow: str
    problem: str
    """Why its ledger could not be read."""


class LossesBody(Body):
    at_ms: int
    total: int
    losses: list[LossBody]
    """The newest first, at most 10,000."""
    problems: list[FlowProblem]


class DrillBody(Body):
    flow: str
    schedule: Schedule | None
    next_due_ms: int | None
    last: LastDrill | None


class DrillsBody(Body):
    at_ms: int
    drills: list[DrillBody]
    problems: list[FlowProblem]


class LastAuditBody(Body):
    at_ms: int
    records: int
    findings: dict[str, int]
    """Records of each kind of difference."""


class AuditBody(Body):
    flow: str
    last: LastAuditBody | None
    """The last one that came to its end."""


class AuditsBody(Body):
    at_ms: int
    audits: list[AuditBody]
    problems: list[FlowProblem]


class OperationsBody(Body):
    operations: list[OperationBody]
    """The newest first."""


class PlanBody(Body):
    """What a verb would do now; nothing was changed to find out."""

    verb: str
    flow: str
    refusal: str | None
    """Why it would be refused as it was asked for."""
    plan: dict[str, Any]
    """As the command's `--dry-run --json` has it."""


class RecoverBody(Body):
    """What a failover or promotion is asked for."""

    topics: list[str] | None = None
    """Not possible yet: flows are failed over whole."""
    skip_active: bool = False
    """Leave groups alone that have members on the target, instead of refusing everything."""


class ReverseBody(Body):
    """What a way back is asked for."""

    topics: list[str] | None = None
    """Not possible yet: flows are failed back whole."""
    resync: bool = False
    """Where topics have diverged, copy the difference."""
    may_delete: bool = False
    """Topics on the old source may be deleted."""
