"""Which quotas are set and taken back on the target."""

from __future__ import annotations

from heliograph.broker.quotas import QuotaKey
from heliograph.compat.quotas import plan_quotas, quotas_entries, written_quotas
from heliograph.ledger.entries import Tombstone
from heliograph.ledger.entry_codec import encode
from heliograph.ledger.view import LedgerView

ANN = QuotaKey((("user", "ann"),), "producer_byte_rate")
ALL = QuotaKey((("client-id", "x"), ("user", None)), "request_percentage")


def keep(view: LedgerView, written: frozenset[QuotaKey]) -> None:
    for entry in quotas_entries(view, written):
        if isinstance(entry, Tombstone):
            view.remove(entry.key)
        else:
            view.apply_record(*encode(entry))


def test_what_differs_is_set_and_what_was_set_and_is_gone_is_taken_back() -> None:
    plan = plan_quotas({ANN: 5.0}, {ANN: 4.0, ALL: 1.0}, frozenset({ALL}))

    assert plan.changes == {ANN: 5.0, ALL: None}
    assert plan.before == {ANN: 4.0, ALL: 1.0}


def test_the_targets_own_stay() -> None:
    assert plan_quotas({ANN: 5.0}, {ANN: 5.0, ALL: 1.0}, frozenset({ANN})).changes == {}


def test_what_was_set_is_remembered() -> None:
    view = LedgerView()
    keep(view, frozenset({ANN, ALL}))

    assert written_quotas(view) == {ANN, ALL}
    assert str(ALL) == "request_percentage of client-id x, user (default)"


def test_more_quotas_than_a_note_holds_are_kept_in_several_and_all_are_forgotten() -> None:
    """A note of 512 KiB would be refused by whoever reads the ledger."""
    view = LedgerView()
    many = frozenset(
        QuotaKey((("user", f"{number:06d}" + "ü" * 100),), "producer_byte_rate")
        for number in range(2_000)
    )

    keep(view, many)

    assert len(view.memos) > 2
    assert written_quotas(view) == many
    keep(view, frozenset({ANN}))
    assert list(view.memos) == ["client-quotas"]
    assert written_quotas(view) == {ANN}
