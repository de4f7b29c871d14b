"""What becomes of a lane: every event in every phase, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from heliograph.copy.chunk import OutgoingBatch, SourcePoint
from heliograph.copy.events import (
    DRAINED,
    BatchTooLarge,
    Close,
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
    SourceFailed,
    SourceRefreshed,
    TargetFailed,
    Throttled,
    ThrottleOver,
)
from heliograph.copy.found import Blocked, FlowFenced, ResumePoint, SourceTrouble
from heliograph.copy.lane import FORGOTTEN_S_MIN, REMEMBERED_S, CarriedLane
from heliograph.copy.machine import MISMATCHES_SHOWN, REFUSED_AFTER, LaneMachine
from heliograph.copy.phases import (
    LANE_BYTES_MAX,
    RETRY_S,
    Closed,
    Draining,
    Resuming,
    Running,
    Stop,
)
from heliograph.copy.targets import SUSPECTS, _stream_index
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    CorruptBatch,
    InvariantError,
    LeaderMoved,
    NotAuthorised,
    WireError,
)
from heliograph.model import Copying, Idle, Paused, Stalled, StallReason, Starting
from heliograph.wire.produce import ProducedPartition
from tests.unit.copy.kit import (
    RECORDS,
    TOPIC_ID,
    OfferedTargets,
    QuietSlot,
    carried_lane,
    chunk,
    running_at,
    send,
)

MOVED = LeaderMoved("moved")
REFUSED = BrokerError("refused")
STOP = Stop(reason=StallReason.CORRUPT_BATCH, detail="bad", retry_s=RETRY_S)
FINAL_STOP = Stop(reason=StallReason.LOG_TRUNCATED, detail="cut off", retry_s=None)


class FakeSources:
    """Remembers whether the lane is fetched."""

    def __init__(self) -> None:
        self.attached = False
        self.calls: list[str] = []

    def attach(self, lane: CarriedLane, running: Running) -> None:
        assert running is lane.running
        self.attached = True
        self.calls.append("attach")

    def detach(self, lane: CarriedLane) -> None:
        self.attached = False

    def changed(self, lane: CarriedLane) -> None:
        self.calls.append("changed")

    def reattach(self, lane: CarriedLane, running: Running) -> None:
        self.calls.append("reattach")


class Scene:
    """One lane, its machine, and hands that do nothing."""

    def __init__(self, *, paused: bool = False) -> None:
        self.slot, self.sources = QuietSlot(), FakeSources()
        self.machine = LaneMachine(self.slot, self.sources)  # type: ignore[arg-type]
        self.machine.targets = OfferedTargets(self.slot)
        self.lane = carried_lane(paused=paused)
        self.machine.add(self.lane)

    def on(self, event: LaneEvent) -> None:
        self.machine.on(self.lane, event)

    def run(self) -> Running:
        """Through a look-up."""
        self.look_up(_resume_point(self.lane))
        assert isinstance(self.lane.phase, Running)
        return self.lane.phase

    def look_up(self, found: Any) -> None:
        assert self.slot.looked_up == [self.lane]
        assert isinstance(self.lane.phase, Resuming)
        self.on(LookedUp(asked=self.lane.phase, found=found))

    def queue(
        self, batches: int = 1, *, size_bytes: int = 61, max_timestamp_ms: int | None = None
    ) -> None:
        running = self.lane.running
        assert running is not None
        for _ in range(batches):
            prepared = chunk(running, size_bytes=size_bytes, max_timestamp_ms=max_timestamp_ms)
            self.slot.room.kept(running.share, self.lane.enqueue(running, prepared, [], 0))

    def send(self) -> Callable[..., None]:
        """Returns how the target's answer to the batch is reported."""
        running, lane = self.lane.running, self.lane
        assert running is not None
        batch = send(lane)

        def answer(code: int = 0, base_offset: int | None = None) -> None:
            lane.in_flight -= 1
            row = _row(batch, code, base_offset)
            self.machine.answered(lane, running, batch, row)

        return answer


