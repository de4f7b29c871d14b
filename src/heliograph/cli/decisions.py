"""`heliograph decisions`: what was decided, by whom, and its withdrawal. Driver only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from heliograph.cli.decide import operator, outcomes, show
from heliograph.cli.decision_tables import DecisionDocument, decision_table
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, DryRun, File, OnlyFlow
from heliograph.cli.output import print_json, remarks, results
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.decide import NoSuchDecision, Outcome, read_decisions, withdraw
from heliograph.decisions.decision import Decision
from heliograph.decisions.record import unreadable_of
from heliograph.decisions.words import HOLDS, states_of
from heliograph.ledger.access import LedgerAccess
from heliograph.model import FlowId

DECISIONS_HELP: Final = """Show what was decided about the lanes, and take it back.

Lists the decisions that hold: pauses, throttles, pins and the like, each with who made it, when,
why and until when. With --history also the last 200 that are over, and why they are. With
--withdraw a decision is taken back, as if its end had come.

Examples:

  heliograph decisions mm2.properties --history

  heliograph decisions mm2.properties --withdraw 3f2a9c41d0
"""


def decisions(
    file: File,
    flow: OnlyFlow = None,
    history: Annotated[
        bool, typer.Option("--history", help="Also those that are over, the oldest first.")
    ] = False,
    withdrawn: Annotated[
        str | None, typer.Option("--withdraw", metavar="ID", help="Take this decision back.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if withdrawn is not None:
        show(_withdrawn(config, flows, withdrawn, write=not dry_run), as_json=as_json)
        return
    found = asyncio.run(_read(config, flows))
    rows = [
        (flow_id, each, state)
        for flow_id, (made, _) in found.items()
        for each, state in states_of(made, now_ms())
        if history or state == HOLDS
    ]
    for flow_id, (_, unreadable) in found.items():
        for sentence in unreadable:
            remarks().print(f"{flow_id}: not followed: {sentence}", soft_wrap=True)
    if as_json:
        print_json(
            {
                "decisions": [
                    {"flow": str(of), "state": state, **DecisionDocument.of(each).plain()}
                    for of, each, state in rows
                ]
            }
        )
    elif rows:
        results().print(decision_table([(str(of), each, state) for of, each, state in rows]))
    else:
        remarks().print("no decision was made" if history else "no decision holds")


async def _read(
    config: MirrorConfig, flows: Sequence[FlowId]
) -> dict[FlowId, tuple[Sequence[Decision], Sequence[str]]]:
    ledgers = LedgerAccess(config.clusters)
    try:
        found: dict[FlowId, tuple[Sequence[Decision], Sequence[str]]] = {}
        for flow in flows:
            view, made = await read_decisions(ledgers, config, flow)
            found[flow] = made, unreadable_of(view)
        return found
    finally:
        await ledgers.close()


def _withdrawn(
    config: MirrorConfig, flows: Sequence[FlowId], id_: str, *, write: bool
) -> list[Outcome]:
    """From the flow that has it."""

    async def holder(ledgers: LedgerAccess) -> FlowId:
        for flow in flows:
            _, made = await read_decisions(ledgers, config, flow)
            if any(each.id == id_ for each in made):
                return flow
        raise NoSuchDecision(f"no flow of the file has a decision {id_}")

    async def find() -> FlowId:
        ledgers = LedgerAccess(config.clusters)
        try:
            return await holder(ledgers)
        finally:
            await ledgers.close()

    async def take_back(ledgers: LedgerAccess, flow: FlowId) -> Outcome:
        return await withdraw(ledgers, config, flow, id_, operator(), write=write)

    return outcomes(config, [asyncio.run(find())], take_back)
