"""Where groups go on by each strategy, and what it costs them in mirrored records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from heliograph.broker.group_view import GroupOffset
from heliograph.groups.checkpoint_plan import CheckpointKey
from heliograph.groups.placement import (
    CommittedOffset,
    GroupMove,
    GroupPlan,
    NoOffset,
    Strategy,
    groups_of,
    plan_group_offsets,
)
from heliograph.ledger.entries import StartEntry
from heliograph.ledger.runs import LooseRuns, Run, Runs
from heliograph.ledger.translate import LaneEnd
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint
from tests.kit.entries import start_entry

GROUP = "billing"


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=number)


ORDERS, ON_TARGET = partition("orders"), partition("A.orders")


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """As much of a lane's place as the plan looks at."""

    target: TopicPartition
    record: LaneRecord
    position: int
    end: LaneEnd
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """As much of what is known of a flow as the plan looks at."""

    locations: Mapping[TopicPartition, At]
    groups: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    checkpoints: Mapping[CheckpointKey, Checkpoint] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, GroupOffset]] = field(default_factory=dict)
    target_starts: Mapping[TopicPartition, int]
    target_ends: Mapping[TopicPartition, int]
    is_both_ways: bool = False
    back: LedgerView | None = None


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def start(at: Run, *, adopted: bool = False, at_ms: int = 1) -> StartEntry:
    return start_entry(
        ORDERS.topic,
        position=at.position,
        author="a",
        source_offset=at.source_offset,
        target_offset=at.target_offset,
        at_ms=at_ms,
        adopted=adopted,
    )


def lane(
    runs: Sequence[Run], end: tuple[int, int, int], starts: Sequence[StartEntry] = ()
) -> dict[TopicPartition, At]:
    position, source_next, target_next = end
    record = LaneRecord(
        head=None, runs=Runs(runs), losses=(), starts=tuple(starts) or (start(runs[0]),)
    )
    ends = LaneEnd(
        position=position, source_next_offset=source_next, target_next_offset=target_next
    )
    return {ORDERS: At(target=ON_TARGET, record=record, position=position, end=ends)}


MIRRORED = lane([run(0, 0, 0), run(10, 20, 15)], (30, 40, 35))
"""Source 0 to 9 and 20 to 39 are at target 0 to 9 and 15 to 34; others wrote 10 to 14."""


def scene(
    stood: int | CommittedOffset | None,
    locations: Mapping[TopicPartition, At] = MIRRORED,
    *,
    told: tuple[int, int] | None = None,
    committed: int | None = None,
    bounds: tuple[int, int] = (0, 35),
) -> Scene:
    """One group on one partition: where it stood, and what else is known of it."""
    if isinstance(stood, int):
        stood = CommittedOffset(offset=stood, as_of_ms=7, origin="source")
    checkpoints = {}
    if told is not None:
        upstream, downstream = told
        checkpoints[GROUP, ON_TARGET] = Checkpoint(
            group=GROUP,
            topic=ON_TARGET.topic,
            partition=0,
            upstream_offset=upstream,
            downstream_offset=downstream,
        )
    there = {} if committed is None else {GROUP: {ON_TARGET: GroupOffset(offset=committed)}}
    return Scene(
        locations=locations,
        groups={GROUP: {} if stood is None else {ORDERS: stood}},
        checkpoints=checkpoints,
        committed=there,
        target_starts={ON_TARGET: bounds[0]},
        target_ends={ON_TARGET: bounds[1]},
    )


def checkpointed(offset: int, as_of_ms: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, as_of_ms=as_of_ms, origin="checkpoint")


def only_move(placing: GroupPlan) -> GroupMove:
    assert placing.unplaced == ()
    (move,) = placing.moves
    return move


def only_unplaced(placing: GroupPlan) -> NoOffset:
    assert placing.moves == ()
    (row,) = placing.unplaced
    return row


def costs(move: GroupMove) -> tuple[int | None, int | None, int]:
    return move.repeated_records, move.skipped_records, move.foreign_offsets


