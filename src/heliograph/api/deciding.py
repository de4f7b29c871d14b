"""The routes that decide about lanes, over the functions of the commands. Driver only.

`POST /v1/decisions` takes every verb; `POST /v1/flows/{flow}:pause` and its like are the same with
flow and verb in the path. All need the role `operate` for the flow, but a rewind: it copies records
again or skips some, and needs `recover`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Header, Path, Query, Response
from pydantic import BaseModel

from heliograph.api.access import Caller, Role
from heliograph.api.bodies import (
    ChangeBody,
    DecideBody,
    DecidedBody,
    DecidedTogetherBody,
    DecisionBody,
    DecisionsBody,
    NewDecisionBody,
    TogetherBody,
    flow_problems,
)
from heliograph.api.etags import Shown, etag
from heliograph.api.flows import decided_ids, flow_version
from heliograph.api.problems import ApiProblem
from heliograph.api.responses import ETAG, LOCATION, json_of
from heliograph.api.state import ApiState, FlowName, Known, Looking, OnlyFlow, State, require
from heliograph.clock import now_ms
from heliograph.decisions.decide import (
    AsShown,
    Draft,
    NoSuchDecision,
    Outcome,
    decide,
    decide_together,
    read_decisions,
    withdraw,
)
from heliograph.decisions.decision import Decision, Verb, scope_of
from heliograph.decisions.orders import standing_of
from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import HOLDS, order_words, states_of
from heliograph.model import FlowId

routes: Final = APIRouter()
VERBS: Final = tuple(Verb)

_COMMANDS: Final = {
    Verb.THROTTLE_SOURCE: "throttle --cluster` with the flow's source and `--side read",
    Verb.THROTTLE_TARGET: "throttle --cluster` with the flow's target and `--side write",
}
"""What verbs are called on the command line, where it is not their name."""

DryRun = Annotated[bool, Query(description="Answer with what would change, and write nothing.")]
IfMatch = Annotated[
    str | None,
    Header(max_length=512, description="ETag of a dry run, or of what else the caller has seen."),
]
DecisionId = Annotated[str, Path(pattern="^[0-9a-f]{10}$", description="Of the decision.")]
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": DecidedBody, "description": "What would change, or that nothing does.", **ETAG},
    201: {"model": DecidedBody, "description": "The decision, which is in the ledger.", **LOCATION},
}


@routes.get("/v1/decisions", response_model=DecisionsBody)
async def decisions(
    state: State,
    caller: Looking,
    flow: OnlyFlow = None,
    history: Annotated[bool, Query(description="Also those that are over.")] = False,
) -> Response:
    """Decisions that hold; of one flow with the ETag that `If-Match` of a new one is compared
    with."""
    found, problems = await state.of_ledgers(state.visible(caller, flow), decisions_of)
    body = DecisionsBody(
        at_ms=now_ms(),
        decisions=[
            _body(of, each, word)
            for of in sorted(found)
            for each, word in states_of(found[of], now_ms())
            if history or word == HOLDS
        ],
        problems=flow_problems(problems),
    )
    tag = _tag(next(iter(found.values()))) if flow is not None and found else None
    return json_of(body, tag=tag)


@routes.post("/v1/decisions", response_model=None, responses=_ANSWERS)
async def decide_anew(
    state: State,
    caller: Known,
    asked: Annotated[NewDecisionBody, Body()],
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Decide; as the command of the verb's name."""
    flow = state.flow(asked.flow)
    require(caller, role_of(Verb(asked.verb)), flow)
    _, made = await read_decisions(state.live.ledgers, state.live.config, flow)
    shown = Shown(if_match, _tag(made), f"what was decided about {flow}")
    seen = None if if_match is None else _standing(made)
    return await _decide(state, caller, flow, Verb(asked.verb), asked, dry_run, shown, seen)


