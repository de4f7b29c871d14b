"""Alarms and silences in the ledger: what comes back, what is refused, what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.health.alarms import Alarm, alarm_id
from heliograph.health.conditions import Kind
from heliograph.health.listing import alarms_of, kept_in
from heliograph.health.note import (
    SILENCES_MAX,
    AlarmsNote,
    BadSilence,
    ForeignNote,
    Silence,
    alarms_entry,
    alarms_note,
    forget_silences,
    new_silence,
    silence_entry,
    silenced_by,
    silences_of,
)
from heliograph.ledger.entries import MemoEntry, MemoKey
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName
from tests.unit.health.sights import AB

LAG = Alarm(kind=Kind.LAG, subject="orders", text="late", raised_ms=10)
NOTE = AlarmsNote(
    alarms=(LAG, replace(LAG, subject="logs", ended_ms=20, told="ended")),
    foreign=(ForeignNote(topic=TopicName("orders"), records=3, grew_ms=5),),
    standby_seen_ms=7,
)


def silence(alarm: str = "lag", *, until_ms: int = 100, number: int = 0) -> Silence:
    return Silence(id=f"{number:010x}", alarm=alarm, who="ann", at_ms=1, until_ms=until_ms)


def test_alarms_come_back_as_they_were() -> None:
    view = LedgerView()

    view.apply(alarms_entry(NOTE))

    assert alarms_note(view) == NOTE


def test_a_note_that_cannot_be_read_is_empty() -> None:
    view = LedgerView()
    view.apply(MemoEntry(subject="alarms", text='{"v": 1, "alarms": [{"kind": "wind"}]}'))

    assert alarms_note(view) == AlarmsNote()


def test_silences_come_back_and_one_that_cannot_be_read_silences_nothing() -> None:
    view = LedgerView()
    view.apply(silence_entry(silence()))
    view.apply(MemoEntry(subject="silence/0123456789", text='{"v": 1, "alarm": "*"}'))
    view.apply(replace(silence_entry(silence(number=5)), subject="silence/ffffffffff"))

    assert silences_of(view) == (silence(),)


@pytest.mark.parametrize(
    ("alarm", "now_ms", "is_silenced"),
    [
        ("lag", 50, True),
        ("lag:orders", 50, True),
        ("*", 50, True),
        ("lag:logs", 50, False),
        ("stall", 50, False),
        ("lag", 100, False),
    ],
)
def test_a_silence_is_for_a_kind_a_subject_or_all_until_its_end(
    alarm: str, now_ms: int, is_silenced: bool
) -> None:
    assert (silenced_by(LAG, [silence(alarm)], now_ms) is not None) == is_silenced


def test_of_several_silences_the_longest_is_shown() -> None:
    longest = silence("*", until_ms=500)

    assert silenced_by(LAG, [silence(), longest, silence("lag:orders")], 50) == longest


@pytest.mark.parametrize("alarm", ["wind", "", "lag:", "Lag", "lag orders", "lag:x\n", "*:x"])
def test_what_is_no_alarm_is_refused(alarm: str) -> None:
    with pytest.raises(BadSilence, match="is no alarm"):
        new_silence(alarm, who="ann", why="", at_ms=1, until_ms=2)


def test_a_silence_that_has_ended_says_nothing_printable_or_is_one_too_many_is_refused() -> None:
    standing = [silence(number=number) for number in range(SILENCES_MAX)]

    for why, match, until_ms, known in (
        ("", "in the past", 1, []),
        ("\x1b[31m", "can be printed", 2, []),
        ("x" * 600, "512 characters", 2, []),
        ("", "hold already", 2, standing),
    ):
        with pytest.raises(BadSilence, match=match):
            new_silence("lag", who="ann", why=why, at_ms=1, until_ms=until_ms, standing=known)


def test_only_silences_that_are_long_over_are_forgotten() -> None:
    over = [silence(until_ms=10, number=number) for number in range(SILENCES_MAX + 2)]
    holding = [silence(until_ms=1_000, number=900)]

    gone = forget_silences([*holding, *over], 50)

    assert [tombstone.key for tombstone in gone] == [
        MemoKey(subject=f"silence/{each.id}") for each in over[:2]
    ]


def test_what_is_listed_has_an_id_that_stays_and_who_silenced_it() -> None:
    view = LedgerView()
    view.apply(alarms_entry(NOTE))
    view.apply(silence_entry(silence()))

    listed = alarms_of(kept_in(view), AB, 50)

    assert [(row.id, row.state) for row in listed.alarms] == [
        (alarm_id("A->B", "lag:orders"), "open"),
        (alarm_id("A->B", "lag:logs"), "ended"),
    ]
    assert listed.alarms[0].silenced == silence()
    assert not listed.alarms[0].is_heard
    assert [row.state for row in listed.without_history().alarms] == ["open"]
