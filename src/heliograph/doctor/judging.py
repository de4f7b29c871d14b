"""From what was gathered to findings: which check gets what. No I/O; runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.clock import now_ms
from heliograph.config.schema import ClientRole, FlowConfig, MirrorConfig
from heliograph.doctor import (
    bottleneck,
    capacity,
    certificates,
    clocks,
    limits,
    listeners,
    network,
    outages,
    permissions,
    replicas,
    sites,
    versions,
)
from heliograph.doctor.bandwidth import ReadRate
from heliograph.doctor.facts import ClusterFacts, Untold
from heliograph.doctor.finding import Finding, Severity
from heliograph.doctor.flows import FlowSeen
from heliograph.doctor.place import PlaceSeen
from heliograph.doctor.trial import Trial
from heliograph.model import ClusterAlias, FlowId, TopicPartition

CHECKS: Final = (
    listeners.CHECK,
    certificates.CHECK,
    versions.CHECK,
    permissions.CHECK,
    clocks.CHECK,
    network.CHECK,
    replicas.CHECK,
    sites.CHECK,
    limits.PLAN,
    limits.CHECK,
    outages.CHECK,
    capacity.CHECK,
    bottleneck.CHECK,
)
NOT_ASKED: Final = Untold(why="not asked")


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was gathered; filled part by part."""

    facts: Mapping[ClusterAlias, ClusterFacts]
    flows: Mapping[FlowId, FlowSeen] = field(default_factory=dict)
    driver: PlaceSeen | Untold = NOT_ASKED
    executors: tuple[PlaceSeen, ...] | Untold | None = None
    """None where executors were not asked."""
    rates: Mapping[ClusterAlias, ReadRate | Untold] = field(default_factory=dict)
    grown: Mapping[ClusterAlias, tuple[float, Mapping[TopicPartition, int]] | Untold] = field(
        default_factory=dict
    )
    trials: Mapping[ClusterAlias, Trial | Untold] = field(default_factory=dict)
    paces: Mapping[FlowId, bottleneck.Pace] | Untold = field(default_factory=dict)
    allowed: permissions.AllowedClients | Untold = field(default_factory=dict)


def unreached(alias: ClusterAlias, why: Untold) -> Finding:
    return Finding(
        check=listeners.CHECK,
        about=f"cluster {alias}",
        severity=Severity.PROBLEM,
        what=f"it could not be asked: {why.why}",
        why="nothing else of it could be checked",
        fix=f"check {alias}.bootstrap.servers, the network and the credentials",
    )


def judged(config: MirrorConfig, flows: list[FlowConfig], seen: Seen) -> list[Finding]:
    found: list[Finding] = []
    for alias, facts in seen.facts.items():
        found += versions.version_findings(facts)
        found += sites.site_findings(facts)
        names = {name for flow in seen.flows.values() for name in flow.topics_on(alias)}
        own = {own for flow in seen.flows.values() for own in flow.own if own.cluster == alias}
        found += replicas.replica_findings(facts, names, sorted(own, key=lambda each: each.name))
    found += _places(config, flows, seen)
    found += _own_certificates(config, seen)
    needs = [need for flow in seen.flows.values() for need in flow.needs]
    found += permissions.permission_findings(needs, seen.allowed)
    for flow in flows:
        found += _flow_findings(config, flow, seen)
    return found


def _places(config: MirrorConfig, flows: list[FlowConfig], seen: Seen) -> Iterator[Finding]:
    driver = seen.driver
    if isinstance(driver, Untold):
        yield _unknown(listeners.CHECK, "the driver", driver)
        return
    places = [("the driver", driver)]
    if isinstance(seen.executors, Untold):
        yield _unknown(listeners.CHECK, "executors", seen.executors)
    elif seen.executors is None:
        what = "executors were not asked"
        yield Finding(
            check=listeners.CHECK,
            about="executors",
            severity=Severity.NOTE,
            what=what,
            why="with a local master they run on this machine and see what the driver sees",
            fix="--executors asks them, by a short Spark job",
        )
    else:
        places += [(f"executor {each.host}", each) for each in seen.executors]
        for each in seen.executors:
            yield from clocks.executor_clock_findings(each.host, driver.clocks, each.clocks)
    for name, place in places:
        for alias in seen.facts:
            yield from listeners.listener_findings(name, place, alias)
        links = list(_links(config, flows, seen, place))
        yield from network.kernel_findings(
            name, place.kernel, is_far=any(link.is_far for link in links)
        )
        for link in links:
            yield from network.link_findings(name, place.kernel, link, config.engine.bytes_max)
    yield from clocks.clock_findings("the driver", driver.clocks)
    for alias, trial in seen.trials.items():
        if isinstance(trial, Untold):
            yield _unknown(clocks.CHECK, f"cluster {alias}", trial)
        else:
            yield from clocks.broker_clock_findings(f"cluster {alias}", trial.clocks, "the driver")


