"""Which checkpoints are news: MirrorMaker 2's rule, with exact translations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heliograph.broker.group_view import GroupOffset
from heliograph.groups.checkpoint_plan import (
    CheckpointKey,
    GroupOffsetPair,
    GroupOffsets,
    checkpoint_key,
    checkpoint_of,
    doubtful_targets,
    group_places,
    plan_checkpoints,
    raised_to,
    wanted_offsets,
)
from heliograph.ledger.translate import Exact
from heliograph.model import TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint

GROUP = "billing"


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """As much of a lane as the plan looks at."""

    target: TopicPartition
    position: int


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=number)


ORDERS, ON_TARGET = partition("orders"), partition("A.orders")
LANES = {ORDERS: At(target=ON_TARGET, position=500)}


def everything(_: TopicName) -> bool:
    return True


def place(source_offset: int, target_offset: int, *, metadata: str = "") -> GroupOffsetPair:
    return GroupOffsetPair(
        group=GROUP,
        source=ORDERS,
        target=ON_TARGET,
        source_offset=source_offset,
        target_offset=target_offset,
        metadata=metadata,
    )


def told(source_offset: int, target_offset: int) -> dict[CheckpointKey, Checkpoint]:
    checkpoint = checkpoint_of(place(source_offset, target_offset))
    return {checkpoint_key(checkpoint): checkpoint}


def committed(offset: int, at: TopicPartition = ORDERS, metadata: str = "") -> GroupOffsets:
    return {GROUP: {at: GroupOffset(offset=offset, metadata=metadata, leader_epoch=7)}}


def emitted(
    locations: list[GroupOffsetPair],
    previous: dict[CheckpointKey, Checkpoint],
    ends: dict[TopicPartition, int] | None = None,
) -> list[tuple[int, int]]:
    found = plan_checkpoints(locations, previous, ends or {})
    return [(each.upstream_offset, each.downstream_offset) for each in found]


def test_a_checkpoint_has_the_group_the_target_partition_both_offsets_and_the_metadata() -> None:
    offsets = committed(13, metadata="by hand")
    wanted = list(wanted_offsets(offsets, LANES, everything))

    locations = group_places(wanted, LANES, {(ORDERS, 13): Exact(offset=6)})

    assert plan_checkpoints(locations, {}, {}) == (
        Checkpoint(
            group=GROUP,
            topic=TopicName("A.orders"),
            partition=0,
            upstream_offset=13,
            downstream_offset=6,
            metadata="by hand",
        ),
    )


def test_a_topic_is_called_what_the_lane_calls_it_whatever_its_name_looks_like() -> None:
    failed_back = partition("B.orders")
    lanes = {failed_back: At(target=partition("A.B.orders"), position=1)}
    wanted = wanted_offsets(committed(1, failed_back), lanes, everything)

    (found,) = group_places(wanted, lanes, {(failed_back, 1): Exact(offset=1)})

    assert found.target == partition("A.B.orders")


def test_offsets_on_topics_the_filter_leaves_out_are_not_translated() -> None:
    offsets = {GROUP: {ORDERS: GroupOffset(offset=1), partition("logs"): GroupOffset(offset=1)}}
    lanes = {**LANES, partition("logs"): At(target=partition("A.logs"), position=1)}

    wanted = list(wanted_offsets(offsets, lanes, lambda topic: topic != "logs"))

    assert [source for _, source, _ in wanted] == [ORDERS]


def test_an_offset_without_a_lane_is_not_translated() -> None:
    assert list(wanted_offsets(committed(1, partition("other")), LANES, everything)) == []


def test_nothing_is_told_before_the_first_record_of_a_lane_was_mirrored() -> None:
    begun = {ORDERS: At(target=ON_TARGET, position=0)}
    carried = {ORDERS: At(target=ON_TARGET, position=1)}

    assert list(wanted_offsets(committed(0), begun, everything)) == []
    assert len(list(wanted_offsets(committed(0), carried, everything))) == 1


def test_a_negative_offset_is_no_position() -> None:
    assert list(wanted_offsets(committed(-1), LANES, everything)) == []


def test_an_offset_without_a_safe_translation_is_left_out() -> None:
    wanted = list(wanted_offsets(committed(9), LANES, everything))

    assert group_places(wanted, LANES, {(ORDERS, 8): Exact(offset=8)}) == ()


def test_the_first_checkpoint_of_a_group_is_news() -> None:
    assert emitted([place(10, 10)], {}) == [(10, 10)]


def test_a_checkpoint_that_says_nothing_new_is_suppressed() -> None:
    assert emitted([place(10, 10)], told(10, 10)) == []


def test_a_checkpoint_further_on_the_target_is_news() -> None:
    assert emitted([place(11, 11)], told(10, 10)) == [(11, 11)]


def test_a_group_that_moved_within_a_gap_is_no_news() -> None:
    """Between two mirrored records there is only one place on the target."""
    assert emitted([place(12, 10)], told(11, 10)) == []


def test_a_group_that_went_back_on_the_source_is_news() -> None:
    assert emitted([place(4, 4)], told(10, 10)) == [(4, 4)]


def test_checkpoints_never_go_back_on_the_target_unless_the_group_did_on_the_source() -> None:
    """`testCheckpointRecordsMonotonicIfStoreRewinds`: less is known, the group went on."""
    assert emitted([place(12, 5)], told(10, 10)) == []
    assert emitted([place(9, 5)], told(10, 10)) == [(9, 5)]


def test_what_was_told_before_a_restart_is_neither_repeated_nor_unsaid() -> None:
    """`testCheckpointsTaskRestartUsesExistingCheckpoints`, its numbers."""
    before_restart = told(250, 201)

    assert emitted([place(250, 176)], before_restart) == []
    assert emitted([place(370, 176)], before_restart) == []
    assert emitted([place(400, 376)], before_restart) == [(400, 376)]


def test_another_groups_checkpoint_is_not_taken_for_this_ones() -> None:
    other = GroupOffsetPair(
        group="other", source=ORDERS, target=ON_TARGET, source_offset=3, target_offset=3
    )

    assert emitted([other], told(10, 10)) == [(3, 3)]


def test_a_checkpoint_past_the_targets_log_silences_nobody() -> None:
    garbage = told(10, 2**62)

    assert doubtful_targets([place(10, 10)], garbage) == {ON_TARGET}
    assert emitted([place(10, 10)], garbage, {ON_TARGET: 50}) == [(10, 10)]
    assert emitted([place(10, 10)], garbage, {}) == []


def test_a_checkpoint_within_the_targets_log_is_kept_to() -> None:
    assert emitted([place(12, 5)], told(10, 10), {ON_TARGET: 50}) == []


def test_only_partitions_that_seem_to_go_back_are_doubtful() -> None:
    assert doubtful_targets([place(10, 10)], told(10, 10)) == frozenset()
    assert doubtful_targets([place(11, 11)], told(10, 10)) == frozenset()
    assert doubtful_targets([place(9, 9)], told(10, 10)) == frozenset()
    assert doubtful_targets([place(11, 9)], told(10, 10)) == {ON_TARGET}


def test_a_coarse_place_is_never_before_the_log_begins() -> None:
    coarse = replace(place(400, 100), clamped="coarse")

    assert raised_to([coarse], {ON_TARGET: 130})[0].target_offset == 130
    assert raised_to([coarse], {ON_TARGET: 70})[0].target_offset == 100


def test_a_coarse_place_whose_log_is_not_known_is_left_out() -> None:
    exact, coarse = place(400, 100), replace(place(400, 100), clamped="coarse")

    assert raised_to([exact, coarse], {}) == (exact,)
