"""A drill's sample is spread and bounded, and every difference is named with its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from heliograph.audit.findings import FindingKind
from heliograph.broker.range_reader import ReadRecord, Stretch
from heliograph.drill.reading import compare_next
from heliograph.drill.sample import (
    BYTES_MAX,
    GROUPS_MAX,
    PARTITIONS_PER_GROUP_MAX,
    Compared,
    SampledMove,
    next_units,
    sampled_move,
    spread,
    stretch_bytes_max,
    units_before,
)
from heliograph.groups.placement import GroupMove
from heliograph.ledger.entries import StartEntry
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LaneRecord
from heliograph.model import (
    ClusterAlias,
    FlowId,
    LaneId,
    OffsetRange,
    TopicName,
    TopicPartition,
)
from tests.kit.batches import NOW_MS, Record
from tests.kit.memory_log import MemoryCluster, in_batches

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
SOURCE = TopicPartition(topic=TopicName("orders"), partition=0)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=0)
Numbered = Iterable[tuple[int, int]]
"""Records as offset and content."""


def lane(*runs: tuple[int, int, int], end: int) -> LaneLocation:
    """Runs as position, source offset, target offset; `end` is the lane's position."""
    made = Runs([Run(position=p, source_offset=s, target_offset=t) for p, s, t in runs])
    position, source_offset, target_offset = runs[0]
    start = StartEntry(
        topic=SOURCE.topic,
        partition=SOURCE.partition,
        position=position,
        author="me",
        source_offset=source_offset,
        target_offset=target_offset,
        source_topic_id=None,
        target_topic_id=None,
        at_ms=1,
    )
    return LaneLocation(
        lane=LaneId(flow=FLOW, source=SOURCE),
        target=TARGET,
        record=LaneRecord(head=None, runs=made, losses=(), starts=(start,)),
        position=end,
        exact=True,
        source_next_offset=made.source_offset_at(end - 1) + 1,
        target_next_offset=made.target_offset_at(end - 1) + 1,
        foreign_records=0,
    )


def going_on(
    mapped: LaneLocation,
    source_offset: int,
    target_offset: int,
    records_max: int = 10,
    *,
    is_compacted: bool = False,
) -> SampledMove:
    move = GroupMove(
        group="billing",
        source=SOURCE,
        target=TARGET,
        source_offset=source_offset,
        target_offset=target_offset,
        exact_offset=target_offset,
        clamped=None,
        lag_records=0,
        repeated_records=0,
        skipped_records=0,
    )
    return sampled_move(move, mapped, records_max, is_compacted=is_compacted)


def stretch(start: int, next_offset: int, records: Numbered) -> Stretch:
    made = tuple(
        ReadRecord(
            partition=0,
            offset=offset,
            timestamp_ms=NOW_MS + content,
            key=b"k%d" % content,
            value=b"v%d" % content,
        )
        for offset, content in records
    )
    return Stretch(start=start, next_offset=next_offset, records=made)


def same(count: int, *, start: int = 0, content: int | None = None) -> Sequence[tuple[int, int]]:
    first = start if content is None else content
    return [(start + n, first + n) for n in range(count)]


def compared(sampled: SampledMove, sent: Numbered, got: Stretch) -> Compared:
    records = [
        Record(
            offset=offset,
            timestamp_ms=NOW_MS + content,
            key=b"k%d" % content,
            value=b"v%d" % content,
        )
        for offset, content in sent
    ]
    source = MemoryCluster("A", in_batches(records, [4]), log_start=records[0].offset)
    target = MemoryCluster("B", [])
    return asyncio.run(
        compare_next(source, target, sampled, got, bytes_max=1 << 20, read_committed=True)
    )


# Which records.


def test_a_unit_covers_what_a_group_reads_next_on_both_sides() -> None:
    sampled = going_on(lane((0, 0, 100), (10, 50, 110), end=20), 8, 108, 5)

    (unit,) = next_units(sampled, sampled.target_end, read_committed=True)

    assert sampled.target_end == 113
    assert unit.source_range == OffsetRange(start=8, end=53)
    assert unit.target_range == OffsetRange(start=108, end=113)