def _row(batch: OutgoingBatch, code: int, base_offset: int | None) -> ProducedPartition:
    at = batch.position if base_offset is None else base_offset
    return ProducedPartition(
        topic="orders", partition=0, error_code=code, base_offset=at, log_start_offset=0, message=""
    )


def _resume_point(lane: CarriedLane) -> ResumePoint:
    return ResumePoint(cursor=running_at(lane).cursor, target_topic_id=TOPIC_ID, identical=True)


def test_a_lane_that_is_fenced_keeps_its_position_and_tries_again() -> None:
    scene = Scene()
    scene.run()
    scene.lane.reached.position = 7
    scene.on(SequenceMismatch(detail="no"))

    scene.look_up(FlowFenced(why="failed over"))

    shown = scene.lane.state()
    assert isinstance(shown, Stalled)
    assert shown.retrying
    assert scene.lane.head().state == "stalled: fenced"
    assert scene.lane.head().position == 7

    scene.slot.ring()

    assert isinstance(scene.lane.phase, Resuming)


# -- the table


def _resuming(scene: Scene) -> None:
    """Waits for its time, with nothing in flight."""
    scene.run()
    scene.on(TargetFailed(error=MOVED))
    scene.slot.take_lookups()


def _running(scene: Scene) -> None:
    """With a batch that waits and one in flight."""
    scene.run()
    scene.queue(2)
    scene.send()


def _draining(scene: Scene) -> None:
    _running(scene)
    scene.on(SourceBlocked(running=scene.lane.running, stop=STOP))


def _stalled(scene: Scene) -> None:
    scene.run()
    scene.on(SourceBlocked(running=scene.lane.running, stop=STOP))


def _paused(scene: Scene) -> None:
    scene.on(Pause())


def _closed(scene: Scene) -> None:
    scene.on(Close())


PHASES = (_resuming, _running, _draining, _stalled, _paused, _closed)
KINDS = {
    "resuming": Resuming,
    "running": Running,
    "draining": Draining,
    "stalled": Stalled,
    "paused": Paused,
    "closed": Closed,
}
EVENTS: dict[str, Callable[[Scene], LaneEvent]] = {
    "SequenceMismatch": lambda scene: SequenceMismatch(detail="no"),
    "BatchTooLarge": lambda scene: BatchTooLarge(error=REFUSED),
    "TargetFailed": lambda scene: TargetFailed(error=MOVED),
    "Drained": lambda scene: DRAINED,
    "SourceAnswered": lambda scene: SourceAnswered(running=_its(scene)),
    "SourceRefreshed": lambda scene: SourceRefreshed(running=_its(scene)),
    "SourceFailed": lambda scene: SourceFailed(running=_its(scene), error=MOVED),
    "SourceBlocked": lambda scene: SourceBlocked(running=_its(scene), stop=STOP),
    "Throttled": lambda scene: Throttled(running=_its(scene), wait_s=1.0),
    "ThrottleOver": lambda scene: ThrottleOver(),
    "FetchDue": lambda scene: FetchDue(),
    "ResumeDue": lambda scene: ResumeDue(),
    "LookedUp": lambda scene: LookedUp(asked=_asked(scene), found=_resume_point(scene.lane)),
    "Blocked": lambda scene: LookedUp(
        asked=_asked(scene), found=Blocked(reason=StallReason.TARGET_RECREATED, detail="another")
    ),
    "NotFound": lambda scene: LookedUp(asked=_asked(scene), found=MOVED),
    "Resume": lambda scene: Resume(),
    "Pause": lambda scene: Pause(),
    "Retire": lambda scene: Retire(),
    "Close": lambda scene: Close(),
}
TABLE = """
event             resuming  running   draining  stalled   paused    closed
SequenceMismatch  .         resuming  resuming  .         .         .
BatchTooLarge     .         resuming  resuming  .         .         .
TargetFailed      .         resuming  resuming  .         .         .
Drained           .         .         stalled   .         .         .
SourceAnswered    .         .         .         .         .         .
SourceRefreshed   .         .         .         .         .         .
SourceFailed      .         .         .         .         .         .
SourceBlocked     .         draining  .         .         .         .
Throttled         .         .         .         .         .         .
ThrottleOver      .         .         .         .         .         .
FetchDue          .         .         .         .         .         .
ResumeDue         .         .         .         .         .         .
LookedUp          running   .         .         .         .         .
Blocked           stalled   .         .         .         .         .
NotFound          resuming  .         .         .         .         .
Resume            .         .         .         resuming  resuming  .
Pause             paused    paused    paused    paused    paused    .
Retire            .         .         .         .         .         .
Close             closed    closed    closed    closed    closed    .
"""


