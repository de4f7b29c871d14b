"""The fence of a flow that was failed over: no driver mirrors it until an operator lifts the fence.

After a failover clients write to the target. A mirror that went on by itself when the source comes
back would put old records behind theirs, so the fence is in the ledger, where every driver looks
before it carries the flow, and every slot before a lane goes on. Runs anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView

_SUBJECT: Final = "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    at_ms: int
    why: str
    """Why nothing is mirrored, as a sentence for the operator."""
    planned: Literal[True] | None = None
    """Set where the source was drained before: what a slot fetched may still be appended."""


_MEMO: Final[Memo[Fence]] = Memo(Fence, writes_null=False)


def fence_of(view: LedgerView) -> Fence | None:
    try:
        return _MEMO.read(view, _SUBJECT)
    except WireError as exc:
        # What it was for is not known; lifting it must be an operator's decision all the same.
        return Fence(at_ms=0, why=f"the ledger has a fence that cannot be read ({exc})")


def fence_entry(fence: Fence) -> MemoEntry:
    return _MEMO.entry(_SUBJECT, fence)


def unfence_entry() -> Tombstone:
    return forget_memo(_SUBJECT)
