"""Limits are divided among slots: never more than there is, and to those that need it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.engine.shares import Demand, divide
from heliograph.model import SlotId

DEMANDS = st.dictionaries(
    st.integers(0, 9).map(SlotId),
    st.builds(
        Demand,
        lanes=st.integers(1, 100),
        behind=st.integers(0, 100),
        bytes_per_s=st.floats(0, 1e9),
    ),
    min_size=1,
)


@given(st.integers(1_000, 10**9), DEMANDS)
def test_shares_never_add_up_to_more_than_the_limit(
    limit: int, demands: dict[SlotId, Demand]
) -> None:
    shares = divide(limit, demands)

    assert shares.keys() == demands.keys()
    assert all(share >= 1 for share in shares.values())
    assert sum(shares.values()) <= limit + len(shares)


@given(st.integers(10**6, 10**9), DEMANDS)
def test_while_a_lane_is_behind_nearly_all_is_given_to_slots_that_use_it(
    limit: int, demands: dict[SlotId, Demand]
) -> None:
    shares = divide(limit, demands)

    if any(demand.behind for demand in demands.values()):
        unused = sum(
            max(0.0, shares[slot] - 1.25 * demand.bytes_per_s)
            for slot, demand in demands.items()
            if not demand.behind
        )
        assert unused <= 0.02 * limit + len(shares)
        assert sum(shares.values()) >= limit - 2 * len(shares)


def test_without_a_lane_behind_each_slot_has_its_part_by_lanes() -> None:
    demands = {SlotId(0): Demand(lanes=3, bytes_per_s=9e9), SlotId(1): Demand(lanes=1)}

    assert divide(1_000, demands) == {SlotId(0): 750, SlotId(1): 250}
