"""The routes about what ledgers and clusters have: losses, drills, audits, history, groups.

Driver only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from heliograph.api.bodies import (
    AuditBody,
    AuditsBody,
    DrillBody,
    DrillsBody,
    HistoryBody,
    HistoryRow,
    LastAuditBody,
    LossBody,
    LossesBody,
    flow_problems,
)
from heliograph.api.problems import ApiProblem
from heliograph.api.responses import json_of
from heliograph.api.state import Looking, OnlyFlow, State
from heliograph.audit.plan import AuditEndNote, last_audit
from heliograph.clock import now_ms
from heliograph.decisions.history import history_of
from heliograph.errors import WireError
from heliograph.inspect.groups import GroupsStatus, read_groups
from heliograph.inspect.groups_document import GroupsDocument
from heliograph.ledger.drill_note import last_of, next_due_ms, schedule_of
from heliograph.ledger.entries import LossEntry
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId

routes: Final = APIRouter()

LOSSES_MAX: Final = 10_000
HISTORY_MAX: Final = 10_000
_REGEX_CHARS_MAX: Final = 256


@routes.get("/v1/losses", response_model=LossesBody)
async def losses(state: State, caller: Looking, flow: OnlyFlow = None) -> Response:
    """Source offsets that were gone before they could be copied, the newest first."""
    found, problems = await state.of_ledgers(state.visible(caller, flow), lambda view: view.losses)
    return await state.off_loop(_losses, found, problems)


@routes.get("/v1/drills", response_model=DrillsBody)
async def drills(state: State, caller: Looking, flow: OnlyFlow = None) -> Response:
    """When each flow is drilled, and how its last drill went."""
    found, problems = await state.of_ledgers(state.visible(caller, flow), drill_of)
    return json_of(
        DrillsBody(
            at_ms=now_ms(),
            drills=[found[flow].model_copy(update={"flow": str(flow)}) for flow in sorted(found)],
            problems=flow_problems(problems),
        )
    )


@routes.get("/v1/audits", response_model=AuditsBody)
async def audits(state: State, caller: Looking, flow: OnlyFlow = None) -> Response:
    """What the last audit of each flow found."""
    found, problems = await state.of_ledgers(state.visible(caller, flow), last_audit)
    return json_of(
        AuditsBody(
            at_ms=now_ms(),
            audits=[_audit(flow, found[flow]) for flow in sorted(found)],
            problems=flow_problems(problems),
        )
    )


@routes.get("/v1/history", response_model=HistoryBody)
async def history(
    state: State,
    caller: Looking,
    flow: OnlyFlow = None,
    limit: Annotated[int, Query(ge=1, le=HISTORY_MAX, description="Rows at most.")] = 1_000,
) -> Response:
    """Who changed what, when, and what became of it; as `heliograph decisions --history`."""
    at_ms = now_ms()
    found, problems = await state.of_ledgers(
        state.visible(caller, flow), lambda view: history_of(view, at_ms)
    )
    rows = [(of, each) for of, changes in found.items() for each in changes]
    rows.sort(key=lambda row: (-row[1].at_ms, row[0], row[1].id))
    return json_of(
        HistoryBody(
            at_ms=at_ms,
            total=len(rows),
            changes=[HistoryRow(flow=str(of), **asdict(each)) for of, each in rows[:limit]],
            problems=flow_problems(problems),
        )
    )


@routes.get("/v1/groups", response_model=GroupsDocument)
async def groups(
    state: State,
    caller: Looking,
    flow: OnlyFlow = None,
    group: Annotated[
        str | None,
        Query(
            max_length=_REGEX_CHARS_MAX,
            description="Only groups whose whole id matches this regular expression.",
        ),
    ] = None,
) -> Response:
    """Where consumer groups stand on both sides; both clusters are asked, which takes seconds."""
    try:
        wanted = re.compile(".*" if group is None else group, re.DOTALL)
    except re.error as exc:
        raise ApiProblem(400, f"group is no regular expression: {exc}") from exc
    visible = sorted(state.visible(caller, flow))
    config = state.live.config

    def read() -> GroupsStatus:
        # A loop of its own: the driver's answers beats meanwhile.
        return asyncio.run(
            read_groups(config, visible, lambda name: wanted.fullmatch(name) is not None)
        )

    async with state.asking:
        found = await state.off_loop(read)
    return json_of(GroupsDocument.of(found))


def _losses(
    found: Mapping[FlowId, tuple[LossEntry, ...]], problems: Mapping[FlowId, str]
) -> Response:
    bodies = [_loss(flow, loss) for flow, each in found.items() for loss in each]
    bodies.sort(key=lambda loss: (-loss.at_ms, loss.flow, loss.topic, loss.partition))
    return json_of(
        LossesBody(
            at_ms=now_ms(),
            total=len(bodies),
            losses=bodies[:LOSSES_MAX],
            problems=flow_problems(problems),
        )
    )


def _loss(flow: FlowId, loss: LossEntry) -> LossBody:
    return LossBody(
        flow=str(flow),
        topic=loss.topic,
        partition=loss.partition,
        position=loss.position,
        lost_offsets=(loss.lost.start, loss.lost.end),
        lost_records_max=loss.lost.count,
        reason=loss.reason.value,
        at_ms=loss.at_ms,
    )


def drill_of(view: LedgerView) -> DrillBody:
    try:
        schedule = schedule_of(view)
    except WireError:
        # `heliograph run` says so: its job cannot follow the schedule either.
        schedule = None
    last = last_of(view)
    due_ms = None if schedule is None else next_due_ms(schedule, last)
    return DrillBody(flow="", schedule=schedule, next_due_ms=due_ms, last=last)


def _audit(flow: FlowId, note: AuditEndNote | None) -> AuditBody:
    if note is None:
        return AuditBody(flow=str(flow), last=None)
    findings = {kind.value: records for kind, records in note.findings.items()}
    last = LastAuditBody(at_ms=note.at_ms, records=note.records, findings=findings)
    return AuditBody(flow=str(flow), last=last)
