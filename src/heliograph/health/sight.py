"""What is looked at before a flow is judged, whoever saw it. No I/O; runs anywhere.

The driver sees its lanes as slots report them, a command reads them from the clusters. Both make a
`FlowSight` of it, and from there on all is the same. What is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.audit.plan import last_audit
from heliograph.config.schema import FlowConfig
from heliograph.inspect.flow_status import FENCED, FlowStatus, LaneStatus
from heliograph.inspect.groups import FlowGroups, Verdict
from heliograph.lag.figures import LOG_START, NEVER, LaneLag, OverrunBy
from heliograph.ledger.canary_note import CanaryNote, canary_note
from heliograph.ledger.drill_note import LastDrill, last_of
from heliograph.ledger.fence import fence_of
from heliograph.ledger.standby_note import standbys_of
from heliograph.ledger.view import LedgerView
from heliograph.letters.notes import LetterCount, letters_by_topic
from heliograph.model import FlowId, LaneProgress, Stalled, Starting, TopicName, Waiting
from heliograph.topics.naming import NamingPolicy, canary_source, is_heartbeats, naming_policy

STARTING: Final = "starting"
STALLED: Final = "stalled"
WAITING: Final = "waiting"
_GOES_ON: Final = frozenset({"copying", "idle"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSight:
    topic: TopicName
    partition: int
    state: str
    """Kafka's words aside: starting, copying, idle, paused, stopped, stalled, ..."""
    reason: str = ""
    """Of a stall."""
    detail: str = ""
    since_ms: int | None = None
    retrying: bool = False
    is_own: bool = False
    """Whether Heliograph writes the topic itself: heartbeats and canaries never rest."""
    lag_records: int | None = None
    lag_s: float | None = None
    """Age of the first record that waits; 0 where none does."""
    newest_ms: int | None = None
    """Timestamp of the newest record known."""
    grew: bool | None = None
    """Whether the source's log grew between two looks."""
    overrun_s: float | None = None
    """Time left until retention deletes what waits, as `lag` counts it."""
    overrun_by: OverrunBy = ""
    """What deletes it."""
    retention_s: float | None = None
    """How long records are kept; `NEVER` where their age does not matter."""
    tombstones_s: float | None = None
    """Time left until compaction deletes tombstones that wait."""
    delete_retention_s: float | None = None
    foreign_records: int = 0

    @property
    def is_stalled(self) -> bool:
        return self.state == STALLED

    @property
    def goes_on(self) -> bool:
        return self.state in _GOES_ON

    @property
    def is_deleted(self) -> bool:
        """Whether the source has deleted what waits, as its log's start tells."""
        return self.overrun_by == LOG_START

    def overrun_limit_s(self, wanted_s: float) -> float:
        """How little may be left. A short retention must not look near its end all the time."""
        return wanted_s if self.retention_s is None else min(wanted_s, self.retention_s / 2)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    records: int
    """At most: offsets that are gone."""
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSight:
    at_ms: int
    differs: int
    """Records that were not the same on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSight:
    """Consumer groups of the source, as far as they can go on at the target."""

    untranslated: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    """Translated, and not written to the target yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFacts:
    """What the ledger of a flow says about how it is."""

    losses: Mapping[TopicName, Losses] = field(default_factory=dict)
    letters: Mapping[TopicName, LetterCount] = field(default_factory=dict)
    drill: LastDrill | None = None
    audit: AuditSight | None = None
    canary: CanaryNote | None = None
    standbys: int = 0
    fence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    whose: str
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Records on the target that the flow did not write."""

    records: int
    grew_ms: int
    writers: str = ""
    """What the broker tells of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the driver measures now and then; None and nothing where it could not."""

    ledger_bytes: int | None = None
    clocks_s: Mapping[str, float | None] = field(default_factory=dict)
    """By cluster and by slot, how far its clock is ahead of the driver's; None is not known."""
    certificates: tuple[Certificate, ...] = ()
    foreign: Mapping[TopicName, Foreign] = field(default_factory=dict)
    standby_seen_ms: int | None = None
    """When a standby driver was last there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFigures:
    """What the last look at a flow measured that nothing else tells, for metrics."""

    measured: Measured
    tombstones_s: float | None = None
    """The least time left until compaction deletes tombstones that wait; None where no lane that
    waits is known to be compacted, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSight:
    """A flow at one moment."""

    flow: FlowId
    at_ms: int
    lanes: tuple[LaneSight, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be read, a sentence each."""
    idle_because: str = ""
    """Why the flow as a whole is not mirrored: fenced, stopped, without a driver."""
    waiting: tuple[str, ...] = ()
    """Lanes that have not begun, with the reason."""
    facts: LedgerFacts = LedgerFacts()
    groups: GroupsSight | None = None
    """None where they were not asked for."""
    measured: Measured = Measured()

    @property
    def is_known(self) -> bool:
        """Whether lanes that are not here are not there."""
        return not self.unknown and not any(lane.state == STARTING for lane in self.lanes)


def facts_of(view: LedgerView, now_ms: int) -> LedgerFacts:
    losses: dict[TopicName, Losses] = {}
    for loss in view.losses:
        before = losses.get(loss.topic, Losses(records=0, last_ms=0))
        losses[loss.topic] = Losses(
            records=before.records + loss.lost.count, last_ms=max(before.last_ms, loss.at_ms)
        )
    audit, fence = last_audit(view), fence_of(view)
    return LedgerFacts(
        losses=losses,
        letters=letters_by_topic(view),
        drill=last_of(view),
        audit=None
        if audit is None
        else AuditSight(at_ms=audit.at_ms, differs=sum(audit.findings.values())),
        canary=canary_note(view),
        standbys=len(standbys_of(view, now_ms)),
        fence="" if fence is None else fence.why,
    )


def own_topics(flow: FlowConfig, topics: Iterable[TopicName]) -> frozenset[TopicName]:
    """Those that Heliograph writes itself."""
    policy = naming_policy(flow)
    return frozenset(topic for topic in topics if _is_own(policy, topic))


def _is_own(policy: NamingPolicy, topic: TopicName) -> bool:
    return is_heartbeats(policy, topic) or canary_source(policy, topic) is not None


def lane_of_progress(
    at: LaneProgress, own: frozenset[TopicName], now_ms: int, lag: LaneLag | None = None
) -> LaneSight:
    """A lane as its slot reports it, and as the driver's book of lag has it."""
    state, topic = at.state, at.lane.source.topic
    stalled = state if isinstance(state, Stalled) else None
    lag_records = None if isinstance(state, Starting) else at.lag_records
    lag_s: float | None = 0.0 if lag_records == 0 else None
    if at.behind_since_ms >= 0 and lag_records != 0:
        lag_s = max(0, now_ms - at.behind_since_ms) / 1000
    return LaneSight(
        topic=topic,
        partition=at.lane.source.partition,
        state=state.kind,
        reason="" if stalled is None else stalled.reason.value,
        detail="" if stalled is None else stalled.detail,
        since_ms=state.since_ms if isinstance(state, Stalled | Waiting) else None,
        retrying=stalled is not None and stalled.retrying,
        is_own=topic in own,
        lag_records=lag_records,
        lag_s=lag_s,
        newest_ms=at.last_timestamp_ms if at.last_timestamp_ms >= 0 else None,
        overrun_s=NEVER if lag_records == 0 else None if lag is None else lag.overrun_s,
        overrun_by="" if lag is None else lag.overrun_by,
        retention_s=None if lag is None else lag.retention_s,
        foreign_records=at.foreign_records,
    )


def lane_of_status(
    lane: LaneStatus,
    own: frozenset[TopicName],
    before: LaneStatus | None = None,
    newest_ms: int | None = None,
) -> LaneSight:
    """A lane as it was read from the clusters; `before` is the look before this one."""
    state, _, reason = lane.state.partition(": ")
    grew = None
    if before is not None and None not in (before.source_end_offset, lane.source_end_offset):
        grew = lane.source_end_offset != before.source_end_offset
    return LaneSight(
        topic=lane.lane.source.topic,
        partition=lane.lane.source.partition,
        state=state,
        reason=reason,
        detail=lane.detail,
        since_ms=lane.noted_ms if lane.is_stalled else None,
        is_own=lane.lane.source.topic in own,
        lag_records=lane.lag_records,
        lag_s=lane.lag_s,
        newest_ms=newest_ms,
        grew=grew,
        overrun_s=None if lane.lag is None else lane.lag.overrun_s,
        overrun_by="" if lane.lag is None else lane.lag.overrun_by,
        retention_s=None if lane.lag is None else lane.lag.retention_s,
        foreign_records=lane.foreign_records,
    )


def why_idle(status: FlowStatus) -> str:
    """Why a flow that was read is not mirrored at all; nothing where it is."""
    if status.fence is not None:
        return f"{FENCED}: {status.fence.why}"
    if status.orders.stopped is not None:
        return f"stopped by {status.orders.stopped.who}"
    return "no driver mirrors it" if status.lacks_driver else ""


def groups_sight(found: FlowGroups) -> GroupsSight:
    def named(wanted: frozenset[Verdict]) -> tuple[str, ...]:
        return tuple(sorted({row.group for row in found.rows if row.verdict in wanted}))

    return GroupsSight(
        untranslated=named(frozenset({Verdict.NOT_TRANSLATABLE})),
        unknown=(*found.problems, *named(frozenset({Verdict.UNKNOWN}))),
        behind=named(frozenset({Verdict.BEHIND, Verdict.NOT_WRITTEN})),
    )
