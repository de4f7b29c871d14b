"""The examination as a whole: gather, each within its time, then judge. Does I/O; driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from heliograph.broker.blocking import blocking
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClientRole, ClusterConfig, FlowConfig, MirrorConfig
from heliograph.doctor.asking import read_facts, read_sizes
from heliograph.doctor.bandwidth import ReadRate, read_rate
from heliograph.doctor.certificates import chain_of
from heliograph.doctor.facts import ClusterFacts, Untold
from heliograph.doctor.finding import Finding, Severity, worst_first
from heliograph.doctor.flows import read_permissions, seen_flows
from heliograph.doctor.judging import Seen, judged, unreached
from heliograph.doctor.place import Listener, PlaceOrder, PlaceSeen, look
from heliograph.doctor.running import paces_of
from heliograph.doctor.trial import Trial, try_cluster
from heliograph.errors import MirrorError
from heliograph.inspect.waiting import Adoption
from heliograph.model import ClusterAlias, FlowId, TopicPartition

_GROWTH_S: Final = 2.0
_EXECUTORS_S_MAX: Final = 300.0
_GROUPED_S_MAX: Final = 60.0

LookFromExecutors = Callable[[PlaceOrder], tuple[PlaceSeen, ...]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is looked at, and how far it goes."""

    clusters: frozenset[ClusterAlias]
    executors: LookFromExecutors | None = None
    """None where executors are not asked."""
    bandwidth: bool = True
    """Whether some megabytes of mirrored topics are read."""
    tries: bool = False
    """Whether a scratch topic is made on each target."""
    answer_s_max: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    at_ms: int
    seconds: float
    findings: tuple[Finding, ...]
    """The worst first."""
    unreachable: tuple[ClusterAlias, ...] = ()

    @property
    def has_problems(self) -> bool:
        return any(each.severity is Severity.PROBLEM for each in self.findings)


async def examine(
    config: MirrorConfig, scope: Scope, adoptions: Mapping[FlowId, Adoption] | None = None
) -> Report:
    """Look at everything `scope` says at once; a cluster that is silent costs its own findings."""
    began_s = monotonic_s()
    aliases = [alias for alias in config.clusters if alias in scope.clusters]
    answers = await asyncio.gather(
        *(_facts(config.clusters[alias], scope.answer_s_max) for alias in aliases)
    )
    facts = {each.alias: each for each in answers if isinstance(each, ClusterFacts)}
    dead = {a: each for a, each in zip(aliases, answers, strict=True) if isinstance(each, Untold)}
    seen = Seen(facts=facts)
    flows = [flow for flow in config.flows if flow.id.source in facts and flow.id.target in facts]
    await _look_closer(config, scope, flows, seen, adoptions or {})
    found = [unreached(alias, why) for alias, why in dead.items()]
    found += judged(config, flows, seen)
    return Report(
        at_ms=now_ms(),
        seconds=monotonic_s() - began_s,
        findings=tuple(worst_first(found)),
        unreachable=tuple(dead),
    )


async def _facts(config: ClusterConfig, answer_s_max: float) -> ClusterFacts | Untold:
    try:
        async with asyncio.timeout(6 * answer_s_max):
            return await read_facts(config, answer_s_max=answer_s_max)
    except TimeoutError:
        return Untold(why=f"cluster {config.alias}: no answer in time")
    except MirrorError as exc:
        return Untold(why=str(exc))


