"""What the routes answer, as types: OpenAPI is made from them. Driver only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from heliograph.api.lanes import LaneRow, TopicRow
from heliograph.api.operations import OperationBody
from heliograph.engine.supervisor import SlotState
from heliograph.lag.figures import Seconds
from heliograph.ledger.drill_note import LastDrill, Schedule
from heliograph.ledger.pipeline_note import PipelineState
from heliograph.model import FlowId


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


class ConfigBody(Body):
    followed: bool
    """Whether the driver runs with what its file, or its connectors, say by now."""
    problem: str | None
    """Why not; only for callers that may look at every flow."""
    applied_ms: int | None
    """When the last change acted; null where none did since the start."""
    changes: list[str]
    """What it changed, without secrets; only for callers that may look at every flow."""


class FenceBody(Body):
    at_ms: int
    why: str


class TopicFenceBody(FenceBody):
    topic: str


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
    verdict: Literal["healthy", "behind", "stalled", "losing"] | None
    """By what this driver sees; None where another leads the flow, or none is known to."""
    failed_over: list[TopicFenceBody]
    """Topics that were failed over alone and that are not mirrored."""
    problem: str | None
    """Why the flow is not mirrored, or what of its jobs does not work."""
    lanes: int
    states: dict[str, int]
    """How many lanes are in which state."""
    topics: int
    motion: str
    """Of the worst lane: stalled, stuck, unknown, held, moving, idle."""
    motions: dict[str, int]
    """How many lanes do what about their lag."""
    lag_records: int | None
    """Not acknowledged by the target; None where that of one lane is not known."""
    lag_bytes: int | None
    """The same, estimated."""
    lag_s: float | None
    """Age of the oldest record that waits."""
    read_lag_records: int | None
    """Not fetched yet."""
    committed_lag_records: int | None
    """Not noted in the ledger yet."""
    records_per_s: float | None
    source_records_per_s: float | None
    """Written to the source."""
    catch_up_s: Seconds
    """Until nothing waits, of the slowest lane."""
    trend: str | None
    """Of the lag: shrinking, steady, growing."""
    overrun_s: Seconds
    """Until the source may delete what waits, of the first lane it happens to."""
    overrun_by: str | None
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
    cpu_share: float
    """Cores that its process used lately."""


class MovedBody(Body):
    flow: str
    topic: str
    partition: int
    why: str
    """Where it made no progress, and what others did meanwhile."""


class SlotsBody(Body):
    at_ms: int
    why: str
    """How many slots there should be, and for what reason."""
    held_back_bytes_per_s: int | None
    """What lanes may copy together that give way to critical ones; none: all they can."""
    moved: list[MovedBody]
    """Lanes that the driver gave to other slots lately, because they made no progress."""
    slots: list[SlotBody]


class PipelineBody(Body):
    flow: str
    name: str
    state: PipelineState
    reason: str
    """Why it is stalled or paused; empty otherwise."""
    at_ms: int
    batch: int | None
    """The last that was written."""
    batch_ms: int | None
    batch_at_ms: int | None
    records_read: int
    """By this driver; so with `rows_written` and `restarts`."""
    rows_written: int
    rows_left_out: int
    records_per_s: float | None
    lag_records: int | None
    restarts: int


class PipelinesBody(Body):
    at_ms: int
    pipelines: list[PipelineBody]


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


def flow_problems(problems: Mapping[FlowId, str]) -> list[FlowProblem]:
    return [FlowProblem(flow=str(flow), problem=why) for flow, why in sorted(problems.items())]


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
    offset: int | None
    """Of a rewind; none: the first that the source has."""
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


class HistoryRow(Body):
    flow: str
    id: str
    """Of the change; that of a decision where it is one."""
    at_ms: int
    who: str
    verb: str
    what: str
    """What it is about, for the eye."""
    outcome: str
    """`begun`, `done`, why it was refused or failed; of a decision, what became of it."""
    ended_ms: int | None


class HistoryBody(Body):
    at_ms: int
    total: int
    changes: list[HistoryRow]
    """Decisions and all other changes, the newest first."""
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


class DecidedTogetherBody(Body):
    flow: str
    written: bool
    """All that are new, in one write, or none."""
    decisions: list[DecidedBody]
    """In the order asked for; each says what changes behind those before it."""


_Text = Annotated[str, Field(max_length=249)]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


VerbName = Literal[
    "pause",
    "resume",
    "throttle",
    "throttle-source",
    "throttle-target",
    "pin",
    "move",
    "drain",
    "exclude",
    "include",
    "stop",
    "start",
    "rewind",
]


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
    offset: Annotated[int, Field(ge=0, le=2**63 - 1)] | Literal["earliest"] | None = None
    """Of a rewind: the source offset that lanes go on with, or the first there is."""


class NewDecisionBody(DecideBody):
    flow: str = Field(max_length=512)
    verb: VerbName


class OneOfSeveralBody(DecideBody):
    verb: VerbName
    topics: list[_Text] = Field(default=[], max_length=8)
    partitions: list[_Count] = Field(default=[], max_length=128)
    slots: list[_Count] = Field(default=[], max_length=16)


class TogetherBody(Body):
    """Decisions that act at once, such as moves of several lanes to several slots; all that these
    bounds allow fits into a request."""

    decisions: list[OneOfSeveralBody] = Field(min_length=1, max_length=12)


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


_TopicName = Annotated[str, Field(max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
Topics = Annotated[list[_TopicName] | None, Field(min_length=1, max_length=256)]


class RecoverBody(Body):
    """What a failover or promotion is asked for."""

    topics: Topics = None
    """Names on the source; none: the whole flow. The other topics go on being mirrored."""
    skip_active: bool = False
    """Leave groups alone that have members on the target, instead of refusing everything."""
    cut: AwareDatetime | None = None
    """A moment, ISO 8601 with its zone: no group goes on behind it, on any topic."""


class ReverseBody(Body):
    """What a way back is asked for."""

    topics: Topics = None
    """Names on the source, of topics that were failed over alone; none: the whole flow. Only where
    mirrored topics have names of their own."""
    resync: bool = False
    """Where topics have diverged, copy the difference."""
    may_delete: bool = False
    """Topics on the old source may be deleted."""
