"""Alarms as they are shown, wherever they are shown. No I/O; runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heliograph.health.alarms import alarm_id
from heliograph.health.note import AlarmsNote, Silence, alarms_note, silenced_by, silences_of
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRow:
    id: str
    alarm: str
    """`lag:orders`, or `canary`."""
    state: str
    """open or ended."""
    text: str
    raised_ms: int
    ended_ms: int | None
    silenced: Silence | None

    @property
    def is_heard(self) -> bool:
        return self.ended_ms is None and self.silenced is None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowAlarms:
    flow: str
    alarms: tuple[AlarmRow, ...]
    """Open ones, then those that ended, the newest first."""
    silences: tuple[Silence, ...]
    """Those that hold."""

    def without_history(self) -> FlowAlarms:
        return replace(self, alarms=tuple(row for row in self.alarms if row.ended_ms is None))


Kept = tuple[AlarmsNote, tuple[Silence, ...]]


def kept_in(view: LedgerView) -> Kept:
    """What a ledger has of alarms; it does not change with the view."""
    return alarms_note(view), silences_of(view)


def alarms_of(found: Kept, flow: FlowId, now_ms: int) -> FlowAlarms:
    note, silences = found
    return FlowAlarms(
        flow=str(flow),
        alarms=tuple(
            AlarmRow(
                id=alarm_id(str(flow), alarm.name),
                alarm=alarm.name,
                state="open" if alarm.is_open else "ended",
                text=alarm.text,
                raised_ms=alarm.raised_ms,
                ended_ms=alarm.ended_ms,
                silenced=silenced_by(alarm, silences, now_ms) if alarm.is_open else None,
            )
            for alarm in note.alarms
        ),
        silences=tuple(each for each in silences if each.holds(now_ms)),
    )
