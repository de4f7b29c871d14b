"""What the routes answer, as types: OpenAPI is made from them. Driver only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
    decisions: list[str]
    """Ids of those that hold and that this driver follows."""


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


class DecisionBody(Body):
    flow: str
    id: str
    state: str
    """`holds`, or why it does not any more."""
    verb: str
    topics: list[str]
    """Names and regexes; none: every topic."""
    partitions: list[int]
    bytes_per_s: int | None
    slots: list[int]
    who: str
    at_ms: int
    why: str | None
    until_ms: int | None
    withdrawn_by: str | None


class DecisionsBody(Body):
    at_ms: int
    decisions: list[DecisionBody]
    """In the order in which they were made."""
    problems: list[FlowProblem]


class ChangeBody(Body):
    topic: str
    partition: int | None
    """None: all partitions alike."""
    before: str
    after: str


class DecidedBody(Body):
    """What a decision changes."""

    flow: str
    written: bool
    decision: DecisionBody | None
    """None where it is so already."""
    changes: list[ChangeBody]
    remarks: list[str]


_Text = Annotated[str, Field(max_length=249)]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class DecideBody(Body):
    """What a verb is asked for; which fields a verb takes is that of its command."""

    topics: list[_Text] = Field(default=[], max_length=256)
    """Names, or regexes that match whole names; none: the whole flow."""
    partitions: list[_Count] = Field(default=[], max_length=4_096)
    why: str = Field(default="", max_length=512)
    until_ms: int | None = Field(default=None, ge=0, le=2**53)
    for_s: int | None = Field(default=None, ge=1, le=10**9)
    """How long it holds, instead of `until_ms`."""
    bytes_per_s: int | None = Field(default=None, ge=1, le=2**53)
    """Of a throttle; none lifts wider throttles."""
    slots: list[_Count] = Field(default=[], max_length=1_024)
    """Of a pin, move or drain; none lifts it."""


class NewDecisionBody(DecideBody):
    flow: str = Field(max_length=512)
    verb: Literal[
        "pause",
        "resume",
        "throttle",
        "pin",
        "move",
        "drain",
        "exclude",
        "include",
        "stop",
        "start",
    ]


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
