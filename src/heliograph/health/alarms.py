"""Alarms: raised once, told once, ended once. No I/O, no clock; runs anywhere.

`judge` takes what is wrong now (`conditions`), the alarms there are and the time, and gives the
alarms there are then. What must last before an alarm is raised or ends is counted in `Patience`,
which a driver has in memory: one that takes over counts anew, and keeps the alarms, which are in
the ledger (`note`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from pydantic import Field

from heliograph.health.conditions import OF_LANES, OTHERS, Condition, Kind, Level

HISTORY_MAX: Final = 50
_ID_CHARS: Final = 10
Told = Literal["nothing", "raised", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    kind: Kind
    subject: Annotated[str, Field(max_length=300)] = ""
    text: Annotated[str, Field(max_length=300)] = ""
    """As it was when the alarm was raised."""
    raised_ms: int
    ended_ms: int | None = None
    told: Told = "nothing"
    """What the webhook and the command were told of last."""

    @property
    def key(self) -> tuple[Kind, str]:
        return self.kind, self.subject

    @property
    def name(self) -> str:
        """`lag:orders`, or `canary`."""
        return f"{self.kind}:{self.subject}" if self.subject else str(self.kind)

    @property
    def is_open(self) -> bool:
        return self.ended_ms is None


def alarm_id(flow: str, name: str) -> str:
    """Of an alarm of one flow; the same whenever it is raised again."""
    return hashlib.sha256(f"{flow}|{name}".encode()).hexdigest()[:_ID_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Since when subjects are bad that have no alarm yet, and good that still have one."""

    bad_ms: Mapping[tuple[Kind, str], int] = field(default_factory=dict)
    good_ms: Mapping[tuple[Kind, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    alarms: tuple[Alarm, ...]
    """Open ones, and those that have ended: the newest `HISTORY_MAX`, and all that are not told."""
    patience: Patience
    raised: tuple[Alarm, ...] = ()
    ended: tuple[Alarm, ...] = ()


def judge(
    found: Iterable[Condition],
    alarms: Iterable[Alarm],
    patience: Patience,
    now_ms: int,
    *,
    clear_s: float,
    is_known: bool = True,
) -> Judged:
    """One look. Without `is_known`, topics that are not in `found` are not known to be well."""
    now = {condition.key: condition for condition in found}
    known = list(alarms)
    open_ones = {alarm.key: alarm for alarm in known if alarm.is_open}
    bad_ms: dict[tuple[Kind, str], int] = {}
    good_ms: dict[tuple[Kind, str], int] = {}
    raised: list[Alarm] = []
    ended: list[Alarm] = []
    for key, condition in now.items():
        if key in open_ones or condition.level is not Level.BAD:
            continue
        since_ms = min(patience.bad_ms.get(key, now_ms), now_ms)
        if now_ms - since_ms >= 1000 * condition.lasts_s:
            raised.append(
                Alarm(
                    kind=condition.kind,
                    subject=condition.subject,
                    text=condition.text,
                    raised_ms=now_ms,
                )
            )
        else:
            bad_ms[key] = since_ms
    for key, alarm in open_ones.items():
        if key in now or not (is_known or key[0] not in OF_LANES):
            continue
        since_ms = min(patience.good_ms.get(key, now_ms), now_ms)
        if now_ms - since_ms >= 1000 * clear_s:
            ended.append(replace(alarm, ended_ms=now_ms))
        else:
            good_ms[key] = since_ms
    over = {alarm.key: alarm for alarm in ended}
    after = [over.get(alarm.key, alarm) if alarm.is_open else alarm for alarm in known]
    return Judged(
        alarms=kept((*after, *raised)),
        patience=Patience(bad_ms=bad_ms, good_ms=good_ms),
        raised=tuple(raised),
        ended=tuple(ended),
    )


def kept(alarms: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """Open ones first, then those that ended, the newest first and not for ever."""
    every = list(alarms)
    open_ones = sorted((alarm for alarm in every if alarm.is_open), key=lambda alarm: alarm.key)
    over = sorted(
        (alarm for alarm in every if not alarm.is_open),
        key=lambda alarm: (-(alarm.ended_ms or 0), alarm.key),
    )
    return (*open_ones, *over[:HISTORY_MAX])


def to_tell(alarms: Iterable[Alarm], is_silenced: Mapping[tuple[Kind, str], bool]) -> list[Alarm]:
    """Alarms of which the webhook and the command have not heard what they are now.

    A silenced alarm is told when its silence ends; the end of one that was told is told always, so
    that whoever was woken hears that all is well.
    """

    def is_news(alarm: Alarm) -> bool:
        if alarm.is_open:
            return alarm.told == "nothing" and not is_silenced.get(alarm.key)
        return alarm.told == "raised"

    return [alarm for alarm in alarms if is_news(alarm)]


def as_told(alarms: Iterable[Alarm], told: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """The alarms, once these have been told."""
    heard = {(alarm.key, alarm.raised_ms) for alarm in told}
    return tuple(
        replace(alarm, told="raised" if alarm.is_open else "ended")
        if (alarm.key, alarm.raised_ms) in heard
        else alarm
        for alarm in alarms
    )


def open_subjects(alarms: Iterable[Alarm]) -> dict[Kind, frozenset[str]]:
    found: dict[Kind, set[str]] = {}
    for alarm in alarms:
        if alarm.is_open and alarm.subject != OTHERS:
            found.setdefault(alarm.kind, set()).add(alarm.subject)
    return {kind: frozenset(subjects) for kind, subjects in found.items()}