@routes.delete("/v1/decisions/{decision}", response_model=DecidedBody)
async def withdraw_decision(
    decision: DecisionId,
    state: State,
    caller: Known,
    flow: OnlyFlow = None,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Take a decision back; as `heliograph decisions --withdraw`."""
    found, _ = await state.of_ledgers(state.visible(caller, flow), decisions_of)
    of = next((of for of, made in found.items() if any(d.id == decision for d in made)), None)
    if of is None:
        raise NoSuchDecision(f"there is no decision {decision}")
    verb = next(each.verb for each in found[of] if each.id == decision)
    require(caller, role_of(verb), of)
    shown = Shown(if_match, _tag(found[of]), f"what was decided about {of}")
    seen = None if if_match is None else _standing(found[of])
    as_shown = _compared(shown, decision)
    live = state.live
    async with state.asking:
        outcome = await withdraw(
            live.ledgers,
            live.config,
            of,
            decision,
            caller.name,
            write=not dry_run,
            seen=seen,
            as_shown=as_shown,
        )
    if outcome.written:
        state.trail.changed(caller, "withdraw", of, f"decision={decision}")
    return json_of(_answer(outcome), tag=_tag_of_plan(shown, dry_run, decision, [outcome]))


def _route(verb: Verb) -> Callable[..., Awaitable[Response]]:
    async def decide_flow(
        flow: FlowName,
        state: State,
        caller: Known,
        asked: Annotated[DecideBody, Body()] = DecideBody(),  # noqa: B008 - FastAPI's way
        dry_run: DryRun = False,
        if_match: IfMatch = None,
    ) -> Response:
        wanted = state.flow(flow)
        require(caller, role_of(verb), wanted)
        shown = Shown(if_match, flow_version(state, wanted), f"flow {wanted}")
        seen = None if if_match is None else decided_ids(state, wanted)
        return await _decide(state, caller, wanted, verb, asked, dry_run, shown, seen)

    return decide_flow


for _verb in VERBS:
    routes.add_api_route(
        f"/v1/flows/{{flow:flow}}:{_verb}",
        _route(_verb),
        methods=["POST"],
        name=f"{_verb}_flow",
        response_model=None,
        responses=_ANSWERS,
        description=f"As `heliograph {_COMMANDS.get(_verb, _verb)}`.",
    )


@routes.post(
    "/v1/flows/{flow:flow}:together",
    response_model=None,
    responses={
        200: {"model": DecidedTogetherBody, "description": "What would change, or that all is so."},
        201: {"model": DecidedTogetherBody, "description": "The decisions, in the ledger."},
    },
)
async def decide_several(
    flow: FlowName,
    state: State,
    caller: Known,
    asked: Annotated[TogetherBody, Body()],
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Several decisions about a flow that act at once: all are made, or none."""
    wanted = state.flow(flow)
    for each in asked.decisions:
        require(caller, role_of(Verb(each.verb)), wanted)
    shown = Shown(if_match, flow_version(state, wanted), f"flow {wanted}")
    seen = None if if_match is None else decided_ids(state, wanted)
    drafts = [_draft(caller, Verb(each.verb), each) for each in asked.decisions]
    live = state.live
    async with state.asking:
        outcomes = await decide_together(
            live.ledgers,
            live.config,
            wanted,
            drafts,
            write=not dry_run,
            seen=seen,
            as_shown=_compared(shown, asked),
        )
    made = [each.decision for each in outcomes if each.written and each.decision is not None]
    for new in made:
        state.trail.changed(caller, new.verb, wanted, f"decision={new.id}")
    answer = json_of(
        DecidedTogetherBody(
            flow=str(wanted), written=bool(made), decisions=list(map(_answer, outcomes))
        ),
        tag=_tag_of_plan(shown, dry_run, asked, outcomes),
    )
    answer.status_code = 201 if made else 200
    return answer


def role_of(verb: Verb) -> Role:
    """What decides it, and takes it back."""
    return Role.RECOVER if verb is Verb.REWIND else Role.OPERATE


async def _decide(
    state: ApiState,
    caller: Caller,
    flow: FlowId,
    verb: Verb,
    asked: DecideBody,
    dry_run: bool,
    shown: Shown,
    seen: frozenset[str] | None,
) -> Response:
    draft = _draft(caller, verb, asked)
    live = state.live
    async with state.asking:
        outcome = await decide(
            live.ledgers,
            live.config,
            flow,
            draft,
            write=not dry_run,
            seen=seen,
            as_shown=_compared(shown, asked),
        )
    answer = json_of(_answer(outcome), tag=_tag_of_plan(shown, dry_run, asked, [outcome]))
    if outcome.written and outcome.decision is not None:
        state.trail.changed(caller, verb, flow, f"decision={outcome.decision.id}")
        answer.status_code = 201
        answer.headers["Location"] = f"/v1/decisions/{outcome.decision.id}"
    return answer


def _compared(shown: Shown, asked: BaseModel | str) -> AsShown:
    return lambda outcomes: shown.require(_plan(asked, outcomes))


def _tag_of_plan(
    shown: Shown, dry_run: bool, asked: BaseModel | str, outcomes: Sequence[Outcome]
) -> str | None:
    """Of a dry run, for `If-Match` of the same request in earnest."""
    return shown.tag(_plan(asked, outcomes)) if dry_run else None


def _plan(asked: BaseModel | str, outcomes: Sequence[Outcome]) -> object:
    """What was asked for, and which topics and partitions that changes."""
    changed = [[[each.topic, each.partition] for each in one.changes] for one in outcomes]
    return [asked if isinstance(asked, str) else asked.model_dump(mode="json"), changed]


def _draft(caller: Caller, verb: Verb, asked: DecideBody) -> Draft:
    if asked.for_s is not None and asked.until_ms is not None:
        raise ApiProblem(400, "until_ms and for_s are two ways to say the same; send one")
    if verb is Verb.REWIND and asked.offset is None:
        # Left out by mistake it would mean that everything is copied again.
        raise ApiProblem(
            400, 'a rewind says where to: "offset" is one of the source, or "earliest"'
        )
    if verb is not Verb.REWIND and asked.offset is not None:
        raise ApiProblem(400, f"{verb} has no offset")
    return Draft(
        verb=verb,
        scope=scope_of(tuple(asked.topics), tuple(asked.partitions)),
        who=caller.name,
        why=asked.why,
        until_ms=asked.until_ms if asked.for_s is None else now_ms() + 1000 * asked.for_s,
        bytes_per_s=asked.bytes_per_s,
        slots=tuple(sorted(set(asked.slots))),
        offset=asked.offset if isinstance(asked.offset, int) else None,
    )


def _answer(outcome: Outcome) -> DecidedBody:
    decision = outcome.decision
    word = "" if decision is None else "withdrawn" if decision.withdrawn is not None else HOLDS
    return DecidedBody(
        flow=str(outcome.flow),
        written=outcome.written,
        decision=None if decision is None else _body(outcome.flow, decision, word),
        changes=[
            ChangeBody(
                topic=each.topic,
                partition=each.partition,
                before=order_words(each.before),
                after=order_words(each.after),
            )
            for each in outcome.changes
        ],
        remarks=list(outcome.remarks),
    )


def _body(flow: FlowId, decision: Decision, state: str) -> DecisionBody:
    return DecisionBody(
        flow=str(flow),
        id=decision.id,
        state=state,
        verb=decision.verb.value,
        topics=[*decision.scope.topics, *decision.scope.patterns],
        partitions=list(decision.scope.partitions),
        bytes_per_s=decision.bytes_per_s,
        slots=list(decision.slots),
        offset=decision.offset,
        who=decision.who,
        at_ms=decision.at_ms,
        why=decision.why or None,
        until_ms=decision.until_ms,
        withdrawn_by=None if decision.withdrawn is None else decision.withdrawn.who,
    )


def _standing(made: tuple[Decision, ...]) -> frozenset[str]:
    return frozenset(each.id for each in standing_of(made, now_ms()))


def _tag(made: tuple[Decision, ...]) -> str:
    return etag(sorted(_standing(made)))
