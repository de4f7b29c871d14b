"""Which quotas are set and taken back on the target."""

from __future__ import annotations

from heliograph.broker.quotas import QuotaKey
from heliograph.compat.quotas import plan_quotas, quotas_entry, written_quotas
from heliograph.ledger.view import LedgerView

ANN = QuotaKey((("user", "ann"),), "producer_byte_rate")
ALL = QuotaKey((("client-id", "x"), ("user", None)), "request_percentage")


def test_what_differs_is_set_and_what_was_set_and_is_gone_is_taken_back() -> None:
    plan = plan_quotas({ANN: 5.0}, {ANN: 4.0, ALL: 1.0}, frozenset({ALL}))

    assert plan.changes == {ANN: 5.0, ALL: None}
    assert plan.before == {ANN: 4.0, ALL: 1.0}


def test_the_targets_own_stay() -> None:
    assert plan_quotas({ANN: 5.0}, {ANN: 5.0, ALL: 1.0}, frozenset({ANN})).changes == {}


def test_what_was_set_is_remembered() -> None:
    view = LedgerView()
    view.apply(quotas_entry(frozenset({ANN, ALL})))

    assert written_quotas(view) == {ANN, ALL}
    assert str(ALL) == "request_percentage of client-id x, user (default)"
