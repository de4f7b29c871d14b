"""What becomes of a lane: the one place that decides. Runs on executors.

Both sides of the slot, the resume, timers and the driver report events; `LaneMachine.on` turns each
into the lane's next phase. Batches in flight mean that nobody knows what the target has: a lane
that lost one waits until none is in flight and then asks the log.
"""

from __future__ import annotations

import logging
from typing import Final

from kio.schema.errors import ErrorCode

from heliograph.broker.codes import NONE, OUT_OF_PLACE, UNWRITABLE, broker_error, code_name
from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.events import (
    DRAINED,
    BatchTooLarge,
    BatchUnwritable,
    Close,
    Drained,
    FetchDue,
    LaneEvent,
    LookedUp,
    Pause,
    Resume,
    ResumeDue,
    Retire,
    SequenceMismatch,
    SourceAnswered,
    SourceBlocked,
    SourceEvent,
    SourceFailed,
    SourceRefreshed,
    TargetFailed,
    Throttled,
    ThrottleOver,
)
from heliograph.copy.found import Blocked, FlowFenced, Found, SourceTrouble
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import (
    RETRY_S,
    Closed,
    Draining,
    LanePhase,
    Resuming,
    Running,
    Stop,
    target_reason,
)
from heliograph.copy.slot import Slot
from heliograph.copy.sources import SourceSide
from heliograph.copy.targets import SUSPECT_AFTER, TargetSide
from heliograph.errors import (
    BrokerError,
    LeaderMoved,
    LedgerUnusable,
    MirrorError,
    NotAuthorised,
)
from heliograph.model import Paused, Stalled, StallReason
from heliograph.wire.produce import ProducedPartition

log = logging.getLogger(__name__)

MISMATCHES_SHOWN: Final = 4
"""So many in a row without a batch taken, and the lane shows it: the log does not settle it."""
REFUSED_AFTER: Final = SUSPECT_AFTER + 2
"""So many connections that the target closed, the last ones on this batch alone, and it is taken
for refused."""


