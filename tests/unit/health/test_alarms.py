"""Alarms are raised once, told once and ended once, however a figure wavers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.health.alarms import (
    HISTORY_MAX,
    Alarm,
    Patience,
    as_told,
    judge,
    to_tell,
)
from heliograph.health.conditions import Condition, Kind, Level

CLEAR_S = 60.0


def bad(kind: Kind = Kind.LAG, subject: str = "orders", **more: Any) -> Condition:
    return Condition(kind=kind, subject=subject, level=Level.BAD, text="bad", **more)


def between(kind: Kind = Kind.LAG, subject: str = "orders") -> Condition:
    return Condition(kind=kind, subject=subject, level=Level.BETWEEN)


class Watched:
    """One flow, looked at every ten seconds."""

    def __init__(self) -> None:
        self.alarms: tuple[Alarm, ...] = ()
        self.patience = Patience()
        self.now_ms = 1_000_000
        self.events: list[str] = []

    def look(self, *found: Condition, after_s: float = 10, is_known: bool = True) -> list[str]:
        self.now_ms += int(after_s * 1000)
        judged = judge(
            found, self.alarms, self.patience, self.now_ms, clear_s=CLEAR_S, is_known=is_known
        )
        self.alarms, self.patience = judged.alarms, judged.patience
        said = [f"+{alarm.name}" for alarm in judged.raised]
        said += [f"-{alarm.name}" for alarm in judged.ended]
        self.events += said
        return said

    def take_over(self) -> None:
        """Another driver has the alarms, and none of the patience."""
        self.patience = Patience()


def test_what_is_bad_raises_an_alarm_once() -> None:
    flow = Watched()

    said = [flow.look(bad()) for _ in range(3)]

    assert said == [["+lag:orders"], [], []]


def test_what_must_last_is_not_an_alarm_before_and_begins_anew_when_it_was_good() -> None:
    flow = Watched()
    lasting = bad(lasts_s=25)

    said = [flow.look(lasting), flow.look(lasting), flow.look(), flow.look(lasting)]
    said += [flow.look(lasting), flow.look(lasting), flow.look(lasting)]

    assert said == [[], [], [], [], [], [], ["+lag:orders"]]


def test_an_alarm_ends_when_all_has_been_well_for_long_enough() -> None:
    flow = Watched()
    flow.look(bad())

    said = [flow.look() for _ in range(8)]

    assert said == [[]] * 6 + [["-lag:orders"], []]
    (over,) = flow.alarms
    assert over.ended_ms == flow.now_ms - 10_000


def test_a_figure_that_wavers_around_its_limit_is_one_alarm() -> None:
    flow = Watched()

    for _ in range(20):
        flow.look(bad())
        flow.look(between())
        flow.look()

    assert flow.events == ["+lag:orders"]


def test_between_the_limits_nothing_begins_and_nothing_ends() -> None:
    raised, quiet = Watched(), Watched()
    raised.look(bad())

    for _ in range(20):
        raised.look(between())
        quiet.look(between())

    assert raised.events == ["+lag:orders"]
    assert quiet.events == []


def test_what_is_not_known_ends_no_alarm_of_a_lane_but_others_end() -> None:
    flow = Watched()
    flow.look(bad(), bad(Kind.DRILL, ""))

    for _ in range(20):
        flow.look(is_known=False)

    assert flow.events == ["+lag:orders", "+drill", "-drill"]


def test_a_driver_that_takes_over_neither_raises_nor_ends_what_is_open() -> None:
    flow = Watched()
    flow.look(bad())
    flow.look()

    flow.take_over()
    said = [flow.look(is_known=False), flow.look(bad()), flow.look()]

    assert said == [[], [], []]
    assert [alarm.name for alarm in flow.alarms if alarm.is_open] == ["lag:orders"]


def test_a_clock_that_jumps_back_ends_nothing_early() -> None:
    flow = Watched()
    flow.look(bad())
    flow.look()

    flow.look(after_s=-7_200)
    said = [flow.look() for _ in range(5)]

    assert said == [[]] * 5


def test_the_history_is_bounded_and_open_alarms_are_never_dropped() -> None:
    flow = Watched()
    many = [bad(subject=f"t{number}") for number in range(100)]
    flow.look(*many, bad(Kind.DRILL, ""))

    for _ in range(8):
        flow.look(bad(Kind.DRILL, ""))

    assert len(flow.alarms) == HISTORY_MAX + 1
    assert flow.alarms[0].name == "drill"


_SUBJECTS = ("orders", "logs")
_levels = st.sampled_from(["bad", "between", "good"])
_looks = st.lists(
    st.tuples(_levels, _levels, st.booleans(), st.booleans(), st.integers(1, 90)), max_size=60
)


@given(_looks)
def test_no_alarm_is_raised_twice_without_an_end(looks: list[Any]) -> None:
    flow = Watched()

    for *levels, is_known, takes_over, after_s in looks:
        if takes_over:
            flow.take_over()
        found = [
            bad(subject=subject, lasts_s=15) if level == "bad" else between(subject=subject)
            for subject, level in zip(_SUBJECTS, levels, strict=True)
            if level != "good"
        ]
        flow.look(*found, after_s=after_s, is_known=is_known)

    for subject in _SUBJECTS:
        mine = [event[0] for event in flow.events if event.endswith(subject)]
        assert mine == ["+", "-"] * (len(mine) // 2) + ["+"] * (len(mine) % 2)
    open_ones = Counter(alarm.key for alarm in flow.alarms if alarm.is_open)
    assert all(times == 1 for times in open_ones.values())


ALARM = Alarm(kind=Kind.LAG, subject="orders", text="late", raised_ms=1)


@pytest.mark.parametrize(
    ("alarm", "silenced", "is_told"),
    [
        (ALARM, False, True),
        (ALARM, True, False),
        (replace(ALARM, told="raised"), False, False),
        (replace(ALARM, told="raised", ended_ms=2), False, True),
        (replace(ALARM, told="raised", ended_ms=2), True, True),
        (replace(ALARM, told="ended", ended_ms=2), False, False),
        (replace(ALARM, told="nothing", ended_ms=2), False, False),
    ],
)
def test_who_is_told_of_what(alarm: Alarm, silenced: bool, is_told: bool) -> None:
    news = to_tell([alarm], {alarm.key: silenced})

    assert news == ([alarm] if is_told else [])
    assert to_tell(as_told([alarm], news), {alarm.key: silenced}) == []