def _its(scene: Scene) -> Running:
    """The lane's own `Running` where it has one."""
    return scene.lane.running or running_at(carried_lane())


def _asked(scene: Scene) -> Resuming:
    return scene.lane.phase if isinstance(scene.lane.phase, Resuming) else Resuming()


def _cells() -> list[tuple[str, Callable[[Scene], None], str]]:
    rows = [line.split() for line in TABLE.strip().splitlines()[1:]]
    return [
        (row[0], phase, cell) for row in rows for phase, cell in zip(PHASES, row[1:], strict=True)
    ]


@pytest.mark.parametrize(("event", "phase", "then"), _cells())
def test_every_event_in_every_phase(event: str, phase: Callable[[Scene], None], then: str) -> None:
    scene = Scene()
    phase(scene)
    before = scene.lane.phase

    scene.on(EVENTS[event](scene))

    if then == ".":
        assert scene.lane.phase is before
    else:
        assert type(scene.lane.phase) is KINDS[then]
    assert scene.sources.attached is False or scene.lane.phase is scene.lane.running


def test_the_table_names_every_event() -> None:
    assert [line.split()[0] for line in TABLE.strip().splitlines()[1:]] == list(EVENTS)


# -- the target's answers


def test_an_acknowledged_batch_moves_the_lane_and_frees_its_bytes() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue(2)
    answers = [scene.send(), scene.send()]

    for answer in answers:
        answer()

    assert scene.lane.reached.position == 2 * RECORDS
    assert scene.lane.reached.source_next_offset == running.cursor.next_offset
    assert running.buffered_bytes == 0
    assert scene.slot.room._kept_bytes == 0
    assert scene.lane.phase is running


def test_a_lane_that_lost_an_answer_asks_its_log_once_nothing_is_in_flight() -> None:
    scene = Scene()
    scene.run()
    scene.queue(4)
    answers = [scene.send(), scene.send(), scene.send()]

    answers[0](ErrorCode.out_of_order_sequence_number)
    waiting = scene.slot.looked_up
    answers[1]()
    waiting += scene.slot.looked_up
    answers[2]()

    assert waiting == []
    assert scene.slot.looked_up == [scene.lane]
    assert scene.lane.reached.position == 0
    assert scene.slot.room._kept_bytes == 0


def test_a_late_answer_of_an_earlier_time_settles_nothing() -> None:
    scene = Scene()
    scene.run()
    scene.queue(2)
    first, late = scene.send(), scene.send()
    first(ErrorCode.out_of_order_sequence_number)
    late(0)
    scene.run()
    scene.queue(1)
    scene.send()()

    assert scene.lane.counted.records == RECORDS
    assert scene.lane.reached.position == RECORDS


def test_an_answer_that_names_an_earlier_offset_is_no_acknowledgement() -> None:
    scene = Scene()
    scene.run()
    scene.queue(2)
    answers = [scene.send(), scene.send()]
    answers[0](base_offset=100)

    answers[1](base_offset=50)

    assert scene.lane.reached.target_next_offset == 100 + RECORDS
    assert scene.lane.reached.foreign_records == 100
    assert isinstance(scene.lane.phase, Resuming)


