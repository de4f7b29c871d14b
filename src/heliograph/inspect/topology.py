"""Who mirrors to whom, as the heartbeats on every cluster tell it. Runs on the driver.

A mirror of A->B writes heartbeats to B, whether records flow or not; mirrored on, they become
`B.heartbeats` on C, then `C.B.heartbeats` on D. So what proves that A->B mirrors is `A.heartbeats`
on B, filled by the mirrors into A. Nothing is asked of any driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final

from heliograph.clock import now_ms
from heliograph.compat.mirror_client import MirrorClient, NewestHeartbeat
from heliograph.compat.upstream import path_of
from heliograph.config.schema import MirrorConfig, NamingPolicyConfig
from heliograph.errors import BrokerError
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.topics.naming import HEARTBEATS

ANSWER_S_MAX: Final = 10.0
SILENT_S: Final = 60.0
"""Heartbeats come every second; a minute without one is no hiccup."""
_SILENT_INTERVALS: Final = 10
_LOOKS_AT_ONCE: Final = 16
_LAST_OFFSETS: Final = 100_000
"""Hours of heartbeats; a topic that was never compacted may hold millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatsSeen:
    """One heartbeats topic on one cluster."""

    cluster: ClusterAlias
    topic: TopicName
    path: tuple[ClusterAlias, ...]
    """Clusters it was mirrored from, nearest first; none for the cluster's own."""
    beats: Mapping[FlowId, NewestHeartbeat] = field(default_factory=dict)
    skipped_records: int = 0
    problem: str = ""
    """Why it could not be read."""

    @property
    def hops(self) -> int:
        return len(self.path)

    @property
    def newest(self) -> NewestHeartbeat | None:
        return max(self.beats.values(), key=lambda beat: beat.emitted_ms, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    alias: ClusterAlias
    topics: tuple[HeartbeatsSeen, ...] = ()
    problem: str = ""
    """Why it could not be asked."""

    @property
    def upstreams(self) -> tuple[HeartbeatsSeen, ...]:
        """What was mirrored to it, the nearest first."""
        return tuple(seen for seen in self.topics if seen.path)

    @property
    def own(self) -> HeartbeatsSeen | None:
        return next((seen for seen in self.topics if not seen.path), None)

    def hops(self) -> Mapping[ClusterAlias, int]:
        """Every cluster above this one, with the shortest way from it."""
        found: dict[ClusterAlias, int] = {}
        for seen in self.upstreams:
            for hops, alias in enumerate(seen.path, start=1):
                found[alias] = min(hops, found.get(alias, hops))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSeen:
    """A flow of the file, or one that heartbeats came over."""

    flow: FlowId
    in_file: bool
    seen_on: ClusterAlias | None = None
    """The cluster whose topics tell of it; None where none does."""
    newest_ms: int | None = None
    """When the newest heartbeat that came over it was written, at the other end or above."""
    age_s: float | None = None
    latency_s: float | None = None
    """None where the target keeps the times of writers: then it is the age at most."""
    written_age_s: float | None = None
    """Age of the newest heartbeat that the flow's own mirror wrote to its target."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    at_ms: int
    clusters: tuple[ClusterSeen, ...]
    flows: tuple[FlowSeen, ...]
    unknown: tuple[ClusterAlias, ...]
    """Clusters above these that the file does not name."""

    @property
    def unreachable(self) -> Mapping[ClusterAlias, str]:
        return {seen.alias: seen.problem for seen in self.clusters if seen.problem}


def read_topology(config: MirrorConfig, *, timeout_s: float = ANSWER_S_MAX) -> Topology:
    """Ask every cluster of the file, all at once; one that does not answer keeps no other from it.

    A full mesh has a topic for every way through it, 65 on each of five clusters, so topics are
    read side by side too.
    """
    with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="topology") as pool:
        looks = list(pool.map(partial(_look, config, timeout_s=timeout_s), config.clusters))
        reads = pool.map(_read, (topic for look in looks for topic in look.topics))
        seen = [*reads]
    clusters = tuple(_cluster_seen(look, seen) for look in looks)
    return draw(config, clusters, now_ms())


def draw(config: MirrorConfig, clusters: Sequence[ClusterSeen], at_ms: int) -> Topology:
    """The same from what was read already; no I/O."""
    enabled = {flow.id for flow in config.flows}
    by_alias = {seen.alias: seen for seen in clusters}
    beats = _beats_over_flows(clusters)
    flows: list[FlowSeen] = []
    for flow in sorted(enabled | beats.keys()):
        seen = _flow_seen(
            flow, beats.get(flow), by_alias.get(flow.target), at_ms, in_file=flow in enabled
        )
        problem = seen.problem or next(_problems(config, seen, by_alias), "")
        flows.append(replace(seen, problem=problem))
    named = {alias for flow in beats for alias in (flow.source, flow.target)}
    named |= {flow.source for seen in clusters for flow in _written(seen)}
    return Topology(
        at_ms=at_ms,
        clusters=tuple(clusters),
        flows=tuple(flows),
        unknown=tuple(sorted(named - config.clusters.keys())),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """The best that is known of a flow: its own target's word first, then the newest heartbeat."""

    is_direct: bool
    newest: NewestHeartbeat | None
    seen: HeartbeatsSeen

    @property
    def rank(self) -> tuple[bool, int]:
        return (self.is_direct, -1 if self.newest is None else self.newest.emitted_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """A heartbeats topic to be read, by the client that understands its name."""

    client: MirrorClient
    name: TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    alias: ClusterAlias
    topics: tuple[_Topic, ...] = ()
    problem: str = ""


def _look(config: MirrorConfig, alias: ClusterAlias, *, timeout_s: float) -> _Look:
    topics: dict[TopicName, _Topic] = {}
    try:
        for naming in _namings_into(config, alias):
            client = MirrorClient(config.clusters[alias], naming, timeout_s=timeout_s)
            found = client.heartbeat_topics()
            topics |= {name: _Topic(client=client, name=name) for name in found - topics.keys()}
    except BrokerError as exc:
        return _Look(alias=alias, problem=str(exc))
    return _Look(alias=alias, topics=tuple(topics.values()))


def _namings_into(config: MirrorConfig, alias: ClusterAlias) -> list[NamingPolicyConfig]:
    """Flows into one cluster may name topics differently; each topic is read by who knows it."""
    namings: list[NamingPolicyConfig] = []
    for pair in config.pairs:
        if pair.id.target == alias and pair.policy not in namings:
            namings.append(pair.policy)
    return namings or [NamingPolicyConfig()]


def _read(topic: _Topic) -> HeartbeatsSeen:
    seen = HeartbeatsSeen(
        cluster=topic.client.cluster.alias,
        topic=topic.name,
        path=path_of(topic.client.replication_policy, topic.name),
    )
    try:
        read = topic.client.read_heartbeats(topic.name, last_offsets=_LAST_OFFSETS)
    except BrokerError as exc:
        # One topic that may not be read keeps no other from being drawn.
        return replace(seen, problem=str(exc))
    return replace(seen, beats=read.newest, skipped_records=read.skipped_records)


def _cluster_seen(look: _Look, seen: Sequence[HeartbeatsSeen]) -> ClusterSeen:
    mine = [topic for topic in seen if topic.cluster == look.alias]
    mine.sort(key=lambda topic: (topic.hops, topic.topic))
    return ClusterSeen(alias=look.alias, topics=tuple(mine), problem=look.problem)


def _beats_over_flows(clusters: Sequence[ClusterSeen]) -> dict[FlowId, _Evidence]:
    best: dict[FlowId, _Evidence] = {}
    for seen in (seen for cluster in clusters for seen in cluster.upstreams):
        for hop, (target, source) in enumerate(pairwise((seen.cluster, *seen.path))):
            flow = FlowId(source=source, target=target)
            found = _Evidence(is_direct=hop == 0, newest=seen.newest, seen=seen)
            known = best.get(flow)
            if known is None or found.rank > known.rank:
                best[flow] = found
    return best


def _flow_seen(
    flow: FlowId,
    found: _Evidence | None,
    target: ClusterSeen | None,
    at_ms: int,
    *,
    in_file: bool,
) -> FlowSeen:
    wrote = None if target is None else _written(target).get(flow)
    newest = None if found is None else found.newest
    # What came from further above took its time over the other flows too.
    latency_ms = newest.latency_ms if newest and found and found.seen.hops == 1 else None
    return FlowSeen(
        flow=flow,
        in_file=in_file,
        seen_on=None if found is None else found.seen.cluster,
        newest_ms=None if newest is None else newest.emitted_ms,
        age_s=None if newest is None else newest.age_s(at_ms),
        latency_s=None if latency_ms is None else latency_ms / 1000,
        written_age_s=None if wrote is None else wrote.age_s(at_ms),
        problem="" if found is None else found.seen.problem,
    )


def _written(cluster: ClusterSeen) -> Mapping[FlowId, NewestHeartbeat]:
    return {} if cluster.own is None else cluster.own.beats


def _problems(
    config: MirrorConfig, seen: FlowSeen, clusters: Mapping[ClusterAlias, ClusterSeen]
) -> Iterator[str]:
    """What is wrong with a flow of the file, as far as the clusters and the file can tell."""
    if not seen.in_file:
        return
    if seen.seen_on is None:
        source, target = clusters[seen.flow.source], clusters[seen.flow.target]
        yield from _reasons_for_none(config, seen.flow, source, target)
    elif seen.age_s is None:
        yield f"the heartbeats topic on {seen.seen_on} is empty"
    elif seen.age_s > _silent_after_s(config, seen.flow.source):
        yield "silent: this mirror, or the one that writes the heartbeats upstream, stopped or lags"


def _reasons_for_none(
    config: MirrorConfig, flow: FlowId, source: ClusterSeen, target: ClusterSeen
) -> Iterator[str]:
    if target.problem:
        yield f"unknown: cluster {target.alias} does not answer"
    if not config.flow(flow).heartbeats.replicated:
        yield "heartbeats are not mirrored: heartbeats.replication.enabled is false"
    into = [pair for pair in config.pairs if pair.id.target == source.alias]
    if not any(pair.heartbeats.enabled for pair in into):
        yield f"no flow writes heartbeats to {source.alias}: emit.heartbeats.enabled is false"
    if source.own is None and not source.problem:
        yield f"no heartbeats to mirror: {source.alias} has no topic {HEARTBEATS} yet"
    yield f"no heartbeat of {source.alias} was mirrored yet"


def _silent_after_s(config: MirrorConfig, source: ClusterAlias) -> float:
    """Heartbeats into the source come at the pace of the flows into it, not of this one."""
    paces_s = [pair.heartbeats.interval_s for pair in config.pairs if pair.id.target == source]
    return max([SILENT_S, *(_SILENT_INTERVALS * pace_s for pace_s in paces_s)])
