"""Whether the source still has what a lane mirrored before it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.copy.chunk import SourcePoint
from heliograph.copy.found import Blocked, SourceTrouble
from heliograph.errors import BrokerUnreachable
from heliograph.ledger.entries import HeadEntry
from heliograph.model import StallReason
from tests.kit.fake_cluster import Asked
from tests.kit.fake_records import append_foreign
from tests.kit.lane_records import head, start
from tests.unit.copy.resume_kit import Stage, at, placed, refused


def mirrored_ten_of_epoch(stage: Stage, epoch: int) -> HeadEntry:
    """Ten records, of which the source's leader of that epoch wrote the last."""
    append_foreign(stage.read, 8)
    for _ in range(epoch):
        stage.read.elect()
    append_foreign(stage.read, 2)
    stage.own(0, 10)
    return replace(head(10, 10), source_leader_epoch=epoch)


@pytest.mark.parametrize("knows", ["the ledger", "the slot"])
def test_a_source_cut_off_and_grown_again_while_nobody_read_stalls_its_lane(knows: str) -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    stage.read.truncate(8)
    append_foreign(stage.read, 40)
    if knows == "the slot":
        known = replace(known, source_leader_epoch=None)
        stage.own_point = SourcePoint(position=10, next_offset=10, leader_epoch=3)

    found = stage.resume(start(), known)

    assert refused(found) == (StallReason.LOG_TRUNCATED, 10)
    assert isinstance(found, Blocked)
    assert "parts from what was mirrored at offset 8, before 10" in found.detail
    assert (found.source_next_offset, found.source_leader_epoch) == (10, 3)


def test_a_source_with_other_leaders_and_the_same_records_goes_on() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    append_foreign(stage.read, 1)
    stage.read.elect()
    append_foreign(stage.read, 5)

    found = stage.resume(start(), known)

    assert at(found) == (10, 10, 10)
    assert placed(found).cursor.leader_epoch == 3


def test_a_lane_that_came_further_than_its_head_by_another_leader_names_no_epoch() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    stage.read.elect()
    append_foreign(stage.read, 5)
    stage.own(10, 5)

    found = stage.resume(start(), known)

    assert at(found) == (15, 15, 15)
    assert placed(found).cursor.leader_epoch == -1


def test_a_source_that_cannot_tell_about_an_epoch_goes_on() -> None:
    stage = Stage()
    known = replace(mirrored_ten_of_epoch(stage, 3), source_leader_epoch=9)

    found = stage.resume(start(), known)

    assert at(found) == (10, 10, 10)
    assert placed(found).cursor.leader_epoch == -1


def test_a_lane_that_was_sent_elsewhere_since_is_not_held_to_what_it_read_before() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)
    stage.read.truncate(8)
    append_foreign(stage.read, 40)

    found = stage.resume(start(), known, start(position=10, source=8, target=10))

    assert at(found) == (10, 8, 10)


def test_a_source_that_does_not_answer_for_an_epoch_is_what_its_lane_waits_for() -> None:
    stage = Stage()
    known = mirrored_ten_of_epoch(stage, 3)

    def unreachable(asked: Asked) -> None:
        if asked.name == "offset_for_leader_epoch":
            raise BrokerUnreachable("cluster A: gone")

    stage.source.before = unreachable

    assert isinstance(stage.resume(start(), known), SourceTrouble)
