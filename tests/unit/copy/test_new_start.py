"""A lane begins anew where the driver decided; a start that was followed is never taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.copy.events import LookedUp, Resume
from heliograph.copy.found import Blocked
from heliograph.copy.phases import Resuming
from heliograph.ledger.entries import Entry, MemoEntry, StartEntry
from heliograph.ledger.new_starts import NewStart, decision_entry
from heliograph.model import Idle, Lane, LaneProgress, OffsetRange, Stalled, StallReason, TopicId
from tests.kit.fake_records import append_foreign
from tests.kit.lane_records import head, lane_record, start
from tests.unit.copy.machine_kit import Scene
from tests.unit.copy.resume_kit import SPEC, Stage, at, placed, refused

FIRST, SECOND = (TopicId(f"{number}b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11") for number in (0, 1))
BEGAN = start()
LOST = OffsetRange(start=10, end=30)


def decided(
    position: int = 10,
    *,
    lost: OffsetRange | None = LOST,
    source_offset: int = 30,
    lane: Lane = SPEC,
    after: StartEntry = BEGAN,
) -> MemoEntry:
    stood = LaneProgress(
        lane=lane.id,
        state=Idle(),
        position=position,
        source_next_offset=position,
        source_end_offset=50,
        source_start_offset=30,
        target_next_offset=position,
    )
    new = NewStart(lane=lane, at=stood, source_offset=source_offset, lost=lost)
    return decision_entry(new, lane_record(after))


def staged(own: int = 10) -> Stage:
    stage = Stage()
    stage.own(0, own)
    return stage


def test_a_lane_goes_on_behind_what_was_given_up_and_the_loss_is_counted() -> None:
    found, record = staged().resumed(BEGAN, decided())

    assert at(found) == (10, 30, 10)
    assert record is not None
    assert [loss.lost for loss in record.losses] == [LOST]
    assert [start.source_offset for start in record.starts] == [0, 30]


def test_a_decision_for_a_place_that_the_lane_has_left_is_none() -> None:
    """A slot that was given up had sent the next three records before they were deleted: the
    position behind them is not three records behind what was given up."""
    stage = staged()
    stage.own(10, 3)

    found, record = stage.resumed(BEGAN, decided())

    assert at(found) == (13, 13, 13)
    assert record is not None
    assert record.losses == ()
    assert record.starts == (BEGAN,)


def test_a_start_that_a_slot_has_followed_is_followed_by_all() -> None:
    """The driver once took it back here: it looked at the log after its start was durable, and a
    slot that had just begun to carry the lane had copied five records by then."""
    stage = staged()
    _, record = stage.resumed(BEGAN, decided())
    assert record is not None
    stage.own(10, 5)

    found, after = stage.resumed(*record.starts, *record.losses, decided())

    assert at(found) == (15, 35, 15)
    assert after is not None
    assert after.starts == record.starts


def test_a_lane_that_was_sent_elsewhere_since_is_not_sent_there() -> None:
    """By `heliograph reset`, to an offset before what was given up."""
    sent = start(position=10, source=12, target=10)

    found, record = staged().resumed(BEGAN, decided(), sent)

    assert at(found) == (10, 12, 10)
    assert record is not None
    assert record.losses == ()


def test_a_lane_that_has_begun_there_does_not_begin_again() -> None:
    began_there = start(position=10, source=30, target=10)

    _, record = staged().resumed(BEGAN, began_there, decided())

    assert record is not None
    assert record.starts == (BEGAN, began_there)
    assert record.losses == ()


def test_of_two_slots_that_begin_it_the_first_counts_for_both() -> None:
    stage = staged()
    late = start(position=10, source=30, target=10)

    found, record = stage.resumed(BEGAN, late, start(position=10, source=20, target=10))

    assert at(found) == (10, 30, 10)
    assert record is not None
    assert record.starts == (BEGAN, late)


def test_what_is_lost_besides_before_anything_was_mirrored_replaces_the_start() -> None:
    more = OffsetRange(start=30, end=40)
    begun = start(position=10, source=30, target=10)
    another = start(position=10, source=30, target=10)

    found, record = staged().resumed(
        BEGAN, begun, another, decided(lost=more, source_offset=more.end, after=begun)
    )

    assert at(found) == (10, 40, 10)
    assert record is not None
    assert [each.source_offset for each in record.starts] == [0, 40]
    assert record.starts[1].key not in (begun.key, another.key)


def test_records_of_others_behind_the_lanes_last_are_not_what_it_begins_with() -> None:
    stage = staged()
    append_foreign(stage.written, 4)

    found, record = stage.resumed(BEGAN, decided())

    assert at(found) == (10, 30, 14)
    assert placed(found).foreign_records == 4
    assert record is not None
    assert record.starts[-1].target_offset == 14


def test_a_recreated_topic_is_mirrored_from_the_offset_that_was_decided() -> None:
    old, spec = replace(BEGAN, source_topic_id=FIRST), replace(SPEC, source_topic_id=SECOND)
    decision = decided(lost=None, source_offset=2, lane=spec, after=old)

    waits = staged().resume(old, spec=spec)
    found, record = staged().resumed(old, decision, spec=spec)

    assert refused(waits) == (StallReason.TOPIC_RECREATED, 10)
    assert at(found) == (10, 2, 10)
    assert record is not None
    assert record.starts[-1].source_topic_id == SECOND


def test_a_lane_restarted_on_an_emptied_target_skips_nothing_of_the_new_topic() -> None:
    stage = Stage()
    append_foreign(stage.written, 1_500)
    stage.written.delete_before(1_500)
    old = replace(BEGAN, target_offset=500, source_topic_id=FIRST)
    spec = replace(SPEC, source_topic_id=SECOND)
    decision = decided(1_000, lost=None, source_offset=0, lane=spec, after=old)

    found = stage.resume(old, head(1_000, 1_000, 1_500), decision, spec=spec)

    assert at(found) == (1_000, 0, 1_500)


@pytest.mark.parametrize(
    ("what", "decision"),
    [
        ("of another source topic", decided(lane=replace(SPEC, source_topic_id=FIRST))),
        ("of a lane that was begun anew since", decided(after=start())),
        ("of nobody's", MemoEntry(subject="new-start/orders/0", text='{"v":1,"position":"ten"}')),
    ],
)
def test_a_decision_that_is_not_the_lanes_is_none(what: str, decision: Entry) -> None:
    found, record = staged().resumed(BEGAN, decision)

    assert at(found) == (10, 10, 10), what
    assert record is not None
    assert record.starts == (BEGAN,)


def test_a_lane_that_is_let_go_on_while_it_looks_at_its_log_looks_again() -> None:
    """What it read of the ledger may be older than the decision: it showed `topic recreated` until
    somebody told it once more."""
    scene = Scene()
    recreated = Blocked(reason=StallReason.TOPIC_RECREATED, detail="another", position=10)
    asked = scene.lane.phase
    assert isinstance(asked, Resuming)
    looks = [len(scene.slot.looked_up)]

    scene.on(Resume())
    scene.on(LookedUp(asked=asked, found=recreated))
    again = scene.lane.phase
    looks.append(len(scene.slot.looked_up))
    assert isinstance(again, Resuming)
    scene.on(LookedUp(asked=again, found=recreated))
    looks.append(len(scene.slot.looked_up))

    assert again is not asked
    assert looks == [1, 1, 0]
    assert isinstance(scene.lane.phase, Stalled)
