"""Changes and decisions of a flow in one list, the oldest first. No I/O; runs on the driver."""

from __future__ import annotations

from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import argument_words, states_of
from heliograph.ledger.trail import DONE, Change, changes_of
from heliograph.ledger.view import LedgerView


def history_of(view: LedgerView, at_ms: int) -> tuple[Change, ...]:
    """All changes and all decisions, the oldest first."""
    return tuple(sorted((*changes_of(view), *_decided(view, at_ms)), key=lambda e: (e.at_ms, e.id)))


def _decided(view: LedgerView, at_ms: int) -> list[Change]:
    found: list[Change] = []
    for each, state in states_of(decisions_of(view), at_ms):
        given = argument_words(each)
        what = f"{each.scope}{f' {given}' if given else ''}{f': {each.why}' if each.why else ''}"
        found.append(
            Change(
                id=each.id,
                at_ms=each.at_ms,
                who=each.who,
                verb=str(each.verb),
                what=what,
                outcome=state,
                ended_ms=each.done_ms,
            )
        )
        if each.withdrawn is not None:
            taken = each.withdrawn
            found.append(
                Change(
                    id=each.id,
                    at_ms=taken.at_ms,
                    who=taken.who,
                    verb="withdraw",
                    what=f"{each.verb} {each.scope}",
                    outcome=DONE,
                    ended_ms=taken.at_ms,
                )
            )
    return found
