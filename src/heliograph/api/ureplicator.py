"""The few routes of uReplicator's controller that people call, on a port of their own. Driver only.

Half of its answers are plain text. A worker is a slot; a topic is one of any flow, by its name on
the source. Which topics are mirrored is the configuration's to say, so they are not added here; a
partition that is blacklisted is paused until it is whitelisted or the driver ends.
"""

from __future__ import annotations

import asyncio
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
from heliograph.config.api import Address, ApiConfig
from heliograph.driver.run import LiveMirror, Service
from heliograph.errors import LinkError, MirrorError
from heliograph.model import LaneId, LaneLoad, LaneProgress, SlotId, Stalled, TopicPartition

_HOLD_S: Final = 1.0
_NOWHERE: Final = "none"
_CONFIGURED: Final = "the topics are those of the flow's configuration; change `topics` there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What the routes share."""

    live: LiveMirror
    tokens: Tokens | None = None
    tries: FailedTries = field(default_factory=FailedTries)
    trail: Trail = field(default_factory=Trail)
    blacklist: set[LaneId] = field(default_factory=set)

    def lanes(self, caller: Caller) -> list[LaneProgress]:
        status = self.live.status()
        found = () if status is None else status.progress.values()
        return [at for at in found if caller.may(Role.LOOK, at.lane.flow)]

    def of_topic(self, caller: Caller, topic: str) -> list[LaneProgress]:
        return [at for at in self.lanes(caller) if at.lane.source.topic == topic]

    def placed(self) -> dict[LaneId, SlotId]:
        return {} if self.live.status() is None else dict(self.live.placed())

    def hold(self) -> None:
        """A slot that was started anew, or a policy, may have resumed what is paused here."""
        if self.blacklist:
            self.live.pause(self.blacklist)


def ureplicator_service(config: ApiConfig) -> Service:
    """Serves while the mirror runs; raises `ConfigError` on entering where it cannot."""
    own = config.model_copy(update={"listen": config.ureplicator_listen})

    @asynccontextmanager
    async def serve(live: LiveMirror) -> AsyncIterator[Address]:
        made: list[Controller] = []

        def make(address: Address, tokens: Tokens | None) -> Starlette:
            made.append(Controller(live=live, tokens=tokens))
            return make_ureplicator_app(made[0])

        async with serving(own, make, "uReplicator's controller at %s") as address:
            holding = asyncio.create_task(_hold(made[0]), name="blacklisted partitions")
            try:
                yield address
            finally:
                holding.cancel()

    return serve


async def _hold(controller: Controller) -> None:
    while True:
        await asyncio.sleep(_HOLD_S)
        try:
            controller.hold()
        except LinkError:
            return  # the run is ending, and its slots with it


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
    if at.lane in controller.blacklist:
        return "OFFLINE"
    return "ERROR" if isinstance(at.state, Stalled) else "ONLINE"


def _worker(slot: SlotId | None) -> str:
    return _NOWHERE if slot is None else f"slot-{slot}"


async def add_topic(request: Request) -> Response:
    """Only says whether it is mirrored; by body or by path."""
    controller, caller = _asked(request)
    name = await _named(request)
    if controller.of_topic(caller, name):
        return PlainTextResponse(f"Failed to add new topic: {name}, it is already existed!", 404)
    return PlainTextResponse(f"Failed to add new topic: {name}, {_CONFIGURED}", 403)


async def expand_topic(request: Request) -> Response:
    """Partitions follow the source by themselves."""
    controller, caller = _asked(request)
    name = await _named(request)
    if not controller.of_topic(caller, name):
        return PlainTextResponse(f"Failed to expand topic, topic: {name} is not existed!", 404)
    return PlainTextResponse(f"Failed to expand topic: {name}, it follows its source", 403)


async def delete_topic(request: Request) -> Response:
    controller, caller = _asked(request)
    name = request.path_params["topic"]
    if not controller.of_topic(caller, name):
        return PlainTextResponse(f"Failed to delete not existed topic: {name}", 404)
    return PlainTextResponse(f"Failed to delete topic: {name}, {_CONFIGURED}", 403)


async def _named(request: Request) -> str:
    if "topic" in request.path_params:
        return str(request.path_params["topic"])
    try:
        body = await request.json()
        return str(body["topic"])
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
        {lane.source for lane in controller.blacklist if caller.may(Role.LOOK, lane.flow)},
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
    if verb == "blacklist":
        controller.live.pause(lanes)
        controller.blacklist.update(lanes)
    else:
        controller.blacklist.difference_update(lanes)
        controller.live.resume(lanes)
    for lane in lanes:
        controller.trail.changed(caller, verb, lane.flow, f"partition={lane.source}")
    return PlainTextResponse("OK")


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