async def _look_closer(
    config: MirrorConfig,
    scope: Scope,
    flows: list[FlowConfig],
    seen: Seen,
    adoptions: Mapping[FlowId, Adoption],
) -> None:
    chosen = config.model_copy(update={"chosen": frozenset(flow.id for flow in flows)})
    order = _order(config, scope, seen.facts)
    driver, executors, found, paces = await asyncio.gather(
        _told(look(replace(order, read_chain=chain_of)), 6 * scope.answer_s_max),
        _told(_from_executors(scope.executors, order), _EXECUTORS_S_MAX),
        _told(seen_flows(chosen, seen.facts, adoptions), _GROUPED_S_MAX),
        _told(blocking(paces_of, chosen), _GROUPED_S_MAX),
    )
    seen.driver, seen.executors, seen.paces = driver, executors, paces
    seen.flows = {} if isinstance(found, Untold) else found
    # One after the other: what is measured must not be slowed down by the questions.
    seen.allowed = await _told(
        read_permissions(chosen, seen.flows, answer_s_max=scope.answer_s_max), _GROUPED_S_MAX
    )
    sources = list(dict.fromkeys(flow.id.source for flow in flows))
    targets = list(dict.fromkeys(flow.id.target for flow in flows))
    if scope.bandwidth:
        seen.rates = {a: await _read_rate(config, seen, a, scope.answer_s_max) for a in sources}
    seen.grown = await _growth(config, seen, sources, scope.answer_s_max)
    if scope.tries:
        seen.trials = {a: await _tried(config, seen, a, scope.answer_s_max) for a in targets}


async def _told(question: Awaitable[T], seconds_max: float) -> T | Untold:
    try:
        async with asyncio.timeout(seconds_max):
            return await question
    except TimeoutError:
        return Untold(why=f"not finished within {seconds_max:.0f} s")
    except MirrorError as exc:
        return Untold(why=str(exc))


async def _from_executors(
    look_there: LookFromExecutors | None, order: PlaceOrder
) -> tuple[PlaceSeen, ...] | None:
    return None if look_there is None else await blocking(look_there, order)


def _order(
    config: MirrorConfig, scope: Scope, facts: Mapping[ClusterAlias, ClusterFacts]
) -> PlaceOrder:
    """As slots reach them: a source as its consumer, any other cluster as its producer."""
    sources = {flow.id.source for flow in config.flows}
    roles: dict[ClusterAlias, tuple[ClusterConfig, ClientRole]] = {
        alias: (config.clusters[alias], "consumer" if alias in sources else "producer")
        for alias in facts
    }
    found = tuple(
        Listener(cluster=each.alias, broker=broker.id, host=broker.host, port=broker.port)
        for each in facts.values()
        for broker in each.brokers.values()
    )
    return PlaceOrder(clusters=roles, listeners=found, answer_s_max=scope.answer_s_max)


async def _read_rate(
    config: MirrorConfig, seen: Seen, source: ClusterAlias, answer_s_max: float
) -> ReadRate | Untold:
    flows = [flow for flow in seen.flows.values() if flow.flow.id.source == source]
    partitions = [
        TopicPartition(topic=name, partition=number)
        for flow in flows
        for name in flow.mirrored
        if name in seen.facts[source].topics
        for number in seen.facts[source].topics[name].partitions
    ]
    if not partitions:
        return Untold(why="no topic of it is mirrored")
    reader = config.source_of(flows[0].flow.id)
    return await read_rate(reader, list(dict.fromkeys(partitions)), answer_s_max=answer_s_max)


async def _growth(
    config: MirrorConfig, seen: Seen, sources: list[ClusterAlias], answer_s_max: float
) -> dict[ClusterAlias, tuple[float, Mapping[TopicPartition, int]] | Untold]:
    """How much each partition grew in a window of a few seconds."""

    async def grown(alias: ClusterAlias) -> tuple[float, Mapping[TopicPartition, int]] | Untold:
        before = await read_sizes(config.clusters[alias], answer_s_max=answer_s_max)
        began_s = monotonic_s()
        await asyncio.sleep(_GROWTH_S)
        after = await read_sizes(config.clusters[alias], answer_s_max=answer_s_max)
        if isinstance(before, Untold):
            return before
        if isinstance(after, Untold):
            return after
        more = {at: size - before[at] for at, size in after.items() if size > before.get(at, size)}
        return monotonic_s() - began_s, more

    found = await asyncio.gather(*(grown(alias) for alias in sources))
    return dict(zip(sources, found, strict=True))


async def _tried(
    config: MirrorConfig, seen: Seen, target: ClusterAlias, answer_s_max: float
) -> Trial | Untold:
    return await _told(
        blocking(
            lambda: try_cluster(
                config.clusters[target], seen.facts[target], answer_s_max=answer_s_max
            )
        ),
        _GROUPED_S_MAX,
    )