@pytest.mark.parametrize(
    ("source_offset", "target_offset"), [(0, 0), (5, 5), (10, 15), (12, 15), (25, 20), (40, 35)]
)
def test_the_map_puts_a_group_exactly_where_it_stood(
    source_offset: int, target_offset: int
) -> None:
    move = only_move(plan_group_offsets(scene(source_offset), Strategy.MAP))

    assert (move.target_offset, move.exact_offset) == (target_offset, target_offset)
    assert (costs(move), move.clamped, move.note) == ((0, 0, 0), None, "")
    assert (move.source_offset, move.as_of_ms, move.lag_records) == (
        source_offset,
        7,
        35 - target_offset,
    )


def test_going_back_counts_mirrored_records_and_others_offsets_apart() -> None:
    move = only_move(plan_group_offsets(scene(25), Strategy.EARLIEST))

    # Exact is target 20: ten records before the gap, five after it, and five of others.
    assert (move.target_offset, move.exact_offset) == (0, 20)
    assert costs(move) == (15, 0, 5)


def test_going_forward_counts_what_is_never_read() -> None:
    move = only_move(plan_group_offsets(scene(5), Strategy.LATEST))

    assert (move.target_offset, costs(move), move.lag_records) == (35, (0, 25, 5), 0)


def test_a_place_between_others_records_costs_no_mirrored_one() -> None:
    move = only_move(plan_group_offsets(scene(10, told=(10, 12)), Strategy.CHECKPOINT))

    assert (move.target_offset, move.exact_offset, costs(move)) == (12, 15, (0, 0, 3))


def test_a_checkpoint_older_than_the_group_repeats_what_was_read_since() -> None:
    move = only_move(plan_group_offsets(scene(25, told=(5, 5)), Strategy.CHECKPOINT))

    assert (move.target_offset, costs(move)) == (5, (10, 0, 5))


def test_copying_takes_the_number_and_says_what_it_costs() -> None:
    move = only_move(plan_group_offsets(scene(25), Strategy.COPY))

    assert (move.target_offset, move.exact_offset, costs(move)) == (25, 20, (0, 5, 0))


def test_copying_beyond_the_end_is_clamped_and_said() -> None:
    move = only_move(plan_group_offsets(scene(39), Strategy.COPY))

    assert (move.target_offset, move.note) == (35, "the target ends at 35, before 39")
    assert costs(move) == (0, 1, 0)


def test_a_group_ahead_of_the_mirror_is_clamped_to_its_end_and_said() -> None:
    move = only_move(plan_group_offsets(scene(1_040), Strategy.MAP))

    assert (move.target_offset, move.clamped, costs(move)) == (35, "after", (0, 0, 0))
    assert move.note == "1,000 source offsets beyond what is mirrored: its end"


def test_a_group_ahead_of_the_mirror_reads_what_others_wrote_behind_it() -> None:
    move = only_move(plan_group_offsets(scene(40, bounds=(0, 50)), Strategy.MAP))

    assert (move.target_offset, move.lag_records) == (35, 15)


def test_a_group_behind_the_first_mirrored_record_is_clamped_and_said() -> None:
    late = lane([run(0, 100, 7)], (10, 110, 17))

    move = only_move(plan_group_offsets(scene(50, late), Strategy.MAP))

    assert (move.target_offset, move.clamped) == (7, "before")
    assert move.note == "source 50 to 100 was never mirrored: the first that was"


def test_what_expired_on_the_target_is_skipped_and_said() -> None:
    move = only_move(plan_group_offsets(scene(5, bounds=(17, 35)), Strategy.MAP))

    # Five records before the gap and two after it are gone; so are the five of others.
    assert (move.target_offset, move.exact_offset, costs(move)) == (17, 5, (0, 7, 5))
    assert move.note == "12 offsets from 5 on have expired on the target"


def test_a_place_before_an_adopted_start_is_not_guessed() -> None:
    first = run(0, 100, 90)
    adopted = lane([first], (10, 110, 100), [start(first, adopted=True)])

    by_map = only_unplaced(plan_group_offsets(scene(50, adopted), Strategy.MAP))
    earliest = only_move(plan_group_offsets(scene(50, adopted), Strategy.EARLIEST))
    within = only_move(plan_group_offsets(scene(103, adopted, bounds=(0, 100)), Strategy.MAP))

    assert "source offset 50 is from before the lane was adopted" in by_map.why
    assert (by_map.source_offset, by_map.target) == (50, ON_TARGET)
    assert (earliest.target_offset, costs(earliest)) == (0, (None, None, 0))
    assert within.target_offset == 93


