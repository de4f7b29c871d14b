"""The routes that only look: the mirror as it runs. Driver only."""

from __future__ import annotations

import platform
from collections.abc import Callable, Hashable
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from pydantic_core import to_json

from heliograph import __version__
from heliograph.api.access import Role
from heliograph.api.bodies import (
    ConfigBody,
    FlowBody,
    FlowsBody,
    HealthBody,
    LanesBody,
    MovedBody,
    OperationsBody,
    PipelineBody,
    PipelinesBody,
    ReadyBody,
    SlotBody,
    SlotsBody,
    TopicsBody,
    VersionBody,
)
from heliograph.api.etags import etag_of_bytes
from heliograph.api.flows import Facts, flow_bodies, flow_version
from heliograph.api.lanes import (
    PAGE_SIZE,
    PAGE_SIZE_MAX,
    LaneRow,
    LaneStateWord,
    Listing,
    Rows,
    Snapshot,
    page_bytes,
    select,
    worst_first,
)
from heliograph.api.operations import OperationBody
from heliograph.api.problems import ApiProblem
from heliograph.api.responses import ETAG, json_of, json_of_bytes
from heliograph.api.state import (
    AnyCaller,
    ApiState,
    FlowName,
    Looking,
    OnlyFlow,
    State,
    require,
)
from heliograph.clock import monotonic_s, now_ms
from heliograph.engine.supervisor import SlotState
from heliograph.ledger.leadership import Standby
from heliograph.model import LaneId, TopicName, TopicPartition

routes: Final = APIRouter()

_SILENT_S_MAX: Final = 60.0
"""A mirror reports once a second; one that did not for so long has stopped."""

PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX, description="Rows of a page at most.")]
PageToken = Annotated[
    str | None,
    Query(max_length=64, description="`next_page_token` of the page before; filters stay its."),
]
OnlyTopic = Annotated[str | None, Query(max_length=249, description="Only this source topic.")]


@routes.get("/health", response_model=HealthBody, responses={503: {"model": HealthBody}})
async def health(state: State, response: Response) -> HealthBody:
    """Whether the driver works: 503 when it has to be started again."""
    status = state.live.status()
    if status is None:
        return HealthBody(status="starting", message=state.live.phase())
    silent_s = monotonic_s() - status.at_s
    if silent_s > _SILENT_S_MAX and state.live.phase() != "draining":
        response.status_code = 503
        message = f"the mirror has not reported for {silent_s:.0f} s"
        return HealthBody(status="unhealthy", message=message)
    return HealthBody(status="healthy", message="the driver works")


@routes.get("/ready", response_model=ReadyBody, responses={503: {"model": ReadyBody}})
async def ready(state: State, caller: AnyCaller, response: Response) -> ReadyBody:
    """Whether every flow is mirrored by this driver, or stood by for, or fenced on purpose."""
    reasons = _why_not_ready(state)
    if reasons:
        response.status_code = 503
    if caller is None or not all(caller.may(Role.LOOK, flow) for flow in state.flows):
        reasons = []
    return ReadyBody(ready=response.status_code != 503, reasons=reasons)


@routes.get("/v1/version", response_model=VersionBody)
async def version(state: State, caller: Looking) -> VersionBody:
    """What this driver is."""
    return VersionBody(
        version=__version__,
        python=platform.python_version(),
        began_ms=state.began_ms,
        phase=state.live.phase(),
    )


@routes.get("/v1/config", response_model=ConfigBody)
async def config(state: State, caller: Looking) -> ConfigBody:
    """Whether a changed configuration is followed, and what the last change was."""
    at = state.live.changed()
    sees_all = all(caller.may(Role.LOOK, flow) for flow in state.flows)
    return ConfigBody(
        followed=not at.problem,
        problem=at.problem or None if sees_all else None,
        applied_ms=at.applied_ms,
        changes=list(at.changes) if sees_all else [],
    )


@routes.get("/v1/flows", response_model=FlowsBody)
async def flows(state: State, caller: Looking) -> Response:
    """Every flow the caller may look at."""
    visible = state.visible(caller)

    def written(snapshot: Snapshot, facts: Facts) -> tuple[bytes, str]:
        found = flow_bodies(state, snapshot, visible, facts)
        body = FlowsBody(at_ms=snapshot.at_ms, flows=found).model_dump_json().encode()
        return body, etag_of_bytes(body)

    async def made() -> tuple[bytes, str]:
        facts = await state.facts(visible)
        return await state.off_loop(written, await state.snapshot(), facts)

    return json_of_bytes(*await state.pages.get(("flows", visible), made))


@routes.get("/v1/flows/{flow:flow}", response_model=FlowBody, responses={200: ETAG})
async def flow(flow: FlowName, state: State, caller: Looking) -> Response:
    """One flow. Its ETag changes with what was decided about it, not with its figures."""
    (wanted,) = state.visible(caller, flow)
    facts = await state.facts([wanted])
    (found,) = await state.off_loop(flow_bodies, state, await state.snapshot(), [wanted], facts)
    return json_of(found, tag=flow_version(state, wanted))


@routes.get("/v1/topics", response_model=TopicsBody)
async def topics(
    state: State,
    caller: Looking,
    flow: OnlyFlow = None,
    page_size: PageSize = PAGE_SIZE,
    page_token: PageToken = None,
) -> Response:
    """Topics with their lanes together, those with the worst lanes first."""

    def listed(snapshot: Snapshot) -> Listing[Any]:
        lanes = worst_first(select(snapshot.lanes, flows=visible))
        return Listing("topics", snapshot, Rows(snapshot).topics(lanes))

    if page_token is not None:
        return await _page(state, "topics", page_token, page_size)
    visible = state.visible(caller, flow)
    return await _first_page(state, ("topics", visible, page_size), listed, page_size)


