"""Where a lane goes on whose target has deleted all since the head, and forgotten who wrote it."""

from __future__ import annotations

import pytest

from heliograph.copy.found import Blocked, SourceTrouble
from heliograph.errors import BrokerUnreachable
from heliograph.model import StallReason
from tests.kit.fake_cluster import Asked
from tests.kit.fake_records import append_foreign
from tests.kit.lane_records import head, start
from tests.unit.copy.resume_kit import Stage, at, refused


def all_deleted(*, ours: int) -> Stage:
    """Of five offsets behind the head so many were ours; the leader has forgotten who wrote."""
    stage = Stage()
    stage.own(0, 10)
    if ours:
        stage.own(10, ours)
    if ours < 5:
        append_foreign(stage.written, 5 - ours)
    stage.written.expire_producers()
    stage.written.delete_before(15)
    return stage


@pytest.mark.parametrize("ours", [0, 2, 5])
def test_a_lane_of_which_nothing_is_left_skips_and_repeats_nothing(ours: int) -> None:
    """To count what was deleted as ours would skip what the source has since."""
    stage = all_deleted(ours=ours)
    append_foreign(stage.read, 20)

    found = stage.resume(start(), head(10, 10))

    assert refused(found) == (StallReason.UNEXPLAINED_LOG, 10)
    assert isinstance(found, Blocked)
    assert "all 5 offsets since the lane's last head were deleted" in found.detail
    assert "what the source has from offset 10 on" in found.detail


@pytest.mark.parametrize("ours", [0, 2, 5])
def test_the_slot_that_carried_it_knows_where_it_stands(ours: int) -> None:
    stage = all_deleted(ours=ours)
    append_foreign(stage.read, 20)
    stage.own_position = 10 + ours

    found, record = stage.resumed(start(), head(10, 10))

    assert at(found) == (10 + ours, 10 + ours, 15)
    assert record is not None
    assert record.runs.target_offset_at(10 + ours) == 15


def test_it_goes_on_at_its_head_where_the_source_has_nothing_more() -> None:
    stage = all_deleted(ours=0)
    append_foreign(stage.read, 10)

    found, record = stage.resumed(start(), head(10, 10))

    assert at(found) == (10, 10, 15)
    assert record is not None
    assert record.runs.target_offset_at(10) == 15


def test_a_slot_that_is_behind_the_ledger_proves_nothing() -> None:
    """Another has carried the lane since."""
    stage = all_deleted(ours=0)
    append_foreign(stage.read, 20)
    stage.own_position = 5

    assert refused(stage.resume(start(), head(10, 10))) == (StallReason.UNEXPLAINED_LOG, 10)


def test_a_source_that_is_not_heard_leaves_it_open() -> None:
    stage = all_deleted(ours=0)

    def silent(asked: Asked) -> None:
        if asked.name == "list_offsets":
            raise BrokerUnreachable("cluster A: gone")

    stage.source.before = silent

    assert isinstance(stage.resume(start(), head(10, 10)), SourceTrouble)