def test_a_checkpoint_of_a_topic_that_was_created_again_keeps_its_place_on_the_target() -> None:
    first, again = run(0, 0, 0), run(20, 0, 20)
    recreated = lane([first, again], (25, 5, 25), [start(first), start(again, at_ms=1_000)])
    before = scene(checkpointed(12, 999), recreated, told=(12, 12), bounds=(0, 25))
    since = scene(checkpointed(3, 1_001), recreated, told=(3, 23), bounds=(0, 25))

    old = only_move(plan_group_offsets(before, Strategy.MAP))
    new = only_move(plan_group_offsets(since, Strategy.MAP))

    assert (old.target_offset, costs(old)) == (12, (0, 0, 0))
    assert old.note == "the source topic was created again after this checkpoint"
    assert (new.target_offset, new.note) == (23, "")


@pytest.mark.parametrize(
    ("found", "target_offset", "note"),
    [
        (16, 16, ""),
        (-1, 35, "no record is that new: the end"),
        (0, 0, "no record is older: the start"),
    ],
)
def test_a_time_is_the_first_offset_that_is_not_older(
    found: int, target_offset: int, note: str
) -> None:
    placing = plan_group_offsets(scene(25), Strategy.TIME, time_offsets={ON_TARGET: found})

    move = only_move(placing)
    assert (move.target_offset, move.note) == (target_offset, note)


@pytest.mark.parametrize(
    ("cut", "target_offset", "costs_it", "note"),
    [
        (35, 20, (0, 0, 0), ""),
        (-1, 20, (0, 0, 0), ""),
        (20, 20, (0, 0, 0), ""),
        (16, 16, (4, 0, 0), "set back from 20 to the cut"),
        (5, 5, (10, 0, 5), "set back from 20 to the cut"),
    ],
)
def test_no_group_goes_on_behind_the_cut_and_none_is_moved_forward_to_it(
    cut: int, target_offset: int, costs_it: tuple[int, int, int], note: str
) -> None:
    placing = plan_group_offsets(scene(25), Strategy.MAP, cut_offsets={ON_TARGET: cut})

    move = only_move(placing)
    assert (move.target_offset, costs(move), move.note) == (target_offset, costs_it, note)


def test_a_time_on_an_empty_partition_is_its_end() -> None:
    empty = lane([run(0, 0, 0)], (0, 0, 0))

    placing = plan_group_offsets(
        scene(0, empty, bounds=(0, 0)), Strategy.TIME, time_offsets={ON_TARGET: -1}
    )

    move = only_move(placing)
    assert (move.target_offset, move.note) == (0, "the partition is empty")


def test_a_partition_whose_time_is_not_told_is_left_alone() -> None:
    row = only_unplaced(plan_group_offsets(scene(25), Strategy.TIME))

    assert row.why == "the target does not tell which record of A.orders-0 has that time"


@pytest.mark.parametrize("strategy", [Strategy.EARLIEST, Strategy.LATEST, Strategy.TIME])
def test_partitions_where_the_group_has_no_place_get_one_from_the_target(
    strategy: Strategy,
) -> None:
    other, far = partition("orders", 1), partition("payments")
    locations = {ORDERS: MIRRORED[ORDERS], other: MIRRORED[ORDERS], far: MIRRORED[ORDERS]}

    placing = plan_group_offsets(scene(25, locations), strategy, time_offsets={ON_TARGET: 3})
    by_map = plan_group_offsets(scene(25, locations), Strategy.MAP)

    assert [move.source for move in placing.moves] == [ORDERS, other]
    assert placing.moves[1].origin is None
    assert costs(placing.moves[1]) == (None, None, 0)
    assert [move.source for move in by_map.moves] == [ORDERS]


def test_a_group_known_to_the_target_only_stays_where_it_is() -> None:
    only = CommittedOffset(offset=25, as_of_ms=None, origin="target")
    known = scene(only, committed=12)

    stays = only_move(plan_group_offsets(known, Strategy.MAP))
    copied = only_unplaced(plan_group_offsets(known, Strategy.COPY))
    told = only_unplaced(plan_group_offsets(known, Strategy.CHECKPOINT))

    assert (stays.target_offset, stays.is_needed, stays.source_offset) == (12, False, None)
    assert "nothing is known but where the group stands on the target" in stays.note
    assert copied.why == "where the group stood on the source is not known"
    assert told.why == "there is no checkpoint of it"


