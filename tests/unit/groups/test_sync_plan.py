"""When a group on the target is moved, and when it is left where it is."""

from __future__ import annotations

import pytest

from heliograph.broker.group_view import GroupOffset, GroupState, GroupView
from heliograph.groups.checkpoint_plan import GroupOffsetPair
from heliograph.groups.sync_plan import GroupMoves, Move, OnRewind, Placed, plan_group
from heliograph.model import TopicName, TopicPartition

SOURCE = TopicPartition(topic=TopicName("orders"), partition=0)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=0)
END = 1_000


def place(source_offset: int, target_offset: int, *, metadata: str = "") -> GroupOffsetPair:
    return GroupOffsetPair(
        group="billing",
        source=SOURCE,
        target=TARGET,
        source_offset=source_offset,
        target_offset=target_offset,
        metadata=metadata,
    )


def planned(
    at: GroupOffsetPair,
    current: int | None,
    placed: tuple[int, int] | None = None,
    *,
    end: int | None = END,
    on_rewind: OnRewind = "follow",
) -> GroupMoves:
    return plan_group(
        [at],
        {} if current is None else {TARGET: GroupOffset(offset=current)},
        {}
        if placed is None
        else {TARGET: Placed(source_offset=placed[0], target_offset=placed[1])},
        {} if end is None else {TARGET: end},
        on_rewind=on_rewind,
    )


def written(moves: GroupMoves) -> int | None:
    found = moves.writes.get(TARGET)
    return None if found is None else found.offset


def test_a_group_with_nothing_committed_on_the_target_is_put_there() -> None:
    moves = planned(place(100, 101, metadata="m"), None)

    assert moves.moves == {TARGET: Move.FIRST}
    assert moves.writes == {TARGET: GroupOffset(offset=101, metadata="m")}


def test_minus_one_on_the_target_is_no_position_and_is_written() -> None:
    """`testSyncOffsetForTargetGroupWithNullOffsetAndMetadata`, KAFKA-15607."""
    assert written(planned(place(100, 101), -1)) == 101


def test_a_group_behind_on_the_target_is_moved_forward() -> None:
    assert written(planned(place(100, 101), 100)) == 101


def test_a_group_in_step_is_not_written_again() -> None:
    moves = planned(place(100, 101), 101)

    assert moves.writes == {}
    assert moves.moves == {TARGET: Move.NONE}


def test_a_group_in_step_counts_as_put_there() -> None:
    moves = planned(place(100, 101), 101)

    assert moves.placed == {TARGET: Placed(source_offset=100, target_offset=101)}


def test_a_group_ahead_on_the_target_is_never_moved_back_by_itself() -> None:
    moves = planned(place(100, 101), 150)

    assert moves.writes == {}
    assert moves.moves == {TARGET: Move.KEPT_AHEAD}
    assert moves.placed == {}


def test_a_rewind_of_the_source_group_is_followed_while_the_target_stands_where_it_was_put() -> (
    None
):
    moves = planned(place(10, 11), 101, placed=(100, 101))

    assert moves.moves == {TARGET: Move.BACK}
    assert written(moves) == 11
    assert moves.placed == {TARGET: Placed(source_offset=10, target_offset=11)}


@pytest.mark.parametrize("current", [100, 102, 150])
def test_a_rewind_is_not_followed_once_the_target_was_moved_by_others(current: int) -> None:
    moves = planned(place(10, 11), current, placed=(100, 101))

    assert moves.moves == {TARGET: Move.KEPT_AHEAD}


def test_a_rewind_of_a_group_this_mirror_never_placed_is_not_followed() -> None:
    assert planned(place(10, 11), 101).moves == {TARGET: Move.KEPT_AHEAD}


def test_a_translation_that_went_back_though_the_group_did_not_moves_nothing() -> None:
    moves = planned(place(100, 50), 101, placed=(100, 101))

    assert moves.moves == {TARGET: Move.KEPT_AHEAD}


def test_a_rewind_is_not_followed_where_the_choice_is_to_keep() -> None:
    moves = planned(place(10, 11), 101, placed=(100, 101), on_rewind="keep")

    assert moves.writes == {}
    assert moves.moves == {TARGET: Move.KEPT_REWOUND}


def test_a_rewind_that_is_kept_stays_one_at_the_next_look() -> None:
    moves = planned(place(10, 11), 101, placed=(100, 101), on_rewind="keep")

    assert moves.placed == {}


@pytest.mark.parametrize("current", [None, -1, 5])
def test_nothing_is_written_past_the_end_of_the_targets_log(current: int | None) -> None:
    moves = planned(place(100, 101), current, end=100)

    assert moves.writes == {}
    assert moves.moves == {TARGET: Move.NOT_MIRRORED}


def test_the_end_of_the_log_itself_may_be_written() -> None:
    assert written(planned(place(100, 101), None, end=101)) == 101


def test_a_partition_without_a_leader_waits() -> None:
    assert planned(place(100, 101), None, end=None).moves == {TARGET: Move.NO_LEADER}


def test_the_leader_epoch_of_the_source_is_not_carried_over() -> None:
    assert planned(place(100, 101), None).writes[TARGET].leader_epoch is None


@pytest.mark.parametrize(
    ("state", "idle"),
    [
        (GroupState.EMPTY, True),
        (GroupState.DEAD, True),
        (GroupState.STABLE, False),
        (GroupState.REBALANCING, False),
        (GroupState.UNKNOWN, False),
    ],
)
def test_only_a_group_without_members_is_idle(state: GroupState, idle: bool) -> None:
    assert GroupView(id="billing", state=state).is_idle is idle
