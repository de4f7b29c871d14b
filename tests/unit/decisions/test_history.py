"""Changes and decisions in one list, the oldest first."""

from __future__ import annotations

from heliograph.decisions.decision import Decision, Verb, Withdrawal, scope_of
from heliograph.decisions.history import history_of
from heliograph.decisions.record import decision_entry, withdrawal_entry
from heliograph.ledger.entries import Tombstone
from heliograph.ledger.trail import Change, change_entries
from heliograph.ledger.view import LedgerView


def failover(at_ms: int, outcome: str) -> Change:
    made = Change(who="ann@vm", verb="failover", what="topics orders", at_ms=at_ms)
    return made.ended(outcome)


def test_history_has_decisions_and_their_end_among_the_other_changes() -> None:
    view = LedgerView()
    decision = Decision(
        id="0123456789", verb=Verb.PAUSE, scope=scope_of(("orders",)), who="bob", at_ms=20
    )
    (late,) = change_entries(view, failover(30, "done"))
    (early,) = change_entries(view, failover(10, "refused: no"))
    withdrawn = withdrawal_entry(decision.id, Withdrawal(who="cid", at_ms=40))
    for entry in (late, decision_entry(decision), withdrawn, early):
        assert not isinstance(entry, Tombstone)
        view.apply(entry)

    found = history_of(view, 50)

    assert [(each.at_ms, each.who, each.verb) for each in found] == [
        (10, "ann@vm", "failover"),
        (20, "bob", "pause"),
        (30, "ann@vm", "failover"),
        (40, "cid", "withdraw"),
    ]
    assert found[1].outcome == "withdrawn by cid"
