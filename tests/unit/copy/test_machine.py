"""What becomes of a lane: every event in every phase, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from heliograph.copy.chunk import OutgoingBatch, SourcePoint
from heliograph.copy.events import (
    DRAINED,
    BatchTooLarge,
    BatchUnwritable,
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
from heliograph.copy.found import Blocked, FlowFenced, SourceTrouble
from heliograph.copy.phases import Closed, Draining, Resuming, Running
from heliograph.errors import CorruptBatch, InvariantError, WireError
from heliograph.model import Copying, Idle, Paused, Stalled, StallReason, Starting, TopicId
from tests.unit.copy.kit import RECORDS, carried_lane, chunk, running_at
from tests.unit.copy.machine_kit import MOVED, REFUSED, STOP, Scene, resume_point


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
    "BatchUnwritable": lambda scene: BatchUnwritable(
        batch=_batch(scene), code="MESSAGE_TOO_LARGE", error=REFUSED
    ),
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
    "LookedUp": lambda scene: LookedUp(asked=_asked(scene), found=resume_point(scene.lane)),
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
BatchUnwritable   .         resuming  resuming  .         .         .
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


def _batch(scene: Scene) -> OutgoingBatch:
    return chunk(running_at(scene.lane)).batches[0]


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

    scene.on(LookedUp(asked=asked, found=resume_point(scene.lane)))

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
    assert scene.slot.room.kept_bytes == 0
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

    assert scene.slot.room.kept_bytes == 0
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


def test_a_lane_knows_where_it_stands_unless_what_it_sent_is_unanswered() -> None:
    scene = Scene()
    running = scene.run()
    scene.lane.enqueue(running, chunk(running), [], 0)
    before = scene.lane.sure_position

    answer = scene.send()
    while_sent = scene.lane.sure_position
    answer()

    assert (before, while_sent, scene.lane.sure_position) == (0, None, RECORDS)


def test_a_head_names_the_topic_whose_offsets_it_has() -> None:
    """The driver tells a lane of the topic there is now while it still stands in the old one: its
    offset under the new one's name would leave out as much of the new topic."""
    scene = Scene()
    running = scene.run()
    before = scene.lane.spec.source_topic_id
    scene.lane.enqueue(running, chunk(running), [], 0)
    scene.send()()

    scene.lane.spec = replace(scene.lane.spec, source_topic_id=TopicId("another"))

    assert scene.lane.head().source_topic_id == before


def test_a_lane_that_must_not_go_on_does_not_know_where_it_stands() -> None:
    scene = Scene()

    scene.look_up(Blocked(reason=StallReason.UNEXPLAINED_LOG, detail="why", position=9))

    assert scene.lane.sure_position is None
