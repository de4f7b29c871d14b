"""Reading a target partition as the copy MirrorMaker 2 made, restarts and all."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.ledger.runs import Run
from heliograph.model import OffsetRange
from heliograph.takeover.alignment import Alignment, OffsetSyncAnchor, Repeat, Stretch, align


def stretch(records: str, *, first: int = 0, gaps: Sequence[int] = ()) -> Stretch:
    """One record a letter; before each index in `gaps` an offset is skipped."""
    made, offset = Stretch(), first
    for index, letter in enumerate(records):
        offset += index in gaps
        made.add(offset, ord(letter))
        offset += 1
    return made


def read(
    source: str,
    target: str,
    stored_next: int | None = None,
    *,
    anchors: Sequence[OffsetSyncAnchor] = (),
) -> Alignment:
    return align(stretch(source), stretch(target), stored_next=stored_next, anchors=anchors)


def spans(start: int, end: int) -> OffsetRange:
    return OffsetRange(start=start, end=end)


def test_a_copy_that_stopped_in_order_ends_after_its_last_record() -> None:
    found = read("abcdef", "abcd", 4)

    assert found.next_source_offset == 4
    assert found.runs == (Run(position=0, source_offset=0, target_offset=0),)
    assert (found.mapped_records, found.repeats, found.foreign, found.unsure) == (4, (), (), None)


def test_records_copied_after_the_position_was_stored_count_as_copied() -> None:
    found = read("abcdef", "abcd", 2)

    assert found.next_source_offset == 4


def test_records_copied_twice_are_found_and_the_map_leads_to_their_last_copy() -> None:
    found = read("abcdef", "abcdcde", 2)

    assert found.next_source_offset == 5
    assert found.repeats == (Repeat(source=spans(2, 4), target=spans(4, 6), records=2),)
    assert found.runs == (
        Run(position=0, source_offset=0, target_offset=0),
        Run(position=2, source_offset=2, target_offset=4),
    )


def test_a_second_life_that_ends_before_the_first_one_takes_nothing_back() -> None:
    found = read("abcdefgh", "abcdefcd", 2)

    assert found.next_source_offset == 6
    assert found.repeated_records == 2
    assert found.runs == (Run(position=0, source_offset=0, target_offset=0),)


def test_three_lives_from_the_same_position_count_every_repeat() -> None:
    found = read("abcdefgh", "abcdbcdefbcd", 1)

    assert found.next_source_offset == 6
    assert found.repeated_records == 6


def test_a_record_of_somebody_else_is_counted_and_costs_no_record() -> None:
    found = read("abcdef", "abXcdY", 2)

    assert found.next_source_offset == 4
    assert found.foreign == (spans(2, 3), spans(5, 6))
    assert found.foreign_records == 2
    assert found.runs == (
        Run(position=0, source_offset=0, target_offset=0),
        Run(position=2, source_offset=2, target_offset=3),
    )


def test_markers_and_compaction_split_the_map_and_not_the_copy() -> None:
    source, target = stretch("abcdef", first=10, gaps=(2,)), stretch("abcd", first=100, gaps=(3,))

    found = align(source, target, stored_next=15)

    assert found.next_source_offset == 15
    assert found.runs == (
        Run(position=0, source_offset=10, target_offset=100),
        Run(position=2, source_offset=13, target_offset=102),
        Run(position=3, source_offset=14, target_offset=104),
    )


def test_what_the_source_no_longer_has_is_not_needed() -> None:
    found = align(stretch("def", first=3), stretch("abcde"), stored_next=4)

    assert found.next_source_offset == 5
    assert found.foreign == (spans(0, 3),)


def test_what_the_target_no_longer_has_is_not_needed() -> None:
    found = align(stretch("abcdef"), stretch("cde", first=2), stored_next=None)

    assert found.next_source_offset == 5
    assert found.missing == ()


def test_a_gap_before_the_position_is_reported_and_left() -> None:
    found = read("abcdefg", "abef", 6)

    assert found.next_source_offset == 6
    assert found.missing == (spans(2, 4),)


def test_a_gap_after_the_position_is_copied_again_from_there() -> None:
    found = read("abcdefg", "abef", 2)

    assert found.next_source_offset == 2


def test_a_compacted_target_lacks_records_by_right() -> None:
    found = align(stretch("abcdefg"), stretch("abef"), stored_next=2, is_compacted=True)

    assert found.next_source_offset == 6


def test_a_target_that_lost_what_was_stored_as_copied_is_copied_from_its_end() -> None:
    found = read("abcdefg", "abc", 6)

    assert (found.next_source_offset, found.is_short) == (3, True)


def test_a_target_that_is_no_copy_at_all_is_told() -> None:
    found = read("abcdef", "XYZ", 2)

    assert found.next_source_offset is None
    assert found.foreign_records == 3


def test_identical_records_that_were_all_stored_leave_no_doubt() -> None:
    found = read("aaaaaa", "aaaa", 4)

    assert (found.next_source_offset, found.unsure) == (4, None)


def test_identical_records_since_the_position_are_a_doubt_that_loses_nothing() -> None:
    # Either four were copied, or two of them twice, or one four times.
    found = read("xaaaaaa", "xaaaa", 1)

    assert found.next_source_offset == 2
    assert found.unsure == spans(2, 5)
    assert found.mapped_records == 2


def test_an_offset_sync_resolves_the_doubt() -> None:
    found = read(
        "xaaaaaa", "xaaaa", 1, anchors=[OffsetSyncAnchor(source_offset=4, target_offset=4)]
    )

    assert (found.next_source_offset, found.unsure) == (5, None)


def test_an_offset_sync_of_a_restart_among_identical_records_is_believed() -> None:
    restarted = [
        OffsetSyncAnchor(source_offset=1, target_offset=3),
        OffsetSyncAnchor(source_offset=2, target_offset=4),
    ]

    found = read("xaaaaaab", "xaaaa", 1, anchors=restarted)

    assert (found.next_source_offset, found.unsure) == (3, None)
    assert found.repeated_records == 2


def test_an_offset_sync_that_the_bytes_contradict_is_not_believed() -> None:
    found = read("abcdef", "abcd", 2, anchors=[OffsetSyncAnchor(source_offset=0, target_offset=3)])

    assert (found.next_source_offset, found.repeated_records) == (4, 0)


def test_a_restart_among_identical_records_claims_none_that_was_never_copied() -> None:
    # The first life copied `xab`, the second `ab` again: the last `a` of the source is not there.
    found = read("xabaZ", "xabab", 1)

    assert (found.next_source_offset, found.unsure) == (3, None)
    assert found.repeated_records == 2


def test_a_gap_that_a_later_life_skips_keeps_its_only_copy_in_the_map() -> None:
    found = align(stretch("abcdefg"), stretch("abcdefbefg"), stored_next=1, is_compacted=True)

    covered = {run.source_offset for run in found.runs}
    assert found.mapped_records == 7
    assert found.runs[-1] == Run(position=4, source_offset=4, target_offset=7)
    assert covered == {0, 4}
