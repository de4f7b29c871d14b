"""Where records go that keep their topics' names: round and round, or twice. Pure; runs anywhere.

What a name cannot say, `loop.prevention` decides by who wrote a batch, and `provenance.drop` by
headers. Whether that is enough follows from the flows alone: each cluster's own records are
followed through all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from heliograph.config.schema import MirrorConfig
from heliograph.model import ClusterAlias, FlowId, LoopPrevention


@dataclass(frozen=True, slots=True)
class _Route:
    """What a flow leaves out, and what it says in each record."""

    prevention: LoopPrevention
    drops: tuple[str, ...]
    """Headers that name its target."""
    writes: str | None
    """The header that names its source."""


_Routes = Mapping[FlowId, _Route]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFinding:
    """Of topics that all of these flows mirror."""

    flows: tuple[FlowId, ...]
    text: str
    is_endless: bool = False
    """Whether records are copied for as long as the flows run."""


def loop_findings(config: MirrorConfig) -> tuple[LoopFinding, ...]:
    """What is wrong with the flows that keep names; nothing of most configurations."""
    routes = {
        flow.id: _Route(
            config.loop_prevention_of(flow.id), flow.provenance.drop, flow.provenance.write
        )
        for flow in config.every_flow
        if flow.policy.keeps_names
    }
    found: dict[frozenset[FlowId], LoopFinding] = {}
    for origin in sorted({flow.source for flow in routes}):
        for finding in _followed(origin, routes):
            found.setdefault(frozenset(finding.flows), finding)
    endless = tuple(each for each in found.values() if each.is_endless)
    # What goes round arrives twice as well.
    return endless or tuple(found.values())


def _followed(origin: ClusterAlias, routes: _Routes) -> Iterator[LoopFinding]:
    """The ways of records that are written at `origin`, each cluster entered once by each flow."""
    ways: dict[ClusterAlias, tuple[FlowId, ...]] = {origin: ()}
    waiting, taken = deque[tuple[FlowId, ...]]([()]), set[FlowId]()
    while waiting:
        before = waiting.popleft()
        for flow in _onward(before[-1].target if before else origin, before, routes):
            way = (*before, flow)
            if flow.target == origin:
                yield _comes_back(way)
                continue
            if flow.target in ways and ways[flow.target] != way:
                yield _arrives_twice(origin, ways[flow.target], way)
            ways.setdefault(flow.target, way)
            if flow not in taken:
                taken.add(flow)
                waiting.append(way)
    yield from _stopped(origin, ways, routes)


def _onward(here: ClusterAlias, way: tuple[FlowId, ...], routes: _Routes) -> Iterator[FlowId]:
    """The flows that take records on which came by `way`."""
    for flow in sorted(routes, key=str):
        if flow.source != here:
            continue
        route = routes[flow]
        if way and route.prevention is LoopPrevention.MIRRORED:
            continue
        if any(each.source == flow.target and routes[each].writes in route.drops for each in way):
            continue
        is_return = bool(way) and flow.target == way[-1].source
        if not (is_return and route.prevention is LoopPrevention.RETURNING):
            yield flow


def _comes_back(way: tuple[FlowId, ...]) -> LoopFinding:
    if len(way) == 2:
        text = (
            f"both flows keep topic names and loop.prevention of {way[1]} is none, so what "
            f"{way[0]} brings is sent back to {way[0].source}; leave the key out, or say returning"
        )
        return LoopFinding(flows=way, text=text, is_endless=True)
    text = (
        f"a ring of {len(way)} clusters under the same names: a record of {way[0].source} would "
        "come home and go round without end; a cycle of three or more needs loop.prevention = "
        "mirrored, with a flow between each two of the clusters, or provenance.write of "
        f"{way[0]} and provenance.drop of {way[-1]}, both with the same header"
    )
    return LoopFinding(flows=way, text=text, is_endless=True)


def _arrives_twice(
    origin: ClusterAlias, first: tuple[FlowId, ...], second: tuple[FlowId, ...]
) -> LoopFinding:
    ways = " and ".join(", ".join(map(str, way)) for way in (first, second))
    text = (
        f"records of {origin} reach {second[-1].target} twice under the same name, by {ways}; "
        f"loop.prevention = mirrored of {second[-1]} leaves out what a mirror brought"
    )
    return LoopFinding(flows=_once((*first, *second)), text=text)


def _stopped(
    origin: ClusterAlias, ways: Mapping[ClusterAlias, tuple[FlowId, ...]], routes: _Routes
) -> Iterator[LoopFinding]:
    """Where `mirrored` keeps records from clusters that only a chain of flows leads to."""
    for flow in sorted(routes, key=str):
        is_next = flow.source in ways and flow.source != origin and flow.target not in ways
        if is_next and routes[flow].prevention is LoopPrevention.MIRRORED:
            text = (
                f"records of {origin} do not reach {flow.target}: {flow} leaves out what a mirror "
                f"brought; a flow {FlowId(source=origin, target=flow.target)} would bring them"
            )
            yield LoopFinding(flows=(*ways[flow.source], flow), text=text)


def _once(flows: Iterable[FlowId]) -> tuple[FlowId, ...]:
    return tuple(dict.fromkeys(flows))