class LaneMachine:
    """Owned by the shuttle, in its event loop. Events of one lane never overlap."""

    def __init__(self, slot: Slot, sources: SourceSide | None = None) -> None:
        self._slot = slot
        self.targets = TargetSide(slot, self)
        self.sources = sources or SourceSide(slot, self.on, self.targets)

    def add(self, lane: CarriedLane) -> None:
        """A new lane, in its first phase."""
        self._look_up_if_due(lane)

    def on(self, lane: CarriedLane, event: LaneEvent) -> None:
        """Every event in every phase; what is not named changes nothing."""
        phase, lane.unreported = lane.phase, True
        match event, phase:
            case _, Closed():
                self._slot.settled.set()  # perhaps the last answer that `Shuttle.remove` waits for
            # -- the target
            case (
                (SequenceMismatch() | BatchTooLarge() | BatchUnwritable() | TargetFailed()),
                _,
            ) if not lane.running:
                # The lane has let go of this batch; its log will be asked what arrived.
                if lane.is_drained:
                    self.on(lane, DRAINED)
            case ((BatchTooLarge() | BatchUnwritable()), _):
                self._refused(lane, event)
            case SequenceMismatch(detail=detail), _:
                self._mismatched(lane, detail)
            case TargetFailed(error=error), _:
                self._ask_log_later(lane, error)
            case Drained(), Draining(then=stop):
                self._stall(lane, stop)
            case Drained(), _:
                self._slot.settled.set()
                self._look_up_if_due(lane)
            # -- the source
            case SourceEvent(running=running), _ if running is not phase:
                # Found out for a phase that is over.
                return
            case SourceAnswered(), _:
                lane.answered()
            case SourceRefreshed(), Running():
                self.sources.attach(lane, phase)
            case SourceFailed(error=error), Running():
                self._fetch_later(lane, error)
            case SourceBlocked(stop=stop), Running():
                self._enter(lane, Draining(running=phase, then=stop))
            case Throttled(wait_s=wait_s), Running():
                phase.throttled = True
                self._later(wait_s, lane, ThrottleOver())
            case ThrottleOver(), Running():
                phase.throttled = False
                self.sources.changed(lane)
            case FetchDue(), Running():
                self.sources.reattach(lane, phase)
            # -- finding the place
            case ResumeDue(), Resuming():
                phase.due = True
                self._look_up_if_due(lane)
            case LookedUp(asked=asked, found=found), Resuming() if asked is phase:
                self._looked_up(lane, phase, found)
            # -- the driver, and time
            case Resume(), Stalled() | Paused() | Resuming():
                self._let_go_on(lane, phase)
            case Pause(), _:
                lane.trouble = None
                self._enter(lane, Paused())
            case Retire(), _:
                lane.retiring = True
                self.sources.detach(lane)
            case Close(), _:
                self._enter(lane, Closed())

    def answered(
        self,
        lane: CarriedLane,
        running: Running,
        batch: OutgoingBatch,
        row: ProducedPartition | None,
    ) -> None:
        """The target's answer to a batch that is no longer in flight; None where it is left out."""
        lane.unreported = True
        try:
            if running is lane.running and row is not None and _is_next(lane, batch, row):
                self._acknowledged(lane, running, batch, row.base_offset)
            else:
                refusal = _refusal(lane, batch, row)
                if isinstance(refusal, SequenceMismatch):
                    lane.flow.counted.refused_batches += 1
                else:
                    lane.flow.target.traffic.retried_batches += 1
                self.on(lane, refusal)
        except Exception as exc:  # noqa: BLE001 - stalls this lane; others are still to be told
            self._bug(lane, exc)

    def unanswered(
        self, lane: CarriedLane, running: Running, batch: OutgoingBatch, error: MirrorError
    ) -> None:
        """The target closed the connection on the batch; unknown whether it has it."""
        if running is lane.running:
            lane.learned.unanswered += 1
            if lane.learned.unanswered >= REFUSED_AFTER:
                error = _closed_on(lane, batch)
        self.failed(lane, error)

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        """Unknown whether the target has what the lane sent, if anything."""
        try:
            self.on(lane, TargetFailed(error=error))
        except Exception as exc:  # noqa: BLE001 - as above
            self._bug(lane, exc)

    def lettered(self, lane: CarriedLane) -> None:
        """The lane's dead letters are no longer on their way."""
        try:
            self.sources.changed(lane)
            if lane.is_drained:
                self.on(lane, DRAINED)
        except Exception as exc:  # noqa: BLE001 - as above
            self._bug(lane, exc)

    def _acknowledged(
        self, lane: CarriedLane, running: Running, batch: OutgoingBatch, base_offset: int
    ) -> None:
        lane.settle(running, batch, base_offset)
        self._slot.room.kept(running.share, -len(batch.view))
        if running.backpressured and running.buffered_bytes < running.bytes_max // 2:
            running.backpressured = False
            self.sources.changed(lane)
        if lane.in_flight:
            return
        if running.outgoing:
            # Since a batch that travelled alone the lane has not been offered.
            self.targets.offer(lane, running)
        else:
            self.on(lane, DRAINED)

    def _bug(self, lane: CarriedLane, exc: Exception) -> None:
        """Our own bug stalls this lane; the others of the same answer are still to be told."""
        log.error("%s: a bug", lane.spec.id, exc_info=exc)
        if isinstance(lane.phase, Closed):
            return
        detail = f"{type(exc).__name__}: {exc}"
        self._stall(lane, Stop(reason=StallReason.BUG, detail=detail, retry_s=RETRY_S))

    # -- what a phase begins with

    def _enter(self, lane: CarriedLane, phase: LanePhase) -> None:
        left = lane.running
        lane.enter(phase)
        self._slot.asked.pop(lane, None)
        if left is not None:
            self.sources.detach(lane)
            if lane.running is not left:
                self._slot.room.kept(left.share, -left.buffered_bytes)
                # Answers on their way keep `left` alive; what it queued need not wait for them.
                left.outgoing.clear()
        self._slot.settled.set()
        match phase:
            case Resuming(after_s=after_s):
                lane.flow.counted.lookups += 1
                if not phase.due:
                    self._later(after_s, lane, ResumeDue())
                self._look_up_if_due(lane)
            case Running():
                self.sources.attach(lane, phase)
            case Draining():
                if lane.is_drained:
                    self.on(lane, DRAINED)
            case Paused():
                self._slot.show(lane)

    def _look_up_if_due(self, lane: CarriedLane) -> None:
        """Only once nothing is in flight: an answer on its way would make the log's word old at
        once."""
        phase = lane.phase
        if isinstance(phase, Resuming) and phase.due and lane.in_flight == 0:
            phase.due = False
            self._slot.look_up(lane)

    def _let_go_on(self, lane: CarriedLane, phase: Stalled | Paused | Resuming) -> None:
        if isinstance(phase, Resuming):
            phase.again = True
        else:
            self._enter(lane, Resuming())

    def _looked_up(self, lane: CarriedLane, phase: Resuming, found: Found) -> None:
        if phase.again and isinstance(found, Blocked):
            self._enter(lane, Resuming())
        elif isinstance(found, MirrorError):
            self._ask_log_later(lane, found)
        elif isinstance(found, SourceTrouble):
            self._look_up_later(lane, found.error, _source_reason(found.error))
        elif isinstance(found, FlowFenced):
            self._stall(lane, Stop(reason=StallReason.FENCED, detail=found.why, retry_s=RETRY_S))
        elif isinstance(found, Blocked):
            lane.stop_at(found)
            self._stall(lane, Stop(reason=found.reason, detail=found.detail, retry_s=found.retry_s))
        else:
            lane.reached.foreign_records += found.foreign_records
            lane.answered()
            lane.note_head_in_ledger()
            running = lane.run_from(
                found.cursor,
                identical=found.identical,
                target_topic_id=found.target_topic_id,
                written_until=found.written_until,
                ahead=found.ahead,
                letters=found.letters,
            )
            leader = lane.flow.target.leader(lane.spec.target)
            broker = -1 if leader is None else leader.broker
            running.share = self._slot.room.share(lane.spec.id.flow, broker)
            self._enter(lane, running)

    def _refused(self, lane: CarriedLane, event: BatchTooLarge | BatchUnwritable) -> None:
        """The target takes no batch like this one, however often it is sent."""
        learned = lane.learned
        if isinstance(event, BatchUnwritable):
            # Each of its records is tried by itself; the one refused so is known by that.
            is_news = learned.blame(event.batch, event.code, str(event.error))
            self._enter(lane, Resuming(after_s=0.0 if is_news else learned.backoff_s()))
        elif learned.coalesce:
            # Perhaps only because tiny batches were put together; the next try sends them as
            # they came.
            learned.coalesce = False
            self._enter(lane, Resuming(after_s=learned.mismatch_backoff_s()))
        else:
            self._ask_log_later(lane, event.error)

    def _mismatched(self, lane: CarriedLane, detail: str) -> None:
        learned = lane.learned
        learned.mismatches += 1
        if learned.mismatches >= MISMATCHES_SHOWN:
            self._show(lane, lane.stalled(StallReason.REFUSED_BY_TARGET, detail, retrying=True))
        self._enter(lane, Resuming(after_s=learned.mismatch_backoff_s()))

    def _ask_log_later(self, lane: CarriedLane, error: MirrorError) -> None:
        self._look_up_later(lane, error, target_reason(error))

    def _look_up_later(self, lane: CarriedLane, error: MirrorError, reason: StallReason) -> None:
        self._show(lane, lane.stalled(reason, str(error), retrying=True))
        is_soon = error.retriable and reason is not StallReason.CORRUPT_BATCH
        self._enter(lane, Resuming(after_s=lane.learned.backoff_s() if is_soon else RETRY_S))

    def _fetch_later(self, lane: CarriedLane, error: MirrorError) -> None:
        """What was fetched still goes out; the rest is fetched anew."""
        self.sources.detach(lane)
        self._show(lane, lane.stalled(_source_reason(error), str(error), retrying=True))
        delay_s = lane.learned.backoff_s() if error.retriable else RETRY_S
        self._later(delay_s, lane, FetchDue())

    def _stall(self, lane: CarriedLane, stop: Stop) -> None:
        stalled = lane.stalled(
            stop.reason, stop.detail, retrying=stop.retry_s is not None, lost=stop.lost
        )
        self._enter(lane, stalled)
        self._show(lane, stalled)
        if stop.retry_s is not None:
            self._later(stop.retry_s, lane, Resume())

    def _show(self, lane: CarriedLane, trouble: Stalled) -> None:
        if lane.trouble is None or lane.trouble.reason is not trouble.reason:
            lane.flow.counted.stalls[trouble.reason.value] += 1
        lane.trouble, lane.unreported = trouble, True
        self._slot.show(lane)

    def _later(self, delay_s: float, lane: CarriedLane, event: LaneEvent) -> None:
        """Report the event if the lane is in the same phase by then."""
        phase = lane.phase

        def due() -> None:
            if lane.phase is phase:
                self.on(lane, event)

        self._slot.later(delay_s, due)


