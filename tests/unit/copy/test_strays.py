"""A target that has what a flow mirrored, and a ledger that knows nothing of it."""

from __future__ import annotations

import pytest

from heliograph.errors import BrokerUnreachable, LeaderMoved
from heliograph.ledger.mark import mark_of
from heliograph.model import ClusterAlias, FlowId, StallReason
from tests.kit.fake_records import append_foreign, records_batch
from tests.unit.copy.resume_kit import FLOW, Stage, at, refused

OTHER_PRODUCER = 99
ELSEWHERE = FlowId(source=ClusterAlias("C"), target=FLOW.target)


def mirrored(stage: Stage, flow: FlowId = FLOW, count: int = 5) -> None:
    """By a producer that the ledger named before it was lost."""
    stage.written.append(
        records_batch(count, producer_id=OTHER_PRODUCER, epoch=mark_of(flow), sequence=0)
    )


def test_every_flow_into_a_cluster_has_a_mark_of_its_own() -> None:
    marks = {mark_of(FlowId(source=ClusterAlias(f"c{n}"), target=FLOW.target)) for n in range(50)}

    assert len(marks) == 50
    assert mark_of(FLOW) == mark_of(FlowId(source=FLOW.source, target=ClusterAlias("Z")))
    assert all(2**14 <= mark < 2**15 - 1 for mark in marks)


def test_a_lane_whose_ledger_was_lost_is_not_copied_again(behind_for_long: None) -> None:
    stage = Stage()
    mirrored(stage)

    found, record = stage.resumed()

    assert refused(found)[0] is StallReason.LEDGER_UNUSABLE
    assert record is None


def test_it_is_known_by_its_last_batch_once_the_leader_forgot_who_wrote_it(
    behind_for_long: None,
) -> None:
    stage = Stage()
    mirrored(stage)
    stage.written.expire_producers()

    found, record = stage.resumed()

    assert refused(found)[0] is StallReason.LEDGER_UNUSABLE
    assert record is None


def test_a_ledger_that_does_not_know_a_lane_is_read_again_first() -> None:
    stage = Stage()
    mirrored(stage)

    found, record = stage.resumed()

    assert isinstance(found, LeaderMoved)
    assert record is None


@pytest.mark.parametrize("flow", [ELSEWHERE, None], ids=["another flow", "somebody"])
def test_a_lane_begins_behind_what_others_wrote(flow: FlowId | None) -> None:
    stage = Stage()
    if flow is None:
        append_foreign(stage.written, 5)
    else:
        mirrored(stage, flow)

    assert at(stage.resume()) == (0, 0, 5)


def test_a_target_that_does_not_say_who_wrote_to_it_is_asked_again() -> None:
    stage = Stage()
    append_foreign(stage.written, 5)
    stage.break_link("fetch")

    found, record = stage.resumed()

    assert isinstance(found, BrokerUnreachable)
    assert record is None