def _links(
    config: MirrorConfig, flows: list[FlowConfig], seen: Seen, place: PlaceSeen
) -> Iterator[network.Link]:
    is_driver = place is seen.driver
    told: set[tuple[ClusterAlias, str]] = set()
    for flow in flows:
        for side, alias in (("source", flow.id.source), ("target", flow.id.target)):
            trip_s = place.round_trip_s(alias)
            if trip_s is None or (alias, side) in told:
                continue
            told.add((alias, side))
            reads = side == "source"
            cluster = config.source_of(flow.id) if reads else config.target_of(flow.id)
            overrides = cluster.consumer if reads else cluster.producer
            key = "receive.buffer.bytes" if reads else "send.buffer.bytes"
            theirs = "socket.send.buffer.bytes" if reads else "socket.receive.buffer.bytes"
            own = overrides.get(key, "")
            yield network.Link(
                cluster=alias,
                side="source" if reads else "target",
                round_trip_s=trip_s,
                bytes_per_s=_rate(seen, alias, reads=reads) if is_driver else None,
                buffer_bytes=int(own) if own.isdecimal() else None,
                broker_buffer_bytes=min(
                    seen.facts[alias].broker_numbers(theirs).values(), default=None
                ),
            )


def _rate(seen: Seen, alias: ClusterAlias, *, reads: bool) -> float | None:
    found = seen.rates.get(alias) if reads else seen.trials.get(alias)
    return None if found is None or isinstance(found, Untold) else found.bytes_per_s


def _own_certificates(config: MirrorConfig, seen: Seen) -> Iterator[Finding]:
    """What clients show and trust; each file of a cluster once, whatever roles use it."""
    for alias in seen.facts:
        cluster = config.clusters[alias]
        texts: dict[str, str] = {}
        for security in (cluster.security, *cluster.role_security.values()):
            if security.has_tls:
                own, trusted = security.tls.certificate_pem, security.tls.ca_pem
                texts |= {own: "the client's own"} if own else {}
                texts |= {trusted: "the trusted authorities"} if trusted else {}
        try:
            chains = [(what, certificates.in_pem(text)) for text, what in texts.items()]
        except ValueError as exc:
            why = Untold(why=f"certificates of the configuration cannot be read: {exc}")
            yield _unknown(certificates.CHECK, f"cluster {alias}", why)
            continue
        yield from certificates.date_findings(f"clients of {alias}", chains, now_ms())


def _flow_findings(config: MirrorConfig, flow: FlowConfig, seen: Seen) -> list[Finding]:
    known = seen.flows.get(flow.id)
    if known is None:
        why = Untold(why="its topics could not be looked up in time")
        return [_unknown(limits.PLAN, str(flow.id), why)]
    source, target = seen.facts[flow.id.source], seen.facts[flow.id.target]
    found = limits.plan_findings(known.plan)
    found += limits.limit_findings(flow.id, source, target, known.mirrored.items())
    if known.status is not None:
        found += outages.outage_findings(source, target, known.mirrored, known.status, now_ms())
    found += capacity.capacity_findings(source, target, _load(config, flow, known, seen))
    if not isinstance(seen.paces, Untold) and flow.id in seen.paces:
        pace = bottleneck.with_probes(
            seen.paces[flow.id],
            _rate(seen, flow.id.source, reads=True),
            _rate(seen, flow.id.target, reads=False),
        )
        found.append(bottleneck.bottleneck_finding(pace))
    return found


def _load(config: MirrorConfig, flow: FlowConfig, known: FlowSeen, seen: Seen) -> capacity.Load:
    grown = seen.grown.get(flow.id.source, Untold(why=""))
    rate: float | None = None
    if not isinstance(grown, Untold):
        seconds, more = grown
        rate = sum(size for at, size in more.items() if at.topic in known.mirrored) / seconds
    sides = (config.source_of(flow.id), config.target_of(flow.id))
    users = {each.security_of(role).sasl.username for each in sides for role in _ROLES}
    ids = {
        each.overrides_of(role).get("client.id", "heliograph") for each in sides for role in _ROLES
    }
    return capacity.Load(
        flow=flow.id,
        mirrored=known.mirrored,
        replication_factor=max(1, flow.replication_factor),
        bytes_per_s=rate,
        client_ids=ids,
        users={user for user in users if user is not None},
    )


_ROLES: Final[tuple[ClientRole, ...]] = ("consumer", "producer")


def _unknown(check: str, about: str, why: Untold) -> Finding:
    return Finding(check=check, about=about, severity=Severity.UNKNOWN, what=why.why)
