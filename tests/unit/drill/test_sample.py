"""A drill's sample is spread and bounded, and every difference is named with its place."""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.broker.range_reader import Stretch, StretchRecord
from heliograph.drill.sample import (
    BYTES_MAX,
    GROUPS_MAX,
    PARTITIONS_PER_GROUP_MAX,
    Difference,
    Lane,
    compare,
    next_window,
    spread,
    stretch_bytes_max,
    window_before,
)
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.translate import LaneEnd
from heliograph.model import OffsetRange, TopicName, TopicPartition

SOURCE = TopicPartition(topic=TopicName("orders"), partition=0)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=0)


def lane(*runs: tuple[int, int, int], end: int, is_compacted: bool = False) -> Lane:
    """Runs as position, source offset, target offset; `end` is the lane's position."""
    made = Runs([Run(position=p, source_offset=s, target_offset=t) for p, s, t in runs])
    return Lane(
        source=SOURCE,
        target=TARGET,
        runs=made,
        end=LaneEnd(
            position=end,
            source_next_offset=made.source_offset_at(end - 1) + 1,
            target_next_offset=made.target_offset_at(end - 1) + 1,
        ),
        is_compacted=is_compacted,
    )


def record(offset: int, content: int, *, value: str = "v") -> StretchRecord:
    return StretchRecord(
        offset=offset,
        timestamp_ms=1_000 + content,
        key=b"k%d" % content,
        value=f"{value}{content}".encode(),
    )


def stretch(start: int, next_offset: int, records: Iterable[tuple[int, int]]) -> Stretch:
    """Records as offset and content."""
    made = tuple(record(offset, content) for offset, content in records)
    return Stretch(start=start, next_offset=next_offset, records=made)


def same(count: int, *, start: int = 0, content: int | None = None) -> Iterable[tuple[int, int]]:
    first = start if content is None else content
    return [(start + n, first + n) for n in range(count)]


# Which records.


def test_a_window_covers_what_a_group_reads_next_on_both_sides() -> None:
    mapped = lane((0, 0, 100), (10, 50, 110), end=20)

    window = next_window(mapped, 8, 108, 5)

    assert window.source_offsets == OffsetRange(start=8, end=53)
    assert window.target_offsets == OffsetRange(start=108, end=113)


def test_a_group_at_the_end_reads_nothing_next_and_its_last_records_are_taken_instead() -> None:
    mapped = lane((0, 0, 100), end=20)

    ahead = next_window(mapped, 20, 120, 5)
    behind = window_before(mapped, 20, 5, target_start=100)

    assert ahead.is_empty
    assert behind.source_offsets == OffsetRange(start=15, end=20)
    assert behind.target_offsets == OffsetRange(start=115, end=120)


def test_records_before_a_place_that_the_target_holds_no_more_are_not_asked_for() -> None:
    mapped = lane((0, 0, 100), end=20)

    window = window_before(mapped, 10, 8, target_start=107)

    assert window.source_offsets == OffsetRange(start=7, end=10)
    assert window_before(mapped, 10, 8, target_start=115).is_empty


def test_a_target_full_of_others_records_does_not_make_the_sample_longer_than_its_bound() -> None:
    mapped = lane((0, 0, 0), (1, 1, 1_000_000), end=5)

    window = next_window(mapped, 0, 0, 5)

    assert window.target_offsets == OffsetRange(start=0, end=20)


def test_the_sample_is_spread_over_groups_and_partitions_and_moves_on_with_its_turn() -> None:
    partitions = [TopicPartition(topic=TopicName("t"), partition=n) for n in range(64)]
    groups = {f"g{n:03}": partitions for n in range(100)}

    turns = [spread(groups, turn) for turn in range(13)]

    assert {len(turn) for turn in turns} == {GROUPS_MAX}
    assert {len(each) for turn in turns for each in turn.values()} == {PARTITIONS_PER_GROUP_MAX}
    assert {group for turn in turns for group in turn} == set(groups)
    assert len({at for each in turns[0].values() for at in each}) > 5 * PARTITIONS_PER_GROUP_MAX


def test_places_that_are_doubtful_are_compared_whatever_the_turn() -> None:
    partitions = [TopicPartition(topic=TopicName("t"), partition=n) for n in range(64)]
    doubtful = {("g", partitions[40]), ("other", partitions[1])}

    turns = [spread({"g": partitions}, turn, doubtful) for turn in range(5)]

    assert all(turn["g"][0] == partitions[40] for turn in turns)
    assert len({turn["g"][1:] for turn in turns}) == 5


def test_the_bytes_of_a_drill_are_bounded_however_many_places_it_samples() -> None:
    locations = GROUPS_MAX * PARTITIONS_PER_GROUP_MAX

    assert stretch_bytes_max(locations) * locations * 4 <= BYTES_MAX
    assert spread({}, 7) == {}


# How they differ.


def test_equal_records_at_mapped_offsets_are_equal() -> None:
    mapped = lane((0, 0, 100), end=10)
    window = next_window(mapped, 0, 100, 10)

    found = compare(
        mapped,
        window,
        stretch(0, 10, same(10)),
        stretch(100, 110, same(10, start=100, content=0)),
    )

    assert (found.equal_records, found.findings) == (10, ())


