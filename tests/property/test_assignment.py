"""Laws of the assignment, for any lanes, slots, weights, widths and history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from heliograph.driver.assignment import IMBALANCE_MAX, Places, assign
from heliograph.model import ClusterAlias, FlowId, LaneId, SlotId, TopicName, TopicPartition

FLOWS = [FlowId(source=ClusterAlias(source), target=ClusterAlias("B")) for source in "ACD"]
FLOW = FLOWS[0]
LANES = [
    LaneId(flow=FLOWS[number % 3], source=TopicPartition(topic=TopicName("t"), partition=number))
    for number in range(40)
]
LANES_OF_ONE = [lane for lane in LANES if lane.flow == FLOW]
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
widths_of = st.dictionaries(st.sampled_from(FLOWS), st.integers(1, 4))


@given(lanes_of, slots_of, history_of, weights_of, pins_of, widths_of)
def test_every_lane_has_exactly_one_slot_that_exists(
    lanes: list[LaneId],
    slots: list[SlotId],
    history: dict[LaneId, SlotId],
    weights: dict[LaneId, float],
    pins: dict[LaneId, frozenset[SlotId]],
    widths: dict[FlowId, int],
) -> None:
    placed = assign(lanes, slots, history, weights, Places(pinned=pins), widths)

    assert placed.keys() == set(lanes)
    assert set(placed.values()) <= set(slots)
    for lane in lanes:
        wish = pins.get(lane, frozenset()) & set(slots)
        assert not wish or placed[lane] in wish


@given(lanes_of, slots_of, history_of, weights_of, pins_of, widths_of)
def test_no_flow_is_wider_than_it_may_be(
    lanes: list[LaneId],
    slots: list[SlotId],
    history: dict[LaneId, SlotId],
    weights: dict[LaneId, float],
    pins: dict[LaneId, frozenset[SlotId]],
    widths: dict[FlowId, int],
) -> None:
    placed = assign(lanes, slots, history, weights, Places(pinned=pins), widths)
    later = assign(lanes, slots, placed, weights, Places(pinned=pins), widths)

    for flow, width in widths.items():
        own = [lane for lane in lanes if lane.flow == flow and lane not in pins]
        assert len({placed[lane] for lane in own}) <= width
        assert len({later[lane] for lane in own}) <= width


@given(lanes_of, slots_of, weights_of, weights_of, widths_of)
def test_adding_a_lane_moves_no_other(
    lanes: list[LaneId],
    slots: list[SlotId],
    weights: dict[LaneId, float],
    later_weights: dict[LaneId, float],
    widths: dict[FlowId, int],
) -> None:
    before = assign(lanes, slots, {}, weights, widths=widths)

    after = assign([*lanes, NEW], slots, before, later_weights, widths=widths)

    assert {lane: slot for lane, slot in after.items() if lane != NEW} == before


@given(
    st.lists(st.sampled_from(LANES), unique=True, min_size=1),
    slots_of,
    weights_of,
    widths_of,
    st.data(),
)
def test_losing_a_slot_moves_only_its_lanes(
    lanes: list[LaneId],
    slots: list[SlotId],
    weights: dict[LaneId, float],
    widths: dict[FlowId, int],
    data: st.DataObject,
) -> None:
    before = assign(lanes, [*slots, SlotId(99)], {}, weights, widths=widths)
    lost = data.draw(st.sampled_from(sorted(set(before.values()))))
    left = [slot for slot in [*slots, SlotId(99)] if slot != lost]

    after = assign(lanes, left, before, weights, widths=widths)

    assert all(after[lane] == slot for lane, slot in before.items() if slot != lost)
    assert lost not in after.values()


@given(slots_of, weights_of, st.integers(1, 4), st.data())
def test_a_flow_that_is_too_wide_leaves_whole_slots_and_keeps_the_others(
    slots: list[SlotId], weights: dict[LaneId, float], width: int, data: st.DataObject
) -> None:
    wide = [*slots, *(SlotId(90 + number) for number in range(width))]
    current = {lane: data.draw(st.sampled_from(wide)) for lane in LANES}
    current |= dict(zip(LANES_OF_ONE, wide, strict=False))

    placed = assign(LANES, wide, current, weights, widths={FLOW: width})

    kept = {placed[lane] for lane in LANES_OF_ONE}
    stayed = {lane for lane in LANES if placed[lane] == current[lane]}
    assert len(kept) == width
    assert all(lane in stayed for lane in LANES_OF_ONE if current[lane] in kept)
    assert all(lane in stayed for lane in LANES if lane.flow != FLOW)


@given(lanes_of, slots_of, weights_of, st.data())
def test_a_settled_assignment_is_balanced_or_no_single_move_helps(
    lanes: list[LaneId], slots: list[SlotId], weights: dict[LaneId, float], data: st.DataObject
) -> None:
    current = {lane: data.draw(st.sampled_from(slots)) for lane in lanes}

    placed = assign(lanes, slots, current, weights)

    assert_balanced(placed, slots, weights)
    assert assign(lanes, slots, placed, weights) == placed


@given(st.lists(st.sampled_from(LANES_OF_ONE), unique=True, min_size=1), slots_of, weights_of)
def test_a_bounded_flow_spreads_over_as_many_slots_as_it_may(
    lanes: list[LaneId], slots: list[SlotId], weights: dict[LaneId, float]
) -> None:
    for width in (1, 2, 3):
        placed = assign(lanes, slots, {}, weights, widths={FLOW: width})

        assert len(set(placed.values())) == min(width, len(slots), len(lanes))


@given(lanes_of, slots_of, weights_of, st.integers(1, 4), st.data())
def test_a_bounded_flow_is_balanced_over_its_own_slots(
    lanes: list[LaneId],
    slots: list[SlotId],
    weights: dict[LaneId, float],
    width: int,
    data: st.DataObject,
) -> None:
    own = [lane for lane in lanes if lane.flow == FLOW]
    narrow = slots[:width]
    current = {lane: data.draw(st.sampled_from(narrow)) for lane in own}

    placed = assign(own, slots, current, weights, widths={FLOW: width})

    used = sorted(set(placed.values()))
    spare = [slot for slot in slots if slot not in used]
    assert_balanced(placed, [*used, *spare][: max(1, min(width, len(slots)))], weights)


@given(lanes_of, slots_of, weights_of, widths_of, st.data())
def test_what_is_settled_stays(
    lanes: list[LaneId],
    slots: list[SlotId],
    weights: dict[LaneId, float],
    widths: dict[FlowId, int],
    data: st.DataObject,
) -> None:
    current = {lane: data.draw(st.sampled_from(slots)) for lane in lanes}
    narrowed = assign(lanes, slots, current, weights, widths=widths)

    settled = assign(lanes, slots, narrowed, weights, widths=widths)

    assert assign(lanes, slots, settled, weights, widths=widths) == settled


def assert_balanced(
    placed: Mapping[LaneId, SlotId], slots: Sequence[SlotId], weights: Mapping[LaneId, float]
) -> None:
    """The heaviest of `slots` is not too heavy, or none of its lanes would do better elsewhere."""
    loads = Counter[SlotId]()
    for lane, slot in placed.items():
        loads[slot] += weights.get(lane, 1.0)  # type: ignore[assignment]
    heaviest = max(slots, key=lambda slot: loads[slot])
    gap = loads[heaviest] - min(loads[slot] for slot in slots)
    helps = [
        lane
        for lane, slot in placed.items()
        if slot == heaviest and weights.get(lane, 1.0) < gap * (1 - 1e-5)
    ]
    average = sum(loads.values()) / len(slots)
    assert loads[heaviest] <= IMBALANCE_MAX * average * (1 + 1e-6) or not helps
