"""The values everything else speaks in: clusters, flows, lanes, their states and progress. Runs
anywhere.

Everything here is frozen and crosses the link between driver and slot as JSON (see `engine.link`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, NewType

from heliograph.errors import InvariantError

ClusterAlias = NewType("ClusterAlias", str)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", str)
"""A topic's UUID in the usual 8-4-4-4-12 spelling; tells a recreated topic from the one it
replaced."""
SlotId = NewType("SlotId", int)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FlowId:
    source: ClusterAlias
    target: ClusterAlias

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LaneId:
    """A lane is named by its flow and its source partition."""

    flow: FlowId
    source: TopicPartition

    def __str__(self) -> str:
        return f"{self.flow}/{self.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """`[start, end)`: `end` is the first offset outside."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise InvariantError(f"not a range: [{self.start}, {self.end})")

    @property
    def count(self) -> int:
        return self.end - self.start


class StartAt(StrEnum):
    """An end of the source's log, as the place where a lane without history begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class StartTime:
    """The first record of that time or later."""

    at_ms: int

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        return at.isoformat(timespec="milliseconds" if self.at_ms % 1000 else "seconds")


@dataclass(frozen=True, slots=True)
class StartBack:
    """The first record that is at most so old when the lane begins (KIP-1106)."""

    back_ms: int

    def __str__(self) -> str:
        seconds, rest_ms = divmod(self.back_ms, 1000)
        return f"by_duration:PT{seconds}{f'.{rest_ms:03}' if rest_ms else ''}S"


Start = StartAt | StartTime | StartBack
"""Where a lane without history begins."""


class Offsets(StrEnum):
    MAPPED = "mapped"
    PRESERVE = "preserve"


class OnExisting(StrEnum):
    """What a new lane does with a target partition that already holds records."""

    APPEND = "append"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What a slot needs to know to carry a lane; where to resume comes from the target, not from
    here."""

    id: LaneId
    target: TopicPartition
    source_topic_id: TopicId | None
    target_topic_id: TopicId | None = None
    """As the driver last saw it; another one than before makes the slot look for its place."""
    start_at: Start = StartAt.EARLIEST
    offsets: Offsets = Offsets.MAPPED
    on_existing: OnExisting = OnExisting.APPEND
    read_committed: bool = True
    paused: bool = False
    limits: tuple[str, ...] = ()
    """Names of the limits in bytes a second that the lane keeps, each with others."""


class StallReason(StrEnum):
    CORRUPT_BATCH = "corrupt batch"
    REFUSED_BY_TARGET = "refused by target"
    NOT_AUTHORISED = "not authorised"
    RETENTION_OVERRUN = "retention overrun"
    TOPIC_RECREATED = "topic recreated"
    LOG_TRUNCATED = "log truncated"
    TARGET_NOT_EMPTY = "target not empty"
    TARGET_RECREATED = "target recreated"
    TARGET_LOST_RECORDS = "target lost records"
    UNEXPLAINED_LOG = "unexplained log"
    LEDGER_UNUSABLE = "ledger unusable"
    FENCED = "fenced"
    SOURCE_UNREACHABLE = "source unreachable"
    TARGET_UNREACHABLE = "target unreachable"
    BUG = "bug"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """Finding out where to resume; lasts as long as the clusters need to answer."""

    kind: Literal["starting"] = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    kind: Literal["copying"] = "copying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Everything the source lets us read has been acknowledged by the target."""

    kind: Literal["idle"] = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    reason: StallReason
    detail: str
    since_ms: int
    retrying: bool = False
    """Whether the slot goes on trying by itself; otherwise somebody must change something."""
    lost: OffsetRange | None = None
    """Source offsets that are gone, where the reason is retention."""
    kind: Literal["stalled"] = "stalled"


LaneState = Starting | Copying | Idle | Paused | Stalled

LATENCY_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)
"""Upper bounds; one more bucket holds what is above the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProgress:
    """How far a lane has come, as its slot saw it. Counters run since the slot took the lane."""

    lane: LaneId
    state: LaneState
    position: int
    """Records of the lane acknowledged by the target since the lane began."""
    source_next_offset: int
    source_end_offset: int
    """First offset the source would not give us: last stable offset, or high watermark if
    uncommitted is read."""
    source_start_offset: int
    target_next_offset: int
    """-1 until the target's log said where the lane is, and while that log is not the lane's."""
    records: int = 0
    bytes: int = 0
    received_bytes: int = 0
    """Of records, as they came from the source: what was fetched in vain is in it."""
    sent_bytes: int = 0
    """Of records, as they left for the target: what was sent again is in it."""
    last_timestamp_ms: int = -1
    """Newest record timestamp acknowledged; -1 before the first."""
    behind_since_ms: int = -1
    """Timestamp of the oldest record known to wait; -1 when none waits."""
    foreign_records: int = 0
    """Records in the target partition, since the lane began, that this flow did not write."""
    unknown_control_records: int = 0
    """Control records of the source that neither commit nor abort; they are not mirrored."""
    identical: bool = False
    """Whether source and target offsets are equal for everything mirrored so far."""
    latency_counts: tuple[int, ...] = field(default=())
    """Batches per bucket of `LATENCY_BUCKETS_MS`, append time minus newest record timestamp, live
    tail only."""

    @property
    def lag_records(self) -> int | None:
        """None where it is unknown: before the first answer of the source, and while the lane is
        stalled, which does not look at its source any more."""
        if self.source_end_offset < 0 or isinstance(self.state, Stalled):
            return None
        return max(0, self.source_end_offset - self.source_next_offset)


def badge(state: LaneState) -> str:
    """One word for tables and logs; the reason with it where the lane cannot go on."""
    if isinstance(state, Stalled):
        return f"stalled: {state.reason.value}"
    return state.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLoad:
    """What a lane asked of its slot lately."""

    bytes_per_s: float
    lag_bytes: float
    """Estimated from the records that wait and the lane's bytes per record."""