def test_a_group_at_the_end_reads_nothing_next_and_its_last_records_are_taken_instead() -> None:
    sampled = going_on(lane((0, 0, 100), end=20), 20, 120, 5)

    (before,) = units_before(sampled, 5, target_start=100, read_committed=True)

    assert sampled.target_end == 120
    assert not list(next_units(sampled, 120, read_committed=True))
    assert before.source_range == OffsetRange(start=15, end=20)
    assert before.target_range == OffsetRange(start=115, end=120)


def test_records_before_a_group_that_the_target_holds_no_more_are_not_asked_for() -> None:
    mapped = lane((0, 0, 100), end=20)
    sampled = replace(going_on(mapped, 10, 110), start_position=10, end_position=10)

    (before,) = units_before(sampled, 8, target_start=107, read_committed=True)

    assert before.source_range == OffsetRange(start=7, end=10)
    assert not units_before(sampled, 8, target_start=115, read_committed=True)


def test_a_target_full_of_others_records_does_not_make_the_sample_longer_than_its_bound() -> None:
    sampled = going_on(lane((0, 0, 0), (1, 1, 1_000_000), end=5), 0, 0, 5)

    assert sampled.target_end == 20


def test_the_sample_is_spread_over_groups_and_partitions_and_moves_on_with_its_turn() -> None:
    partitions = [TopicPartition(topic=TopicName("t"), partition=n) for n in range(64)]
    groups = {f"g{n:03}": partitions for n in range(100)}

    turns = [spread(groups, turn) for turn in range(13)]

    assert {len(turn) for turn in turns} == {GROUPS_MAX}
    assert {len(each) for turn in turns for each in turn.values()} == {PARTITIONS_PER_GROUP_MAX}
    assert {group for turn in turns for group in turn} == set(groups)
    assert len({at for each in turns[0].values() for at in each}) > 5 * PARTITIONS_PER_GROUP_MAX


def test_partitions_that_are_doubtful_are_compared_whatever_the_turn() -> None:
    partitions = [TopicPartition(topic=TopicName("t"), partition=n) for n in range(64)]
    doubtful = {("g", partitions[40]), ("other", partitions[1])}

    turns = [spread({"g": partitions}, turn, doubtful) for turn in range(5)]

    assert all(turn["g"][0] == partitions[40] for turn in turns)
    assert len({turn["g"][1:] for turn in turns}) == 5


def test_the_bytes_of_a_drill_are_bounded_however_many_moves_it_samples() -> None:
    moves = GROUPS_MAX * PARTITIONS_PER_GROUP_MAX

    assert stretch_bytes_max(moves) * moves * 6 <= BYTES_MAX
    assert spread({}, 7) == {}


# How they differ.


def test_equal_records_at_mapped_offsets_are_equal() -> None:
    sampled = going_on(lane((0, 0, 100), end=10), 0, 100)

    found = compared(sampled, same(10), stretch(100, 110, same(10, start=100, content=0)))

    assert (found.equal_records, found.findings) == (10, ())


def test_records_that_are_not_there_are_missing_with_their_place() -> None:
    sampled = going_on(lane((0, 0, 100), end=30), 0, 100, 30)
    kept = [n for n in range(30) if n not in (14, 15)]
    moved = [(100 + place, content) for place, content in enumerate(kept)]

    found = compared(sampled, same(30), stretch(100, 130, moved))

    (missing,) = found.findings
    assert (missing.kind, missing.records) == (FindingKind.MISSING, 2)
    assert str(missing) == (
        "2 missing: orders-0 offsets 14 to 15, on the target A.orders-0 offsets 114 to 115"
    )
    assert found.equal_records == 28


