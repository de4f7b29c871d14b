"""The phases of a lane: values whose fields die with them. Runs on executors.

`Stalled` and `Paused` are the states a lane shows; the other phases show as starting, copying, idle
or waiting (`CarriedLane.state`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from heliograph.copy.chunk import LaneCursor, OutgoingBatch, PreparedChunk
from heliograph.copy.room import Share
from heliograph.errors import (
    CorruptBatch,
    InvariantError,
    LedgerUnusable,
    MirrorError,
    NotAuthorised,
)
from heliograph.ledger.entries import new_author, new_predictor
from heliograph.ledger.kept import NOTHING_KEPT
from heliograph.ledger.replay_guard import ReplayGuard
from heliograph.ledger.runs import Run
from heliograph.letters.lane import LaneLetters
from heliograph.model import (
    ClusterAlias,
    OffsetRange,
    Paused,
    Stalled,
    StallReason,
    TopicPartition,
)

LANE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a lane may have waiting for its target, unless single answers bring more."""
StreamKey = tuple[ClusterAlias, int, int]
"""A connection to a target: cluster, broker, number."""
RETRY_S: Final = 30.0
"""How often a lane that a broker refused is tried again: what was wrong may have changed."""


class RunsToWrite(NamedTuple):
    """What is to be written of a chunk, and before which position it replaces what is known."""

    runs: list[Run]
    end_position: int


@dataclass(slots=True, eq=False, kw_only=True)
class Resuming:
    """The log is to be asked where the lane goes on."""

    after_s: float = 0.0
    """How long to wait before; more after each failure in a row."""
    due: bool = field(init=False)
    """Whether the log may be asked as soon as nothing is in flight; False once it is asked."""
    again: bool = False
    """Whether the driver has let the lane go on meanwhile: a look that began before may have read
    the ledger before the driver's decision was in it."""

    def __post_init__(self) -> None:
        self.due = self.after_s == 0


@dataclass(slots=True, eq=False, kw_only=True)
class Running:
    """All before the first cursor is in the target; what is queued here leaves in order.

    Its identity tells answers to its own batches from those to batches of an earlier one.
    """

    cursor: LaneCursor
    replay_guard: ReplayGuard
    probing: bool = True
    """Whether the next batch travels alone: a target that knows nothing of the producer takes any
    sequence as its first, so one refused would be skipped by the one behind it."""
    author: str = field(default_factory=new_predictor)
    """Signs the lane's runs, another one after each resume: an entry never takes the key of one
    that covers more, so compaction drops none that explains the log. One that is late lowers no
    target offset."""
    outgoing: deque[OutgoingBatch] = field(default_factory=deque)
    unacked_runs: deque[Run] = field(default_factory=deque)
    """Runs written ahead whose first record is not acknowledged yet."""
    buffered_bytes: int = 0
    """Queued and in flight."""
    share: Share = field(default_factory=Share)
    """Of the slot's room, where these bytes are counted."""
    append_stream: StreamKey | None = None
    """Which connection carries the lane; another may be chosen only while nothing is in flight."""
    bytes_max: int = LANE_BYTES_MAX
    """More than this waiting, and nothing is fetched until half of it has gone: more where one
    answer brings more."""
    backpressured: bool = False
    """Whether fetching waits until the target has taken more."""
    throttled: bool = False
    letters: LaneLetters = field(default_factory=LaneLetters)
    writes_letters: bool = False
    """Whether fetching waits until records that cannot be mirrored are in the dead-letter topic."""
    kept: OffsetRange = NOTHING_KEPT
    """The source's batches that begin there are copied, also those that a mirror brought."""

    def runs_to_write(self, chunk: PreparedChunk) -> RunsToWrite:
        """What the ledger must have before the chunk's batches may leave; none for most chunks."""
        if not chunk.batches:
            return RunsToWrite(chunk.runs, self.cursor.position)
        first, cursor = chunk.batches[0], self.cursor
        start = Run(
            position=first.position,
            source_offset=first.source_offset,
            target_offset=cursor.target_offset - cursor.position + first.position,
        )
        runs = self.replay_guard.runs_to_write(start, chunk.runs)
        end = Run(
            position=cursor.position,
            source_offset=cursor.next_offset,
            target_offset=cursor.target_offset,
        )
        until = self.replay_guard.parts_until(end)
        if until is None:
            return RunsToWrite(runs, cursor.position)
        # It lies behind all that is queued, so it needs no run of its own here.
        cursor.source_expected = cursor.next_offset
        return RunsToWrite([*runs, end], until)

    def shift_target(self, shift: int) -> None:
        """Records of others moved what is to come on the target."""
        self.cursor.target_offset += shift
        if shift < 0:
            # It has lost some of theirs: what was predicted is too high.
            self.author = new_author()

    def enqueue(self, chunk: PreparedChunk, ticket: int) -> int:
        """Queue the chunk's batches behind `ticket`; returns their bytes."""
        if self.outgoing:
            # Never lower than the ticket of the batch in front: `TargetSide.release` looks at the
            # last batch only and would otherwise drop the lane from those that wait.
            ticket = max(ticket, self.outgoing[-1].ticket)
        queued_bytes = 0
        for batch in chunk.batches:
            batch.ticket = ticket
            queued_bytes += len(batch.view)
        self.outgoing.extend(chunk.batches)
        self.buffered_bytes += queued_bytes
        self.backpressured = self.buffered_bytes >= self.bytes_max
        return queued_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a lane is to stall, and when it tries again."""

    reason: StallReason
    detail: str
    retry_s: float | None
    """None where an operator must decide."""
    lost: OffsetRange | None = None


def source_recreated(source: TopicPartition) -> str:
    """What a lane says whose source topic is another one under the same name."""
    return (
        f"{source} was deleted and created again; on.topic.recreated = restart or `heliograph "
        "reset` mirrors the new topic behind what was mirrored of the old"
    )


def log_parted(source: TopicPartition, at: int, mirrored_to: int) -> str:
    """What a lane says whose source lost records that were mirrored."""
    return (
        f"{source}: the source's log parts from what was mirrored at offset {at}, "
        f"before {mirrored_to}"
    )


@dataclass(slots=True, eq=False, kw_only=True)
class Draining:
    """Nothing more is fetched; once the target has all that was, the lane stalls."""

    running: Running
    then: Stop


@dataclass(frozen=True, slots=True)
class Closed:
    """The slot no longer carries the lane."""


LanePhase = Resuming | Running | Draining | Stalled | Paused | Closed


def target_reason(error: MirrorError) -> StallReason:
    """What a lane shows that the target, or the ledger on it, does not let go on."""
    if isinstance(error, NotAuthorised):
        return StallReason.NOT_AUTHORISED
    if isinstance(error, LedgerUnusable):
        return StallReason.LEDGER_UNUSABLE
    if isinstance(error, InvariantError):
        return StallReason.BUG
    if isinstance(error, CorruptBatch):
        return StallReason.CORRUPT_BATCH
    return StallReason.TARGET_UNREACHABLE if error.retriable else StallReason.REFUSED_BY_TARGET
