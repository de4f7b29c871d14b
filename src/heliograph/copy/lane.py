"""One lane as its slot carries it: its phase, and what outlives it. Runs on executors.

A lane belongs to its slot's event loop. `machine.LaneMachine` alone decides its phase.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from heliograph.clock import monotonic_s, now_ms
from heliograph.copy.chunk import (
    LaneCursor,
    OutgoingBatch,
    PreparedChunk,
    SkippedRecord,
    SourcePoint,
)
from heliograph.copy.lane_fields import Counted, HeadWritten, Learned, Reached, SourceSeen
from heliograph.copy.phases import Draining, LanePhase, Resuming, Running, target_reason
from heliograph.ledger.entries import (
    TEXT_CHARS_MAX,
    HeadEntry,
    LossEntry,
    RunsEntry,
    runs_entries,
)
from heliograph.ledger.locate import anchor_of, begun_at, source_next_offset
from heliograph.ledger.replay_guard import Ahead, ReplayGuard
from heliograph.ledger.runs import Run
from heliograph.ledger.segments import unmerged_count
from heliograph.letters.lane import LaneLetters
from heliograph.model import (
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
    Waiting,
    badge,
)
from heliograph.probe import MAP_TO_CORRECT, probe
from heliograph.wire.fetch import topic_key

if TYPE_CHECKING:
    from heliograph.copy.flow import Flow
    from heliograph.copy.found import Blocked
    from heliograph.copy.throttle import Throttle

FORGOTTEN_S_MIN: Final = 60.0
"""A target is taken to remember the producer of a lane for so long and no longer; Kafka's
`producer.id.expiration.ms` is a day and may be set lower."""
_LONG_WAIT_MS: Final = 15_000
"""A shorter wait is shown and not written down: a slow link has many."""
_LEDGER_PAUSE_MS: Final = 3_000
"""A ledger whose leader moves is no trouble worth showing."""
REMEMBERED_S: Final = 0.05
"""What leaves so soon after an acknowledgement goes on as if it were still in flight: of a backlog
the target may forget the producer between two batches too, and each would travel alone."""


class CarriedLane:
    """The fields are what outlives a phase; what does not is in `phase` itself."""

    def __init__(self, spec: Lane, flow: Flow) -> None:
        self.spec = spec
        self.flow = flow
        self.throttles: tuple[Throttle, ...] = ()
        """What the lane may fetch a second; it keeps all of them."""
        self.phase: LanePhase = Paused() if spec.paused else Resuming()
        self.running: Running | None = None
        """The phase's, while it runs or drains."""
        self.in_flight = 0
        """Batches sent and not answered, those of an earlier `Running` included."""
        self.queued = False
        """Whether an append stream already has the lane in its round."""
        self.retiring = False
        """Whether nothing more is to be fetched, whatever happens."""
        self.trouble: Stalled | None = None
        """What the lane shows in place of its phase, until it goes on."""
        self.waiting: Waiting | None = None
        """Shown while an answer is overdue (`silences`), until it is there."""
        self.reached = Reached()
        self.source_seen = SourceSeen()
        self.learned = Learned(fetch_bytes=flow.limits.partition_bytes)
        self.counted = Counted()
        self.head_written = HeadWritten()
        self.unreported = True
        """Whether `progress` may be another than when it was last asked for; set by all that
        changes what it shows."""
        self.unmerged_entries = 0
        """Entries of its runs in the ledger that a merge could put together."""

    def enter(self, phase: LanePhase) -> None:
        """For the machine, which knows what else this means."""
        self.phase = phase
        self.unreported, self.waiting = True, None
        if isinstance(phase, Running):
            self.running = phase
        else:
            self.running = phase.running if isinstance(phase, Draining) else None

    def run_from(
        self,
        cursor: LaneCursor,
        *,
        identical: bool,
        target_topic_id: TopicId,
        written_until: int = 0,
        ahead: Ahead | None = None,
        letters: LaneLetters | None = None,
    ) -> Running:
        """The phase of a lane of which all before the cursor is in the target and nothing after it
        is on its way."""
        reached, self.unreported = self.reached, True
        reached.position = reached.sent_position = cursor.position
        reached.read_to(cursor.next_offset, cursor.leader_epoch)
        reached.target_next_offset, reached.identical = cursor.target_offset, identical
        reached.source_topic_id = self.spec.source_topic_id
        reached.target_topic_id = target_topic_id
        reached.target_key = topic_key(target_topic_id)
        return Running(
            cursor=cursor,
            replay_guard=ReplayGuard(cursor.position, written_until, ahead),
            letters=letters or LaneLetters(),
        )

    def stop_at(self, found: Blocked) -> None:
        """The log was asked, and the lane must not go on from there."""
        self.unreported = True
        self.reached = Reached(
            position=found.position,
            source_next_offset=found.source_next_offset,
            source_leader_epoch=found.source_leader_epoch,
            target_next_offset=found.target_next_offset,
            foreign_records=self.reached.foreign_records,
        )

    def stalled(
        self,
        reason: StallReason,
        detail: str,
        *,
        retrying: bool,
        lost: OffsetRange | None = None,
    ) -> Stalled:
        """The same trouble as before is not new."""
        since_ms = now_ms()
        if self.trouble is not None and self.trouble.reason is reason:
            since_ms = self.trouble.since_ms
        return Stalled(
            reason=reason, detail=detail, since_ms=since_ms, retrying=retrying, lost=lost
        )

    def answered(self) -> None:
        """A cluster answers again. What the target refused before waits all the same, unless there
        is nothing left to send."""
        running = self.running
        if (
            running is not None
            and self.is_drained
            and running.cursor.next_offset >= self.source_seen.end_offset >= 0
        ):
            self.learned.forget_failures()
        elif self.trouble is not None and self.trouble.reason is StallReason.REFUSED_BY_TARGET:
            return
        self.trouble = None

    # -- data

    @property
    def source_point(self) -> SourcePoint | None:
        return self.reached.source_point

    @property
    def sure_position(self) -> int | None:
        return self.reached.sure_position

    @property
    def is_drained(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self.in_flight and (self.running is None or not self.running.outgoing)

    @property
    def sendable(self) -> bool:
        running = self.running
        if running is None or not running.outgoing:
            return False
        return running.outgoing[0].ticket <= self.flow.ledger.durable and not (
            running.probing and self.in_flight
        )

    def take(self, running: Running) -> OutgoingBatch:
        """The batch to send next, in flight from here on."""
        if not self.in_flight and self._may_be_forgotten():
            running.probing = True
        self.in_flight, self.unreported = self.in_flight + 1, True
        batch = running.outgoing.popleft()
        self.reached.sent_position = batch.position + batch.record_count
        return batch

    def _may_be_forgotten(self) -> bool:
        """Whether the target may have forgotten the producer since the last acknowledgement.

        A broker counts a producer's age from the newest record of its last batch, not from when
        that was appended: of a backlog older than a day it forgets who wrote it at every check.
        Just after an acknowledgement it remembers, however old the records are: a backlog that
        sent every batch alone would take a round trip for each.
        """
        reached = self.reached
        idle_s = monotonic_s() - reached.acked_s
        age_s = now_ms() / 1000 - reached.acked_timestamp_ms / 1000
        return idle_s > (FORGOTTEN_S_MIN if age_s <= FORGOTTEN_S_MIN else REMEMBERED_S)

    def ledger_entries(
        self, running: Running, runs: Sequence[Run], end_position: int
    ) -> list[RunsEntry]:
        """They end where the lane's own knowledge does: one that becomes durable late, after a
        successor wrote its runs, must leave those alone."""
        source = self.spec.id.source
        return runs_entries(
            source.topic,
            source.partition,
            runs,
            author=running.author,
            end_position=end_position,
        )

    def skip_entries(self, skipped: Sequence[SkippedRecord]) -> list[LossEntry]:
        """Records that are not mirrored, neighbours together."""
        ranges: list[tuple[int, int, int, StallReason]] = []
        for position, offset, reason in skipped:
            if ranges and ranges[-1][0] == position and ranges[-1][2:] == (offset, reason):
                ranges[-1] = (position, ranges[-1][1], offset + 1, reason)
            else:
                ranges.append((position, offset, offset + 1, reason))
        source, at_ms = self.spec.id.source, now_ms()
        return [
            LossEntry(
                topic=source.topic,
                partition=source.partition,
                position=position,
                lost=OffsetRange(start=start, end=end),
                reason=reason,
                at_ms=at_ms,
            )
            for position, start, end, reason in ranges
        ]

    def enqueue(
        self, running: Running, chunk: PreparedChunk, runs: Sequence[Run], ticket: int
    ) -> int:
        """Accept a prepared chunk with the runs written for it; returns the bytes it keeps."""
        self.unreported = True
        queued_bytes = running.enqueue(chunk, ticket)
        if runs:
            unacked = running.unacked_runs
            while unacked and unacked[-1].position >= runs[0].position:
                # Where the chunk before was to go on (`Running.runs_to_write`).
                unacked.pop()
            unacked.extend(runs)
            if any(run.source_offset != run.target_offset for run in runs):
                self.reached.identical = False
        if self.is_drained:
            # All that was fetched was dropped.
            self.reached.read_to(running.cursor.next_offset, running.cursor.leader_epoch)
        return queued_bytes

    def settle(self, running: Running, batch: OutgoingBatch, base_offset: int) -> None:
        """The target has this batch, at `base_offset`."""
        self.unreported, self.waiting = True, None
        reached = self.reached
        shift = base_offset - reached.target_next_offset
        if shift:
            self._shift_target(running, batch, shift)
        reached.position = batch.position + batch.record_count
        reached.target_next_offset = base_offset + batch.record_count
        reached.read_to(batch.source_next_offset, batch.leader_epoch)
        reached.acked_s, reached.acked_timestamp_ms = monotonic_s(), batch.max_timestamp_ms
        unacked = running.unacked_runs
        while unacked and unacked[0].position < reached.position:
            unacked.popleft()
        running.buffered_bytes -= len(batch.view)
        running.probing = False
        self.learned.forget_failures()
        if self.trouble is not None and self.trouble.reason is StallReason.REFUSED_BY_TARGET:
            self.trouble = None
        self.counted.count(batch)
        if not running.outgoing and self.in_flight == 0:
            reached.read_to(running.cursor.next_offset, running.cursor.leader_epoch)

    def _shift_target(self, running: Running, batch: OutgoingBatch, shift: int) -> None:
        """Others wrote `shift` records before this batch: the map gets a run, the records are
        counted.

        The source side of every run is fixed and stays. A crash before this entry is durable costs
        nothing: a resume that finds the log longer than the map says reads the log and finds the
        same shift.
        """
        reached = self.reached
        reached.foreign_records += shift
        reached.identical = False
        ahead = [run for run in running.unacked_runs if run.position >= batch.position]
        if ahead and ahead[0].position == batch.position:
            ahead = ahead[1:]
        first = Run(
            position=batch.position,
            source_offset=batch.source_offset,
            target_offset=reached.target_next_offset + shift,
        )
        moved = [first] + [
            Run(
                position=run.position,
                source_offset=run.source_offset,
                target_offset=run.target_offset + shift,
            )
            for run in ahead
        ]
        running.unacked_runs = deque(moved[1:])
        running.shift_target(shift)
        self.flow.counted.corrections += 1
        probe(MAP_TO_CORRECT)
        # A run that begins where the cursor stands lies behind all that is queued.
        ends = running.cursor.position, moved[-1].position + 1
        self.flow.ledger.write_soon(self.ledger_entries(running, moved, max(ends)))

    # -- what it shows

    def state(self) -> LaneState:
        if self.trouble is not None:
            return self.trouble
        if isinstance(self.phase, Paused):
            return self.phase
        waits = self._waits_for_ledger()
        if waits is not None:
            return waits
        if isinstance(self.phase, Resuming) or self.source_seen.end_offset < 0:
            return self.waiting or Starting()
        if self.waiting is not None:
            return self.waiting
        next_offset = self.reached.source_next_offset
        if self.running is not None:
            next_offset = self.running.cursor.next_offset
        # One that may not fetch yet does not know whether there is more.
        throttled = self.running is not None and self.running.throttled
        if self.is_drained and not throttled and next_offset >= self.source_seen.end_offset:
            return Idle()
        return Copying()

    def _waits_for_ledger(self) -> Stalled | None:
        """Batches may not leave before their runs are durable, and the ledger cannot be written."""
        ledger, running = self.flow.ledger, self.running
        if running is None or not running.outgoing or ledger.problem is None:
            return None
        is_brief = now_ms() - ledger.problem_since_ms < _LEDGER_PAUSE_MS
        if running.outgoing[0].ticket <= ledger.durable or (ledger.problem.retriable and is_brief):
            return None
        return Stalled(
            reason=target_reason(ledger.problem),
            detail=f"the ledger cannot be written: {ledger.problem}",
            since_ms=ledger.problem_since_ms,
            retrying=True,
        )

    def progress(self) -> LaneProgress:
        reached, seen, counted = self.reached, self.source_seen, self.counted
        behind_since_ms = -1
        if self.running is not None and self.running.outgoing:
            behind_since_ms = self.running.outgoing[0].max_timestamp_ms
        elif reached.source_next_offset < seen.end_offset:
            behind_since_ms = counted.last_timestamp_ms
        return LaneProgress(
            lane=self.spec.id,
            state=self.state(),
            position=reached.position,
            source_next_offset=reached.source_next_offset,
            source_end_offset=seen.end_offset,
            source_start_offset=seen.start_offset,
            target_next_offset=reached.target_next_offset,
            source_read_offset=self._read_offset(),
            source_noted_offset=self.head_written.noted_offset(self.flow.ledger.durable),
            records=counted.records,
            bytes=counted.bytes,
            received_bytes=counted.received_bytes,
            sent_bytes=counted.sent_bytes,
            last_timestamp_ms=counted.last_timestamp_ms,
            unknown_control_records=counted.unknown_control_records,
            behind_since_ms=behind_since_ms,
            foreign_records=reached.foreign_records,
            identical=reached.identical,
            latency_counts=tuple(counted.latency_counts),
            latency_ms_sum=counted.latency_ms_sum,
        )

    def _read_offset(self) -> int:
        """Nothing is kept of a lane that does not run."""
        if self.running is not None:
            return self.running.cursor.next_offset
        return self.reached.source_next_offset if self.reached.target_next_offset >= 0 else -1

    def head_is_due(self, *, settling: bool) -> bool:
        """Whether the ledger's head is out of date: idle topics do not chatter, stalls show."""
        if self.flow.stamp is None:
            # The ledger was not read yet, so nothing here is better than what it has.
            return False
        begun, written = self.reached.target_topic_id is not None, self.head_written
        if begun and written.position != self.reached.position:
            return True
        if begun and written.is_behind(self.reached.source_next_offset):
            # All since was left out: a successor would read it again, or miss it as a loss.
            return True
        state = self.state()
        if badge(state) == written.badge:
            return False
        if isinstance(state, Waiting) and now_ms() - state.since_ms < _LONG_WAIT_MS:
            return False
        return _is_loud(badge(state)) or _is_loud(written.badge) or (settling and begun)

    def head(self) -> HeadEntry:
        """Where the lane is and how; one that never began here keeps what the ledger has."""
        source, state, reached = self.spec.id.source, self.state(), self.reached
        shown = HeadEntry(
            topic=source.topic,
            partition=source.partition,
            position=reached.position,
            source_next_offset=reached.source_next_offset,
            source_end_offset=max(self.source_seen.end_offset, reached.source_next_offset),
            target_next_offset=reached.target_next_offset,
            source_topic_id=reached.source_topic_id,
            target_topic_id=reached.target_topic_id,
            at_ms=_heard_ms(state),
            state=badge(state),
            detail=state.detail[:TEXT_CHARS_MAX] if isinstance(state, Stalled | Waiting) else "",
            source_leader_epoch=(
                reached.source_leader_epoch if reached.source_leader_epoch >= 0 else None
            ),
            begun_at=begun_at(
                self.flow.ledger.view, source, reached.position, reached.source_next_offset
            ),
        )
        return shown if reached.target_topic_id is not None else self._as_in_ledger(shown)

    def note_head_in_ledger(self) -> None:
        """What the ledger shows already need not be written again."""
        source = self.spec.id.source
        record = self.flow.ledger.view.lane(source.topic, source.partition)
        if record is not None and record.head is not None:
            self.head_written.position = record.head.position
            self.head_written.badge = record.head.state
            self.head_written.wrote(record.head.source_next_offset, ticket=0)
        fold = self.flow.ledger.view.fold(source.topic, source.partition)
        self.unmerged_entries = 0 if fold is None else unmerged_count(fold)

    def _as_in_ledger(self, shown: HeadEntry) -> HeadEntry:
        """The head with position, offsets and epoch as the ledger has them."""
        source = self.spec.id.source
        record = self.flow.ledger.view.begun_lane(source.topic, source.partition)
        position = next_offset = target_next_offset = 0
        source_topic_id = self.spec.source_topic_id
        leader_epoch: int | None = None
        if record is not None:
            anchor = anchor_of(record)
            position, target_next_offset = anchor.position, anchor.target_offset
            source_topic_id = record.starts[-1].source_topic_id
            next_offset = source_next_offset(record, position)
            if record.head is not None and record.head.source_next_offset == next_offset:
                leader_epoch = record.head.source_leader_epoch
        return replace(
            shown,
            position=position,
            source_next_offset=next_offset,
            source_end_offset=next_offset,
            source_topic_id=source_topic_id,
            target_next_offset=target_next_offset,
            source_leader_epoch=leader_epoch,
        )


def _heard_ms(state: LaneState) -> int:
    """Until when a head is true: of a source that does not answer, nothing newer is known."""
    if isinstance(state, Stalled) and state.reason is StallReason.SOURCE_UNREACHABLE:
        return state.since_ms
    if isinstance(state, Waiting) and state.hides_source:
        return state.since_ms
    return now_ms()


def _is_loud(state: str) -> bool:
    """Whether the ledger should show it, and show when it is over, though nothing was copied."""
    return state == "paused" or state.startswith(("stalled", "waiting"))
