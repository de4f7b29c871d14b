"""What an adoption writes, folded as every later reader folds it."""

from __future__ import annotations

from dataclasses import replace

from heliograph.ledger.entries import (
    ADOPTED,
    RELEASED,
    RUNS_PER_ENTRY_MAX,
    RunsEntry,
    StartEntry,
)
from heliograph.ledger.entry_codec import encode
from heliograph.ledger.heads import released_lanes
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition
from heliograph.takeover.verdict import LaneFinding, Verdict
from heliograph.takeover.write import lane_entries

AUTHOR = "6f1c0d5e8b7a4c3d9e2f10a1b2c3d4e5"
ORDERS = TopicName("orders")
BATCH_BYTES_MAX = 512 * 1024


def finding(
    runs: tuple[Run, ...],
    mapped: int,
    next_source: int,
    next_target: int,
    *,
    resumed: int | None = None,
) -> LaneFinding:
    return LaneFinding(
        lane=LaneId(
            flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
            source=TopicPartition(topic=ORDERS, partition=0),
        ),
        target=TopicPartition(topic=TopicName("A.orders"), partition=0),
        verdict=Verdict.ADOPT,
        next_source_offset=next_source,
        target_next_offset=next_target,
        runs=runs,
        mapped_records=mapped,
        resumed_position=resumed,
    )


def folded(found: LaneFinding, view: LedgerView | None = None) -> LaneRecord:
    view = view or LedgerView()
    for entry in lane_entries(found, AUTHOR):
        view.apply_record(*encode(entry))
    record = view.lane(ORDERS, 0)
    assert record is not None
    return record


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def test_the_head_says_where_the_next_record_goes_and_the_runs_agree() -> None:
    record = folded(finding((run(0, 100, 50), run(20, 120, 80)), 40, 145, 110))

    assert record.head is not None
    assert (record.head.state, record.head.position) == (ADOPTED, 40)
    assert (record.head.source_next_offset, record.head.target_next_offset) == (145, 110)
    assert record.runs.source_offset_at(40) == 145
    assert record.runs.target_offset_at(40) == 110
    assert record.runs.target_offset_at(39) == 99
    assert [start.adopted for start in record.starts] == [True]


def test_a_lane_with_nothing_to_compare_starts_where_it_goes_on() -> None:
    record = folded(finding((), 0, 145, 110))

    assert record.starts[0].run == run(0, 145, 110)
    assert record.head is not None
    assert record.head.position == 0


def test_a_lane_with_very_many_runs_keeps_the_newest_and_fits_one_batch() -> None:
    count = RUNS_PER_ENTRY_MAX + 5_000
    runs = tuple(run(n, 3 * n, 1_000_000_000 + 2 * n) for n in range(count))
    found = finding(runs, count, 3 * count, 1_000_000_000 + 2 * count)

    entries = lane_entries(found, AUTHOR)

    assert [type(entry) for entry in entries[:2]] == [StartEntry, RunsEntry]
    assert len(entries) == 3
    assert sum(len(k) + len(v) for k, v in map(encode, entries)) < BATCH_BYTES_MAX - 1_000
    record = folded(found)
    assert record.head is not None
    assert record.runs.source_offset_at(record.head.position) == 3 * count
    assert record.runs.target_offset_at(record.head.position - 1) == 1_000_000_000 + 2 * count - 2


def test_a_lane_that_was_handed_back_keeps_its_positions_and_its_map() -> None:
    view = LedgerView()
    folded(finding((run(0, 100, 50),), 10, 110, 60), view)

    record = folded(finding((run(0, 110, 63),), 5, 115, 68, resumed=10), view)

    assert record.head is not None
    assert record.head.position == 15
    assert [record.runs.target_offset_at(n) for n in (0, 9, 10, 14, 15)] == [50, 59, 63, 67, 68]
    assert len(record.starts) == 1


def test_only_lanes_that_were_handed_to_mirrormaker_2_are_released() -> None:
    view = LedgerView()
    record = folded(finding((run(0, 100, 50),), 10, 110, 60), view)
    assert record.head is not None

    before = released_lanes(view)
    view.apply(replace(record.head, state=RELEASED))

    assert before == frozenset()
    assert released_lanes(view) == {TopicPartition(topic=ORDERS, partition=0)}
