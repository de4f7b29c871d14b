"""The few routes of uReplicator's controller that people call, on a port of their own. Driver only.

Half of its answers are plain text. A worker is a slot; a topic is one of any flow, by its name on
the source. A change is a decision, as the commands make them: a topic that is added is included,
one that is deleted excluded, a partition that is blacklisted paused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from heliograph.api.access import Caller, FailedTries, Role, Tokens
from heliograph.api.connect import known
from heliograph.api.problems import ApiProblem, answer, problem_of
from heliograph.api.server import serving
from heliograph.api.state import require
from heliograph.api.trail import Trail
from heliograph.clock import now_ms
from heliograph.config.api import Address, ApiConfig
from heliograph.decisions.decide import Draft, Outcome, decide, known_topics, read_decisions
from heliograph.decisions.decision import Breadth, Scope, Verb, scope_of
from heliograph.decisions.orders import FlowOrders, orders_of
from heliograph.driver.live import LiveMirror, Service
from heliograph.errors import MirrorError
from heliograph.model import (
    FlowId,
    LaneId,
    LaneLoad,
    LaneProgress,
    SlotId,
    Stalled,
    TopicName,
    TopicPartition,
)

_NOWHERE: Final = "none"
_WHY: Final = "uReplicator's controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What the routes share."""

    live: LiveMirror
    tokens: Tokens | None = None
    tries: FailedTries = field(default_factory=FailedTries)
    trail: Trail = field(default_factory=Trail)

    def lanes(self, caller: Caller) -> list[LaneProgress]:
        status = self.live.status()
        found = () if status is None else status.progress.values()
        return [at for at in found if caller.may(Role.LOOK, at.lane.flow)]

    def of_topic(self, caller: Caller, topic: str) -> list[LaneProgress]:
        return [at for at in self.lanes(caller) if at.lane.source.topic == topic]

    def placed(self) -> dict[LaneId, SlotId]:
        return {} if self.live.status() is None else dict(self.live.placed())

    def is_blacklisted(self, lane: LaneId) -> bool:
        return _is_blacklisted(self.live.decided(lane.flow), lane.source)

    async def decide(self, caller: Caller, flow: FlowId, verb: Verb, scope: Scope) -> Outcome:
        """Raises 403 and `MirrorError`."""
        require(caller, Role.OPERATE, flow)
        draft = Draft(verb=verb, scope=scope, who=caller.name, why=_WHY)
        outcome = await decide(self.live.ledgers, self.live.config, flow, draft)
        if outcome.written and outcome.decision is not None:
            self.trail.changed(caller, verb, flow, f"decision={outcome.decision.id}")
        return outcome


def _is_blacklisted(orders: FlowOrders, lane: TopicPartition) -> bool:
    """Not what is paused with its topic or flow: to whitelist it would let it go on."""
    paused = orders.lane(lane).paused
    return paused is not None and paused.scope.breadth is Breadth.PARTITION


def ureplicator_service(config: ApiConfig) -> Service:
    """Serves while the mirror runs; raises `ConfigError` on entering where it cannot."""
    own = config.model_copy(update={"listen": config.ureplicator_listen})

    @asynccontextmanager
    async def serve(live: LiveMirror) -> AsyncIterator[Address]:
        def make(address: Address, tokens: Tokens | None) -> Starlette:
            return make_ureplicator_app(Controller(live=live, tokens=tokens))

        async with serving(own, make, "uReplicator's controller at %s") as address:
            yield address

    return serve


