"""What becomes of a lane by what the source answers, without a broker."""

from __future__ import annotations

from heliograph.copy.events import (
    Close,
    Resume,
    SequenceMismatch,
    SourceAnswered,
    SourceBlocked,
    SourceFailed,
    SourceRefreshed,
    Throttled,
)
from heliograph.copy.phases import LANE_BYTES_MAX, RETRY_S, Draining
from heliograph.model import Stalled
from tests.unit.copy.kit import RECORDS
from tests.unit.copy.machine_kit import FINAL_STOP, MOVED, STOP, Scene


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
