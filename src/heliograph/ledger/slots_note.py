"""How many slots the driver of a flow has and why, as the flow's ledger has it. Runs anywhere.

For the eye of an operator only. One memo, written when the reason changes, not with the lag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from heliograph.errors import WireError
from heliograph.ledger.entries import TEXT_CHARS_MAX, MemoEntry
from heliograph.ledger.memo import Memo
from heliograph.ledger.view import LedgerView

_SUBJECT: Final = "slots"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlotsNote:
    author: str
    """Of the driver's lease."""
    why: Annotated[str, Field(max_length=TEXT_CHARS_MAX)]


_MEMO: Final[Memo[_SlotsNote]] = Memo(_SlotsNote)


def slots_note(author: str, why: str) -> MemoEntry:
    return _MEMO.entry(_SUBJECT, _SlotsNote(author=author, why=why[:TEXT_CHARS_MAX]))


def slots_why_of(view: LedgerView) -> str:
    """What the driver that leads the flow says; nothing of one before it."""
    try:
        found = _MEMO.read(view, _SUBJECT)
    except WireError:
        return ""  # the next one replaces it
    is_its_own = (
        found is not None and view.holder is not None and view.holder.author == found.author
    )
    return found.why if found is not None and is_its_own else ""
