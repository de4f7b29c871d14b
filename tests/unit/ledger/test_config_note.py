"""What the ledger says of a file that its driver does not follow."""

from __future__ import annotations

from heliograph.ledger.config_note import config_note, config_problem_of
from heliograph.ledger.entries import LeaseEntry, MemoEntry, Tombstone
from heliograph.ledger.view import LedgerView

LEASE = LeaseEntry(author="a" * 32, host="h", pid=1, at_ms=1, lease_ms=1_000, slot_count=1)


def view_with(*entries: MemoEntry | LeaseEntry | Tombstone) -> LedgerView:
    view = LedgerView()
    for entry in entries:
        if isinstance(entry, Tombstone):
            view.remove(entry.key)
        else:
            view.apply(entry)
    return view


def test_only_the_word_of_the_driver_that_leads_counts() -> None:
    own = config_note(LEASE.author, "line 9: unknown key", 5)
    others = config_note("b" * 32, "of a driver that is gone", 5)

    assert config_problem_of(view_with(LEASE, own)) == "line 9: unknown key"
    assert config_problem_of(view_with(LEASE, others)) == ""
    assert config_problem_of(view_with(own)) == ""


def test_a_file_that_is_followed_again_leaves_nothing_behind() -> None:
    mended = config_note(LEASE.author, "", 6)

    view = view_with(LEASE, config_note(LEASE.author, "x", 5), mended)

    assert config_problem_of(view) == ""
    assert view.memos == {}


def test_a_note_of_another_shape_is_not_shown() -> None:
    assert config_problem_of(view_with(LEASE, MemoEntry(subject="config", text='{"v": 1}'))) == ""