def test_only_a_group_that_stands_elsewhere_needs_a_commit() -> None:
    there = only_move(plan_group_offsets(scene(25, committed=20), Strategy.MAP))
    behind = only_move(plan_group_offsets(scene(25, committed=19), Strategy.MAP))
    nowhere = only_move(plan_group_offsets(scene(25), Strategy.MAP))

    assert [move.is_needed for move in (there, behind, nowhere)] == [False, True, True]


def test_a_partition_that_was_never_mirrored_is_left_alone() -> None:
    row = only_unplaced(plan_group_offsets(scene(25, {}), Strategy.EARLIEST))

    assert (row.why, row.target, row.source_offset) == ("nothing of it is mirrored yet", None, 25)


def test_a_partition_the_target_does_not_tell_about_is_left_alone() -> None:
    known = scene(25)
    hidden = Scene(locations=known.locations, groups=known.groups, target_starts={}, target_ends={})

    row = only_unplaced(plan_group_offsets(hidden, Strategy.LATEST))

    assert row.why == "the target does not tell where A.orders-0 starts and ends"


def test_a_ledger_that_contradicts_itself_translates_nothing() -> None:
    wrong = lane([run(0, 0, 0)], (20, 20, 20))
    wrong[ORDERS].record.runs.replace_between(10, 20, [run(10, 10, 5)])

    by_map = only_unplaced(plan_group_offsets(scene(15, wrong), Strategy.MAP))
    earliest = only_move(plan_group_offsets(scene(15, wrong), Strategy.EARLIEST))

    assert "contradicts itself" in by_map.why
    assert (earliest.target_offset, costs(earliest)) == (0, (None, None, 0))


def test_a_target_that_is_shorter_than_the_ledger_says_is_not_committed_beyond_its_end() -> None:
    move = only_move(plan_group_offsets(scene(40, bounds=(0, 30)), Strategy.MAP))

    assert (move.target_offset, move.note) == (30, "the target ends at 30, before 35")


def test_moves_are_grouped_for_one_commit_each() -> None:
    (move,) = plan_group_offsets(scene(25), Strategy.MAP).moves

    assert groups_of([move, move]) == {GROUP: [move, move]}


def forgetful() -> dict[TopicPartition, At]:
    """As `MIRRORED`, with exact offsets from position 20 on and one anchor before."""
    found = lane([run(0, 0, 0), run(10, 20, 15)], (30, 40, 35))
    found[ORDERS].record.runs.coarsen(LooseRuns.of([run(0, 0, 0)]), 20)
    return found


def test_a_group_whose_exact_offset_was_forgotten_goes_on_before_it_and_it_is_said() -> None:
    move = only_move(plan_group_offsets(scene(25, forgetful()), Strategy.MAP))

    assert (move.target_offset, move.exact_offset, move.clamped) == (0, None, "coarse")
    assert costs(move) == (None, 0, 0)
    assert "forgotten where exactly source 25 is" in move.note


def test_a_coarse_offset_from_before_the_log_is_its_start_and_may_skip_records() -> None:
    move = only_move(plan_group_offsets(scene(25, forgetful(), bounds=(18, 35)), Strategy.MAP))

    assert (move.target_offset, move.clamped) == (18, "coarse")
    assert costs(move) == (None, None, 0)


def test_a_checkpoint_from_before_a_replaced_topic_that_was_forgotten_is_still_told() -> None:
    runs = [run(0, 50, 0), run(10, 0, 10), run(20, 20, 25)]
    found = lane(runs, (30, 30, 35), [start(runs[0]), start(runs[1], at_ms=100)])
    found[ORDERS].record.runs.coarsen(LooseRuns.of([run(10, 0, 10)]), 20)

    move = only_move(
        plan_group_offsets(scene(checkpointed(55, 50), found, told=(55, 5)), Strategy.MAP)
    )

    assert move.target_offset == 5
    assert "created again after this checkpoint" in move.note