def make_ureplicator_app(controller: Controller) -> Starlette:
    handlers: dict[Any, Callable[[Request, Exception], Any]] = dict.fromkeys(
        (ApiProblem, MirrorError, HTTPException), _problem
    )
    app = Starlette(routes=_ROUTES, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.controller = controller
    return app


def _asked(request: Request) -> tuple[Controller, Caller]:
    controller = request.app.state.controller
    assert isinstance(controller, Controller)
    caller = known(controller, request)
    require(caller, Role.LOOK)
    return controller, caller


async def _problem(request: Request, exc: Exception) -> Response:
    match exc:
        case ApiProblem():
            return answer(exc)
        case MirrorError():
            return answer(problem_of(exc))
        case HTTPException():
            return PlainTextResponse(exc.detail, exc.status_code, headers=exc.headers)
        case _:
            raise exc


# -- topics


async def topics(request: Request) -> Response:
    controller, caller = _asked(request)
    found = sorted({at.lane.source.topic for at in controller.lanes(caller)})
    if not found:
        return PlainTextResponse("No topic is added in MirrorMaker Controller!")
    return PlainTextResponse(f"Current serving topics: [{', '.join(found)}]")


async def topic(request: Request) -> Response:
    controller, caller = _asked(request)
    name = request.path_params["topic"]
    lanes = controller.of_topic(caller, name)
    if not lanes:
        text = f"Failed to get ExternalView for topic: {name}, it is not existed!"
        return PlainTextResponse(text, 404)
    placed = controller.placed()
    external: dict[str, dict[str, str]] = {}
    ideal: dict[str, dict[str, str]] = {}
    by_server: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for at in sorted(lanes, key=lambda at: at.lane.source.partition):
        number, server = str(at.lane.source.partition), _worker(placed.get(at.lane))
        state = _state(controller, at)
        external[number] = {server: state}
        ideal[number] = {server: "ONLINE"}
        by_server[server][number] = state
    return JSONResponse(
        {
            "topic": name,
            "externalView": external,
            "idealState": ideal,
            "serverToPartitionMapping": by_server,
            "serverToNumPartitionsMapping": {
                server: len(partitions) for server, partitions in by_server.items()
            },
        }
    )


def _state(controller: Controller, at: LaneProgress) -> str:
    """Helix' words."""
    if controller.is_blacklisted(at.lane):
        return "OFFLINE"
    return "ERROR" if isinstance(at.state, Stalled) else "ONLINE"


def _worker(slot: SlotId | None) -> str:
    return _NOWHERE if slot is None else f"slot-{slot}"


async def add_topic(request: Request) -> Response:
    """By body, or by path with as many partitions as the source has. Of several flows `src` and
    `dst` choose one."""
    controller, caller = _asked(request)
    name, said = await _named(request)
    flow = _flow_for(controller, caller, request)
    if flow is None:
        text = f"Missing parameters for whitelisting topic {name}: src and dst name one flow"
        return PlainTextResponse(text, 400)
    require(caller, Role.OPERATE, flow)
    if any(at.lane.flow == flow for at in controller.of_topic(caller, name)):
        return PlainTextResponse(f"Failed to add new topic: {name}, it is already existed!", 404)
    scope = scope_of((name,))
    if scope.topics != (name,):
        return PlainTextResponse(f"Failed to add new topic: {name}, it is not a name", 400)
    count = await _count_on_source(controller.live, flow, scope) if said is None else said
    if not count:
        text = f"Failed to add new topic: {name}, it's not exsited in source kafka cluster!"
        return PlainTextResponse(text, 400)
    await controller.decide(caller, flow, Verb.INCLUDE, scope)
    added = f"{{topic: {name}, partition: {count}, pipeline: null}}"
    return PlainTextResponse(f"Successfully add new topic: {added}")


def _flow_for(controller: Controller, caller: Caller, request: Request) -> FlowId | None:
    asked = request.query_params
    found = [
        flow.id
        for flow in controller.live.config.flows
        if caller.may(Role.LOOK, flow.id)
        and asked.get("src", flow.id.source) == flow.id.source
        and asked.get("dst", flow.id.target) == flow.id.target
    ]
    return found[0] if len(found) == 1 else None


async def _count_on_source(live: LiveMirror, flow: FlowId, scope: Scope) -> int:
    """Partitions; 0 where the source has no such topic. Raises 503."""
    view, made = await read_decisions(live.ledgers, live.config, flow)
    included = Draft(verb=Verb.INCLUDE, scope=scope, who=_WHY).decision()
    known = await known_topics(live.config, flow, view, orders_of((*made, included), now_ms()))
    if known.on_source is None:
        raise ApiProblem(503, known.remarks[0])
    (name,) = map(TopicName, scope.topics)
    return len(known.topics[name]) if name in known.on_source else 0


async def expand_topic(request: Request) -> Response:
    """Partitions follow the source by themselves."""
    controller, caller = _asked(request)
    name, _ = await _named(request)
    if not controller.of_topic(caller, name):
        return PlainTextResponse(f"Failed to expand topic, topic: {name} is not existed!", 404)
    return PlainTextResponse(f"Failed to expand topic: {name}, it follows its source", 403)


async def delete_topic(request: Request) -> Response:
    controller, caller = _asked(request)
    name = request.path_params["topic"]
    flows = sorted({at.lane.flow for at in controller.of_topic(caller, name)})
    if not flows:
        return PlainTextResponse(f"Failed to delete not existed topic: {name}", 404)
    for flow in flows:
        require(caller, Role.OPERATE, flow)
    for flow in flows:
        await controller.decide(caller, flow, Verb.EXCLUDE, Scope(topics=(name,)))
    return PlainTextResponse(f"Successfully finished delete topic: {name}")


async def _named(request: Request) -> tuple[str, int | None]:
    """A topic, and how many partitions it is said to have; they follow the source anyhow."""
    if "topic" in request.path_params:
        return str(request.path_params["topic"]), None
    try:
        body = await request.json()
        return str(body["topic"]), int(body["numPartitions"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ApiProblem(400, 'the body is not `{"topic": …, "numPartitions": …}`') from None


# -- workers


async def instances(request: Request) -> Response:
    controller, caller = _asked(request)
    wanted = request.path_params.get("instance")
    placed, loads = controller.placed(), _loads(controller)
    status = controller.live.status()
    slots = [] if status is None else [_worker(each.slot) for each in status.slots]
    by_worker: defaultdict[str, list[LaneProgress]] = defaultdict(list)
    for at in controller.lanes(caller):
        by_worker[_worker(placed.get(at.lane))].append(at)
    return JSONResponse(
        {
            "instances": {
                worker: _workload(lanes, loads)
                for worker, lanes in sorted(by_worker.items())
                if wanted in (None, worker)
            },
            "blacklisted": [],
            "allInstances": slots,
        }
    )


def _loads(controller: Controller) -> dict[LaneId, LaneLoad]:
    return {} if controller.live.status() is None else dict(controller.live.loads())


def _workload(lanes: Iterable[LaneProgress], loads: dict[LaneId, LaneLoad]) -> list[str]:
    """Bytes each second, of each partition and of all."""
    rates = {
        f"{at.lane.source.topic}.{at.lane.source.partition}": round(loads[at.lane].bytes_per_s)
        if at.lane in loads
        else 0
        for at in lanes
    }
    total = f"TOTALWORKLOAD.{len(rates)}:{sum(rates.values())}"
    return [*(f"{name}:{rate}" for name, rate in sorted(rates.items())), total]


async def rebalance(request: Request) -> Response:
    """Lanes are balanced all the time; nothing is to be begun."""
    _, caller = _asked(request)
    require(caller, Role.OPERATE)
    return PlainTextResponse("Skipped rebalancing cluster\n")


async def no_progress(request: Request) -> Response:
    controller, caller = _asked(request)
    placed = controller.placed()
    stuck = [
        {
            "topic": at.lane.source.topic,
            "partition": at.lane.source.partition,
            "idealWorker": _worker(placed.get(at.lane)),
            "actualWorker": _worker(placed.get(at.lane)),
        }
        for at in controller.lanes(caller)
        if isinstance(at.state, Stalled)
    ]
    return JSONResponse({"topics": stuck} if stuck else {})


# -- partitions


async def blacklist(request: Request) -> Response:
    controller, caller = _asked(request)
    found = sorted(
        {at.lane.source for at in controller.lanes(caller) if controller.is_blacklisted(at.lane)},
        key=lambda at: (at.topic, at.partition),
    )
    rows = [{"partition": at.partition, "topic": at.topic} for at in found]
    return JSONResponse({"blacklist": rows})


async def change_blacklist(request: Request) -> Response:
    controller, caller = _asked(request)
    asked = request.query_params
    name, number, verb = asked.get("topic"), asked.get("partition"), asked.get("opt")
    if not (name and number and verb):
        return PlainTextResponse("Parameter topic, partition and opt are required.", 400)
    if not number.isascii() or not number.isdecimal() or len(number) > len(str(2**31)):
        return PlainTextResponse("Parameter partition should be Integer", 400)
    if verb not in ("blacklist", "whitelist"):
        return PlainTextResponse("Invalid parameter opt", 400)
    lanes = [
        at.lane
        for at in controller.of_topic(caller, name)
        if at.lane.source == TopicPartition(topic=at.lane.source.topic, partition=int(number))
    ]
    if not lanes:
        return PlainTextResponse(f"Partition {name}:{int(number)} is not mirrored", 404)
    for lane in lanes:
        require(caller, Role.OPERATE, lane.flow)
    for lane in lanes:
        scope = Scope(topics=(lane.source.topic,), partitions=(lane.source.partition,))
        if verb == "blacklist":
            await controller.decide(caller, lane.flow, Verb.PAUSE, scope)
        elif await _stays_blacklisted(controller.live, lane):
            await controller.decide(caller, lane.flow, Verb.RESUME, scope)
    return PlainTextResponse("OK")


async def _stays_blacklisted(live: LiveMirror, lane: LaneId) -> bool:
    """By the ledger: the driver may not have followed yet what was decided a moment ago."""
    _, made = await read_decisions(live.ledgers, live.config, lane.flow)
    return _is_blacklisted(orders_of(made, now_ms()), lane.source)


async def health(request: Request) -> Response:
    """For whoever asks: it tells nothing."""
    controller = request.app.state.controller
    is_up = controller.live.status() is not None
    return PlainTextResponse("OK\n" if is_up else "Unhealthy\n", 200 if is_up else 503)


_ROUTES: Final = (
    Route("/topics", topics),
    Route("/topics", add_topic, methods=["POST"]),
    Route("/topics", expand_topic, methods=["PUT"]),
    Route("/topics/{topic}", topic),
    Route("/topics/{topic}", add_topic, methods=["POST"]),
    Route("/topics/{topic}", delete_topic, methods=["DELETE"]),
    Route("/instances", instances),
    Route("/instances", rebalance, methods=["POST"]),
    Route("/instances/{instance}", instances),
    Route("/noprogress", no_progress),
    Route("/blacklist", blacklist),
    Route("/blacklist", change_blacklist, methods=["POST"]),
    Route("/health", health),
)
