"""`heliograph alarms` and `silence`: what is wrong, since when, and who need not hear. Driver
only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from heliograph.cli.decide import Flows, Why, flows_of, outcomes
from heliograph.cli.document import Document
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, File, OnlyFlow, time_ms
from heliograph.cli.output import EXIT_STALLED, print_json, remarks, results
from heliograph.cli.tables import ago, new_table
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.health.listing import AlarmRow, FlowAlarms, alarms_of, kept_in
from heliograph.health.note import Silence
from heliograph.health.silencing import lift, read_view
from heliograph.health.silencing import silence as silence_alarm
from heliograph.ledger.access import LedgerAccess
from heliograph.model import FlowId
from heliograph.processes import operator
from heliograph.words import seconds_of

ALARMS_HELP: Final = """Show what is wrong with the flows, and since when.

Lists the alarms that are open, with who silenced one and until when, as the driver that leads the
flow keeps them in its ledger. With --history also the last 50 that ended. An alarm that wavers
around its limit is raised once: it ends when all has been well for `alarms.clear.seconds`.

Exits with 3 while an alarm is open that is not silenced.

Examples:

  heliograph alarms mm2.properties

  heliograph alarms mm2.properties --flow 'A->B' --history --json
"""

SILENCE_HELP: Final = """Tell no one of an alarm until a time.

The alarm is still raised, logged and listed, with who silenced it and why; the webhook and the
command hear of it when the silence ends, if it is still open. ALARM is a kind such as `lag`, a kind
and a topic such as `lag:orders`, the id of an alarm, or `*` for all. The silence is kept in the
ledger of the flow, on the target: it holds for every driver, also one that takes over.

Examples:

  heliograph silence mm2.properties lag:orders --until 2h --why 'orders are loaded again'

  heliograph silence mm2.properties --lift 3f2a9c41d0
"""


class _Silence(Document):
    id: str
    alarm: str
    who: str
    at_ms: int
    until_ms: int
    why: str


class _Alarm(Document):
    id: str
    alarm: str
    state: str
    text: str
    raised_ms: int
    ended_ms: int | None
    silenced: _Silence | None


class _Flow(Document):
    flow: str
    alarms: tuple[_Alarm, ...]
    silences: tuple[_Silence, ...]


class AlarmsDocument(Document):
    at_ms: int
    flows: tuple[_Flow, ...]


def alarms(
    file: File,
    flow: OnlyFlow = None,
    history: Annotated[
        bool, typer.Option("--history", help="Also those that have ended, the newest first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    found = outcomes(config, chosen_flows(config, flow), _read)
    shown = [each if history else each.without_history() for each in found]
    if as_json:
        AlarmsDocument.of({"at_ms": now_ms(), "flows": tuple(shown)}).print()
    else:
        _print(shown)
    if any(row.is_heard for each in found for row in each.alarms):
        raise typer.Exit(EXIT_STALLED)


def silence(
    file: File,
    alarm: Annotated[
        str | None,
        typer.Argument(metavar="ALARM", help="A kind, kind:topic, an id, or `*`."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="How long, as 2h, or until when, ISO 8601."),
    ] = None,
    why: Why = "",
    lifted: Annotated[
        str | None, typer.Option("--lift", metavar="ID", help="End this silence now.")
    ] = None,
    flow: Flows = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = flows_of(config, flow)
    if (alarm is None) == (lifted is None):
        raise typer.BadParameter("name an alarm, or a silence with --lift")
    if lifted is not None:
        found = outcomes(config, flows, lambda ledgers, of: lift(ledgers, of, lifted, operator()))
    else:
        if until is None:
            raise typer.BadParameter("a silence needs its end: --until 2h")
        until_ms = _end_ms(until)
        found = outcomes(
            config,
            flows,
            lambda ledgers, of: silence_alarm(
                ledgers, config, of, alarm or "", who=operator(), why=why, until_ms=until_ms
            ),
        )
    _say(flows, found, as_json=as_json)


def _say(flows: Sequence[FlowId], found: Sequence[Silence], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"flow": str(of), **_Silence.of(each).plain(), "lifted": each.lifted is not None}
            for of, each in zip(flows, found, strict=True)
        ]
        print_json({"silences": rows})
        return
    for of, each in zip(flows, found, strict=True):
        if each.lifted is not None:
            remarks().print(f"{of}: silence {each.id} of {each.alarm} is lifted", soft_wrap=True)
            continue
        remarks().print(
            f"{of}: {each.alarm} is silenced until {_time(each.until_ms)} (silence {each.id})",
            soft_wrap=True,
        )


async def _read(ledgers: LedgerAccess, flow: FlowId) -> FlowAlarms:
    return alarms_of(kept_in(await read_view(ledgers, flow)), flow, now_ms())


def _end_ms(text: str) -> int:
    seconds = seconds_of(text)
    return now_ms() + 1000 * seconds if seconds is not None else time_ms(text, "--until")


def _print(found: Sequence[FlowAlarms]) -> None:
    rows = [(each.flow, row) for each in found for row in each.alarms]
    if not rows:
        remarks().print("no alarm")
        return
    table = new_table(
        [
            ("flow", "left"),
            ("alarm", "left"),
            ("state", "left"),
            ("since", "left"),
            ("what", "left"),
            ("silenced", "left"),
            ("id", "left"),
        ]
    )
    for flow, row in rows:
        table.add_row(
            flow, row.alarm, row.state, ago(row.raised_ms), row.text, _silenced(row), row.id
        )
    results().print(table)


def _silenced(row: AlarmRow) -> str:
    by = row.silenced
    if by is None:
        return ""
    return f"by {by.who} until {_time(by.until_ms)}{f': {by.why}' if by.why else ''}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
