"""Why there are so many slots, as the ledger keeps it."""

from __future__ import annotations

from heliograph.ledger.entries import LeaseEntry, MemoEntry
from heliograph.ledger.entry_codec import encode
from heliograph.ledger.slots_note import slots_note, slots_why_of
from heliograph.ledger.view import LedgerView
from heliograph.processes import new_signature

ANN, BEN = new_signature(), new_signature()


def lease(author: str, at_ms: int) -> LeaseEntry:
    return LeaseEntry(author=author, host="h", pid=1, at_ms=at_ms, lease_ms=1_000, slot_count=2)


def view_of(*entries: LeaseEntry | MemoEntry) -> LedgerView:
    view = LedgerView()
    for entry in entries:
        view.apply_record(*encode(entry))
    return view


def test_what_the_leading_driver_said_is_shown_and_what_one_before_it_said_is_not() -> None:
    said = slots_note(ANN, "2 slots: 4 cores / 2")
    first, second = lease(ANN, 1_000), lease(BEN, 9_000)

    assert slots_why_of(view_of(first, said)) == "2 slots: 4 cores / 2"
    assert slots_why_of(view_of(first, said, second)) == ""
    assert slots_why_of(view_of(said)) == ""
    assert slots_why_of(view_of(first)) == ""


def test_a_note_of_another_version_is_nothing() -> None:
    strange = MemoEntry(subject="slots", text='{"v":1,"slots":3}')

    assert slots_why_of(view_of(lease(ANN, 1_000), strange)) == ""
