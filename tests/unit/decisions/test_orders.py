"""What decisions amount to for a lane: every verb from every state, and which of two counts."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest

from heliograph.decisions.decision import BadDecision, Decision, Verb, Withdrawal, scope_of
from heliograph.decisions.orders import FREE, LaneOrders, orders_of, standing_of
from heliograph.decisions.record import new_id
from heliograph.decisions.words import order_words
from heliograph.model import SlotId, TopicName, TopicPartition

ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
OTHER = TopicPartition(topic=TopicName("orders"), partition=1)
LOGS = TopicPartition(topic=TopicName("logs"), partition=0)
NOON = 1_000_000


def made(verb: Verb, *topics: str, partitions: tuple[int, ...] = (), **more: Any) -> Decision:
    scope = scope_of(topics, partitions)
    decision = Decision(id=new_id(), verb=verb, scope=scope, who="ann", at_ms=1, **more)
    decision.check()
    return decision


def lane(*decisions: Decision, at: TopicPartition = ORDERS, now_ms: int = NOON) -> LaneOrders:
    return orders_of(decisions, now_ms).lane(at)


STATES: dict[str, tuple[Decision, ...]] = {
    "copying": (),
    "paused": (made(Verb.PAUSE, "orders"),),
    "throttled": (made(Verb.THROTTLE, "orders", bytes_per_s=5),),
    "throttled by clusters": (
        made(Verb.THROTTLE_SOURCE, bytes_per_s=5),
        made(Verb.THROTTLE_TARGET, bytes_per_s=5),
    ),
    "pinned": (made(Verb.PIN, "orders", slots=(1,)),),
    "moved": (made(Verb.MOVE, "orders", slots=(1,)),),
    "excluded": (made(Verb.EXCLUDE, "orders"),),
    "stopped": (made(Verb.STOP),),
    "drained": (made(Verb.DRAIN, slots=(1,)),),
    "all at once": (
        made(Verb.PAUSE, "orders"),
        made(Verb.THROTTLE, "orders", bytes_per_s=5),
        made(Verb.PIN, "orders", slots=(1,)),
        made(Verb.EXCLUDE, "orders"),
        made(Verb.STOP),
        made(Verb.DRAIN, slots=(1,)),
    ),
}
VERBS: dict[Verb, tuple[Decision, str]] = {
    Verb.PAUSE: (made(Verb.PAUSE, "orders"), "paused"),
    Verb.RESUME: (made(Verb.RESUME, "orders"), "paused"),
    Verb.THROTTLE: (made(Verb.THROTTLE, "orders", bytes_per_s=7), "throttles"),
    Verb.THROTTLE_SOURCE: (made(Verb.THROTTLE_SOURCE, bytes_per_s=7), "of_source"),
    Verb.THROTTLE_TARGET: (made(Verb.THROTTLE_TARGET, bytes_per_s=7), "of_target"),
    Verb.PIN: (made(Verb.PIN, "orders", slots=(2,)), "placed"),
    Verb.MOVE: (made(Verb.MOVE, "orders", slots=(2,)), "placed"),
    Verb.DRAIN: (made(Verb.DRAIN, slots=(2,)), ""),
    Verb.EXCLUDE: (made(Verb.EXCLUDE, "orders"), "excluded"),
    Verb.INCLUDE: (made(Verb.INCLUDE, "orders"), "excluded"),
    Verb.STOP: (made(Verb.STOP), "stopped"),
    Verb.START: (made(Verb.START), "stopped"),
    Verb.REWIND: (made(Verb.REWIND, "orders", offset=3), "rewound"),
}
UNDOING = (Verb.RESUME, Verb.INCLUDE, Verb.START)


def test_every_verb_is_in_the_table() -> None:
    assert set(VERBS) == set(Verb)


@pytest.mark.parametrize(("state", "verb"), list(itertools.product(STATES, VERBS)))
def test_every_verb_works_from_every_state_and_changes_only_what_it_is_about(
    state: str, verb: Verb
) -> None:
    before = STATES[state]
    decision, aspect = VERBS[verb]

    was, now = lane(*before), lane(*before, decision)

    found = {name: getattr(now, name) for name in LaneOrders.__dataclass_fields__}
    if aspect:
        wanted: object = None if verb in UNDOING else decision
        assert found.pop(aspect) == ((decision,) if verb is Verb.THROTTLE else wanted)
    for name, value in found.items():
        assert value == getattr(was, name), name


@pytest.mark.parametrize("state", STATES)
def test_every_state_ends_when_all_that_was_decided_is_withdrawn(state: str) -> None:
    gone = Withdrawal(who="ben", at_ms=2)

    orders = orders_of([replace(each, withdrawn=gone) for each in STATES[state]], NOON)

    assert orders.lane(ORDERS) is FREE
    assert not orders.drained


SCOPES: list[tuple[tuple[str, ...], tuple[int, ...]]] = [
    ((), ()),
    (("ord.*",), ()),
    (("orders",), ()),
    (("orders",), (0,)),
]


@pytest.mark.parametrize(("wide", "narrow"), list(itertools.combinations(range(4), 2)))
@pytest.mark.parametrize("narrow_is_later", [True, False])
def test_the_narrower_scope_wins_whichever_came_later(
    wide: int, narrow: int, narrow_is_later: bool
) -> None:
    pause = made(Verb.PAUSE, *SCOPES[wide][0], partitions=SCOPES[wide][1])
    resume = made(Verb.RESUME, *SCOPES[narrow][0], partitions=SCOPES[narrow][1])
    decisions = (pause, resume) if narrow_is_later else (resume, pause)

    assert lane(*decisions).paused is None


@pytest.mark.parametrize("scope", SCOPES)
def test_of_equally_narrow_ones_the_later_in_the_ledger_wins(
    scope: tuple[tuple[str, ...], tuple[int, ...]],
) -> None:
    pause = made(Verb.PAUSE, *scope[0], partitions=scope[1])
    resume = made(Verb.RESUME, *scope[0], partitions=scope[1])

    assert lane(pause, resume).paused is None
    assert lane(resume, pause).paused == pause


def test_a_decision_about_a_partition_leaves_its_neighbours_alone() -> None:
    pause = made(Verb.PAUSE, "orders", partitions=(0,))

    assert lane(pause).paused == pause
    assert lane(pause, at=OTHER).paused is None
    assert lane(pause, at=LOGS) == FREE


def test_thirty_thousand_lanes_and_two_hundred_decisions_are_a_matter_of_a_moment() -> None:
    decisions = [made(Verb.PAUSE, f"t{number}.*", partitions=(number,)) for number in range(200)]
    names = [TopicName(f"t{number}") for number in range(300)]
    lanes = [TopicPartition(topic=name, partition=n) for name in names for n in range(100)]
    orders = orders_of(decisions, NOON)

    began_s = time.process_time()
    paused = sum(orders.lane(each).paused is not None for each in lanes)

    assert paused > 200
    assert time.process_time() - began_s < 3.0


def test_what_was_decided_before_holds_again_when_an_end_has_come() -> None:
    always = made(Verb.THROTTLE, bytes_per_s=10)
    today = made(Verb.THROTTLE, bytes_per_s=1, until_ms=NOON)

    assert lane(always, today, now_ms=NOON - 1).throttles == (today,)
    assert lane(always, today, now_ms=NOON).throttles == (always,)


def test_what_was_replaced_for_good_does_not_come_back_with_a_withdrawal() -> None:
    pause, resume = made(Verb.PAUSE), made(Verb.RESUME)
    withdrawn = replace(resume, withdrawn=Withdrawal(who="ben", at_ms=2))

    assert standing_of((pause, withdrawn), NOON) == ()


def test_throttles_are_nested_and_one_without_a_rate_lifts_the_wider() -> None:
    flow = made(Verb.THROTTLE, bytes_per_s=10)
    topic = made(Verb.THROTTLE, "orders", bytes_per_s=5)
    lifted = made(Verb.THROTTLE, "orders", partitions=(0,))

    assert lane(flow, topic, lifted, at=OTHER).throttles == (flow, topic)
    assert lane(flow, topic, lifted).throttles == ()
    assert lane(flow, topic, lifted, at=LOGS).throttles == (flow,)


def test_a_drained_slot_is_drained_until_the_next_drain() -> None:
    first, none = made(Verb.DRAIN, slots=(1, 2)), made(Verb.DRAIN)

    assert orders_of([first], NOON).drained == {SlotId(1), SlotId(2)}
    assert orders_of([first, none], NOON).drained == frozenset()


def test_a_topic_is_chosen_by_the_narrowest_and_left_to_the_file_otherwise() -> None:
    out, back = made(Verb.EXCLUDE, ".*"), made(Verb.INCLUDE, "orders")

    orders = orders_of([back, out], NOON)

    assert orders.choice(TopicName("orders")) == (True, "included by ann")
    assert orders.choice(TopicName("logs")) == (False, "excluded by ann")
    assert orders_of([back], NOON).choice(TopicName("logs")) is None


def test_orders_read_as_an_operator_would_say_them() -> None:
    limited = made(Verb.THROTTLE, bytes_per_s=1_500_000)
    pinned = made(Verb.PIN, "orders", slots=(0, 2))

    assert order_words(lane()) == "copying"
    assert order_words(lane(limited, pinned)) == "copying, at most 1.5 MB/s, pinned to slot 0, 2"
    assert order_words(lane(made(Verb.EXCLUDE, "orders"), limited)) == "excluded"


@pytest.mark.parametrize(
    ("words", "partitions", "sentence"),
    [
        (("ord(ers",), (), "neither a name nor a regex"),
        (("",), (), "1 to 249 characters"),
        (("x" * 250,), (), "1 to 249 characters"),
        ((), (3,), "name the topic"),
        (tuple(f"t{number}" for number in range(257)), (), "at most 256 topics"),
    ],
)
def test_a_scope_that_means_nothing_is_refused(
    words: tuple[str, ...], partitions: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(BadDecision, match=sentence):
        scope_of(words, partitions)


@pytest.mark.parametrize(
    "pattern", ["(a+)+", "(a|b)*c", "((a*))*", ".*a.*b.*c.*", "(?:x{1,9}){2,}y", "(a|a)+"]
)
def test_a_regex_that_could_hold_the_driver_up_is_refused(pattern: str) -> None:
    with pytest.raises(BadDecision, match="could take the driver minutes"):
        scope_of((pattern,))


@pytest.mark.parametrize(
    "pattern", ["orders-.*", "(orders|logs)-.*", "a.*|b.*|c.*|d.*|e.*", r"v\.[0-9+*|()]+", "(ab)+"]
)
def test_an_ordinary_regex_is_taken(pattern: str) -> None:
    assert scope_of((pattern,)).patterns == (pattern,)


@pytest.mark.parametrize(
    ("verb", "words", "more", "sentence"),
    [
        (Verb.STOP, ("orders",), {}, "for a whole flow"),
        (Verb.DRAIN, ("orders",), {"slots": (1,)}, "for a whole flow"),
        (Verb.EXCLUDE, (), {}, "for topics"),
        (Verb.MOVE, ("orders",), {"slots": (1, 2)}, "to one slot"),
        (Verb.MOVE, ("orders",), {}, "to one slot"),
        (Verb.PAUSE, (), {"slots": (1,)}, "has no slots"),
        (Verb.PAUSE, (), {"bytes_per_s": 1}, "has no rate"),
        (Verb.REWIND, ("ord.*",), {}, "by their names"),
        (Verb.PAUSE, (), {"why": "two\nlines"}, "cannot be printed"),
        (Verb.PAUSE, (), {"why": "x" * 513}, "at most"),
    ],
)
def test_a_decision_that_no_lane_could_follow_is_refused(
    verb: Verb, words: tuple[str, ...], more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadDecision, match=sentence):
        made(verb, *words, **more)


def test_a_throttle_of_a_cluster_holds_beside_all_others_and_only_itself_lifts_it() -> None:
    source = made(Verb.THROTTLE_SOURCE, bytes_per_s=9_000_000)
    target = made(Verb.THROTTLE_TARGET, bytes_per_s=5_000_000)
    free = made(Verb.THROTTLE, "orders")

    kept = lane(source, target, made(Verb.THROTTLE, bytes_per_s=1), free)

    assert kept.limits == (source, target)
    assert (
        order_words(kept) == "copying, at most 9 MB/s from the source, at most 5 MB/s to the target"
    )
    assert lane(source, target, made(Verb.THROTTLE_SOURCE)).limits == (target,)


@pytest.mark.parametrize("verb", [Verb.THROTTLE_SOURCE, Verb.THROTTLE_TARGET])
def test_a_throttle_of_a_cluster_is_about_no_topic(verb: Verb) -> None:
    with pytest.raises(BadDecision, match="for a whole flow"):
        made(verb, "orders", bytes_per_s=5)


def test_lanes_that_a_decision_does_not_touch_are_free_by_identity() -> None:
    orders = orders_of((made(Verb.PAUSE, "orders", partitions=(0,)),), NOON)

    assert orders.lane(ORDERS).paused is not None
    assert orders.lane(OTHER) is orders.lane(LOGS) is FREE
