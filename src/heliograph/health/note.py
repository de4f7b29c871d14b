"""Alarms and silences as the flow's ledger keeps them. Runs anywhere.

The driver that leads the flow writes one note with its alarms, the open ones and the last that
ended, so that a driver that takes over neither forgets an alarm nor tells of it again. A silence is
a note of its own, written by whoever silences and never by the driver: the two cannot undo each
other.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from pydantic import Field

from heliograph.decisions.decision import WHO_CHARS_MAX, WHY_CHARS_MAX, Withdrawal
from heliograph.errors import MirrorError, WireError
from heliograph.health.alarms import Alarm, kept
from heliograph.health.conditions import Kind
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName

EVERY: Final = "*"
SILENCES_MAX: Final = 50
"""Of a flow, those that hold; as many that are over are kept to be shown."""
_SUBJECT: Final = "alarms"
_PREFIX: Final = "silence/"
_ID_BYTES: Final = 5
_FOREIGN_MAX: Final = 50
_NAME: Final = re.compile(r"([a-z]+)(?::(.{1,300}))?")


class BadSilence(MirrorError):
    """What was asked for cannot be silenced; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignNote:
    """Up to which count records of other writers were told of."""

    topic: TopicName
    records: int
    grew_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmsNote:
    alarms: tuple[Alarm, ...] = ()
    foreign: tuple[ForeignNote, ...] = ()
    standby_seen_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Who does not want to hear of an alarm, until when, and why."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{10}$")]
    alarm: Annotated[str, Field(max_length=320)]
    """A kind, `kind:subject`, or `*`."""
    who: Annotated[str, Field(max_length=WHO_CHARS_MAX)]
    at_ms: Annotated[int, Field(ge=0)]
    until_ms: Annotated[int, Field(ge=0)]
    why: Annotated[str, Field(max_length=WHY_CHARS_MAX)] = ""
    lifted: Withdrawal | None = field(default=None, compare=False)

    def holds(self, now_ms: int) -> bool:
        return self.lifted is None and now_ms < self.until_ms

    def is_for(self, alarm: Alarm) -> bool:
        return self.alarm in (EVERY, str(alarm.kind), alarm.name)


_ALARMS: Final[Memo[AlarmsNote]] = Memo(AlarmsNote, writes_null=False)
_SILENCES: Final[Memo[Silence]] = Memo(Silence, writes_null=False)


def alarms_note(view: LedgerView) -> AlarmsNote:
    """Empty where there is none, or none that can be read: then all is told once more."""
    try:
        return _ALARMS.read(view, _SUBJECT) or AlarmsNote()
    except WireError:
        return AlarmsNote()


def alarms_entry(note: AlarmsNote) -> MemoEntry:
    newest = sorted(note.foreign, key=lambda each: each.grew_ms)[-_FOREIGN_MAX:]
    return _ALARMS.entry(_SUBJECT, replace(note, alarms=kept(note.alarms), foreign=tuple(newest)))


def silences_of(view: LedgerView) -> tuple[Silence, ...]:
    """All that can be read, over or not, in the order of the ledger."""
    found: list[Silence] = []
    for subject in view.memos:
        if not subject.startswith(_PREFIX):
            continue
        try:
            silence = _SILENCES.read(view, subject)
        except WireError:
            # One that cannot be read silences nothing: an alarm too many is better than none.
            continue
        if silence is not None and subject == _PREFIX + silence.id:
            found.append(silence)
    return tuple(found)


def silenced_by(alarm: Alarm, silences: Iterable[Silence], now_ms: int) -> Silence | None:
    """The one that holds longest."""
    holding = [each for each in silences if each.holds(now_ms) and each.is_for(alarm)]
    return max(holding, key=lambda each: each.until_ms, default=None)


def new_silence(
    alarm: str, *, who: str, why: str, at_ms: int, until_ms: int, standing: Sequence[Silence] = ()
) -> Silence:
    """Raises `BadSilence`."""
    name = _NAME.fullmatch(alarm)
    if alarm != EVERY and (name is None or name[1] not in set(Kind)):
        kinds = ", ".join(Kind)
        raise BadSilence(f"{alarm[:80]!r} is no alarm: write one of {kinds}, kind:topic, or `*`")
    if until_ms <= at_ms:
        raise BadSilence("the end of the silence is in the past")
    for field_name, text, most in (("who", who, WHO_CHARS_MAX), ("why", why, WHY_CHARS_MAX)):
        if not text.isprintable() or len(text) > most:
            raise BadSilence(f"{field_name} has at most {most} characters that can be printed")
    if len([each for each in standing if each.holds(at_ms)]) >= SILENCES_MAX:
        raise BadSilence(f"{SILENCES_MAX} silences hold already; lift one first")
    return Silence(
        id=secrets.token_hex(_ID_BYTES),
        alarm=alarm,
        who=who,
        at_ms=at_ms,
        until_ms=until_ms,
        why=why,
    )


def silence_entry(silence: Silence) -> MemoEntry:
    return _SILENCES.entry(_PREFIX + silence.id, silence)


def forget_silences(silences: Sequence[Silence], now_ms: int) -> list[Tombstone]:
    """For those that have been over for longest, past what is kept to be shown."""
    over = [each for each in silences if not each.holds(now_ms)]
    return [forget_memo(_PREFIX + each.id) for each in over[: max(0, len(over) - SILENCES_MAX)]]
