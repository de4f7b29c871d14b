"""What slots are told, event by event."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from heliograph.engine.messages import (
    AddLanes,
    LimitLanes,
    PauseLanes,
    RemoveLanes,
    ResumeLanes,
    Throttle,
)
from heliograph.engine.roster import Order, Roster
from heliograph.errors import InvariantError
from heliograph.model import Lane, LaneId, LaneLoad, SlotId, StartAt
from tests.unit.engine.lanes import lane

S0, S1 = SlotId(0), SlotId(1)


def roster_with(*slots: SlotId) -> Roster:
    roster = Roster()
    for slot in slots:
        assert roster.arrived(slot, ()) == []
    return roster


def test_a_slot_that_arrives_is_told_what_it_should_carry_now() -> None:
    roster = Roster()
    roster.want({S0: (lane(0),)})
    roster.want({S0: (lane(1), lane(2))})

    orders = roster.arrived(S0, ())

    assert orders == [(S0, AddLanes(lanes=(lane(1), lane(2))))]
    assert roster.holders() == {lane(1).id: S0, lane(2).id: S0}


def test_only_the_difference_is_sent() -> None:
    roster = roster_with(S0, S1)
    roster.want({S0: (lane(0),), S1: (lane(1),)})

    orders = roster.want({S0: (lane(0), lane(2)), S1: (lane(1),)})

    assert orders == [(S0, AddLanes(lanes=(lane(2),)))]


def test_a_moved_lane_is_added_only_after_it_has_settled() -> None:
    roster = roster_with(S0, S1)
    roster.want({S0: (lane(0),)})

    leaving = roster.want({S1: (lane(0),)})
    meanwhile = roster.want({S1: (lane(0),)})
    arriving = roster.settled(S0, (lane(0).id,))

    assert leaving == [(S0, RemoveLanes(ids=(lane(0).id,)))]
    assert meanwhile == []
    assert arriving == [(S1, AddLanes(lanes=(lane(0),)))]


def test_lanes_of_an_abandoned_flow_leave_without_what_was_fetched_for_them() -> None:
    roster = roster_with(S0)
    roster.want({S0: (lane(0),)})

    orders = roster.want({}, frozenset({lane(0).id.flow}))

    assert orders == [(S0, RemoveLanes(ids=(lane(0).id,), settle=False))]


def test_a_lane_that_leaves_is_told_once_more_when_its_flow_is_abandoned() -> None:
    roster = roster_with(S0, S1)
    roster.want({S0: (lane(0),)})
    roster.want({S1: (lane(0),)})

    abandoned = roster.want({}, frozenset({lane(0).id.flow}))
    again = roster.want({}, frozenset({lane(0).id.flow}))

    assert abandoned == [(S0, RemoveLanes(ids=(lane(0).id,), settle=False))]
    assert again == []


def test_a_lane_wanted_back_while_it_leaves_is_added_again_once_settled() -> None:
    roster = roster_with(S0, S1)
    roster.want({S0: (lane(0),)})
    roster.want({S1: (lane(0),)})

    meanwhile = roster.want({S0: (lane(0),)})
    settled = roster.settled(S0, (lane(0).id,))

    assert meanwhile == []
    assert settled == [(S0, AddLanes(lanes=(lane(0),)))]


def test_lanes_of_a_silent_slot_are_not_given_away_until_it_is_over() -> None:
    roster = roster_with(S0, S1)
    roster.want({S0: (lane(0),)})
    roster.silent(S0)

    while_silent = roster.want({S1: (lane(0),)})
    when_over = roster.over(S0)

    assert while_silent == []
    assert when_over == [(S1, AddLanes(lanes=(lane(0),)))]


def test_a_slot_that_comes_back_hears_only_what_it_missed() -> None:
    roster = roster_with(S0)
    roster.want({S0: (lane(0), lane(1))})
    roster.silent(S0)
    roster.want({S0: (lane(1), lane(2))})

    orders = roster.arrived(S0, (lane(0), lane(1)))

    assert orders == [
        (S0, RemoveLanes(ids=(lane(0).id,))),
        (S0, AddLanes(lanes=(lane(2),))),
    ]


def test_a_removal_lost_with_the_connection_is_asked_for_again() -> None:
    roster = roster_with(S0)
    roster.want({S0: (lane(0),)})
    roster.want({})
    roster.silent(S0)

    orders = roster.arrived(S0, (lane(0),))

    assert orders == [(S0, RemoveLanes(ids=(lane(0).id,)))]


def test_a_changed_spec_is_told_and_a_pause_is_not_a_changed_spec() -> None:
    roster = roster_with(S0)
    roster.want({S0: (lane(0), lane(1))})
    changed = replace(lane(0), start_at=StartAt.LATEST)

    respecified = roster.want({S0: (changed, lane(1))})
    paused = roster.want({S0: (changed, replace(lane(1), paused=True))})
    repeated = roster.want({S0: (changed, replace(lane(1), paused=True))})
    resumed = roster.want({S0: (changed, lane(1))})

    assert respecified == [(S0, AddLanes(lanes=(changed,)))]
    assert paused == [(S0, PauseLanes(ids=(lane(1).id,)))]
    assert repeated == []
    assert resumed == [(S0, ResumeLanes(ids=(lane(1).id,)))]


def test_a_pause_outlives_the_slot() -> None:
    roster = roster_with(S0)
    roster.want({S0: (lane(0),)})
    roster.want({S0: (replace(lane(0), paused=True),)})
    roster.over(S0)

    orders = roster.arrived(S0, ())

    assert orders == [(S0, AddLanes(lanes=(replace(lane(0), paused=True),)))]


def limited(number: int, *names: str) -> Lane:
    return replace(lane(number), limits=names)


def test_a_limit_is_shared_out_by_lanes_and_told_before_the_lanes() -> None:
    roster = roster_with(S0, S1)
    roster.limit({"narrow": 900})

    orders = roster.want(
        {S0: (limited(0, "narrow"), limited(1, "narrow")), S1: (limited(2, "narrow"), lane(3))}
    )
    lifted = roster.limit({})

    assert orders[:2] == [
        (S0, Throttle(limit="narrow", bytes_per_s=600)),
        (S1, Throttle(limit="narrow", bytes_per_s=300)),
    ]
    assert [type(message) for _, message in orders[2:]] == [AddLanes, AddLanes]
    assert lifted == [
        (S0, Throttle(limit="narrow", bytes_per_s=None)),
        (S1, Throttle(limit="narrow", bytes_per_s=None)),
    ]


def test_a_lane_hears_of_other_limits_without_being_begun_anew() -> None:
    roster = roster_with(S0)
    roster.want({S0: (lane(0), lane(1))})
    roster.limit({"narrow": 900})

    orders = roster.want({S0: (limited(0, "narrow"), lane(1))})
    back = roster.want({S0: (lane(0), lane(1))})

    assert orders == [
        (S0, Throttle(limit="narrow", bytes_per_s=900)),
        (S0, LimitLanes(ids=(lane(0).id,), limits=("narrow",))),
    ]
    assert back == [(S0, LimitLanes(ids=(lane(0).id,), limits=()))]


def test_what_slots_that_keep_up_leave_goes_to_those_with_lanes_behind() -> None:
    roster = roster_with(S0, S1)
    roster.limit({"narrow": 1_000})
    roster.want({S0: (limited(0, "narrow"),), S1: (limited(1, "narrow"),)})

    orders = roster.divide(
        {
            lane(0).id: LaneLoad(bytes_per_s=100.0, lag_bytes=0.0),
            lane(1).id: LaneLoad(bytes_per_s=500.0, lag_bytes=90_000.0),
        }
    )

    assert orders == [
        (S0, Throttle(limit="narrow", bytes_per_s=125)),
        (S1, Throttle(limit="narrow", bytes_per_s=875)),
    ]


def test_a_lane_in_two_slots_is_our_own_bug() -> None:
    roster = roster_with(S0, S1)

    with pytest.raises(InvariantError, match="two slots"):
        roster.want({S0: (lane(0),), S1: (lane(0),)})


@pytest.mark.parametrize("seed", range(20))
def test_no_event_leaves_an_order_for_a_later_look_at_all_lanes(seed: int) -> None:
    """Each event looks at its own lanes only; nothing may be due that it did not see."""
    chance, roster, lanes = random.Random(seed), Roster(), [lane(number) for number in range(12)]
    slots = [S0, S1, SlotId(2)]

    def some() -> tuple[LaneId, ...]:
        return tuple(each.id for each in chance.sample(lanes, 4))

    def wish() -> dict[SlotId, list[Lane]]:
        wished: dict[SlotId, list[Lane]] = {slot: [] for slot in slots}
        for each in chance.sample(lanes, 8):
            names = tuple(name for name in ("narrow", "wide") if chance.random() < 0.3)
            wished[chance.choice(slots)].append(
                replace(each, paused=chance.random() < 0.2, limits=names)
            )
        return wished

    def carried(slot: SlotId) -> list[Lane]:
        return [held.lane for held in roster._held.values() if held.slot == slot]

    def happen(slot: SlotId) -> list[Order]:
        events: list[Callable[[], list[Order]]] = [
            lambda: roster.want(wish()),
            lambda: roster.resume(some()),
            lambda: roster.arrived(slot, carried(slot)),
            lambda: roster.over(slot),
            lambda: roster.settled(slot, [each.id for each in carried(slot)]),
            lambda: roster.limit(chance.choice([{}, {"narrow": 1_000}, {"wide": 5_000}])),
        ]
        return chance.choice(events)()

    for _ in range(60):
        orders = happen(chance.choice(slots))

        assert all(to in roster._present for to, _ in orders)
        assert roster._next_orders([*roster._held, *roster._wanted]) == []
        held = Counter(roster.holders().values())
        assert [roster.held_count(each) for each in slots] == [held[each] for each in slots]


def test_an_event_of_one_lane_costs_nothing_more_with_twenty_thousand_others() -> None:
    lanes = [lane(number) for number in range(20_000)]
    roster = roster_with(S0, S1)
    roster.want({S0: lanes[::2], S1: lanes[1::2]})

    began_s = time.perf_counter()
    for each in lanes[:100]:
        roster.resume((each.id,))
        roster.settled(S0, (each.id,))

    # 0.03 ms each; a look at all lanes took half a second.
    assert time.perf_counter() - began_s < 2.0
