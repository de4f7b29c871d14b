"""How many slots: what Spark has, what the file says, what lanes need, and how soon it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.driver.slot_count import (
    GROW_S,
    IDLE_S,
    SETTLE_S,
    SHRINK_S,
    Reckoning,
    Rules,
    Sight,
    choose_slots,
    how_many_slots,
)
from heliograph.model import SlotId
from tests.unit.config.texts import config_of

FLOW = (
    "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
)
JAVA = "org.apache.kafka.connect.transforms."
FILTER = f"A->B.transforms = f\nA->B.transforms.f.type = {JAVA}Filter\n" + (
    "A->B.transforms.f.predicate = p\nA->B.predicates = p\n"
    f"A->B.predicates.p.type = {JAVA}predicates.RecordIsTombstone\n"
)
ROUTER = f"A->B.transforms = r\nA->B.transforms.r.type = {JAVA}RegexRouter\n" + (
    "A->B.transforms.r.regex = (.*)\nA->B.transforms.r.replacement = x-$1\n"
)
BOTH = FLOW + "B->A.enabled = true\n"
AUTO = Rules()
EIGHT = Sight(cores=8, executors=1, room=32, most=32, lanes=100, running=4)
LAG: dict[str, Any] = {"lag_bytes": 1e9, "bytes_per_s": 1e6}


@pytest.mark.parametrize(
    ("text", "cores", "count"),
    [
        (FLOW, 2, 1),
        (FLOW, 1, 1),
        (FLOW, 16, 8),
        (FLOW + "slots = auto\n", 16, 8),
        (FLOW + "slots = 5\n", 16, 5),
        (FLOW + "slots = 99\n", 2, 8),  # two cores at a quarter of a core a slot
        (FLOW + "slots.max = 3\n", 16, 3),
        (FLOW + "slots.min = 6\n", 2, 6),
        (FLOW + "slots.min = 60\n", 2, 8),
        (FLOW + "slots = 5\nslots.max = 3\n", 16, 5),  # a number was asked for
        (FLOW + "tasks.max = 3\n", 16, 3),
        (FLOW + "slots = 5\ntasks.max = 2\n", 16, 2),
        (BOTH + "A->B.tasks.max = 2\n", 16, 8),
        (BOTH + "A->B.tasks.max = 2\nB->A.tasks.max = 1\n", 16, 3),
        (FLOW + FILTER, 2, 2),  # a slot that opens records fills a core
        (FLOW + FILTER + "tasks.max = 1\n", 2, 1),
        (FLOW + ROUTER, 2, 1),
    ],
)
def test_the_file_and_what_spark_has_say_how_many(text: str, cores: int, count: int) -> None:
    sight = Sight(cores=cores, executors=1, room=4 * cores, most=4 * cores)

    assert how_many_slots(Rules.of(config_of(text)), sight, 0.0).count == count


@pytest.mark.parametrize(
    ("sight", "count", "why"),
    [
        (EIGHT, 4, "4 slots: 8 cores / 2, lag 0"),
        (replace(EIGHT, lag_bytes=2_500_000), 4, "4 slots: 8 cores / 2, lag 2.5 MB"),
        (replace(EIGHT, executors=6), 6, "6 slots: 6 executors, lag 0"),
        (replace(EIGHT, lanes=3), 3, "3 slots: 3 lanes, lag 0"),
        (replace(EIGHT, lanes=0), 4, "4 slots: 8 cores / 2, lag 0"),
        (
            replace(EIGHT, cores=1, room=4, apart=1),
            2,
            "2 slots: 1 core / 2, 1 of them for critical topics, lag 0",
        ),
        (replace(EIGHT, room=2), 2, "2 slots: 8 cores / 2, lag 0"),
        (
            replace(EIGHT, on_demand=True, most=None),
            1,
            "1 slot: Spark starts executors for them, lag 0",
        ),
    ],
)
def test_the_count_is_told_with_its_reason(sight: Sight, count: int, why: str) -> None:
    found = how_many_slots(AUTO, sight, 0.0)

    assert (found.count, found.why) == (count, why)


def test_a_number_that_spark_has_no_room_for_says_so_and_follows_the_room() -> None:
    rules = Rules(fixed=4)
    at = how_many_slots(rules, replace(EIGHT, room=1), 0.0)
    at = how_many_slots(rules, replace(EIGHT, room=3), 1.0, at)
    before = at.count
    at = how_many_slots(rules, replace(EIGHT, room=3), 1.0 + SETTLE_S, at)

    assert before == 1
    assert at.count == 3
    assert at.why == "3 slots: `slots` is 4, Spark has room for 3, lag 0"


def test_a_number_is_kept_whatever_the_lag() -> None:
    found = over(Rules(fixed=2), replace(EIGHT, running=2, busy=1.0, **LAG), 100)

    assert {at.count for at in found} == {2}


# -- what Spark has


def test_executors_that_come_and_go_count_after_a_moment() -> None:
    wider = replace(EIGHT, cores=16, room=64)
    at = how_many_slots(AUTO, EIGHT, 0.0)
    counts = []
    for now_s, sight in ((1.0, wider), (2.0, wider), (1.0 + SETTLE_S, wider), (9.0, EIGHT)):
        at = how_many_slots(AUTO, sight, now_s, at)
        counts.append(at.count)
    at = how_many_slots(AUTO, EIGHT, 9.0 + SETTLE_S, at)

    assert counts == [4, 4, 8, 8]
    assert at.count == 4


def test_an_executor_that_is_back_at_once_changes_nothing() -> None:
    lost = replace(EIGHT, cores=4, room=16)
    at = how_many_slots(AUTO, EIGHT, 0.0)
    for now_s, sight in ((1.0, lost), (3.0, lost), (4.0, EIGHT), (5.0, lost), (8.0, lost)):
        at = how_many_slots(AUTO, sight, now_s, at)

        assert at.count == 4


# -- what lanes need


def test_slots_at_their_limit_with_lanes_behind_get_another_and_then_another() -> None:
    counts = []
    at = how_many_slots(AUTO, EIGHT, 0.0)
    for now_s in range(0, 100, 2):
        pressed = replace(EIGHT, running=at.count, busy=0.9, **LAG)
        at = how_many_slots(AUTO, pressed, float(now_s), at)
        counts.append(at.count)

    assert counts[int(GROW_S / 2) - 1] == 4
    assert counts[int(GROW_S / 2) + 1] == 5
    assert max(counts) == 8  # a core each, past that they take it from each other
    assert "more for lag" in at.why


@pytest.mark.parametrize(
    "change",
    [
        {"busy": 0.3},  # the link or a broker is the limit
        {"lag_bytes": 0.0},
        {"lag_bytes": 4e6, "bytes_per_s": 1e6},  # less than five seconds' worth
        {"lanes": 4},  # a slot more would have none
        {"cores": 4},  # and no core
        {"running": 3},  # what was asked for before is not there yet
    ],
)
def test_a_slot_more_that_would_not_help_is_not_started(change: dict[str, Any]) -> None:
    pressed = replace(EIGHT, busy=0.9, **LAG)

    found = over(AUTO, replace(pressed, **change), 120)

    assert max(at.count for at in found) <= 4


def test_a_short_surge_changes_nothing() -> None:
    pressed, calm = replace(EIGHT, busy=0.9, **LAG), replace(EIGHT, busy=0.9)
    at = how_many_slots(AUTO, EIGHT, 0.0)
    for now_s in range(0, 120, 2):
        at = how_many_slots(AUTO, pressed if now_s % 14 else calm, float(now_s), at)

        assert at.count == 4


def test_with_executors_on_demand_slots_come_for_lag_alone_up_to_what_spark_may_have() -> None:
    demand = replace(EIGHT, on_demand=True, most=3, cores=1, room=4)
    at, counts = how_many_slots(AUTO, demand, 0.0), []
    for now_s in range(0, 100, 2):
        pressed = replace(demand, running=at.count, busy=0.9, **LAG)
        at = how_many_slots(AUTO, pressed, float(now_s), at)
        counts.append(at.count)

    assert counts[0] == 1
    assert counts[-1] == 3


def test_what_came_for_lag_goes_again_minutes_after_it() -> None:
    at = replace(how_many_slots(AUTO, EIGHT, 0.0), extra=2)
    counts = {}
    for now_s in range(0, int(3 * SHRINK_S), 2):
        at = how_many_slots(AUTO, replace(EIGHT, running=at.count or 4, busy=0.3), now_s, at)
        counts[now_s] = at.count

    assert counts[0] == counts[int(SHRINK_S) - 2] == 6
    assert counts[int(SHRINK_S) + 4] == 5
    assert counts[int(2 * SHRINK_S) + 8] == 4
    assert at.count == 4  # it is no longer for lag; fewer only without work


def test_without_work_there_are_fewer_down_to_the_least_and_with_work_all_are_back() -> None:
    rules = Rules(least=3)
    at, counts = how_many_slots(rules, EIGHT, 0.0), []
    for now_s in range(0, int(3 * IDLE_S), 10):
        at = how_many_slots(rules, replace(EIGHT, running=at.count), float(now_s), at)
        counts.append(at.count)
    idle = at
    for now_s in range(0, 30, 2):
        sight = replace(EIGHT, running=at.count, busy=0.6)
        at = how_many_slots(rules, sight, 3 * IDLE_S + now_s, at)

    assert counts[int(IDLE_S / 10) - 1] == 4
    assert idle.count == 3
    assert "1 fewer while there is little to do" in idle.why
    assert at.count == 4


def test_a_machine_that_is_added_is_used_by_an_idle_mirror_too() -> None:
    at = replace(how_many_slots(AUTO, EIGHT, 0.0), extra=-3)
    wider = replace(EIGHT, cores=12, room=48, running=1)
    for now_s in (1.0, 1.0 + SETTLE_S):
        at = how_many_slots(AUTO, wider, now_s, at)

    assert at.count == 6


def test_slots_for_critical_topics_stay_with_one_for_the_others() -> None:
    idle = replace(EIGHT, cores=2, room=8, apart=2, running=3)

    found = over(AUTO, idle, int(3 * IDLE_S), step_s=10)

    assert {at.count for at in found} == {3}


def over(rules: Rules, sight: Sight, seconds: int, step_s: int = 2) -> list[Reckoning]:
    found = [how_many_slots(rules, sight, 0.0)]
    for now_s in range(0, seconds, step_s):
        found.append(how_many_slots(rules, sight, float(now_s), found[-1]))
    return found


# -- which


@pytest.mark.parametrize(
    ("count", "current", "running", "pinned", "drained", "chosen"),
    [
        (2, [], [], [], [], [0, 1]),
        (3, [0, 1], [0, 1], [], [], [0, 1, 2]),
        (1, [0, 1], [0, 1], [], [], [0]),
        (1, [0, 1], [1], [], [], [1]),  # the one that runs is left alone
        (2, [1], [1], [], [], [0, 1]),
        (1, [0, 1], [0, 1], [1], [], [1]),
        (2, [0], [0], [4], [], [0, 4]),  # a slot of its own that is not there yet
        (2, [0, 1], [0, 1], [], [1], [0]),  # drained: away, and not replaced
        (3, [0], [0], [], [1], [0, 2]),
        (2, [0, 1], [0, 1], [], [0, 1], [2]),  # never without any
        (2, [0, 1], [0, 1], [], [5], [0, 1]),
    ],
)
def test_slots_that_run_stay_and_drained_ones_do_not_come_back(
    count: int,
    current: list[int],
    running: list[int],
    pinned: list[int],
    drained: list[int],
    chosen: list[int],
) -> None:
    found = choose_slots(
        count,
        [SlotId(n) for n in current],
        running=[SlotId(n) for n in running],
        pinned=[SlotId(n) for n in pinned],
        drained=[SlotId(n) for n in drained],
    )

    assert sorted(found) == chosen
