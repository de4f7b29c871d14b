"""A lane of which the target has nothing left goes on after a reset."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.errors import MirrorError
from heliograph.inspect.reset import _is_nothing_left, _Planned, _planned
from heliograph.ledger.locations import location_of
from heliograph.model import StallReason
from tests.kit.fake_records import append_foreign
from tests.kit.lane_records import head, lane_record, start
from tests.unit.copy.resume_kit import ORDERS, PRODUCER, SPEC, Stage, at, refused

_ENTRIES = start(), head(10, 10)


def test_a_lane_of_which_nothing_is_left_goes_on_where_a_reset_says() -> None:
    stage = _emptied()

    planned = _planned_at(stage, 12)

    assert refused(stage.resume(*_ENTRIES)) == (StallReason.UNEXPLAINED_LOG, 10)
    assert planned.begins_anew
    assert "nothing since its last head is left" in planned.reset.remark
    assert at(stage.resume(planned.start)) == (10, 12, 15)


def test_what_is_left_of_it_says_more_than_a_reset_could() -> None:
    stage = _emptied()
    stage.own(13, 1)
    stage.written.expire_producers()

    with pytest.raises(MirrorError, match="its exact position is unknown; run the mirror once"):
        _planned_at(stage, 12)


def _emptied() -> Stage:
    stage = Stage()
    append_foreign(stage.read, 20)
    append_foreign(stage.written, 15)
    stage.written.delete_before(15)
    return stage


def _planned_at(stage: Stage, offset: int) -> _Planned:
    log, topic_id = stage.written, stage.target.id_of(ORDERS.topic)
    record = lane_record(*_ENTRIES)
    location = location_of(SPEC.id, ORDERS, record, last_sequence=-1, end=log.end)

    async def look() -> bool:
        await stage.target.refresh([ORDERS.topic])
        return await _is_nothing_left(stage.target, location, (log.start, log.end), PRODUCER)

    return _planned(
        location,
        offset,
        (0, 20),
        target_end=log.end,
        nothing_left=asyncio.run(look()),
        source_topic_id=None,
        target_topic_id=topic_id,
    )
