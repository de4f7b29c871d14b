"""`heliograph decisions`: what was decided, by whom, and its withdrawal. Driver only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer

from heliograph.cli.decide import outcomes, show
from heliograph.cli.decision_tables import (
    DecisionDocument,
    change_history_table,
    decision_table,
)
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
from heliograph.ledger.fence import Fence, topic_fences
from heliograph.ledger.trail import Change, changes_of
from heliograph.model import FlowId, TopicName
from heliograph.processes import operator

DECISIONS_HELP: Final = """Show what was decided about the lanes, and take it back.

Lists the decisions that hold: pauses, throttles, pins and the like, each with who made it, when,
why and until when, and the topics that were failed over alone. With --history also the last 200
that are over, and why they are, and the last 500 other changes of each flow: failovers and
failbacks, resets, adoptions, releases, drills and connectors, each with who, when and its outcome.
With --withdraw a decision is taken back, as if its end had come.

Examples:

  heliograph decisions mm2.properties --history

  heliograph decisions mm2.properties --withdraw 3f2a9c41d0
"""


def decisions(
    file: File,
    flow: OnlyFlow = None,
    history: Annotated[
        bool, typer.Option("--history", help="Also what is over, and every other change.")
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
        (str(flow_id), each, state)
        for flow_id, of in found.items()
        for each, state in states_of(of.made, now_ms())
        if history or state == HOLDS
    ]
    changes = [(str(f), each) for f, of in found.items() for each in of.changes if history]
    for flow_id, of in found.items():
        for sentence in of.unreadable:
            remarks().print(f"{flow_id}: not followed: {sentence}", soft_wrap=True)
    if as_json:
        print_json(_document(rows, changes, found, history=history))
        return
    if rows:
        results().print(decision_table(rows))
    else:
        remarks().print("no decision was made" if history else "no decision holds")
    for flow_id, of in found.items():
        for topic, fence in sorted(of.failed_over.items()):
            results().print(f"{flow_id}: {topic}: {fence.why}", soft_wrap=True)
    if changes:
        results().print("")
        results().print(change_history_table(changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What the ledger of one flow says."""

    made: Sequence[Decision]
    unreadable: Sequence[str]
    changes: Sequence[Change]
    failed_over: Mapping[TopicName, Fence]


def _document(
    rows: Sequence[tuple[str, Decision, str]],
    changes: Sequence[tuple[str, Change]],
    found: Mapping[FlowId, _Read],
    *,
    history: bool,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "decisions": [
            {"flow": of, "state": state, **DecisionDocument.of(each).plain()}
            for of, each, state in rows
        ],
        "failed_over": [
            {"flow": str(flow), "topic": topic, "at_ms": fence.at_ms, "why": fence.why}
            for flow, of in found.items()
            for topic, fence in sorted(of.failed_over.items())
        ],
    }
    if history:
        document["changes"] = [{"flow": of, **asdict(each)} for of, each in changes]
    return document


async def _read(config: MirrorConfig, flows: Sequence[FlowId]) -> dict[FlowId, _Read]:
    ledgers = LedgerAccess(config.clusters)
    try:
        found: dict[FlowId, _Read] = {}
        for flow in flows:
            view, made = await read_decisions(ledgers, config, flow)
            found[flow] = _Read(
                made=made,
                unreadable=unreadable_of(view),
                changes=changes_of(view),
                failed_over=topic_fences(view),
            )
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