def test_a_record_that_is_not_there_is_lost_at_its_exact_place() -> None:
    mapped = lane((0, 0, 100), end=10)
    window = next_window(mapped, 0, 100, 10)
    kept = [rec for rec in same(10, start=100, content=0) if rec[0] not in (104, 105)]

    found = compare(mapped, window, stretch(0, 10, same(10)), stretch(100, 110, kept))

    (lost,) = found.findings
    assert (lost.kind, lost.records) == (Difference.LOST, 2)
    assert lost.source_offsets == OffsetRange(start=4, end=6)
    assert lost.target_offsets == OffsetRange(start=104, end=106)
    assert str(lost) == (
        "2 lost: orders-0 offsets 4 to 5, on the target A.orders-0 offsets 104 to 105"
    )


def test_what_expired_on_the_target_but_not_on_the_source_is_lost() -> None:
    mapped = lane((0, 0, 100), end=10)
    window = next_window(mapped, 2, 106, 10)

    found = compare(
        mapped,
        window,
        stretch(2, 10, same(8, start=2)),
        stretch(106, 110, same(4, start=106, content=6)),
    )

    (lost,) = found.findings
    assert (found.equal_records, lost.records) == (4, 4)
    assert lost.source_offsets == OffsetRange(start=2, end=6)
    assert lost.note == "before the first offset that is left there"


def test_a_source_record_that_the_map_passes_over_is_lost() -> None:
    mapped = lane((0, 0, 0), (3, 5, 3), end=6)
    window = next_window(mapped, 0, 0, 10)

    found = compare(
        mapped,
        window,
        stretch(0, 8, same(8)),
        stretch(0, 6, [(0, 0), (1, 1), (2, 2), (3, 5), (4, 6), (5, 7)]),
    )

    (lost,) = found.findings
    assert (found.equal_records, lost.records, lost.note) == (6, 2, "not in the map")
    assert lost.source_offsets == OffsetRange(start=3, end=5)
    assert lost.target_offsets is None


def test_changed_records_say_which_part_differs() -> None:
    mapped = lane((0, 0, 0), end=2)
    sent = StretchRecord(offset=1, timestamp_ms=5, key=b"k", value=b"v", headers=(("h", b"1"),))
    got = StretchRecord(offset=1, timestamp_ms=6, key=b"k", value=b"v", headers=(("h", b"2"),))
    first = record(0, 0)

    found = compare(
        mapped,
        next_window(mapped, 0, 0, 10),
        Stretch(start=0, next_offset=2, records=(first, sent)),
        Stretch(start=0, next_offset=2, records=(first, got)),
    )

    (changed,) = found.findings
    assert (changed.kind, changed.note) == (Difference.CHANGED, "headers, timestamp")


def test_two_records_that_changed_places_are_out_of_order() -> None:
    mapped = lane((0, 0, 0), end=3)

    found = compare(
        mapped,
        next_window(mapped, 0, 0, 10),
        stretch(0, 3, [(0, 0), (1, 1), (2, 2)]),
        stretch(0, 3, [(0, 0), (1, 2), (2, 1)]),
    )

    (swapped,) = found.findings
    assert (swapped.kind, swapped.records) == (Difference.OUT_OF_ORDER, 2)


def test_records_of_others_on_the_target_are_counted_and_not_compared() -> None:
    mapped = lane((0, 0, 0), (2, 2, 5), end=4)

    found = compare(
        mapped,
        next_window(mapped, 0, 0, 10),
        stretch(0, 4, same(4)),
        stretch(0, 7, [(0, 0), (1, 1), (2, 90), (3, 91), (4, 92), (5, 2), (6, 3)]),
    )

    assert (found.equal_records, found.others_records, found.findings) == (4, 3, ())


def test_a_compacted_target_may_lack_records_and_a_source_may_have_lost_some() -> None:
    compacted = lane((0, 0, 0), end=4, is_compacted=True)
    plain = lane((0, 0, 0), end=4)
    half = [(2, 2), (3, 3)]

    on_target = compare(
        compacted, next_window(compacted, 0, 0, 9), stretch(0, 4, same(4)), stretch(0, 4, half)
    )
    on_source = compare(
        plain, next_window(plain, 0, 0, 9), stretch(0, 4, half), stretch(0, 4, same(4))
    )

    assert (on_target.findings, on_target.gone_records) == ((), 2)
    assert (on_source.findings, on_source.gone_records) == ((), 2)


def test_what_was_not_read_on_one_side_is_not_judged() -> None:
    mapped = lane((0, 0, 0), end=10)
    window = next_window(mapped, 0, 0, 10)

    short_target = compare(mapped, window, stretch(0, 10, same(10)), stretch(0, 4, same(4)))
    short_source = compare(mapped, window, stretch(0, 4, same(4)), stretch(0, 10, same(10)))

    assert (short_target.equal_records, short_target.findings) == (4, ())
    assert (short_source.equal_records, short_source.gone_records) == (4, 0)
