"""The verbs that leave a cluster and come back, in Cluster Linking's words. Driver only.

Each is one row of `VERBS` and one route; `_carry_out` has what they share: the role, the version
the caller has seen, the dry run, the trail, the operation. They run on threads with loops of their
own, so that a comparison of records never holds up the driver's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Header, Query, Response

from heliograph.api.access import Caller, Role
from heliograph.api.bodies import PlanBody, RecoverBody, ReverseBody
from heliograph.api.etags import Shown
from heliograph.api.flows import flow_version
from heliograph.api.operations import OperationBody
from heliograph.api.problems import ApiProblem
from heliograph.api.responses import ETAG, LOCATION, json_of
from heliograph.api.state import ApiState, FlowName, Known, State, require
from heliograph.clock import ms_of
from heliograph.config.schema import MirrorConfig
from heliograph.failback import command as failback
from heliograph.failback.context import FailbackOrder
from heliograph.failback.divergence import Choice
from heliograph.failback.document import plan_of as failback_plan
from heliograph.failback.document import preview_document as failback_preview
from heliograph.failback.document import report_document as failback_report
from heliograph.failover import command as failover
from heliograph.failover.command import FailoverOrder
from heliograph.failover.document import plan_of as failover_plan
from heliograph.failover.document import preview_document as failover_preview
from heliograph.failover.document import report_document as failover_report
from heliograph.failover.outputs import Mode
from heliograph.model import FlowId, TopicName
from heliograph.procedure.runner import Say

routes: Final = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    refusal: str
    """Why it would be refused; empty where it would not."""
    shown: dict[str, Any]
    """What would be done."""
    decided_on: dict[str, Any]
    """What of that the caller agrees to, who sends the plan's ETag."""


Check = Callable[[dict[str, Any]], None]
"""Gets what is about to be done, and raises `PlanChanged` where it is not what was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Something that may be done to a flow, and what it takes."""

    name: str
    role: Role


FAILOVER: Final = Verb(name="failover", role=Role.RECOVER)
PROMOTE: Final = Verb(name="promote", role=Role.RECOVER)
REVERSE: Final = Verb(name="reverse", role=Role.RECOVER)
RESTORE: Final = Verb(name="restore", role=Role.RECOVER)
VERBS: Final = (FAILOVER, PROMOTE, REVERSE, RESTORE)

DryRun = Annotated[bool, Query(description="Answer with the plan and change nothing.")]
IfMatch = Annotated[
    str | None,
    Header(max_length=512, description="ETag of a dry run, or of the flow, as the caller saw it."),
]
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": PlanBody, "description": "The plan, of a dry run.", **ETAG},
    202: {"model": OperationBody, "description": "The operation that was begun.", **LOCATION},
}