def _is_next(lane: CarriedLane, batch: OutgoingBatch, row: ProducedPartition) -> bool:
    """Whether the target appended the batch behind what was acknowledged before.

    A later batch that is answered first is no proof of the earlier one: its records would pass for
    somebody else's, and the map would move by them.
    """
    return (
        row.error_code == NONE
        and batch.position == lane.reached.position
        and row.base_offset >= lane.reached.target_next_offset
    )


def _refusal(
    lane: CarriedLane, batch: OutgoingBatch, row: ProducedPartition | None
) -> SequenceMismatch | BatchTooLarge | BatchUnwritable | TargetFailed:
    where = _where(lane, batch)
    if row is None:
        return TargetFailed(error=LeaderMoved(f"{where}: not in the answer"))
    if row.error_code == NONE or row.error_code in OUT_OF_PLACE:
        # An answer for a repeat names where the first copy is. Ours are never repeats unless
        # another slot carries this lane too.
        said = "another batch is at its place" if not row.error_code else code_name(row.error_code)
        return SequenceMismatch(detail=f"{where}: {said}, again after each look at the log")
    error = broker_error(
        where,
        row.error_code,
        row.message,
        permission=f"WRITE on topic {lane.spec.target.topic}",
    )
    is_too_large = row.error_code == ErrorCode.message_too_large
    may_go_on = lane.flow.limits.on_unwritable != "stall"
    if is_too_large and (lane.learned.coalesce or not may_go_on):
        return BatchTooLarge(error=error)
    if may_go_on and row.error_code in UNWRITABLE:
        return BatchUnwritable(batch=batch, code=code_name(row.error_code), error=error)
    return TargetFailed(error=error)


def _closed_on(lane: CarriedLane, batch: OutgoingBatch) -> BrokerError:
    return BrokerError(
        f"{_where(lane, batch)}: the broker closes the connection each time this batch is sent; "
        f"its {len(batch.view)} bytes may be more than socket.request.max.bytes allows"
    )


def _where(lane: CarriedLane, batch: OutgoingBatch) -> str:
    return (
        f"cluster {lane.flow.target.alias}: {lane.spec.target}: source offsets "
        f"[{batch.source_offset}, {batch.source_next_offset})"
    )


def _source_reason(error: MirrorError) -> StallReason:
    if isinstance(error, LedgerUnusable):
        # Of the flow the other way, which says what must not be sent back.
        return StallReason.LEDGER_UNUSABLE
    return (
        StallReason.NOT_AUTHORISED
        if isinstance(error, NotAuthorised)
        else StallReason.SOURCE_UNREACHABLE
    )
