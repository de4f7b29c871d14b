"""Silence an alarm, lift a silence: for commands and the API. Runs on the driver."""

from __future__ import annotations

from dataclasses import replace

from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.decision import Withdrawal
from heliograph.errors import LeaderMoved, MirrorError
from heliograph.health.alarms import Alarm, alarm_id
from heliograph.health.note import (
    Silence,
    alarms_note,
    forget_silences,
    new_silence,
    silence_entry,
    silences_of,
)
from heliograph.ledger.access import LedgerAccess, ensure_ledger
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId


class NoSuchAlarm(MirrorError):
    """No flow has an alarm or a silence of that id."""


async def read_view(ledgers: LedgerAccess, flow: FlowId) -> LedgerView:
    """Empty where nothing was mirrored yet. Raises `BrokerError`."""
    try:
        return await ledgers.view(flow)
    except LeaderMoved:
        return LedgerView()


async def silence(
    ledgers: LedgerAccess,
    config: MirrorConfig,
    flow: FlowId,
    alarm: str,
    *,
    who: str,
    why: str,
    until_ms: int,
) -> Silence:
    """`alarm` is a kind, `kind:subject`, `*`, or the id of an alarm; the ledger is made if there is
    none. Raises `MirrorError`."""
    try:
        view = await ledgers.view(flow)
    except LeaderMoved:
        await ensure_ledger(config, flow)
        view = await ledgers.view(flow)
    known, at_ms = silences_of(view), now_ms()
    found = with_id(alarms_note(view).alarms, flow, alarm)
    made = new_silence(
        alarm if found is None else found.name,
        who=who,
        why=why,
        at_ms=at_ms,
        until_ms=until_ms,
        standing=known,
    )
    await ledgers.note(flow, [silence_entry(made), *forget_silences((*known, made), at_ms)])
    return made


async def lift(ledgers: LedgerAccess, flow: FlowId, id_: str, who: str) -> Silence:
    """Raises `NoSuchAlarm` where the flow has none of that id that holds."""
    known, at_ms = silences_of(await read_view(ledgers, flow)), now_ms()
    for each in known:
        if each.id == id_ and each.holds(at_ms):
            over = replace(each, lifted=Withdrawal(who=who, at_ms=at_ms))
            await ledgers.note(flow, [silence_entry(over)])
            return over
    raise NoSuchAlarm(f"{flow} has no silence {id_} that holds")


def with_id(alarms: tuple[Alarm, ...], flow: FlowId, id_: str) -> Alarm | None:
    return next((each for each in alarms if alarm_id(str(flow), each.name) == id_), None)
