from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from heliograph.audit.findings import Finding, FindingKind
from heliograph.audit.plan import (
    LanePlan,
    LaneProgressNote,
    cut_units,
    lane_memo,
    note_of,
    repairs_memo,
    repairs_of,
    round_robin,
    tail_units,
)
from heliograph.audit.units import LaneWriters, UnitMap
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import (
    ClusterAlias,
    FlowId,
    LaneId,
    OffsetRange,
    TopicName,
    TopicPartition,
)
from heliograph.wire.batch import BatchHeader, parse_header, restamp
from tests.kit.batches import Record, batch_of
from tests.kit.entries import start_entry

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
SOURCE = TopicPartition(topic=TopicName("orders"), partition=3)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=3)
GAPPED = (
    Run(position=0, source_offset=100, target_offset=0),
    Run(position=40, source_offset=141, target_offset=40),
    Run(position=60, source_offset=161, target_offset=65),
)


def location(runs: tuple[Run, ...], position: int) -> LaneLocation:
    start = start_entry(
        SOURCE.topic,
        SOURCE.partition,
        position=runs[0].position,
        author="me",
        source_offset=runs[0].source_offset,
        target_offset=runs[0].target_offset,
    )
    folded = Runs(runs)
    return LaneLocation(
        lane=LaneId(flow=FLOW, source=SOURCE),
        target=TARGET,
        record=LaneRecord(head=None, runs=folded, losses=(), starts=(start,)),
        position=position,
        exact=True,
        source_next_offset=folded.source_offset_at(position) + 2,
        target_next_offset=folded.target_offset_at(position),
        foreign_records=0,
    )


def test_units_follow_one_another_on_both_sides_without_a_gap() -> None:
    units = cut_units(
        location(GAPPED, 90), 0, 90, records_max=25, read_committed=True, target_end=200
    )

    assert [(unit.start_position, unit.end_position) for unit in units] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 90),
    ]
    for before, after in pairwise(units):
        assert before.source_range.end == after.source_range.start
        assert before.target_range.end == after.target_range.start
    assert units[0].source_range.start == 100
    assert units[-1].source_range.end == 193
    assert [unit.target_end for unit in units] == [None, None, None, 200]


def test_a_unit_knows_which_offsets_are_its_records() -> None:
    (unit,) = cut_units(location(GAPPED, 90), 30, 90, records_max=100, read_committed=True)
    found = UnitMap(unit)

    assert found.of_source(130).position == 30
    assert found.of_source(130).extent == 10
    assert found.of_source(140).position is None
    assert found.of_source(141).position == 40
    assert (found.of_target(60).position, found.of_target(60).extent) == (None, 5)
    assert found.of_target(65).position == 60
    assert found.target_at(61) == 66


def written_by(producer_id: int, offset: int, count: int = 1) -> BatchHeader:
    batch = batch_of(*(Record(offset=offset + n) for n in range(count)), base_offset=offset)
    restamp(batch, producer_id=producer_id, producer_epoch=0, sequence=0)
    batch[:8] = offset.to_bytes(8)
    header = parse_header(batch)
    assert header is not None
    return header


def test_only_batches_that_the_map_has_nothing_of_are_left_out_for_who_wrote_them() -> None:
    writers = LaneWriters(
        brought=frozenset({7}), own=frozenset({8}), kept=OffsetRange(start=155, end=161)
    )
    (unit,) = cut_units(
        location(GAPPED, 90), 0, 90, records_max=100, read_committed=True, writers=writers
    )
    found = UnitMap(unit)

    # Of the source: 140 and 160 are gaps, and a failback kept the second one.
    assert _all(found.brought_until, written_by(7, 140))
    assert not _all(found.brought_until, written_by(6, 140))
    assert not _all(found.brought_until, written_by(7, 139, 2))
    assert not _all(found.brought_until, written_by(7, 140, 2))
    assert not _all(found.brought_until, written_by(7, 160))
    # Of the target: 60 to 64 are nobody's of the flow.
    assert _all(found.others_until, written_by(6, 60, 5))
    assert not _all(found.others_until, written_by(8, 60, 5))
    assert not _all(found.others_until, written_by(6, 64, 2))


def test_a_lane_without_writers_leaves_nothing_out() -> None:
    (unit,) = cut_units(location(GAPPED, 90), 0, 90, records_max=100, read_committed=True)
    found = UnitMap(unit)

    assert not _all(found.brought_until, written_by(7, 140))
    assert not _all(found.others_until, written_by(6, 60))


def test_nothing_of_a_source_topic_that_was_replaced_is_compared() -> None:
    runs = (
        Run(position=0, source_offset=50, target_offset=0),
        Run(position=20, source_offset=0, target_offset=20),
    )

    (unit,) = cut_units(location(runs, 30), 0, 30, records_max=100, read_committed=True)

    assert (unit.start_position, unit.end_position) == (20, 30)
    assert unit.is_first


def test_the_tail_is_one_unit_of_the_last_records_and_none_of_an_empty_lane() -> None:
    (unit,) = tail_units([location(GAPPED, 90), location(GAPPED, 0)], 10)

    assert (unit.start_position, unit.end_position) == (80, 90)
    assert unit.source_range == OffsetRange(start=181, end=193)


def test_lanes_take_turns() -> None:
    plans = [
        LanePlan(
            lane=unit.lane,
            target=TARGET,
            units=tuple(units),
            end_position=90,
            unit_count=len(units),
        )
        for units in (
            cut_units(location(GAPPED, 90), 0, 90, records_max=30, read_committed=True),
            cut_units(location(GAPPED, 20), 0, 20, records_max=30, read_committed=True),
        )
        for unit in units[:1]
    ]

    assert [unit.start_position for unit in round_robin(plans)] == [0, 0, 30, 60]


def test_notes_in_the_ledger_come_back_and_garbage_is_nothing() -> None:
    finding = Finding(
        kind=FindingKind.MISSING,
        source=OffsetRange(start=1, end=2),
        target=OffsetRange(start=1, end=1),
        records=1,
    )
    note = LaneProgressNote(position=7, at_ms=5, is_over=False, findings=(finding,))
    repaired = (OffsetRange(start=3, end=9),)
    view = LedgerView()
    view.apply(lane_memo(SOURCE, note))
    view.apply(repairs_memo(SOURCE, repaired))

    assert note_of(view, SOURCE) == note
    assert repairs_of(view, SOURCE) == repaired
    bad = lane_memo(SOURCE, note)
    view.apply(type(bad)(subject=bad.subject, text='{"position": "x"}'))
    assert note_of(view, SOURCE) is None


def _all(until: Callable[[BatchHeader], int], header: BatchHeader) -> bool:
    """Whether all of a batch is left out; or nothing is."""
    assert until(header) in (header.base_offset, header.next_offset)
    return until(header) == header.next_offset