@routes.get("/v1/lanes", response_model=LanesBody)
async def lanes(
    state: State,
    caller: Looking,
    flow: OnlyFlow = None,
    topic: OnlyTopic = None,
    lane_state: Annotated[
        LaneStateWord | None, Query(alias="state", description="Only lanes in this state.")
    ] = None,
    page_size: PageSize = PAGE_SIZE,
    page_token: PageToken = None,
) -> Response:
    """Lanes, the worst first: stalled, unknown, then by lag. Pages belong to one moment."""

    def listed(snapshot: Snapshot) -> Listing[Any]:
        chosen = select(snapshot.lanes, flows=visible, topic=topic, state=lane_state)
        return Listing("lanes", snapshot, worst_first(chosen))

    if page_token is not None:
        return await _page(state, "lanes", page_token, page_size)
    visible = state.visible(caller, flow)
    question = ("lanes", visible, topic, lane_state, page_size)
    return await _first_page(state, question, listed, page_size)


@routes.get("/v1/lanes/{flow:flow}/{topic}/{partition}", response_model=LaneRow)
async def lane(
    flow: FlowName,
    topic: Annotated[str, Path(max_length=249, description="The source topic.")],
    partition: Annotated[int, Path(ge=0, le=2**31 - 1)],
    state: State,
    caller: Looking,
) -> Response:
    """One lane."""
    (wanted,) = state.visible(caller, flow)
    source = TopicPartition(topic=TopicName(topic), partition=partition)
    status = state.live.status()
    found = None if status is None else status.progress.get(LaneId(flow=wanted, source=source))
    if found is None:
        raise ApiProblem(404, f"this driver has no lane {wanted}/{source}")
    return json_of_bytes(to_json(Rows(await state.snapshot()).lane(found)))


@routes.get("/v1/slots", response_model=SlotsBody)
async def slots(state: State, caller: Looking) -> Response:
    """The Spark tasks that copy lanes."""
    status = state.live.status()
    found = () if status is None else status.slots
    visible = frozenset(state.visible(caller))
    moved = [
        MovedBody(
            flow=str(lane.flow),
            topic=lane.source.topic,
            partition=lane.source.partition,
            why=why,
        )
        for lane, why in sorted({} if status is None else status.moved.items())
        if lane.flow in visible
    ]
    return json_of(
        SlotsBody(
            at_ms=now_ms(),
            why="" if status is None else status.slots_why,
            held_back_bytes_per_s=None if status is None else status.held_back,
            moved=moved,
            slots=[SlotBody.model_validate(each) for each in found],
        )
    )


@routes.get("/v1/pipelines", response_model=PipelinesBody)
async def pipelines(state: State, caller: Looking, flow: OnlyFlow = None) -> Response:
    """The pipelines of flows that this driver leads."""
    visible = frozenset(state.visible(caller, flow))
    found = [
        PipelineBody(flow=str(of), **asdict(each))
        for (of, _), each in sorted(state.live.pipelines().items())
        if of in visible
    ]
    return json_of(PipelinesBody(at_ms=now_ms(), pipelines=found))


@routes.get("/v1/operations", response_model=OperationsBody)
async def operations(state: State, caller: Looking) -> Response:
    """Long work that was begun by this driver's API, running and over."""
    visible = {str(flow) for flow in state.visible(caller)}
    found = [one for one in state.operations.all if one.flow in visible]
    return json_of(OperationsBody(operations=found))


@routes.get("/v1/operations/{operation}", response_model=OperationBody)
async def operation(
    operation: Annotated[str, Path(max_length=64)], state: State, caller: Looking
) -> Response:
    """One operation: its steps, and its result or error when it is over."""
    found = state.operations.get(operation)
    require(caller, Role.LOOK, state.flow(found.flow))
    return json_of(found)


def _why_not_ready(state: ApiState) -> list[str]:
    status = state.live.status()
    if status is None:
        return [f"the mirror is starting: {state.live.phase()}"]
    leaderships = state.live.leaderships
    fenced = {flow for flow in state.flows if leaderships.why_fenced(flow)}
    reasons = [
        f"{flow}: {problem}" for flow, problem in status.problems.items() if flow not in fenced
    ]
    reasons += [
        f"{flow}: it is not known yet which driver leads it"
        for flow in state.flows
        if leaderships[flow] == Standby() and flow not in status.problems
    ]
    running = [slot for slot in status.slots if slot.state is SlotState.RUNNING]
    if status.slots and not running:
        reasons.append("no slot runs")
    return reasons


async def _first_page(
    state: ApiState,
    question: Hashable,
    listed: Callable[[Snapshot], Listing[Any]],
    page_size: int,
) -> Response:
    async def made() -> tuple[bytes, str]:
        listing = await state.off_loop(listed, await state.snapshot())
        token = state.listings.keep(listing) if len(listing.rows) > page_size else ""
        return await state.off_loop(_tagged_page, listing, token, 0, page_size)

    return json_of_bytes(*await state.pages.get(question, made))


def _tagged_page(listing: Listing[Any], token: str, start: int, size: int) -> tuple[bytes, str]:
    body = page_bytes(listing, token, start, size)
    return body, etag_of_bytes(body)


async def _page(state: ApiState, kind: str, page_token: str, page_size: int) -> Response:
    token, listing, start = state.listings.find(kind, page_token)
    return json_of_bytes(*await state.off_loop(_tagged_page, listing, token, start, page_size))
