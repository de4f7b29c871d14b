"""That the driver of a flow does not follow its changed file, as the ledger has it. Runs anywhere.

For the eye of an operator only: `heliograph status` asks no driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView

_SUBJECT: Final = "config"
_CHARS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unfollowed:
    author: str
    problem: str
    at_ms: int


_MEMO: Final[Memo[_Unfollowed]] = Memo(_Unfollowed)


def config_problem_of(view: LedgerView) -> str:
    """What the driver that leads the flow said last; nothing where it follows its file."""
    try:
        found = _MEMO.read(view, _SUBJECT)
    except WireError:
        return ""
    holder = view.holder
    is_holders = found is not None and holder is not None and found.author == holder.author
    return found.problem if found is not None and is_holders else ""


def config_note(author: str, problem: str, at_ms: int) -> MemoEntry | Tombstone:
    """`problem` empty: the file is followed."""
    if not problem:
        return forget_memo(_SUBJECT)
    noted = _Unfollowed(author=author, problem=problem[:_CHARS_MAX], at_ms=at_ms)
    return _MEMO.entry(_SUBJECT, noted)
