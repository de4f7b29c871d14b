"""Laws of the assignment, for any lanes, slots, weights and history."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from heliograph.model import ClusterAlias, FlowId, LaneId, SlotId, TopicName, TopicPartition
from heliograph.plan.assignment import IMBALANCE_MAX, assign

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
LANES = [
    LaneId(flow=FLOW, source=TopicPartition(topic=TopicName("t"), partition=number))
    for number in range(40)
]
NEW = LaneId(flow=FLOW, source=TopicPartition(topic=TopicName("new"), partition=0))

lanes_of = st.lists(st.sampled_from(LANES), unique=True, max_size=40)
slots_of = st.lists(st.integers(0, 9).map(SlotId), unique=True, min_size=1, max_size=8)
weights_of = st.dictionaries(st.sampled_from([*LANES, NEW]), st.floats(1.0, 1e6))
history_of = st.dictionaries(st.sampled_from(LANES), st.integers(0, 9).map(SlotId))
pins_of = st.dictionaries(
    st.sampled_from(LANES),
    st.frozensets(st.integers(0, 9).map(SlotId), min_size=1, max_size=3),
    max_size=5,
)


@given(lanes_of, slots_of, history_of, weights_of, pins_of)
def test_every_lane_has_exactly_one_slot_that_exists(
    lanes: list[LaneId],
    slots: list[SlotId],
    history: dict[LaneId, SlotId],
    weights: dict[LaneId, float],
    pins: dict[LaneId, frozenset[SlotId]],
) -> None:
    placed = assign(lanes, slots, history, weights, pins)

    assert placed.keys() == set(lanes)
    assert set(placed.values()) <= set(slots)
    for lane in lanes:
        wish = pins.get(lane, frozenset()) & set(slots)
        assert not wish or placed[lane] in wish


@given(lanes_of, slots_of, weights_of, weights_of)
def test_adding_a_lane_moves_no_other(
    lanes: list[LaneId],
    slots: list[SlotId],
    weights: dict[LaneId, float],
    later_weights: dict[LaneId, float],
) -> None:
    before = assign(lanes, slots, {}, weights)

    after = assign([*lanes, NEW], slots, before, later_weights)

    assert {lane: slot for lane, slot in after.items() if lane != NEW} == before


@given(st.lists(st.sampled_from(LANES), unique=True, min_size=1), slots_of, weights_of, st.data())
def test_losing_a_slot_moves_only_its_lanes(
    lanes: list[LaneId], slots: list[SlotId], weights: dict[LaneId, float], data: st.DataObject
) -> None:
    before = assign(lanes, [*slots, SlotId(99)], {}, weights)
    lost = data.draw(st.sampled_from(sorted(set(before.values()))))
    left = [slot for slot in [*slots, SlotId(99)] if slot != lost]

    after = assign(lanes, left, before, weights)

    assert all(after[lane] == slot for lane, slot in before.items() if slot != lost)
    assert lost not in after.values()


@given(lanes_of, slots_of, weights_of, st.data())
def test_a_settled_assignment_is_balanced_or_no_single_move_helps(
    lanes: list[LaneId], slots: list[SlotId], weights: dict[LaneId, float], data: st.DataObject
) -> None:
    current = {lane: data.draw(st.sampled_from(slots)) for lane in lanes}

    placed = assign(lanes, slots, current, weights)

    loads = Counter[SlotId]()
    for lane, slot in placed.items():
        loads[slot] += weights.get(lane, 1.0)  # type: ignore[assignment]
    heaviest = max(slots, key=lambda slot: loads[slot])
    gap = loads[heaviest] - min(loads[slot] for slot in slots)
    helps = [
        lane
        for lane, slot in placed.items()
        if slot == heaviest and weights.get(lane, 1.0) < gap * (1 - 1e-6)
    ]
    average = sum(loads.values()) / len(slots)
    assert loads[heaviest] <= IMBALANCE_MAX * average * (1 + 1e-6) or not helps
    assert assign(lanes, slots, placed, weights) == placed