def test_what_expired_on_the_target_but_not_on_the_source_is_missing() -> None:
    sampled = going_on(lane((0, 0, 100), end=10), 2, 106)

    found = compared(sampled, same(8, start=2), stretch(106, 110, same(4, start=106, content=6)))

    (missing,) = found.findings
    assert (found.equal_records, missing.records) == (4, 4)
    assert missing.source_offsets == OffsetRange(start=2, end=6)
    assert missing.target_offsets == OffsetRange(start=102, end=106)
    assert missing.note == "before the first offset that is left there"


def test_a_source_record_that_the_map_passes_over_is_missing() -> None:
    sampled = going_on(lane((0, 0, 0), (3, 5, 3), end=6), 0, 0)

    found = compared(
        sampled, same(8), stretch(0, 6, [(0, 0), (1, 1), (2, 2), (3, 5), (4, 6), (5, 7)])
    )

    (missing,) = found.findings
    assert (found.equal_records, missing.records, missing.note) == (6, 2, "not in the map")
    assert missing.source_offsets == OffsetRange(start=3, end=5)
    assert missing.target_offsets is None


def test_changed_records_say_which_part_differs() -> None:
    sampled = going_on(lane((0, 0, 0), end=2), 0, 0)
    got = stretch(0, 2, same(2))
    bad = replace(got.records[1], timestamp_ms=5, headers=(("h", b"1"),))

    found = compared(sampled, same(2), replace(got, records=(got.records[0], bad)))

    (changed,) = found.findings
    assert (changed.kind, changed.note) == (FindingKind.CHANGED, "timestamp, headers")


def test_a_target_that_keeps_append_times_is_compared_without_timestamps() -> None:
    sampled = going_on(lane((0, 0, 0), end=2), 0, 0)
    got = stretch(0, 2, same(2))
    late = tuple(replace(rec, timestamp_ms=5, is_append_time=True) for rec in got.records)

    found = compared(sampled, same(2), replace(got, records=late))

    assert (found.equal_records, found.findings) == (2, ())


def test_two_records_that_changed_places_are_swapped() -> None:
    sampled = going_on(lane((0, 0, 0), end=3), 0, 0)

    found = compared(sampled, same(3), stretch(0, 3, [(0, 0), (1, 2), (2, 1)]))

    (swapped,) = found.findings
    assert (swapped.kind, swapped.records) == (FindingKind.SWAPPED, 2)


def test_records_of_others_on_the_target_are_counted_and_are_no_fault() -> None:
    sampled = going_on(lane((0, 0, 0), (2, 2, 5), end=4), 0, 0)
    others = [(0, 0), (1, 1), (2, 90), (3, 91), (4, 92), (5, 2), (6, 3)]

    found = compared(sampled, same(4), stretch(0, 7, others))

    assert (found.equal_records, found.others_records, found.findings) == (4, 3, ())


def test_a_record_that_is_on_the_target_twice_is_repeated() -> None:
    sampled = going_on(lane((0, 0, 0), (2, 2, 3), end=4), 0, 0)

    found = compared(sampled, same(4), stretch(0, 5, [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)]))

    (repeated,) = found.findings
    assert (repeated.kind, repeated.records) == (FindingKind.REPEATED, 1)
    assert repeated.target_offsets == OffsetRange(start=2, end=3)
    assert found.equal_records == 4


def test_a_compacted_target_may_lack_records_and_a_source_may_have_lost_some() -> None:
    mapped, half = lane((0, 0, 0), end=4), [(2, 2), (3, 3)]

    on_target = compared(going_on(mapped, 0, 2, is_compacted=True), same(4), stretch(2, 4, half))
    on_source = compared(going_on(mapped, 0, 0), half, stretch(0, 4, same(4)))

    assert (on_target.findings, on_target.equal_records) == ((), 2)
    assert (on_source.findings, on_source.equal_records) == ((), 2)


def test_what_was_not_read_on_the_target_is_not_judged() -> None:
    sampled = going_on(lane((0, 0, 0), end=10), 0, 0)

    found = compared(sampled, same(10), stretch(0, 4, same(4)))

    assert (found.equal_records, found.findings) == (4, ())