@routes.post("/v1/flows/{flow:flow}:failover", response_model=None, responses=_ANSWERS)
async def failover_flow(
    flow: FlowName,
    state: State,
    caller: Known,
    asked: Annotated[RecoverBody, Body()] = RecoverBody(),  # noqa: B008 - FastAPI's way
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Leave the source of the flow now, without it; as `heliograph failover`."""
    return await _leave(FAILOVER, flow, state, caller, asked, dry_run, if_match)


@routes.post("/v1/flows/{flow:flow}:promote", response_model=None, responses=_ANSWERS)
async def promote_flow(
    flow: FlowName,
    state: State,
    caller: Known,
    asked: Annotated[RecoverBody, Body()] = RecoverBody(),  # noqa: B008
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Drain, compare, then leave the source; as `heliograph failover --planned`."""
    return await _leave(PROMOTE, flow, state, caller, asked, dry_run, if_match)


@routes.post("/v1/flows/{flow:flow}:reverse", response_model=None, responses=_ANSWERS)
async def reverse_flow(
    flow: FlowName,
    state: State,
    caller: Known,
    asked: Annotated[ReverseBody, Body()] = ReverseBody(),  # noqa: B008
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Carry what changed back to the old source; as `heliograph failback`."""
    choice = Choice.RESYNC if asked.resync else Choice.NONE
    return await _come_back(REVERSE, flow, state, caller, asked, choice, dry_run, if_match)


@routes.post("/v1/flows/{flow:flow}:restore", response_model=None, responses=_ANSWERS)
async def restore_flow(
    flow: FlowName,
    state: State,
    caller: Known,
    asked: Annotated[ReverseBody, Body()] = ReverseBody(),  # noqa: B008
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Delete the topics on the old source and copy everything; as `heliograph failback --wipe`."""
    if asked.resync:
        raise ApiProblem(400, "resync and restore are two ways; :reverse takes resync")
    return await _come_back(RESTORE, flow, state, caller, asked, Choice.WIPE, dry_run, if_match)


async def _leave(
    verb: Verb,
    flow: str,
    state: ApiState,
    caller: Caller,
    asked: RecoverBody,
    dry_run: bool,
    if_match: str | None,
) -> Response:
    config = state.live.config

    def order(of: FlowId) -> FailoverOrder:
        mode: Mode = "planned" if verb is PROMOTE else "unplanned"
        topics = None if asked.topics is None else tuple(map(TopicName, asked.topics))
        return FailoverOrder(
            flow=of,
            mode=mode,
            skip_active=asked.skip_active,
            topics=topics,
            cut_ms=None if asked.cut is None else ms_of(asked.cut),
            who=caller.name,
        )

    def plan(of: FlowId) -> Plan:
        found = asyncio.run(failover.preview(config, order(of)))
        return Plan(
            refusal=found.refusal,
            shown=failover_preview(found),
            decided_on=failover_plan(found),
        )

    def work(of: FlowId, say: Say, check: Check | None) -> dict[str, Any]:
        as_shown = None if check is None else lambda found: check(failover_plan(found))
        return failover_report(asyncio.run(failover.fail_over(config, order(of), say, as_shown)))

    return await _carry_out(verb, flow, state, caller, plan, work, dry_run, if_match)


async def _come_back(
    verb: Verb,
    flow: str,
    state: ApiState,
    caller: Caller,
    asked: ReverseBody,
    choice: Choice,
    dry_run: bool,
    if_match: str | None,
) -> Response:
    config: MirrorConfig = state.live.config

    def order(of: FlowId) -> FailbackOrder:
        topics = None if asked.topics is None else tuple(map(TopicName, asked.topics))
        return FailbackOrder(
            flow=of, choice=choice, may_delete=asked.may_delete, topics=topics, who=caller.name
        )

    def plan(of: FlowId) -> Plan:
        found = asyncio.run(failback.preview(config, order(of)))
        return Plan(refusal="", shown=failback_preview(found), decided_on=failback_plan(found))

    def work(of: FlowId, say: Say, check: Check | None) -> dict[str, Any]:
        as_shown = None if check is None else lambda found: check(failback_plan(found))
        return failback_report(asyncio.run(failback.fail_back(config, order(of), say, as_shown)))

    return await _carry_out(verb, flow, state, caller, plan, work, dry_run, if_match)


async def _carry_out(
    verb: Verb,
    flow: str,
    state: ApiState,
    caller: Caller,
    plan: Callable[[FlowId], Plan],
    work: Callable[[FlowId, Say, Check | None], dict[str, Any]],
    dry_run: bool,
    if_match: str | None,
) -> Response:
    wanted = state.flow(flow)
    require(caller, verb.role, wanted)
    shown = Shown(if_match, flow_version(state, wanted), f"flow {wanted}")
    if dry_run:
        async with state.asking:
            found = await state.off_loop(plan, wanted)
        shown.require(found.decided_on)
        body = PlanBody(
            verb=verb.name,
            flow=str(wanted),
            refusal=found.refusal or None,
            plan=found.shown,
        )
        return json_of(body, tag=shown.tag(found.decided_on))
    accepted, loop = asyncio.Event(), asyncio.get_running_loop()

    def check(found: dict[str, Any]) -> None:
        shown.require(found)
        loop.call_soon_threadsafe(accepted.set)

    begun = state.operations.begin(
        verb.name,
        wanted,
        caller.name,
        lambda say: work(wanted, say, check if shown.is_plan else None),
    )
    if shown.is_plan:
        await state.operations.accepted(begun, accepted)
    state.trail.changed(caller, verb.name, wanted, f"operation={begun.id}")
    answer = json_of(begun)
    answer.status_code = 202
    answer.headers["Location"] = f"/v1/operations/{begun.id}"
    return answer
