"""One lane as its slot carries it: on its way, settled, and what it shows. Runs on executors.

A lane belongs to its slot's event loop. Only three things change its fate: `begin` after a resume,
`settle` for each acknowledgement, and `stop` when something was not as expected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from heliograph.clock import now_ms
from heliograph.copy.chunk import LaneCursor, OutgoingBatch, PreparedChunk
from heliograph.ledger.entries import TEXT_CHARS_MAX, HeadEntry, RunsEntry, new_author, runs_entries
from heliograph.ledger.replay_guard import ReplayGuard
from heliograph.ledger.runs import Run
from heliograph.model import (
    LATENCY_BUCKETS_MS,
    Copying,
    Idle,
    Lane,
    LaneProgress,
    LaneState,
    OffsetRange,
    Paused,
    Stalled,
    StallReason,
    Starting,
    TopicId,
    badge,
)
from heliograph.wire.fetch import topic_key

if TYPE_CHECKING:
    from heliograph.copy.flow import Flow

LANE_BYTES_MAX: Final = 16 * 1024 * 1024
"""More than this waiting for the target, and the lane is not fetched until half of it has gone."""
FETCH_BYTES_MAX: Final = 128 * 1024 * 1024
LIVE_MS_MAX: Final = 60_000
"""Older records are a backlog; their age says nothing about latency."""
_BACKOFF_S: Final = 0.05
_BACKOFF_S_MAX: Final = 5.0


class Phase(Enum):
    RESUMING = "resuming"
    RUNNING = "running"
    STALLED = "stalled"
    PAUSED = "paused"
    CLOSED = "closed"


class CarriedLane:
    def __init__(self, spec: Lane, flow: Flow) -> None:
        self.spec = spec
        self.flow = flow
        self.phase = Phase.PAUSED if spec.paused else Phase.RESUMING
        self.generation = 0
        """Goes up with each resume; answers to an older one only count as arrived."""
        self.cursor = LaneCursor(next_offset=0, position=0, target_offset=0, source_expected=0)
        self.outgoing: deque[OutgoingBatch] = deque()
        self.in_flight = 0
        self.buffered_bytes = 0
        self.append_stream = -1
        """Which connection carries it; chosen with the first batch, kept until the next resume."""
        self.queued = False
        """Whether the append stream already has the lane in its round."""
        self.held = False
        """Whether fetching waits until the target has taken more."""
        self.throttled = False
        self.alone = False
        """Whether the next batch travels alone: a target that knows nothing of the producer takes
        any sequence as its first, so one refused would be skipped by the one behind it."""
        self.draining = False
        """Whether nothing more is to be fetched, whatever happens."""
        self.resume_due = True
        self.when_stalled: Callable[[CarriedLane], None] | None = None
        self.when_quiet: Callable[[], None] | None = None
        """What to do once nothing is on its way any more."""
        self.fetch_bytes = flow.limits.partition_bytes
        self.coalesce = True
        self.corrupt_offset = -1
        self.failures = 0
        self.position = 0
        self.source_next_offset = 0
        self.target_next_offset = 0
        self.source_start_offset = 0
        self.source_end_offset = -1
        """-1 until the source was heard."""
        self.target_topic_id: TopicId | None = None
        self.target_key = b""
        """The same in the wire's form."""
        self.author = new_author()
        """Signs the lane's runs, another one after each resume: an entry never takes the key of one
        that covers more, so compaction drops none that explains the log."""
        self.ahead = ReplayGuard()
        self.runs_ahead: deque[Run] = deque()
        """Runs written ahead whose first record is not acknowledged yet."""
        self.identical = False
        self.foreign_records = 0
        self.head_position = -1
        self.head_state = ""
        """The badge that the ledger's head shows."""
        self._records = 0
        self._bytes = 0
        self._last_timestamp_ms = -1
        self._latency = [0] * (len(LATENCY_BUCKETS_MS) + 1)
        self._stall: Stalled | None = None

    # -- fate

    def begin(
        self,
        cursor: LaneCursor,
        *,
        identical: bool,
        target_topic_id: TopicId,
        written_until: int = 0,
        alone: bool = False,
    ) -> None:
        """Resumed: all before the cursor is in the target, nothing after it is on its way."""
        self.generation += 1
        self.author = new_author()
        self.ahead = ReplayGuard(cursor.position, written_until)
        self.cursor = cursor
        self.outgoing.clear()
        self.runs_ahead.clear()
        self.buffered_bytes = 0
        self.held = False
        self.append_stream = -1
        self.alone = alone
        self.position = cursor.position
        self.source_next_offset = cursor.next_offset
        self.target_next_offset = cursor.target_offset
        self.identical = identical
        self.target_topic_id = target_topic_id
        self.target_key = topic_key(target_topic_id)
        self.phase = Phase.RUNNING
        self._stall = None

    def stop(self, phase: Phase) -> None:
        """Let go of what waits; what is in flight is still counted when it comes back."""
        self.phase = phase
        self.generation += 1
        self.outgoing.clear()
        self.runs_ahead.clear()
        self.buffered_bytes = 0
        self.held = self.throttled = False
        self.when_quiet = None

    def stall(
        self, reason: StallReason, detail: str, *, retrying: bool, lost: OffsetRange | None = None
    ) -> None:
        since_ms = now_ms()
        if self._stall is not None and self._stall.reason is reason:
            since_ms = self._stall.since_ms
        self._stall = Stalled(
            reason=reason, detail=detail, since_ms=since_ms, retrying=retrying, lost=lost
        )
        if self.when_stalled is not None:
            self.when_stalled(self)

    def unstall(self) -> None:
        self._stall = None

    def backoff_s(self) -> float:
        """How long to wait before the next try; grows with each failure in a row."""
        self.failures += 1
        return min(_BACKOFF_S * (1 << min(self.failures, 10)), _BACKOFF_S_MAX)

    # -- data

    def explain(self, layout: PreparedChunk) -> list[RunsEntry]:
        """What the ledger must have before what was laid out may leave."""
        if layout.batches:
            first = layout.batches[0]
            start = Run(
                position=first.position,
                source_offset=first.source_offset,
                target_offset=self.cursor.target_offset - self.cursor.position + first.position,
            )
            layout.runs = self.ahead.told(start, layout.runs)
        return self._entries(layout.runs, self.cursor.position)

    def take(self, layout: PreparedChunk, ticket: int) -> int:
        """Accept what was laid out; returns the bytes it keeps waiting."""
        if self.outgoing:
            # It cannot leave before those in front of it. Were the last one free to go while the
            # first still waits, the lane would seem to wait for nothing and be told of nothing.
            ticket = max(ticket, self.outgoing[-1].ticket)
        taken_bytes = 0
        for batch in layout.batches:
            batch.ticket = ticket
            taken_bytes += len(batch.view)
        self.outgoing.extend(layout.batches)
        self.runs_ahead.extend(layout.runs)
        if any(run.source_offset != run.target_offset for run in layout.runs):
            self.identical = False
        self.buffered_bytes += taken_bytes
        if not self.outgoing and not self.in_flight:
            self.source_next_offset = self.cursor.next_offset
        return taken_bytes

    @property
    def sendable(self) -> bool:
        return (
            bool(self.outgoing)
            and self.phase is Phase.RUNNING
            and self.outgoing[0].ticket <= self.flow.ledger.durable
            and not (self.alone and self.in_flight)
        )

    def settle(self, batch: OutgoingBatch, base_offset: int) -> None:
        """The target has this batch, at `base_offset`."""
        shift = base_offset - self.target_next_offset
        if shift:
            self._shift_target(batch, shift)
        self.position = batch.position + batch.record_count
        self.target_next_offset = base_offset + batch.record_count
        self.source_next_offset = batch.source_next_offset
        while self.runs_ahead and self.runs_ahead[0].position < self.position:
            self.runs_ahead.popleft()
        self.failures = 0
        self.alone = False
        self._records += batch.record_count
        self._bytes += len(batch.view)
        self._note_latency(batch.max_timestamp_ms)
        if not self.outgoing and self.in_flight == 0:
            self.source_next_offset = self.cursor.next_offset

    def _shift_target(self, batch: OutgoingBatch, shift: int) -> None:
        """Others wrote `shift` records before this batch: the map gets a run, the records are
        counted.

        The source side of every run is fixed and stays. A crash before this entry is durable costs
        nothing: a resume that finds the log longer than the map says reads the log and finds the
        same shift.
        """
        self.foreign_records += shift
        self.identical = False
        ahead = [run for run in self.runs_ahead if run.position >= batch.position]
        # Only an entry without end also moves what comes after the last of the runs ahead.
        end_position = None if ahead else self.cursor.position
        if ahead and ahead[0].position == batch.position:
            ahead = ahead[1:]
        first = Run(
            position=batch.position,
            source_offset=batch.source_offset,
            target_offset=self.target_next_offset + shift,
        )
        moved = [first] + [
            Run(
                position=run.position,
                source_offset=run.source_offset,
                target_offset=run.target_offset + shift,
            )
            for run in ahead
        ]
        self.runs_ahead = deque(moved[1:])
        self.cursor.target_offset += shift
        self.flow.ledger.write_soon(self._entries(moved, end_position))

    def _entries(self, runs: Sequence[Run], end_position: int | None) -> list[RunsEntry]:
        source = self.spec.id.source
        return runs_entries(
            source.topic, source.partition, runs, author=self.author, end_position=end_position
        )

    def _note_latency(self, timestamp_ms: int) -> None:
        if timestamp_ms < 0:
            return
        self._last_timestamp_ms = max(self._last_timestamp_ms, timestamp_ms)
        age_ms = now_ms() - timestamp_ms
        if age_ms > LIVE_MS_MAX:
            return
        for index, bound in enumerate(LATENCY_BUCKETS_MS):
            if age_ms <= bound:
                self._latency[index] += 1
                return
        self._latency[-1] += 1

    # -- what it shows

    def state(self) -> LaneState:
        if self._stall is not None:
            return self._stall
        if self.phase is Phase.PAUSED:
            return Paused()
        if self.phase is Phase.RESUMING or self.source_end_offset < 0:
            return Starting()
        done = not self.outgoing and not self.in_flight
        if done and self.cursor.next_offset >= self.source_end_offset:
            return Idle()
        return Copying()

    def progress(self) -> LaneProgress:
        behind_since_ms = -1
        if self.outgoing:
            behind_since_ms = self.outgoing[0].max_timestamp_ms
        elif self.source_next_offset < self.source_end_offset:
            behind_since_ms = self._last_timestamp_ms
        return LaneProgress(
            lane=self.spec.id,
            state=self.state(),
            position=self.position,
            source_next_offset=self.source_next_offset,
            source_end_offset=self.source_end_offset,
            source_start_offset=self.source_start_offset,
            target_next_offset=self.target_next_offset,
            records=self._records,
            bytes=self._bytes,
            last_timestamp_ms=self._last_timestamp_ms,
            behind_since_ms=behind_since_ms,
            foreign_records=self.foreign_records,
            identical=self.identical,
            latency_counts=tuple(self._latency),
        )

    def head_is_due(self, *, settling: bool) -> bool:
        """Whether the ledger's head is out of date: idle topics do not chatter, stalls show."""
        if self.flow.stamp is None:
            # The ledger was not read yet, so nothing here is better than what it has.
            return False
        begun = self.target_topic_id is not None
        if begun and self.head_position != self.position:
            return True
        state = badge(self.state())
        if state == self.head_state:
            return False
        return _is_loud(state) or _is_loud(self.head_state) or (settling and begun)

    def head(self) -> HeadEntry:
        """Where the lane is and how; one that never began here keeps the place the ledger has."""
        source, state = self.spec.id.source, self.state()
        shown = HeadEntry(
            topic=source.topic,
            partition=source.partition,
            position=self.position,
            source_next_offset=self.source_next_offset,
            source_end_offset=max(self.source_end_offset, self.source_next_offset),
            target_next_offset=self.target_next_offset,
            source_topic_id=self.spec.source_topic_id,
            target_topic_id=self.target_topic_id,
            at_ms=_heard_ms(state),
            state=badge(state),
            detail=state.detail[:TEXT_CHARS_MAX] if isinstance(state, Stalled) else "",
        )
        if self.target_topic_id is not None:
            return shown
        position, source_next_offset, target_next_offset = self._place_in_ledger()
        return replace(
            shown,
            position=position,
            source_next_offset=source_next_offset,
            source_end_offset=source_next_offset,
            target_next_offset=target_next_offset,
        )

    def _place_in_ledger(self) -> tuple[int, int, int]:
        source = self.spec.id.source
        record = self.flow.ledger.view.lane(source.topic, source.partition)
        if record is not None and record.head is not None:
            head = record.head
            return head.position, head.source_next_offset, head.target_next_offset
        if record is not None and record.starts:
            start = record.starts[-1]
            return start.position, start.source_offset, start.target_offset
        return 0, 0, 0


def _heard_ms(state: LaneState) -> int:
    """Until when a head is true: of a source that does not answer, nothing newer is known."""
    if isinstance(state, Stalled) and state.reason is StallReason.SOURCE_UNREACHABLE:
        return state.since_ms
    return now_ms()


def _is_loud(state: str) -> bool:
    return state == "paused" or state.startswith("stalled")