def test_the_first_mismatch_is_looked_up_at_once_and_the_next_one_later() -> None:
    scene = Scene()

    delays = []
    for _ in range(3):
        scene.run()
        scene.on(SequenceMismatch(detail="no"))
        assert isinstance(scene.lane.phase, Resuming)
        delays.append(scene.lane.phase.after_s)
        scene.slot.ring()

    assert delays == [0.0, 0.2, 0.4]


def test_a_sequence_mismatch_while_a_lane_drains_is_looked_up_and_the_stall_forgotten() -> None:
    scene = Scene()
    scene.run()
    scene.queue(2)
    answer = scene.send()
    scene.on(SourceBlocked(running=scene.lane.running, stop=STOP))

    answer(ErrorCode.out_of_order_sequence_number)

    assert scene.slot.looked_up == [scene.lane]
    assert scene.lane.trouble is None
    assert scene.slot.timers == []


def test_a_target_that_does_not_answer_shows_and_is_asked_again_with_growing_pauses() -> None:
    scene = Scene()

    delays, shown = [], []
    for _ in range(2):
        scene.run()
        scene.on(TargetFailed(error=MOVED))
        shown.append(scene.lane.state())
        assert isinstance(scene.lane.phase, Resuming)
        delays.append(scene.lane.phase.after_s)
        scene.slot.ring()

    assert delays == [0.1, 0.2]
    assert all(isinstance(state, Stalled) and state.retrying for state in shown)
    assert scene.slot.heads_due.is_set()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MOVED, StallReason.TARGET_UNREACHABLE),
        (REFUSED, StallReason.REFUSED_BY_TARGET),
        (NotAuthorised("no"), StallReason.NOT_AUTHORISED),
    ],
)
def test_what_a_target_refuses_is_tried_again_after_a_while(
    error: BrokerError, reason: StallReason
) -> None:
    scene = Scene()
    scene.run()

    scene.on(TargetFailed(error=error))

    assert scene.lane.trouble is not None
    assert scene.lane.trouble.reason is reason
    assert isinstance(scene.lane.phase, Resuming)
    assert scene.lane.phase.after_s == (0.1 if error.retriable else RETRY_S)


def test_trouble_that_stays_the_same_keeps_its_beginning() -> None:
    scene = Scene()
    scene.run()
    scene.on(TargetFailed(error=MOVED))
    assert scene.lane.trouble is not None
    began = scene.lane.trouble

    scene.slot.ring()
    scene.look_up(MOVED)

    assert scene.lane.trouble is not began
    assert scene.lane.trouble.since_ms == began.since_ms


def test_a_batch_too_large_is_tried_uncoalesced_before_the_lane_shows_it() -> None:
    scene = Scene()
    scene.run()
    scene.queue()
    scene.send()(ErrorCode.message_too_large)
    after_once = scene.lane.trouble, scene.lane.learned.coalesce

    scene.run()
    scene.queue()
    scene.send()(ErrorCode.message_too_large)

    assert after_once == (None, False)
    assert scene.lane.trouble is not None
    assert scene.lane.trouble.reason is StallReason.REFUSED_BY_TARGET
    assert "source offsets [0, 4)" in scene.lane.trouble.detail


def test_a_batch_that_the_answer_leaves_out_sends_the_lane_to_its_log() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue()
    batch = send(scene.lane)
    scene.lane.in_flight -= 1

    scene.machine.answered(scene.lane, running, batch, None)

    assert isinstance(scene.lane.phase, Resuming)
    assert scene.lane.reached.position == 0


def test_the_first_batch_after_a_resume_travels_alone() -> None:
    """The target may know nothing of the producer and would take the second as its first."""
    scene = Scene()
    scene.run()
    scene.queue(3)

    assert _sendable_beside_one_in_flight(scene) is False
    assert _sendable_beside_one_in_flight(scene) is True


