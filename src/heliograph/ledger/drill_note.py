"""When a flow is drilled and how the last drill went, as its ledger has it. Runs anywhere.

Both are memos: they outlive drivers, and every driver that comes to lead the flow finds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.words import seconds_of

SCHEDULE_SUBJECT: Final = "drill"
LAST_SUBJECT: Final = "drill.last"
EVERY_S_MIN: Final = 60
RETRY_S: Final = 600.0
"""After a drill that could not be done; it is not held back for a whole interval."""
_REASONS_MAX: Final = 20
_REASON_CHARS_MAX: Final = 500
Verdict = Literal["pass", "fail", "not done"]


def _is_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"is no regular expression: {exc}") from exc
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    every_s: Annotated[int, Field(ge=EVERY_S_MIN)]
    set_ms: int
    sample_records: Annotated[int, Field(ge=1)]
    group: Annotated[str, AfterValidator(_is_regex)] | None = None
    rpo_s_max: float | None = None
    rto_s_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDrill:
    """The last drill of all the flow's groups, or of those on its schedule."""

    at_ms: int
    verdict: Verdict
    reasons: tuple[str, ...]
    rpo_records: int | None = None
    rpo_s: float | None = None
    rto_s: float | None = None
    groups: int = 0
    compared_records: int = 0
    repeated_records: int = 0
    lost_records: int = 0
    host: str = ""

    @property
    def sentence(self) -> str:
        """Why it was no success."""
        head = "failed" if self.verdict == "fail" else "could not be done"
        more = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
        return f"{head}: {self.reasons[0] if self.reasons else 'no reason was noted'}{more}"


def every_s(text: str) -> int:
    """The seconds of `90m`, `7d`, `2w`; raises `ValueError` with a sentence."""
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError(f"{text!r} is no time between drills: write a number and s, m, h, d or w")
    if seconds < EVERY_S_MIN:
        raise ValueError(f"{text!r} is less than the {EVERY_S_MIN} s that must lie between drills")
    return seconds


def next_due_ms(schedule: Schedule, last: LastDrill | None) -> int:
    """At once where there was none yet; one that could not be done is soon tried again."""
    if last is None:
        return schedule.set_ms
    wait_s = float(schedule.every_s)
    if last.verdict == "not done":
        wait_s = min(wait_s, RETRY_S)
    return last.at_ms + int(wait_s * 1000)


_SCHEDULE: Final[Memo[Schedule]] = Memo(Schedule)
_LAST: Final[Memo[LastDrill]] = Memo(LastDrill)


def schedule_memo(schedule: Schedule) -> MemoEntry:
    return _SCHEDULE.entry(SCHEDULE_SUBJECT, schedule)


def no_schedule() -> Tombstone:
    return forget_memo(SCHEDULE_SUBJECT)


def last_memo(last: LastDrill) -> MemoEntry:
    reasons = tuple(reason[:_REASON_CHARS_MAX] for reason in last.reasons[:_REASONS_MAX])
    return _LAST.entry(LAST_SUBJECT, replace(last, reasons=reasons))


def schedule_of(view: LedgerView) -> Schedule | None:
    """Raises `WireError` where it cannot be read: an operator counts on hearing of failures."""
    try:
        return _SCHEDULE.read(view, SCHEDULE_SUBJECT)
    except WireError as exc:
        raise WireError(f"{exc}; set it again with `heliograph drill --every`") from exc


def last_of(view: LedgerView) -> LastDrill | None:
    """None where there is none, or none that can be read: the next drill writes another."""
    try:
        return _LAST.read(view, LAST_SUBJECT)
    except WireError:
        return None
