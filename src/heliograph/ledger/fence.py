"""A flow that was failed over stays down until somebody lifts its fence. Runs on the driver.

After a failover clients write to the target. A mirror that went on by itself when the source comes
back would put old records behind theirs, so the fence is in the ledger, where every driver looks
before it carries the flow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from heliograph.ledger.entries import MemoEntry, MemoKey, Tombstone
from heliograph.ledger.view import LedgerView

_SUBJECT: Final = "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    at_ms: int
    why: str
    """A sentence for whoever wonders why nothing is mirrored."""


def fence_of(view: LedgerView) -> Fence | None:
    text = view.memos.get(_SUBJECT)
    if text is None:
        return None
    try:
        fields = json.loads(text)
        return Fence(at_ms=int(fields["at_ms"]), why=str(fields["why"]))
    except (KeyError, TypeError, ValueError):
        # Nobody can say what it was for; lifting it must be somebody's decision all the same.
        return Fence(at_ms=0, why="the ledger has a fence that cannot be read")


def fence_entry(fence: Fence) -> MemoEntry:
    text = json.dumps({"v": 1, "at_ms": fence.at_ms, "why": fence.why})
    return MemoEntry(subject=_SUBJECT, text=text)


def unfence_entry() -> Tombstone:
    return Tombstone(key=MemoKey(subject=_SUBJECT))
