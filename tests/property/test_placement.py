"""Whatever two logs look like, what a group reads again or never is what a reader would count."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

from heliograph.groups.placement import GroupMove, Strategy, plan_group_offsets
from heliograph.ledger.runs import Run
from tests.unit.groups.test_placement import ON_TARGET, lane, only_move, scene

gap_offsets = sampled_from([0, 0, 0, 1, 4])
mirrored = lists(tuples(gap_offsets, gap_offsets), min_size=1, max_size=25)
"""Of each record: offsets before it that only the source has, and that only the target has."""
strategies = sampled_from(list(Strategy))
Log = list[tuple[int, int]]
"""Source and target offset of each mirrored record."""


def laid_out(gaps: list[tuple[int, int]]) -> Log:
    found: Log = []
    source = target = -1
    for only_source, only_target in gaps:
        source, target = source + 1 + only_source, target + 1 + only_target
        found.append((source, target))
    return found


def placed(log: Log, strategy: Strategy, at: int, expired: int, beyond: int) -> GroupMove:
    runs = [
        Run(position=position, source_offset=source, target_offset=target)
        for position, (source, target) in enumerate(log)
    ]
    end = (len(log), log[-1][0] + 1, log[-1][1] + 1)
    bounds = (min(expired, end[2]), end[2] + beyond)
    known = scene(at, lane(runs, end), told=(at, max(0, at - 2)), bounds=bounds)
    return only_move(plan_group_offsets(known, strategy, time_offsets={ON_TARGET: bounds[0]}))


@given(mirrored, strategies, integers(0, 60), integers(0, 20), integers(0, 3))
def test_records_again_and_never_are_those_between_the_two_places(
    gaps: list[tuple[int, int]], strategy: Strategy, at: int, expired: int, beyond: int
) -> None:
    log = laid_out(gaps)

    move = placed(log, strategy, at, expired, beyond)

    unread = {target for source, target in log if source >= at}
    read_there = {target for _, target in log if target >= move.target_offset}
    assert move.repeated_records == len(read_there - unread)
    assert move.skipped_records == len(unread - read_there)


@given(mirrored, integers(0, 60), integers(0, 3))
def test_by_the_map_a_group_reads_all_it_had_not_and_nothing_else_that_is_mirrored(
    gaps: list[tuple[int, int]], at: int, beyond: int
) -> None:
    log = laid_out(gaps)

    move = placed(log, Strategy.MAP, at, 0, beyond)

    assert (move.repeated_records, move.skipped_records, move.foreign_offsets) == (0, 0, 0)
    assert [s for s, t in log if t >= move.target_offset] == [s for s, _ in log if s >= at]


@given(mirrored, strategies, integers(0, 60), integers(0, 20), integers(0, 3))
def test_no_place_is_outside_of_the_target(
    gaps: list[tuple[int, int]], strategy: Strategy, at: int, expired: int, beyond: int
) -> None:
    log = laid_out(gaps)

    move = placed(log, strategy, at, expired, beyond)

    end = log[-1][1] + 1
    assert min(expired, end) <= move.target_offset <= end + beyond
    assert move.lag_records == end + beyond - move.target_offset
