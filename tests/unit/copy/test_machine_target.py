"""What becomes of a lane by what the target answers, without a broker."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from heliograph.copy.events import SequenceMismatch, SourceAnswered, SourceBlocked, TargetFailed
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import FORGOTTEN_S_MIN, REMEMBERED_S
from heliograph.copy.machine import MISMATCHES_SHOWN, REFUSED_AFTER
from heliograph.copy.phases import RETRY_S, Resuming
from heliograph.copy.targets import SUSPECTS, _stream_index
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised
from heliograph.model import OffsetRange, Stalled, StallReason
from tests.unit.copy.kit import RECORDS, send
from tests.unit.copy.machine_kit import MOVED, REFUSED, STOP, Scene


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
    assert scene.slot.room.kept_bytes == 0
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
    assert scene.slot.room.kept_bytes == 0


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
    assert scene.slot.room.kept_bytes == 0
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


def test_what_the_target_refused_as_not_the_next_is_counted() -> None:
    scene = Scene()
    scene.run()
    scene.queue(2)
    answers = [scene.send(), scene.send()]

    answers[0](ErrorCode.out_of_order_sequence_number)
    answers[1](ErrorCode.not_leader_or_follower)

    counted = scene.lane.flow.counted
    assert (counted.refused_batches, counted.lookups) == (1, 1)
    assert scene.lane.flow.target.traffic.retried_batches == 1


def test_a_stall_is_counted_once_while_it_lasts() -> None:
    scene = Scene()
    scene.run()

    for _ in range(3):
        scene.machine.failed(scene.lane, NotAuthorised("no WRITE"))
        scene.machine._looked_up(scene.lane, Resuming(), NotAuthorised("no WRITE"))

    assert scene.lane.flow.counted.stalls == {"not authorised": 1}


@pytest.mark.parametrize("code", [ErrorCode.invalid_timestamp, ErrorCode.invalid_record])
def test_a_batch_refused_for_a_record_is_looked_into_where_the_lane_may_go_on_without(
    code: ErrorCode,
) -> None:
    scene = Scene()
    scene.lane.flow.limits = FetchLimits(on_unwritable="skip")
    scene.run()
    scene.queue()

    scene.send()(code)

    learned = scene.lane.learned
    assert learned.suspects == OffsetRange(start=0, end=RECORDS)
    assert isinstance(scene.lane.phase, Resuming) and scene.lane.trouble is None


def test_a_record_refused_by_itself_is_remembered_until_the_lane_is_past_it() -> None:
    scene = Scene()
    scene.lane.flow.limits = FetchLimits(on_unwritable="skip")
    running = scene.run()
    scene.queue()
    running.outgoing[0].record_count = 1

    scene.send()(ErrorCode.invalid_timestamp)

    learned = scene.lane.learned
    assert [each.error for each in learned.unwritable.values()] == ["INVALID_TIMESTAMP"]
    learned.passed(1)
    assert learned.unwritable == {}
