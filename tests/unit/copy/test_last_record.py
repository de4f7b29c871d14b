"""A killed slot mirrored more than its head says, and the source had another leader since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Blocked, SourceTrouble
from heliograph.errors import BrokerUnreachable
from heliograph.model import Lane, StallReason
from heliograph.transform import at_work
from tests.kit.batches import NOW_MS
from tests.kit.fake_cluster import Asked
from tests.kit.fake_records import records_batch
from tests.kit.lane_records import head, start
from tests.unit.copy.resume_kit import Stage, at, refused

KNOWN = 5
MIRRORED = 10


def append(stage: Stage, count: int, *, later_ms: int = 0) -> None:
    stage.read.append(records_batch(count, timestamp_ms=NOW_MS + later_ms))


def test_a_source_that_lost_only_what_was_mirrored_since_the_head_stalls_its_lane() -> None:
    stage = Stage()
    append(stage, 7)
    append(stage, 3)
    epoch = stage.read.epoch
    stage.own(0, MIRRORED)
    stage.read.truncate(7)
    append(stage, 20, later_ms=1)

    found = stage.resume(start(), replace(head(KNOWN, KNOWN), source_leader_epoch=epoch))

    assert refused(found) == (StallReason.LOG_TRUNCATED, MIRRORED)
    assert isinstance(found, Blocked)
    assert "parts from what was mirrored at offset 7, before 10" in found.detail


def test_a_source_that_lost_what_was_mirrored_before_the_first_head_stalls_its_lane() -> None:
    stage = Stage()
    append(stage, MIRRORED)
    stage.own(0, MIRRORED)
    stage.read.truncate(0)
    append(stage, 20, later_ms=1)

    found = stage.resume(start())

    assert refused(found) == (StallReason.LOG_TRUNCATED, MIRRORED)


def test_a_source_that_ends_just_before_the_last_record_stalls_its_lane() -> None:
    """It had shown as not reachable until more was written to it."""
    stage = Stage()
    append(stage, KNOWN)
    epoch = stage.read.epoch
    append(stage, 1)
    append(stage, MIRRORED - KNOWN - 1)
    stage.own(0, MIRRORED)
    stage.read.truncate(KNOWN + 1)
    append(stage, MIRRORED - KNOWN - 2, later_ms=1)

    found = stage.resume(start(), replace(head(KNOWN, KNOWN), source_leader_epoch=epoch))

    assert refused(found) == (StallReason.LOG_TRUNCATED, MIRRORED)


def test_a_source_that_kept_what_was_mirrored_before_the_first_head_lets_its_lane_go_on() -> None:
    stage = Stage()
    append(stage, MIRRORED)
    append(stage, 20)
    stage.own(0, MIRRORED)

    found = stage.resume(start())

    assert at(found) == (MIRRORED, MIRRORED, MIRRORED)


@pytest.mark.parametrize("grace_s", [10.0, 0.0], ids=["answers at once", "answers later"])
@pytest.mark.parametrize(
    ("function", "is_told"), [("unchanged", True), ("by_the_clock", False), ("marked", False)]
)
def test_the_last_record_is_compared_where_transforms_leave_it_alone(
    function: str, is_told: bool, grace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they make of it now may be other than what they made when it was mirrored."""
    monkeypatch.setattr(at_work, "GRACE_S", grace_s)
    path = f"tests.unit.transform.functions:{function}"
    step = TransformConfig(name="t", kind="record", function=path)
    stage = Stage(limits=FetchLimits(transforms=(step,)))
    append(stage, 7)
    append(stage, 3)
    epoch = stage.read.epoch
    stage.own(0, MIRRORED)
    stage.read.truncate(7)
    append(stage, 20, later_ms=1)

    found = stage.resume(start(), replace(head(KNOWN, KNOWN), source_leader_epoch=epoch))

    assert isinstance(found, Blocked) == is_told


def test_a_transform_that_was_changed_before_the_first_head_is_no_cut_off_log() -> None:
    path = "tests.unit.transform.functions:marked"
    step = TransformConfig(name="t", kind="record", function=path)
    stage = Stage(limits=FetchLimits(transforms=(step,)))
    stage.read.append(records_batch(MIRRORED, timestamp_ms=NOW_MS + 1))
    stage.own(0, MIRRORED)

    found = stage.resume(start())

    assert at(found) == (MIRRORED, MIRRORED, MIRRORED)


def test_the_lanes_own_calls_at_work_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(flow: Flow, lane: Lane) -> None:
        pytest.fail("the lane's own transform would forget what it waits for")

    monkeypatch.setattr(Flow, "transform_of", taken)

    test_the_last_record_is_compared_where_transforms_leave_it_alone(
        "unchanged", True, 10.0, monkeypatch
    )


def test_a_lane_that_read_from_the_new_leader_too_goes_on() -> None:
    stage = Stage()
    append(stage, 7)
    epoch = stage.read.epoch
    stage.read.elect()
    append(stage, 3)
    append(stage, 5, later_ms=1)
    stage.own(0, 7)
    stage.own(7, 3)

    found = stage.resume(start(), replace(head(KNOWN, KNOWN), source_leader_epoch=epoch))

    assert at(found) == (MIRRORED, MIRRORED, MIRRORED)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_record_that_is_gone_on_one_side_says_nothing(side: str) -> None:
    stage = Stage()
    append(stage, 7)
    epoch = stage.read.epoch
    stage.read.elect()
    append(stage, 20, later_ms=1)
    stage.own(0, MIRRORED)
    (stage.read if side == "source" else stage.written).delete_before(MIRRORED)

    found = stage.resume(start(), replace(head(KNOWN, KNOWN), source_leader_epoch=epoch))

    assert at(found) == (MIRRORED, MIRRORED, MIRRORED)


def test_a_source_that_cannot_be_read_is_what_the_lane_waits_for() -> None:
    stage = Stage()
    append(stage, 7)
    epoch = stage.read.epoch
    stage.read.elect()
    append(stage, 20, later_ms=1)
    stage.own(0, MIRRORED)

    def unreachable(asked: Asked) -> None:
        if asked.name == "fetch":
            raise BrokerUnreachable("cluster A: gone")

    stage.source.before = unreachable
    known = replace(head(KNOWN, KNOWN), source_leader_epoch=epoch)

    assert isinstance(stage.resume(start(), known), SourceTrouble)
