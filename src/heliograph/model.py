"""The values everything else speaks in: clusters, flows, lanes, their states and progress. Runs
anywhere.

Everything here is frozen and crosses the link between driver and slot as JSON (see `engine.link`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, NewType

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


class _HashKept:
    """Room for a hash beside the fields of a value: no field, so it is never pickled. The hash of
    a text is another in each process."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FlowId(_HashKept):
    source: ClusterAlias
    target: ClusterAlias

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.source, self.target))
            object.__setattr__(self, "_hash", found)
            return found

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LaneId(_HashKept):
    """A lane is named by its flow and its source partition."""

    flow: FlowId
    source: TopicPartition

    def __hash__(self) -> int:
        # Kept, and flat: a driver of ten thousand lanes looks them up all the time, and each part's
        # own hash would be another call.
        try:
            return self._hash
        except AttributeError:
            flow, source = self.flow, self.source
            found = hash((flow.source, flow.target, source.topic, source.partition))
            object.__setattr__(self, "_hash", found)
            return found

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


@dataclass(frozen=True, slots=True)
class StartOffset:
    """That offset of the source, which the driver found for this one lane."""

    offset: int


class Offsets(StrEnum):
    MAPPED = "mapped"
    PRESERVE = "preserve"


class LoopPrevention(StrEnum):
    """What a flow leaves out of its source's topics, known by who wrote it there."""

    NONE = "none"
    RETURNING = "returning"
    """What the flow of the other direction brought: it came from this flow's target."""
    MIRRORED = "mirrored"
    """What any mirror brought, wherever from."""


class OnExisting(StrEnum):
    """What a new lane does with a target partition that already holds records."""

    APPEND = "append"
    REFUSE = "refuse"


WRITTEN = "written to "
"""Begins the name of a limit that counts bytes as they are written; all others count them as
read."""
GIVES_WAY = "gives way to critical lanes"
"""The limit of lanes that copy only what critical ones leave (`driver.giving_way`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What a slot needs to know to carry a lane; where to resume comes from the target, not from
    here."""

    id: LaneId
    target: TopicPartition
    source_topic_id: TopicId | None
    target_topic_id: TopicId | None = None
    """As the driver last saw it; another one than before makes the slot look for its place."""
    start_at: Start | StartOffset = StartAt.EARLIEST
    offsets: Offsets = Offsets.MAPPED
    on_existing: OnExisting = OnExisting.APPEND
    read_committed: bool = True
    paused: bool = False
    limits: tuple[str, ...] = ()
    """Names of the limits in bytes a second that the lane keeps, each with others."""


class StallReason(StrEnum):
    CORRUPT_BATCH = "corrupt batch"
    TRANSFORM_FAILED = "transform failed"
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


class Awaited(StrEnum):
    """Whose answer a lane waits for."""

    SOURCE = "source answer"
    TARGET = "target answer"
    LEDGER = "ledger write"
    ROOM = "room in the slot"
    PLACE = "its place"


_AWAITED_WORDS: Final = {
    Awaited.SOURCE: "a fetch from the source is not answered",
    Awaited.TARGET: "what was sent to the target is not acknowledged",
    Awaited.LEDGER: "batches wait for a write to the ledger that is not acknowledged",
    Awaited.PLACE: "target, ledger or source have not told where the lane goes on",
    Awaited.ROOM: "nothing is fetched until the target has taken more of what the slot keeps",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An answer takes longer than the link explains. What the lane knew before may have changed:
    whether there is more to read, or whether the target has what was sent."""

    awaited: Awaited
    since_ms: int
    kind: Literal["waiting"] = "waiting"

    @property
    def detail(self) -> str:
        return _AWAITED_WORDS[self.awaited]

    @property
    def hides_source(self) -> bool:
        """Whether nobody knows how far the source's log goes by now."""
        return self.awaited in (Awaited.SOURCE, Awaited.ROOM, Awaited.PLACE)


LaneState = Starting | Copying | Idle | Waiting | Paused | Stalled

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
    """The first that the target has not acknowledged."""
    source_end_offset: int
    """First offset the source would not give us: last stable offset, or high watermark if
    uncommitted is read."""
    source_start_offset: int
    target_next_offset: int
    """-1 until the target's log said where the lane is, and while that log is not the lane's."""
    source_read_offset: int = -1
    """The first that was not fetched; -1 until the lane has found its place."""
    source_noted_offset: int = -1
    """The first that the ledger does not show as mirrored; -1 until it shows any."""
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
    latency_ms_sum: int = 0
    """Of the same batches."""

    @property
    def lag_records(self) -> int | None:
        """None where it is unknown: before the first answer of the source, while the source does
        not answer, and while the lane is stalled, which does not look at its source any more."""
        if self.source_end_offset < 0 or isinstance(self.state, Stalled):
            return None
        if isinstance(self.state, Waiting) and self.state.hides_source:
            return None
        return max(0, self.source_end_offset - self.source_next_offset)


def badge(state: LaneState) -> str:
    """One word for tables and logs; why with it where the lane cannot go on, or waits."""
    if isinstance(state, Stalled):
        return f"stalled: {state.reason.value}"
    if isinstance(state, Waiting):
        return f"waiting: {state.awaited.value}"
    return state.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLoad:
    """What a lane asked of its slot lately."""

    bytes_per_s: float
    lag_bytes: float
    """Estimated from the records that wait and the lane's bytes per record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigures:
    """What a slot exchanged with one cluster, one way. Counters run since the slot began."""

    cluster: ClusterAlias
    way: Literal["from", "to"]
    """Fetched from the cluster, or appended to it."""
    requests: int = 0
    """Answered, well or not."""
    failed: int = 0
    """Of them, those without a good answer: what they carried is tried again."""
    bytes: int = 0
    """Of answers to fetches, of batches in appends."""
    batches: int = 0
    """Appended, each try counted; 0 for fetches."""
    retried_batches: int = 0
    """Of them, those that were not acknowledged and are looked for, then sent again."""
    answer_ms: int = 0
    """From a request to its answer's first byte, summed."""
    throttle_ms: int = 0
    """Which the cluster says it held requests back for, by quota."""
    request_bytes_max: int = 0
    """The largest since the report before, as the next two."""
    batch_bytes_max: int = 0
    answer_ms_max: int = 0
    requests_in_flight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFigures:
    """What happened to a flow's lanes in one slot, since it began."""

    flow: FlowId
    stalls: dict[str, int] = field(default_factory=dict)
    """How often a lane stalled, by reason."""
    lookups: int = 0
    """How often a lane asked the target's log where it goes on, after its first time."""
    refused_batches: int = 0
    """Batches that the target refused because they were not the next: nothing is repeated."""
    corrections: int = 0
    """How often the offset map was put right by what the target's log says."""
    notes: int = 0
    """Writes of heads to the ledger that became durable."""
    note_ms: int = 0
    """How long they took, summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFigures:
    """What a slot as a whole does; told once a second, so that lanes need not."""

    at_ms: int = 0
    """By the clock of its machine; 0 where it is not told."""
    elapsed_s: float = 0.0
    user_s: float = 0.0
    """CPU of the thread that carries, outside the kernel."""
    system_s: float = 0.0
    """CPU of the same in the kernel: what its reads and writes cost."""
    kept_bytes: int = 0
    """Fetched and not acknowledged."""
    bytes_max: int = 0
    links: tuple[LinkFigures, ...] = ()
    flows: tuple[FlowFigures, ...] = ()
