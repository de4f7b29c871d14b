"""Each check finds what it is named for, and nothing in a lane that is well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.translate import LaneEnd, OffsetMap
from heliograph.model import OffsetRange
from tests.campaign.checks import LaneFacts, Place, check_lane
from tests.campaign.tail import Seen
from tests.campaign.truth import Content, Fate, Sent, Truth
from tests.kit.entries import start_entry
from tests.kit.maps import map_of
from tests.kit.records import Rec

_GAP_AT: Final = 3
"""The source offset of a marker: records behind it have other offsets on the target."""
_COUNT: Final = 8


def _lane(truth: Truth) -> LaneFacts:
    """Eight records with a gap behind the third, mirrored as they should be."""
    sent = [truth.new("A", "t", 0, key=b"k%d" % n, value=b"v") for n in range(_COUNT)]
    for number, each in enumerate(sent):
        each.offset = number + (number >= _GAP_AT)
        each.fate, each.acked_s, each.visible_s = Fate.COMMITTED, 10.0, 9.0
    return LaneFacts(
        lane="A->B/t-0",
        source_name=("A", "t"),
        target_name=("B", "A.t"),
        partition=0,
        incarnation=0,
        compacted=False,
        both_ways=False,
        sent=sent,
        target=[_copy(each, number) for number, each in enumerate(sent)],
        find=truth.find,
        expected=lambda content: content,
        begins_at=0,
        losses=(),
        earlier_losses=(),
        cuts=frozenset(),
        offset_map=_map(),
        seen=[Seen(offset=n, id=each.id, at_s=10.5) for n, each in enumerate(sent)],
        places=[_place(n, n - (n > _GAP_AT)) for n in range(_COUNT + 1)],
    )


def _map() -> OffsetMap:
    runs = Runs(
        [
            Run(position=0, source_offset=0, target_offset=0),
            Run(position=_GAP_AT, source_offset=_GAP_AT + 1, target_offset=_GAP_AT),
        ]
    )
    end = LaneEnd(position=_COUNT, source_next_offset=_COUNT + 1, target_next_offset=_COUNT)
    return map_of(runs, end, [start_entry("t")])


def _copy(sent: Sent, offset: int) -> Rec:
    key, value, headers, timestamp_ms = sent.content
    return Rec(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms, offset=offset)


def _place(source: int, target: int, *, after: bool = False) -> Place:
    return Place(
        operation=3,
        group="g",
        source_offset=source,
        target_offset=target,
        is_clamped_after=after,
    )


def _without(lane: LaneFacts, number: int) -> LaneFacts:
    """The copy lacks a record, and what is behind it stays where it is."""
    kept = [rec for rec in lane.target if rec.offset != number]
    return replace(lane, target=kept, seen=[each for each in lane.seen if each.offset != number])


def _one_lost(lane: LaneFacts, _: Truth) -> LaneFacts:
    return _without(lane, 2)


def _one_twice(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(lane, target=[*lane.target, _copy(lane.sent[5], _COUNT)])


def _one_never_sent(lane: LaneFacts, _: Truth) -> LaneFacts:
    stranger = Truth().new("A", "u", 0, key=b"k", value=b"v")
    return replace(lane, target=[*lane.target, _copy(stranger, _COUNT)])


def _one_of_another_topic(lane: LaneFacts, truth: Truth) -> LaneFacts:
    stranger = truth.new("A", "u", 0, key=b"k", value=b"v")
    return replace(lane, target=[*lane.target, _copy(stranger, _COUNT)])


def _one_of_another_partition(lane: LaneFacts, truth: Truth) -> LaneFacts:
    stranger = truth.new("A", "t", 1, key=b"k", value=b"v")
    return replace(lane, target=[*lane.target, _copy(stranger, _COUNT)])


def _one_aborted(lane: LaneFacts, _: Truth) -> LaneFacts:
    lane.sent[4].fate = Fate.ABORTED
    return lane


def _one_never_committed(lane: LaneFacts, _: Truth) -> LaneFacts:
    lane.sent[4].fate = Fate.UNKNOWN
    return lane


def _one_before_its_commit(lane: LaneFacts, _: Truth) -> LaneFacts:
    lane.sent[4].visible_s = 11.0
    return lane


def _one_changed(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(lane, target=[*lane.target[:-1], replace(lane.target[-1], value=b"w")])


def _one_that_should_be_dropped(lane: LaneFacts, _: Truth) -> LaneFacts:
    def expected(content: Content) -> Content | None:
        return None if content[0] == b"k1" else content

    return replace(lane, expected=expected)


def _two_swapped(lane: LaneFacts, _: Truth) -> LaneFacts:
    left, right = lane.target[5], lane.target[6]
    swapped = [replace(right, offset=5), replace(left, offset=6)]
    seen = [
        replace(each, id=lane.sent[{5: 6, 6: 5}.get(each.offset, each.offset)].id)
        for each in lane.seen
    ]
    return replace(lane, target=[*lane.target[:5], *swapped, *lane.target[7:]], seen=seen)


def _a_loss_that_was_none(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(lane, losses=[OffsetRange(start=1, end=2)], cuts=frozenset({2}))


def _a_loss_that_nobody_caused(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(_without(lane, 1), losses=[OffsetRange(start=1, end=2)], cuts=frozenset({4}))


def _one_changed_under_a_reader(lane: LaneFacts, _: Truth) -> LaneFacts:
    seen = [*lane.seen[:-1], replace(lane.seen[-1], id=b"another")]
    return replace(lane, seen=seen)


def _a_map_that_is_off_by_one(lane: LaneFacts, _: Truth) -> LaneFacts:
    runs = Runs([Run(position=0, source_offset=0, target_offset=0)])
    end = LaneEnd(position=_COUNT, source_next_offset=_COUNT, target_next_offset=_COUNT)
    return replace(lane, offset_map=map_of(runs, end, [start_entry("t")]))


def _no_map(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(lane, offset_map=None)


def _a_group_that_skips(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(lane, places=[_place(2, 3)])


def _a_group_that_reads_again(lane: LaneFacts, _: Truth) -> LaneFacts:
    return replace(lane, places=[_place(5, 3)])


@pytest.mark.parametrize(
    ("spoil", "checks"),
    [
        (_one_lost, {"lost-write", "map"}),
        (_one_twice, {"duplicate", "order", "map", "groups"}),
        (_one_never_sent, {"phantom"}),
        (_one_of_another_topic, {"phantom"}),
        (_one_of_another_partition, {"phantom"}),
        (_one_aborted, {"G1a"}),
        (_one_never_committed, {"G1a"}),
        (_one_before_its_commit, {"precommitted-read"}),
        (_one_changed, {"bytes"}),
        (_one_that_should_be_dropped, {"bytes"}),
        (_two_swapped, {"order", "map", "groups"}),
        (_a_loss_that_was_none, {"honesty"}),
        (_a_loss_that_nobody_caused, {"honesty", "map"}),
        (_one_changed_under_a_reader, {"inconsistent-offsets"}),
        (_a_map_that_is_off_by_one, {"map"}),
        (_no_map, {"map"}),
        (_a_group_that_skips, {"groups"}),
        (_a_group_that_reads_again, {"groups"}),
    ],
)
def test_each_fault_is_found_by_its_name_and_by_no_other(
    spoil: Callable[[LaneFacts, Truth], LaneFacts], checks: set[str]
) -> None:
    truth = Truth()
    lane = _lane(truth)

    found = check_lane(spoil(lane, truth))

    assert {each.check for each in found} == checks
    assert all(each.lane == "A->B/t-0" for each in found)


def test_a_lane_that_is_well_has_no_findings() -> None:
    assert check_lane(_lane(Truth())) == []


def test_what_the_source_deleted_is_no_loss_where_the_ledger_counts_it_to_the_record() -> None:
    lane = _lane(Truth())
    counted = replace(
        _without(lane, 1), losses=[OffsetRange(start=1, end=2)], cuts=frozenset({2}), places=()
    )

    assert [each.check for each in check_lane(counted) if each.check != "map"] == []


def test_a_group_that_was_ahead_of_the_mirror_reads_that_part_again() -> None:
    lane = _lane(Truth())

    assert check_lane(replace(lane, places=[_place(5, 3, after=True)])) == []


def test_what_was_left_of_a_topic_that_was_deleted_is_no_loss_and_its_middle_is() -> None:
    truth = Truth()
    lane = _lane(truth)
    again = replace(lane, incarnation=1, offset_map=None, places=())
    left = replace(again, target=again.target[:5], seen=again.seen[:5])

    assert check_lane(left) == []
    assert [each.check for each in check_lane(_without(left, 2))] == ["lost-write"]
