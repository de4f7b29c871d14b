"""Decisions as the ledger keeps them: in order, for good, and not for ever."""

from __future__ import annotations

from dataclasses import replace

from heliograph.decisions.decision import Decision, Verb, Withdrawal, scope_of
from heliograph.decisions.orders import standing_of
from heliograph.decisions.record import (
    HISTORY_MAX,
    decision_entry,
    decisions_of,
    done_entry,
    forget_entries,
    new_id,
    unreadable_of,
    withdrawal_entry,
)
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone
from heliograph.ledger.memo import forget_memo
from heliograph.ledger.view import LedgerView


def made(verb: Verb = Verb.PAUSE, *topics: str, at_ms: int = 1) -> Decision:
    return Decision(id=new_id(), verb=verb, scope=scope_of(topics), who="ann", at_ms=at_ms)


def view_of(*entries: Entry | Tombstone) -> LedgerView:
    view = LedgerView()
    for entry in entries:
        if isinstance(entry, Tombstone):
            view.remove(entry.key)
        else:
            view.apply(entry)
    return view


def test_a_decision_is_read_as_it_was_written() -> None:
    decision = Decision(
        id=new_id(),
        verb=Verb.THROTTLE,
        scope=scope_of(("orders", "logs-.*"), (1, 2)),
        who="ann@example",
        at_ms=5,
        why="the line is narrow",
        until_ms=9,
        bytes_per_s=1_000,
    )

    assert decisions_of(view_of(decision_entry(decision))) == (decision,)


def test_the_order_is_that_of_the_ledger_whatever_clocks_say() -> None:
    late, early = made(at_ms=9), made(Verb.RESUME, at_ms=1)

    found = decisions_of(view_of(decision_entry(late), decision_entry(early)))

    assert found == (late, early)
    assert standing_of(found, 10) == (early,)


def test_a_withdrawal_ends_a_decision_and_does_not_move_it() -> None:
    first, second = made(), made(Verb.PAUSE, "orders")
    gone = Withdrawal(who="ben", at_ms=7)

    view = view_of(decision_entry(first), decision_entry(second), withdrawal_entry(first.id, gone))

    assert decisions_of(view) == (first, second)
    assert decisions_of(view)[0].withdrawn == gone
    assert standing_of(decisions_of(view), 10) == (second,)


def test_a_rewind_holds_until_it_is_done() -> None:
    rewind = made(Verb.REWIND, "orders")

    view = view_of(decision_entry(rewind), done_entry(rewind.id, 8))

    assert decisions_of(view)[0].done_ms == 8
    assert standing_of(decisions_of(view), 10) == ()


def test_what_is_over_for_longest_is_forgotten_and_nothing_comes_back_on_the_way() -> None:
    pause = made(Verb.PAUSE, "orders")
    others = [made(Verb.RESUME if number % 2 else Verb.PAUSE) for number in range(HISTORY_MAX + 3)]
    resume = made(Verb.RESUME, "orders")
    decisions = (pause, *others, resume)
    view = view_of(*map(decision_entry, decisions))

    gone = forget_entries(decisions, 10)

    assert gone[0] == forget_memo(f"decision/{pause.id}")
    standing = standing_of(decisions, 10)
    for tombstone in gone:
        view.remove(tombstone.key)
        assert standing_of(decisions_of(view), 10) == standing
    assert len(decisions_of(view)) == HISTORY_MAX + len(standing)


def test_one_that_cannot_be_read_is_named_and_not_followed() -> None:
    decision = made()
    entry = decision_entry(decision)
    entries = [
        replace(entry, text=entry.text.replace('"pause"', '"levitate"')),
        MemoEntry(subject="decision/0123456789", text=entry.text),
        MemoEntry(subject="decision/aaaaaaaaaa", text='{"v":1}'),
        MemoEntry(subject="fence", text='{"v":1,"at_ms":1,"why":"x"}'),
    ]

    view = view_of(*entries)

    assert decisions_of(view) == ()
    assert len(unreadable_of(view)) == 3
    assert any("verb" in sentence for sentence in unreadable_of(view))


def test_a_decision_with_a_regex_that_is_none_is_not_read() -> None:
    entry = decision_entry(made(Verb.PAUSE, "orders"))

    view = view_of(replace(entry, text=entry.text.replace('"patterns": []', '"patterns": ["("]')))

    assert decisions_of(view) == ()
    assert len(unreadable_of(view)) == 1
