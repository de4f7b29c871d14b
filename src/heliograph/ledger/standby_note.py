"""Which drivers stand by for a flow, as its ledger has it. Runs anywhere.

For the eye of an operator only: nobody decides by it who leads. One memo names them all, so that
drivers that come and go leave nothing behind; two that note themselves at the same moment are both
there after the next time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView

_SUBJECT: Final = "standby"
_DRIVERS_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyDriver:
    author: str
    host: str
    pid: int
    at_ms: int
    lasts_ms: Annotated[int, Field(ge=0)]

    def is_fresh(self, now_ms: int) -> bool:
        return self.at_ms + self.lasts_ms >= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standbys:
    drivers: tuple[StandbyDriver, ...]


_MEMO: Final[Memo[_Standbys]] = Memo(_Standbys)


def standbys_of(view: LedgerView, now_ms: int) -> tuple[StandbyDriver, ...]:
    """Those that said so lately; none where the note cannot be read, the next one replaces it."""
    try:
        found = _MEMO.read(view, _SUBJECT)
    except WireError:
        return ()
    return tuple(each for each in found.drivers if each.is_fresh(now_ms)) if found else ()


def with_standby(view: LedgerView, driver: StandbyDriver) -> MemoEntry:
    """The note with this driver in it, and without those that are not heard of any more."""
    others = [each for each in standbys_of(view, driver.at_ms) if each.author != driver.author]
    return _MEMO.entry(_SUBJECT, _Standbys(drivers=(*others, driver)[-_DRIVERS_MAX:]))


def without_standby(view: LedgerView, author: str, now_ms: int) -> MemoEntry | Tombstone:
    others = tuple(each for each in standbys_of(view, now_ms) if each.author != author)
    return _MEMO.entry(_SUBJECT, _Standbys(drivers=others)) if others else forget_memo(_SUBJECT)
