"""Sticky, weighed assignment, case by case; `tests/property/test_assignment.py` has the laws."""

from __future__ import annotations

import time

from heliograph.driver.assignment import Places, assign, weigh
from heliograph.model import (
    ClusterAlias,
    FlowId,
    LaneId,
    LaneLoad,
    SlotId,
    TopicName,
    TopicPartition,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
OTHER = FlowId(source=ClusterAlias("C"), target=ClusterAlias("B"))
S0, S1, S2 = SlotId(0), SlotId(1), SlotId(2)


def lane(partition: int, topic: str = "orders") -> LaneId:
    return LaneId(flow=FLOW, source=TopicPartition(topic=TopicName(topic), partition=partition))


def test_lanes_without_history_spread_evenly() -> None:
    lanes = [lane(number) for number in range(6)]

    placed = assign(lanes, [S0, S1, S2], {}, {})

    assert [sorted(placed.values()).count(slot) for slot in (S0, S1, S2)] == [2, 2, 2]


def test_a_new_lane_goes_to_the_lightest_slot() -> None:
    current = {lane(0): S0, lane(1): S1}

    placed = assign([lane(0), lane(1), lane(2)], [S0, S1], current, {lane(0): 5.0, lane(1): 2.0})

    assert placed == {lane(0): S0, lane(1): S1, lane(2): S1}


def test_nothing_moves_below_the_bound() -> None:
    current = {lane(0): S0, lane(1): S0, lane(2): S1}

    placed = assign(current, [S0, S1], current, {})

    assert placed == current


def test_the_heaviest_slot_gives_a_lane_away_above_the_bound() -> None:
    current = {lane(number): S0 for number in range(4)}

    placed = assign(current, [S0, S1], current, {})

    assert sorted(placed.values()) == [S0, S0, S1, S1]


def test_one_lane_heavier_than_all_others_is_not_sent_back_and_forth() -> None:
    current = {lane(0): S0, lane(1): S1}

    placed = assign(current, [S0, S1], current, {lane(0): 100.0})

    assert placed == current


def test_pinned_lanes_have_their_slots_to_themselves() -> None:
    critical = lane(0, "critical")
    others = [lane(number) for number in range(5)]

    placed = assign(
        [critical, *others], [S0, S1, S2], {}, {}, Places(pinned={critical: frozenset({S2})})
    )

    assert placed[critical] == S2
    assert S2 not in {placed[other] for other in others}


def test_pinned_lanes_whose_slots_are_gone_join_the_others() -> None:
    critical = lane(0, "critical")

    placed = assign([critical, lane(1)], [S0], {}, {}, Places(pinned={critical: frozenset({S2})}))

    assert placed == {critical: S0, lane(1): S0}


def test_unpinned_lanes_share_all_slots_when_every_slot_is_set_apart() -> None:
    critical = lane(0, "critical")

    placed = assign([critical, lane(1)], [S0], {}, {}, Places(pinned={critical: frozenset({S0})}))

    assert placed == {critical: S0, lane(1): S0}


def test_a_bounded_flow_leaves_slots_to_the_others() -> None:
    lanes = [lane(number) for number in range(4)]
    others = [
        LaneId(flow=OTHER, source=TopicPartition(topic=TopicName("pay"), partition=number))
        for number in range(4)
    ]

    placed = assign([*lanes, *others], [S0, S1, S2], {}, {}, widths={FLOW: 1})

    (one,) = {placed[each] for each in lanes}
    assert {placed[other] for other in others} == {S0, S1, S2} - {one}


def test_a_bounded_flow_moves_as_a_whole_when_its_slot_is_too_heavy() -> None:
    lanes = [lane(number) for number in range(3)]
    others = [
        LaneId(flow=OTHER, source=TopicPartition(topic=TopicName("pay"), partition=number))
        for number in range(4)
    ]
    current = dict.fromkeys([*lanes, *others], S0)

    placed = assign(current, [S0, S1], current, {}, widths={FLOW: 1, OTHER: 1})

    assert {placed[each] for each in lanes} == {S1}
    assert {placed[other] for other in others} == {S0}


def test_without_slots_nothing_is_assigned() -> None:
    assert assign([lane(0)], [], {}, {}) == {}


def test_a_lane_weighs_what_it_carries_and_what_it_must_catch_up() -> None:
    idle = weigh(LaneLoad(bytes_per_s=0.0, lag_bytes=0.0))
    busy = weigh(LaneLoad(bytes_per_s=3 * 2**20, lag_bytes=0.0))
    behind = weigh(LaneLoad(bytes_per_s=0.0, lag_bytes=60 * 2**20))

    assert (idle, busy, behind) == (1.0, 4.0, 2.0)


def test_evening_out_thousands_of_lanes_takes_a_moment() -> None:
    """A move looks at the lanes nearest in weight, not at all of them, which took minutes."""
    lanes = [lane(number) for number in range(10_000)]
    slots = [SlotId(number) for number in range(10)]
    current = {each: slots[at % 10] for at, each in enumerate(lanes)}
    weights = {each: 1.0 + (at % 97) / 2 for at, each in enumerate(lanes) if at % 10 == 0}

    began_s = time.perf_counter()
    placed = assign(lanes, slots, current, weights)

    assert time.perf_counter() - began_s < 5.0
    loads = dict.fromkeys(slots, 0.0)
    for each, slot in placed.items():
        loads[slot] += weights.get(each, 1.0)
    assert max(loads.values()) <= 1.2 * sum(loads.values()) / len(slots)


def test_a_moved_lane_shares_its_slot_and_balancing_leaves_it_there() -> None:
    moved, others = lane(0), [lane(number) for number in range(1, 5)]
    places = Places(moved={moved: frozenset({S1})})
    weights = {moved: 100.0}

    placed = assign([moved, *others], [S0, S1], {}, weights, places)
    later = assign([moved, *others], [S0, S1], placed, weights, places)
    crowded = assign([moved, *others], [S0, S1], dict.fromkeys(others, S1), {}, places)

    assert placed[moved] == later[moved] == S1
    assert later == placed
    assert S1 in {crowded[other] for other in others}


def test_a_drained_slot_has_no_lane_of_the_flow_and_keeps_those_of_others() -> None:
    mine = [lane(number) for number in range(4)]
    theirs = LaneId(flow=OTHER, source=TopicPartition(topic=TopicName("pay"), partition=0))
    before = {**dict.fromkeys(mine, S0), theirs: S0}
    places = Places(drained={FLOW: frozenset({S0})})

    placed = assign([*mine, theirs], [S0, S1], before, {}, places)

    assert {placed[each] for each in mine} == {S1}
    assert placed[theirs] == S0


def test_a_lane_pinned_to_a_drained_slot_is_carried_with_the_others() -> None:
    places = Places(pinned={lane(0): frozenset({S0})}, drained={FLOW: frozenset({S0})})

    placed = assign([lane(0), lane(1)], [S0, S1], {}, {}, places)

    assert set(placed.values()) == {S1}


def test_draining_every_slot_drains_none() -> None:
    places = Places(drained={FLOW: frozenset({S0, S1})})

    placed = assign([lane(0), lane(1)], [S0, S1], {}, {}, places)

    assert set(placed.values()) == {S0, S1}


def test_a_slot_that_is_added_to_many_gets_its_part_and_only_those_lanes_move() -> None:
    slots = [SlotId(number) for number in range(4)]
    current = {lane(number): slots[number % 4] for number in range(40)}

    placed = assign(current, [*slots, SlotId(4)], current, {})

    moved = {each for each, slot in placed.items() if slot != current[each]}
    assert {placed[each] for each in moved} == {SlotId(4)}
    assert 6 <= len(moved) <= 8


def test_a_slot_that_is_added_gets_lanes_though_the_heaviest_slot_has_none_to_give() -> None:
    current = {lane(0): S0} | {lane(number): S1 for number in range(1, 11)}

    placed = assign(current, [S0, S1, S2], current, {lane(0): 100.0})

    assert placed[lane(0)] == S0
    assert sorted(placed.values()).count(S2) == 5


def test_a_lane_leaves_the_slot_where_it_did_not_get_on_and_no_other_does() -> None:
    current = {lane(number): S0 if number % 2 else S1 for number in range(6)}
    places = Places(avoided={lane(1): frozenset({S0})})

    placed = assign(current, [S0, S1], current, {}, places)

    assert placed == {**current, lane(1): S1}
    assert assign(current, [S0, S1], placed, {lane(0): 50.0}, places)[lane(1)] == S1


def test_a_lane_stays_where_it_does_not_get_on_if_there_is_no_other_slot() -> None:
    places = Places(avoided={lane(0): frozenset({S0})})

    assert assign([lane(0)], [S0], {lane(0): S0}, {}, places) == {lane(0): S0}
