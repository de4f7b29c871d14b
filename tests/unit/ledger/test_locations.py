"""Where a lane is and why its offsets differ, from what the ledger and the log say."""

from __future__ import annotations

import pytest

from heliograph.errors import BrokerUnreachable
from heliograph.ledger.entries import HeadEntry, RunsEntry, StartEntry, new_author
from heliograph.ledger.locations import LaneLocation, _location, first_offset_difference
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition
from tests.kit.entries import head_entry, start_entry

TOPIC = TopicName("orders")
LANE = LaneId(
    flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
    source=TopicPartition(topic=TOPIC, partition=0),
)


def start(source: int = 0, target: int = 0) -> StartEntry:
    return start_entry(TOPIC, source_offset=source, target_offset=target, at_ms=0)


def run(position: int, source: int, target: int) -> RunsEntry:
    made = Run(position=position, source_offset=source, target_offset=target)
    return RunsEntry(topic=TOPIC, partition=0, author=new_author(), runs=(made,), end_position=None)


def head(position: int, source_next: int) -> HeadEntry:
    return head_entry(
        TOPIC,
        records=position,
        source_next_offset=source_next,
        source_end_offset=source_next,
        at_ms=0,
    )


def record(*entries: StartEntry | RunsEntry | HeadEntry) -> LaneRecord:
    view = LedgerView()
    for entry in entries:
        view.apply(entry)
    found = view.lane(TOPIC, 0)
    assert found is not None
    return found


def location(lane: LaneRecord, last_sequence: int, end: int) -> LaneLocation:
    return _location(LANE, LANE.source, lane, last_sequence, end)


def test_the_log_knows_better_than_the_last_note() -> None:
    found = location(record(start(), head(10, 10)), last_sequence=99, end=100)

    assert (found.position, found.exact, found.source_next_offset) == (100, True, 100)


def test_without_an_answer_from_the_log_the_last_note_stands() -> None:
    down = BrokerUnreachable("cluster B: down")

    found = _location(LANE, LANE.source, record(start(), head(10, 12)), down, down)

    assert (found.position, found.exact, found.source_next_offset) == (10, False, 12)


def test_records_of_others_are_counted_between_ours_and_behind_them() -> None:
    found = location(record(start(), run(50, 50, 53)), last_sequence=99, end=105)

    assert found.foreign_records == 3 + 2


@pytest.mark.parametrize(
    ("lane", "why"),
    [
        (record(start()), ""),
        (record(start(source=5)), "start"),
        (record(start(), run(50, 52, 50)), "gap"),
        (record(start(), run(50, 50, 53)), "foreign"),
        (record(start(), run(200, 300, 200)), ""),
    ],
    ids=["identical", "start", "gap", "foreign", "a gap that lies ahead"],
)
def test_the_first_reason_why_offsets_differ_is_told(lane: LaneRecord, why: str) -> None:
    found = location(lane, last_sequence=99, end=100)

    assert first_offset_difference(found).partition(":")[0] == why