@pytest.mark.parametrize(
    ("idle_s", "timestamp_ms", "goes_beside"),
    [
        pytest.param(0.0, None, True, id="a moment ago"),
        pytest.param(FORGOTTEN_S_MIN + 1, None, False, id="idle for long"),
        pytest.param(0.0, 1_000_000_000_000, True, id="records of long ago, a moment ago"),
        pytest.param(REMEMBERED_S + 1, 1_000_000_000_000, False, id="records of long ago"),
        pytest.param(REMEMBERED_S + 1, -1, False, id="records without a time"),
    ],
)
def test_a_batch_travels_alone_where_the_target_may_have_forgotten_the_producer(
    idle_s: float, timestamp_ms: int | None, goes_beside: bool
) -> None:
    """The lane ran all the time, so that no resume finds the producer gone."""
    scene = Scene()
    scene.run()
    scene.queue(1, max_timestamp_ms=timestamp_ms)
    scene.send()()
    scene.lane.reached.acked_s -= idle_s
    scene.queue(3)

    assert _sendable_beside_one_in_flight(scene) is goes_beside
    assert _sendable_beside_one_in_flight(scene) is True


def test_a_lane_with_batches_in_flight_need_not_ask_whether_the_target_remembers_it() -> None:
    scene = Scene()
    scene.run()
    scene.queue(4)
    scene.send()()
    scene.send()
    scene.lane.reached.acked_s -= FORGOTTEN_S_MIN + 1

    scene.send()

    assert scene.lane.sendable


def _sendable_beside_one_in_flight(scene: Scene) -> bool:
    """Whether another batch may leave before the next one is answered, which it then is."""
    assert scene.lane.sendable
    answer = scene.send()
    sendable = scene.lane.sendable
    answer()
    return sendable


def test_an_answer_to_a_later_batch_does_not_settle_the_one_in_front_of_it() -> None:
    """Its records would be counted as somebody else's, and the map would move by them."""
    scene = Scene()
    scene.run()
    scene.queue(2)
    first, second = scene.send(), scene.send()

    second()
    first()

    assert scene.lane.reached.foreign_records == 0
    assert scene.lane.reached.position == 0
    assert scene.slot.looked_up == [scene.lane]


