"""Decisions as the flow's ledger keeps them: a memo each, with its end beside it. Runs anywhere.

A decision is written once, so its place in the ledger says when it was made, whatever the clocks of
those who decide say, and two who decide at once never take each other's key. That it was withdrawn,
or carried out, is a memo of its own: the decision does not move by it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from heliograph.decisions.decision import Decision, Withdrawal
from heliograph.decisions.orders import replaced_by
from heliograph.errors import MirrorError, WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView

HISTORY_MAX: Final = 200
"""Decisions that are over and still shown."""
STANDING_MAX: Final = 200
"""Decisions of a flow that may hold at once."""
_PREFIX: Final = "decision/"
_WITHDRAWN: Final = "/withdrawn"
_DONE: Final = "/done"
_ID_BYTES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    at_ms: Annotated[int, Field(ge=0)]


_DECISIONS: Final[Memo[Decision]] = Memo(Decision, writes_null=False)
_WITHDRAWALS: Final[Memo[Withdrawal]] = Memo(Withdrawal)
_DONES: Final[Memo[_Done]] = Memo(_Done)


def new_id() -> str:
    return secrets.token_hex(_ID_BYTES)


def decisions_of(view: LedgerView) -> tuple[Decision, ...]:
    """All that can be read, over or not, in the order of the ledger."""
    return tuple(each for each in _read_all(view) if isinstance(each, Decision))


def unreadable_of(view: LedgerView) -> tuple[str, ...]:
    """Why decisions are not followed: another program wrote them, or another version."""
    return tuple(str(each) for each in _read_all(view) if isinstance(each, WireError))


def _read_all(view: LedgerView) -> list[Decision | WireError]:
    found: list[Decision | WireError] = []
    for subject in view.memos:
        id_ = subject.removeprefix(_PREFIX)
        if not subject.startswith(_PREFIX) or "/" in id_:
            continue
        try:
            found.append(_read(view, id_, subject))
        except WireError as exc:
            found.append(exc)
    return found


def _read(view: LedgerView, id_: str, subject: str) -> Decision:
    decision = _DECISIONS.read(view, subject)
    if decision is None or decision.id != id_:
        raise WireError(f"cannot decode ledger record memo|{subject}: id: is not that of its key")
    try:
        decision.check()
    except MirrorError as exc:
        raise WireError(f"cannot decode ledger record memo|{subject}: {exc}") from exc
    withdrawal = _WITHDRAWALS.read(view, subject + _WITHDRAWN)
    done = _DONES.read(view, subject + _DONE)
    return replace(decision, withdrawn=withdrawal, done_ms=None if done is None else done.at_ms)


def decision_entry(decision: Decision) -> MemoEntry:
    bare = replace(decision, withdrawn=None, done_ms=None)
    return _DECISIONS.entry(_PREFIX + decision.id, bare)


def withdrawal_entry(id_: str, withdrawal: Withdrawal) -> MemoEntry:
    return _WITHDRAWALS.entry(_PREFIX + id_ + _WITHDRAWN, withdrawal)


def done_entry(id_: str, at_ms: int) -> MemoEntry:
    return _DONES.entry(_PREFIX + id_ + _DONE, _Done(at_ms=at_ms))


def forget_entries(decisions: Sequence[Decision], now_ms: int) -> list[Tombstone]:
    """For what is over and has been so for longest, past what is kept to be shown.

    The oldest first: one that was replaced goes before the one that replaced it, or it would hold
    again.
    """
    replaced = replaced_by(decisions)
    over = [
        each
        for each in decisions
        if each.withdrawn
        or each.done_ms is not None
        or each.id in replaced
        or each.has_ended(now_ms)
    ]
    gone = over[: max(0, len(over) - HISTORY_MAX)]
    ends = (_WITHDRAWN, _DONE)
    # The decision before its end: half of it would hold again.
    return [forget_memo(_PREFIX + each.id + end) for each in gone for end in ("", *ends)]
