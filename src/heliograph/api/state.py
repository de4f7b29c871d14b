"""What the routes of one server share, and who calls them. Driver only."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Any, Final, Protocol, TypeVar

from fastapi import Depends, Path, Query, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.convertors import StringConvertor, register_url_convertor

from heliograph.api.access import UNNAMED, Caller, FailedTries, Role, Tokens
from heliograph.api.lanes import Listings, Snapshot
from heliograph.api.operations import Operations
from heliograph.api.problems import ApiProblem
from heliograph.api.shared import Shared
from heliograph.api.trail import Trail
from heliograph.broker.blocking import blocking
from heliograph.clock import now_ms
from heliograph.driver.live import LiveMirror
from heliograph.errors import MirrorError
from heliograph.health.sight import LedgerFacts, facts_of
from heliograph.inspect.why_reading import Values, no_values
from heliograph.ledger.view import LedgerView
from heliograph.metrics.scrape import Metrics
from heliograph.model import FlowId, LaneId, LaneLoad, SlotId

T = TypeVar("T")

_AT_ONCE: Final = 2
"""Threads that make answers; more would only take the loop's share of the interpreter."""
_BEARER: Final = HTTPBearer(auto_error=False, description="A token of `api.tokens.file`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiState:
    live: LiveMirror
    tokens: Tokens | None = None
    """None where none is asked for."""
    tries: FailedTries = field(default_factory=FailedTries)
    operations: Operations = field(default_factory=Operations)
    listings: Listings = field(default_factory=Listings)
    pages: Shared[tuple[bytes, str]] = field(default_factory=Shared)
    """First pages of lists, with their versions."""
    trail: Trail = field(default_factory=Trail)
    began_ms: int = field(default_factory=now_ms)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    values: Values = no_values
    """Which line of the file each key of a flow comes from, where the file is at hand."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One look at the clusters at a time."""
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", Metrics(self.live))

    @property
    def flows(self) -> tuple[FlowId, ...]:
        return tuple(flow.id for flow in self.live.config.flows)

    def flow(self, text: str) -> FlowId:
        for flow in self.flows:
            if str(flow) == text:
                return flow
        raise ApiProblem(
            404, f"there is no flow {text[:100]!r}; this driver has {self._flow_names()}"
        )

    def visible(self, caller: Caller, wanted: str | None = None) -> frozenset[FlowId]:
        """Flows the caller may look at; with `wanted` that one alone, 403 or 404 where not."""
        if wanted is not None:
            flow = self.flow(wanted)
            require(caller, Role.LOOK, flow)
            return frozenset({flow})
        return frozenset(flow for flow in self.flows if caller.may(Role.LOOK, flow))

    async def snapshot(self) -> Snapshot:
        lag = await self.live.lag()
        status = self.live.status()
        placed: Mapping[LaneId, SlotId] = {} if status is None else self.live.placed()
        loads: Mapping[LaneId, LaneLoad] = {} if status is None else self.live.loads()
        return Snapshot(
            at_ms=now_ms(),
            lanes=() if status is None else tuple(status.progress.values()),
            placed=placed,
            loads=loads,
            config=self.live.config,
            decided={flow: self.live.decided(flow) for flow in self.flows},
            lag=lag,
        )

    async def off_loop(self, work: Callable[..., T], *arguments: object) -> T:
        async with self.turns:
            return await blocking(work, *arguments)

    async def of_ledgers(
        self, flows: frozenset[FlowId], question: Callable[[LedgerView], T]
    ) -> tuple[dict[FlowId, T], dict[FlowId, str]]:
        """What each flow's ledger says, and why some could not be asked."""
        found: dict[FlowId, T] = {}
        problems: dict[FlowId, str] = {}

        async def ask(flow: FlowId) -> None:
            try:
                found[flow] = await self.live.ledgers.ask(flow, question)
            except MirrorError as exc:
                problems[flow] = str(exc)

        await asyncio.gather(*map(ask, sorted(flows)))
        return found, problems

    async def facts(self, flows: Iterable[FlowId]) -> dict[FlowId, LedgerFacts]:
        """As ledgers were last read, which a driver does twice a second: nothing is asked now."""
        return {
            flow: await self.live.ledgers.ask_recent(
                flow, lambda view: facts_of(view, now_ms()), math.inf
            )
            for flow in flows
        }

    def _flow_names(self) -> str:
        return ", ".join(map(str, self.flows)) or "none"


def _state(request: Request) -> ApiState:
    found = request.app.state.api
    assert isinstance(found, ApiState)
    return found


# What routes depend on is asynchronous throughout: FastAPI calls any other function on a thread,
# one after the other, which costs several times what they do, and tokens and tries have no locks.


async def state_of(request: Request) -> ApiState:
    return _state(request)


async def any_caller(
    request: Request,
    shown: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> Caller | None:
    """None without a token where one is asked for; a wrong one is refused in any case."""
    state = _state(request)
    if state.tokens is not None and shown is None and "authorization" in request.headers:
        raise not_authenticated("Authorization is not `Bearer TOKEN`")
    return caller_of(state, request, None if shown is None else shown.credentials)


class Door(Protocol):
    """What is needed to know who calls."""

    @property
    def tokens(self) -> Tokens | None: ...
    @property
    def tries(self) -> FailedTries: ...
    @property
    def trail(self) -> Trail: ...


def caller_of(door: Door, request: Request, token: str | None) -> Caller | None:
    """Who shows this token; None without one. Raises 401 and 429."""
    if door.tokens is None:
        return UNNAMED
    if token is None:
        return None
    address = request.client.host if request.client is not None else ""
    wait_s = door.tries.wait_s(address)
    if wait_s:
        raise ApiProblem(
            429,
            f"too many wrong tokens from {address}; wait {ceil(wait_s)} s",
            headers={"Retry-After": str(ceil(wait_s))},
        )
    caller = door.tokens.caller(token)
    if caller is None:
        door.tries.failed(address)
        door.trail.refused(address, request.method, request.url.path)
        raise not_authenticated("the token is not one of `api.tokens.file`")
    return caller


async def known_caller(caller: Annotated[Caller | None, Depends(any_caller)]) -> Caller:
    if caller is None:
        raise not_authenticated("this needs a token: `Authorization: Bearer TOKEN`")
    return caller


async def looking(caller: Annotated[Caller, Depends(known_caller)]) -> Caller:
    require(caller, Role.LOOK)
    return caller


def require(caller: Caller, role: Role, flow: FlowId | None = None) -> None:
    """The one check of roles; raises 403."""
    if not caller.may(role, flow):
        of = "" if flow is None else f" for {flow}"
        raise ApiProblem(
            403,
            f"the token {caller.name} does not have the role {role}{of}",
            details={"role": role.value, **({} if flow is None else {"flow": str(flow)})},
        )


async def only_known_parameters(request: Request) -> None:
    """A parameter that is spelled wrong must not look as if it had been heeded."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = set(_query_names(route.dependant))
    strange = sorted(set(request.query_params) - known)
    if strange:
        names = ", ".join(sorted(known)) or "none"
        raise ApiProblem(
            400,
            f"query parameter {strange[0][:100]!r} is not known here; there are: {names}",
            details={"parameters": [name[:100] for name in strange[:10]]},
        )


def _query_names(dependant: Any) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_names(each)


def not_authenticated(message: str) -> ApiProblem:
    return ApiProblem(401, message, headers={"WWW-Authenticate": "Bearer"})


class _FlowConvertor(StringConvertor):
    """An alias has no colon, and behind one stands a verb."""

    regex = "[^/:]+"


register_url_convertor("flow", _FlowConvertor())

State = Annotated[ApiState, Depends(state_of)]
AnyCaller = Annotated[Caller | None, Depends(any_caller)]
Looking = Annotated[Caller, Depends(looking)]
Known = Annotated[Caller, Depends(known_caller)]
FlowName = Annotated[str, Path(description="A flow as `A->B`; in a URL `A-%3EB`.")]
OnlyFlow = Annotated[str | None, Query(max_length=512, description="Only this flow, as `A->B`.")]