def test_a_bug_in_one_lanes_answer_stalls_that_lane(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    running = scene.run()
    scene.queue()
    batch = send(scene.lane)
    scene.lane.in_flight -= 1

    scene.machine.answered(scene.lane, running, batch, "not an answer")  # type: ignore[arg-type]

    assert isinstance(scene.lane.phase, Stalled)
    assert scene.lane.phase.reason is StallReason.BUG
    assert scene.slot.room._kept_bytes == 0
    assert "a bug" in caplog.text
    scene.slot.ring()
    assert scene.slot.looked_up == [scene.lane]


def test_mismatches_in_a_row_show_until_a_batch_is_taken() -> None:
    scene = Scene()

    shown = []
    for _ in range(MISMATCHES_SHOWN):
        scene.run()
        scene.queue()
        scene.send()(ErrorCode.out_of_order_sequence_number)
        shown.append(scene.lane.state())
        scene.slot.ring()
    scene.run()
    scene.queue()
    while_tried = scene.lane.state()
    scene.send()()

    assert [isinstance(state, Stalled) for state in shown] == [False, False, False, True]
    assert isinstance(while_tried, Stalled)
    assert while_tried.reason is StallReason.REFUSED_BY_TARGET
    assert "source offsets [0, 4): OUT_OF_ORDER_SEQUENCE_NUMBER" in while_tried.detail
    assert scene.lane.trouble is None


def test_a_lane_with_nothing_to_send_forgets_its_failures() -> None:
    scene = Scene()
    for _ in range(5):
        scene.run()
        scene.on(TargetFailed(error=MOVED))
        scene.slot.ring()
    running = scene.run()
    scene.lane.source_seen.end_offset = 1
    scene.on(SourceAnswered(running=running))
    while_behind = scene.lane.learned.failures
    scene.lane.source_seen.end_offset = 0

    scene.on(SourceAnswered(running=running))

    assert while_behind == 5
    assert scene.lane.learned.failures == 0


def test_what_the_target_refused_shows_until_nothing_of_it_waits() -> None:
    """The source deleted it, say."""
    scene = Scene()
    scene.run()
    scene.on(TargetFailed(error=REFUSED))
    scene.slot.ring()
    running = scene.run()
    scene.lane.source_seen.end_offset = 1
    scene.on(SourceAnswered(running=running))
    while_behind = scene.lane.trouble
    scene.lane.source_seen.end_offset = 0

    scene.on(SourceAnswered(running=running))

    assert while_behind is not None
    assert scene.lane.trouble is None


def test_a_batch_on_which_the_target_closes_every_connection_is_refused() -> None:
    """After three, one lane at a time is tried; a lane that is alone then is the one."""
    scene = Scene()

    shown, suspected = [], []
    for _ in range(REFUSED_AFTER):
        running = scene.run()
        scene.queue()
        batch = send(scene.lane)
        scene.lane.in_flight -= 1
        suspected.append(_stream_index(scene.lane, running, is_far=False) == SUSPECTS)
        scene.machine.unanswered(scene.lane, running, batch, BrokerUnreachable("closed"))
        scene.machine.unanswered(scene.lane, running, batch, BrokerUnreachable("closed"))
        assert isinstance(scene.lane.trouble, Stalled)
        shown.append(scene.lane.trouble.reason)
        scene.slot.ring()

    assert suspected == [False, False, False, True, True]
    assert shown == [*[StallReason.TARGET_UNREACHABLE] * 4, StallReason.REFUSED_BY_TARGET]
    assert "its 61 bytes may be more than socket.request.max.bytes" in str(scene.lane.trouble)


# -- the source


def test_a_source_that_fails_shows_while_what_was_fetched_goes_out() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue()
    answer = scene.send()

    scene.on(SourceFailed(running=running, error=MOVED))
    attached_then = scene.sources.attached
    answer()

    assert attached_then is False
    assert scene.lane.phase is running
    assert scene.lane.reached.position == RECORDS
    assert isinstance(scene.lane.state(), Stalled)


def test_a_source_that_failed_is_tried_again_and_shows_nothing_once_it_answers() -> None:
    scene = Scene()
    running = scene.run()
    scene.on(SourceFailed(running=running, error=MOVED))

    scene.slot.ring()
    scene.on(SourceRefreshed(running=running))
    scene.on(SourceAnswered(running=running))

    assert scene.sources.calls == ["attach", "reattach", "attach"]
    assert scene.sources.attached
    assert scene.lane.trouble is None


def test_what_was_found_out_for_an_earlier_time_of_the_lane_changes_nothing() -> None:
    scene = Scene()
    earlier = scene.run()
    scene.on(SequenceMismatch(detail="no"))
    running = scene.run()

    scene.on(SourceBlocked(running=earlier, stop=FINAL_STOP))
    scene.on(SourceFailed(running=earlier, error=MOVED))
    scene.on(SourceRefreshed(running=earlier))
    scene.on(Throttled(running=earlier, wait_s=9.0))

    assert scene.lane.phase is running
    assert scene.sources.calls == ["attach", "attach"]
    assert scene.slot.timers == []
    assert not running.throttled


def test_a_lane_stalls_only_once_the_target_has_all_that_was_fetched() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue(2)
    answer = scene.send()
    scene.on(SourceBlocked(running=running, stop=STOP))
    phases = [type(scene.lane.phase)]
    answer()
    phases.append(type(scene.lane.phase))
    scene.send()()
    phases.append(type(scene.lane.phase))

    assert phases == [Draining, Draining, Stalled]
    assert scene.lane.reached.position == 2 * RECORDS
    assert scene.sources.attached is False
    assert scene.lane.state() == scene.lane.phase


def test_a_stall_with_a_retry_looks_up_its_place_again() -> None:
    scene = Scene()
    running = scene.run()
    scene.on(SourceBlocked(running=running, stop=STOP))
    (timer,) = scene.slot.timers

    scene.slot.ring()

    assert timer[0] == RETRY_S
    assert scene.slot.looked_up == [scene.lane]
    assert isinstance(scene.lane.state(), Stalled)


def test_a_stall_without_a_retry_waits_for_an_operator() -> None:
    scene = Scene()
    running = scene.run()
    scene.on(SourceBlocked(running=running, stop=FINAL_STOP))
    timers = list(scene.slot.timers)

    scene.on(Resume())

    assert timers == []
    assert scene.slot.looked_up == [scene.lane]


def test_a_throttled_lane_is_fetched_again_when_its_time_has_come() -> None:
    scene = Scene()
    running = scene.run()

    scene.on(Throttled(running=running, wait_s=2.5))
    throttled, delays = running.throttled, [delay for delay, _ in scene.slot.timers]
    scene.slot.ring()

    assert throttled
    assert delays == [2.5]
    assert not running.throttled
    assert scene.sources.calls == ["attach", "changed"]


def test_a_lane_that_resumes_while_throttled_is_not_throttled_any_more() -> None:
    scene = Scene()
    running = scene.run()
    scene.on(Throttled(running=running, wait_s=2.5))
    scene.on(SequenceMismatch(detail="no"))

    again = scene.run()
    scene.slot.ring()

    assert not again.throttled
    assert "changed" not in scene.sources.calls


def test_a_lane_with_too_much_waiting_is_fetched_again_when_half_of_it_has_gone() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue(4, size_bytes=LANE_BYTES_MAX // 4)
    full = running.backpressured
    answers = [scene.send() for _ in range(3)]
    answers[0]()
    answers[1]()
    still = running.backpressured
    answers[2]()

    assert (full, still, running.backpressured) == (True, True, False)
    assert scene.sources.calls == ["attach", "changed"]


def test_lanes_whose_share_of_the_slot_is_used_up_are_fetched_again_once_it_is_emptied() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue(2, size_bytes=300_000)
    is_open = [running.share.is_open]
    for answer in [scene.send(), scene.send()]:
        answer()
        is_open.append(running.share.is_open)

    assert is_open == [False, True, True]
    assert running.share is scene.slot.room.share(scene.lane.spec.id.flow, 1)
    assert running.share.kept_bytes == 0


def test_what_a_lane_kept_is_given_back_when_it_leaves() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue(2, size_bytes=300_000)

    scene.on(Close())

    assert (running.share.kept_bytes, running.share.is_open) == (0, True)


# -- finding the place


def test_a_lane_the_ledger_cannot_place_stalls_with_its_position() -> None:
    scene = Scene()

    scene.look_up(Blocked(reason=StallReason.UNEXPLAINED_LOG, detail="no run", position=7))

    assert isinstance(scene.lane.phase, Stalled)
    assert not scene.lane.phase.retrying
    assert scene.lane.reached.position == 7


def test_an_answer_about_the_log_is_not_used_once_the_lane_has_left() -> None:
    scene = Scene()
    asked = scene.lane.phase
    assert isinstance(asked, Resuming)
    scene.on(Pause())
    scene.on(Resume())

    scene.on(LookedUp(asked=asked, found=_resume_point(scene.lane)))

    assert isinstance(scene.lane.phase, Resuming)


def test_a_resume_forgets_what_waited_and_keeps_what_was_learned() -> None:
    scene = Scene()
    scene.run()
    scene.queue(3)
    scene.send()()
    scene.lane.learned.fetch_bytes = 77
    scene.on(SequenceMismatch(detail="no"))

    running = scene.run()

    assert not running.outgoing
    assert scene.slot.room._kept_bytes == 0
    assert scene.lane.learned.fetch_bytes == 77
    assert scene.lane.counted.records == RECORDS


# -- the driver


def test_a_lane_paused_while_batches_are_in_flight_resumes_when_they_are_answered() -> None:
    scene = Scene()
    scene.run()
    scene.queue(2)
    answer = scene.send()

    scene.on(Pause())
    shown = scene.lane.state()
    scene.on(Resume())
    before = scene.slot.looked_up
    answer()

    assert shown == Paused()
    assert before == []
    assert scene.slot.looked_up == [scene.lane]


def test_a_pause_ends_a_stall_and_what_it_waited_for() -> None:
    scene = Scene()
    running = scene.run()
    scene.on(SourceBlocked(running=running, stop=STOP))

    scene.on(Pause())
    scene.slot.ring()

    assert scene.lane.state() == Paused()
    assert scene.slot.looked_up == []


def test_a_lane_handed_over_paused_waits_to_be_resumed() -> None:
    scene = Scene(paused=True)
    before = scene.slot.looked_up

    scene.on(Resume())

    assert before == []
    assert scene.slot.looked_up == [scene.lane]


def test_a_lane_that_leaves_settles_what_was_fetched_and_fetches_no_more() -> None:
    scene = Scene()
    running = scene.run()
    scene.queue()
    answer = scene.send()

    scene.on(Retire())
    drained = scene.lane.is_drained
    scene.slot.settled.clear()
    answer()

    assert not drained
    assert scene.lane.is_drained
    assert scene.lane.phase is running
    assert scene.slot.settled.is_set()
    assert scene.sources.attached is False


def test_a_closed_lane_keeps_no_bytes_and_hears_of_nothing() -> None:
    scene = Scene()
    scene.run()
    scene.queue(2)
    answer = scene.send()

    scene.on(Close())
    answer()

    assert scene.slot.room._kept_bytes == 0
    assert scene.lane.in_flight == 0
    assert scene.slot.looked_up == []
    assert isinstance(scene.lane.phase, Closed)


def test_what_a_lane_shows_from_its_start_to_its_end() -> None:
    scene = Scene()
    shown = [scene.lane.state()]
    scene.run()
    shown.append(scene.lane.state())
    scene.lane.source_seen.end_offset = RECORDS
    scene.queue()
    answer = scene.send()
    shown.append(scene.lane.state())
    answer()
    shown.append(scene.lane.state())
    scene.on(Close())
    shown.append(scene.lane.state())

    assert shown == [Starting(), Starting(), Copying(), Idle(), Idle()]


@pytest.mark.parametrize(
    ("found", "reason", "is_soon"),
    [
        (SourceTrouble(error=MOVED), StallReason.SOURCE_UNREACHABLE, True),
        (SourceTrouble(error=REFUSED), StallReason.SOURCE_UNREACHABLE, False),
        (CorruptBatch(7, "orders-0: bad"), StallReason.CORRUPT_BATCH, False),
        (InvariantError("a bug"), StallReason.BUG, False),
        (WireError("odd"), StallReason.REFUSED_BY_TARGET, False),
        (MOVED, StallReason.TARGET_UNREACHABLE, True),
    ],
)
def test_what_a_look_up_met_is_named_and_tried_again(
    found: Any, reason: StallReason, is_soon: bool
) -> None:
    scene = Scene()

    scene.look_up(found)

    state = scene.lane.state()
    assert isinstance(state, Stalled)
    assert (state.reason, state.retrying) == (reason, True)
    ((delay_s, _),) = scene.slot.timers
    assert (delay_s < 1) is is_soon


def test_the_head_names_the_epoch_of_what_was_read_last() -> None:
    scene = Scene()
    running = scene.run()
    prepared = chunk(running)
    prepared.batches[0].leader_epoch = running.cursor.leader_epoch = 4
    scene.lane.enqueue(running, prepared, [], 0)

    scene.send()()

    head = scene.lane.head()
    assert (head.source_next_offset, head.source_leader_epoch) == (RECORDS, 4)
    assert scene.lane.source_point == SourcePoint(
        position=RECORDS, next_offset=RECORDS, leader_epoch=4
    )


def test_a_lane_that_must_not_go_on_keeps_the_epoch_it_is_held_to() -> None:
    scene = Scene()

    scene.look_up(
        Blocked(
            reason=StallReason.LOG_TRUNCATED,
            detail="parted",
            position=9,
            source_next_offset=10,
            source_leader_epoch=4,
        )
    )

    assert scene.lane.source_point == SourcePoint(position=9, next_offset=10, leader_epoch=4)
