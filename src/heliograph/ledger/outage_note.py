"""The longest time for which a flow was not mirrored, as its ledger has it. Runs anywhere.

One note of three numbers, however many outages there were. The driver that leads says now and then
that every lane went on; what lies between two such moments is an outage, whatever was the reason:
no driver, a stalled lane, a cluster that was gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView

_SUBJECT: Final = "outage"
NOTED_MS: Final = 300_000
"""How often it is noted that lanes go on. What is shorter is not told from that."""
_LONGER: Final = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageNote:
    going_ms: int
    """When every lane was last seen to go on."""
    longest_ms: Annotated[int, Field(ge=0)] = 0
    longest_until_ms: int | None = None
    """When that was last seen to last; None where there was none."""

    @property
    def longest_s(self) -> float:
        return self.longest_ms / 1000


_MEMO: Final[Memo[OutageNote]] = Memo(OutageNote, writes_null=False)


def outage_note(view: LedgerView) -> OutageNote | None:
    """None where there is none, or none that can be read: it begins anew."""
    try:
        return _MEMO.read(view, _SUBJECT)
    except WireError:
        return None


def outage_entry(note: OutageNote) -> MemoEntry:
    return _MEMO.entry(_SUBJECT, note)


def forget_outages() -> Tombstone:
    """For a flow that begins anew."""
    return forget_memo(_SUBJECT)


def seen_at(note: OutageNote | None, at_ms: int, *, goes_on: bool) -> OutageNote | None:
    """The note after one more look; the same one where there is nothing worth a write."""
    if note is None:
        return OutageNote(going_ms=at_ms) if goes_on else None
    away_ms = at_ms - note.going_ms
    if away_ms < NOTED_MS:
        return note
    # The first look that lanes go on again tells for how long they did not. Two notes of a flow
    # that goes on are `NOTED_MS` apart and a look, which is no outage.
    is_outage = not goes_on or away_ms >= 2 * NOTED_MS
    if is_outage and away_ms > _LONGER * note.longest_ms:
        note = replace(note, longest_ms=away_ms, longest_until_ms=at_ms)
    return replace(note, going_ms=at_ms) if goes_on else note
