"""Drivers that stand by, as the ledger names them."""

from __future__ import annotations

from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.standby_note import (
    StandbyDriver,
    standbys_of,
    with_standby,
    without_standby,
)
from heliograph.ledger.view import LedgerView


def driver(author: str, at_ms: int) -> StandbyDriver:
    return StandbyDriver(author=author, host="h", pid=7, at_ms=at_ms, lasts_ms=1_000)


def written(view: LedgerView, entry: MemoEntry | Tombstone) -> None:
    if isinstance(entry, Tombstone):
        view.apply_record(encode_key(entry.key), None)
    else:
        view.apply_record(*encode(entry))


def test_each_is_named_until_it_goes_or_is_not_heard_of() -> None:
    view = LedgerView()
    a, b, again = driver("a", 0), driver("b", 900), driver("a", 1_500)

    written(view, with_standby(view, a))
    written(view, with_standby(view, b))
    both = standbys_of(view, 1_000)
    late = standbys_of(view, 1_001)
    written(view, with_standby(view, again))
    renewed = standbys_of(view, 1_500)
    written(view, without_standby(view, "b", 1_500))
    one = standbys_of(view, 1_500)
    written(view, without_standby(view, "a", 1_500))

    assert both == (a, b)
    assert late == (b,)
    assert renewed == (b, again)
    assert one == (again,)
    assert view.memos == {}


def test_a_note_that_cannot_be_read_names_nobody() -> None:
    view = LedgerView()

    written(view, MemoEntry(subject="standby", text='{"v":1,"drivers":7}'))

    assert standbys_of(view, 0) == ()
