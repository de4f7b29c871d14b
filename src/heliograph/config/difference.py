"""What a changed configuration means for a mirror that runs. Pure; runs on the driver.

`difference` compares two configurations: which flows begin, end or are planned anew, which
clusters' connections are replaced, and which keys cannot change before a restart. Sentences about
it quote no password, and nothing of a client's settings but their names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel

from heliograph.config.keys import Effect, Key
from heliograph.config.mm2.keys import (
    API_KEYS,
    ENGINE_KEYS,
    FLOW_KEYS,
    PIPELINE_KEYS,
    PROVENANCE_KEYS,
    REGISTRY_KEYS,
    WORKER_KEYS,
)
from heliograph.config.pipelines import PIPELINE_PREFIX
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.config.secrets import Secret, is_secret_key, looks_secret
from heliograph.model import ClusterAlias, FlowId

_CLIENTS = {
    "consumer": "source_consumer",
    "source admin": "source_admin",
    "producer": "target_producer",
    "target admin": "target_admin",
    "offset syncs producer": "offset_syncs_producer",
}
"""What the client overrides of a flow are called, and their fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One thing that is otherwise in the new configuration."""

    what: str
    """As in `A->B: topics: a -> b`; masked."""
    effect: Effect

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Between the configuration a mirror runs with and another."""

    changes: tuple[Changed, ...]
    begun: tuple[FlowId, ...]
    """Flows that mirror records from now on."""
    ended: tuple[FlowId, ...]
    """Flows that mirror none any more."""
    concerned: frozenset[FlowId]
    """Every pair that is not to be looked after as before, those begun and ended included."""
    reconnected: tuple[ClusterAlias, ...]
    """Clusters of both whose clients are others."""
    refused: tuple[str, ...]
    """Why the mirror cannot follow, a sentence each; then nothing of it acts."""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(map(str, self.changes))


def difference(before: MirrorConfig, after: MirrorConfig) -> Difference:
    """What follows from running with `after` instead of `before`."""
    old, new = _looked_after(before), _looked_after(after)
    mirrored_before = [flow.id for flow in before.flows]
    mirrored_after = [flow.id for flow in after.flows]
    changes = (
        *_clusters(before, after),
        *_flows(old, new),
        *_typed("", ENGINE_KEYS, before.engine, after.engine),
        *_spark(before, after),
        *_typed("", API_KEYS, before.api, after.api),
    )
    return Difference(
        changes=changes,
        begun=tuple(flow for flow in mirrored_after if flow not in mirrored_before),
        ended=tuple(flow for flow in mirrored_before if flow not in mirrored_after),
        concerned=frozenset(
            pair
            for pair in old.keys() | new.keys()
            if not (
                pair in old and pair in new and _settings(before, pair) == _settings(after, pair)
            )
        ),
        reconnected=tuple(
            alias
            for alias, cluster in after.clusters.items()
            if alias in before.clusters and _connects_otherwise(before.clusters[alias], cluster)
        ),
        refused=(
            *(f"{each.what}: needs a restart" for each in changes if each.effect is Effect.RESTART),
            *_renamed(before, after),
        ),
    )


def _looked_after(config: MirrorConfig) -> dict[FlowId, FlowConfig]:
    """Pairs that something is done for."""
    pairs = config.chosen_pairs
    return {pair.id: pair for pair in pairs if pair.enabled or pair.heartbeats.enabled}


def _settings(config: MirrorConfig, pair: FlowId) -> tuple[object, ...]:
    """All that a pair is looked after by."""
    return (
        config.flow(pair),
        config.source_of(pair),
        config.target_of(pair),
        config.offset_syncs_of(pair),
    )


def _connects_otherwise(before: ClusterConfig, after: ClusterConfig) -> bool:
    kept = {"worker": before.worker, "provenance": before.provenance}
    return before != after.model_copy(update=kept)


def _renamed(before: MirrorConfig, after: MirrorConfig) -> Iterator[str]:
    """A flow's ledger is named by its source: under another alias all would be mirrored again."""
    mirrored = {alias for flow in before.flows for alias in (flow.id.source, flow.id.target)}
    for alias in sorted(mirrored - after.clusters.keys()):
        servers = set(before.clusters[alias].bootstrap_servers)
        for other, cluster in after.clusters.items():
            if other not in before.clusters and servers & set(cluster.bootstrap_servers):
                yield (
                    f"cluster {alias} is called {other}: its flows would begin again, with ledgers "
                    f"of their own; needs a restart, or the name {alias}"
                )


# -- in words


def _clusters(before: MirrorConfig, after: MirrorConfig) -> Iterator[Changed]:
    for alias in after.clusters.keys() - before.clusters.keys():
        yield Changed(what=f"cluster {alias}: added", effect=Effect.RECONNECTS)
    for alias in before.clusters.keys() - after.clusters.keys():
        yield Changed(what=f"cluster {alias}: removed", effect=Effect.RECONNECTS)
    for alias, cluster in after.clusters.items():
        if alias in before.clusters and before.clusters[alias] != cluster:
            yield from _cluster(before.clusters[alias], cluster)


def _cluster(before: ClusterConfig, after: ClusterConfig) -> Iterator[Changed]:
    alias = after.alias
    if before.bootstrap_servers != after.bootstrap_servers:
        turned = _turned(before.bootstrap_servers, after.bootstrap_servers)
        yield Changed(what=f"{alias}: bootstrap.servers: {turned}", effect=Effect.RECONNECTS)
    for where in _fields_apart("security", before.security, after.security):
        yield Changed(what=f"{alias}: {where}: changed", effect=Effect.RECONNECTS)
    for role in sorted(before.role_security.keys() | after.role_security.keys()):
        own = before.security_of(role), after.security_of(role)
        for where in _fields_apart(f"{role}.security", *own):
            yield Changed(what=f"{alias}: {where}: changed", effect=Effect.RECONNECTS)
    for role in ("admin", "consumer", "producer"):
        for name in _names_apart(getattr(before, role), getattr(after, role)):
            yield Changed(what=f"{alias}: {role}.{name}: changed", effect=Effect.RECONNECTS)
    yield from _typed(f"{alias}: ", WORKER_KEYS, before.worker, after.worker)
    yield from _typed(f"{alias}: ", REGISTRY_KEYS, before.registry, after.registry)
    yield from _typed(f"{alias}: ", PROVENANCE_KEYS, before.provenance, after.provenance)
    for where in _fields_apart("schema.registry.ssl", before.registry.tls, after.registry.tls):
        yield Changed(what=f"{alias}: {where}: changed", effect=Effect.AT_ONCE)


def _fields_apart(where: str, before: BaseModel, after: BaseModel) -> Iterator[str]:
    for name in type(after).model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, BaseModel) and isinstance(new, BaseModel):
            yield from _fields_apart(f"{where}.{name}", old, new)
        else:
            yield f"{where}.{name}"


def _names_apart(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _flows(
    before: Mapping[FlowId, FlowConfig], after: Mapping[FlowId, FlowConfig]
) -> Iterator[Changed]:
    """A key that many flows share is one line."""
    for pair in sorted(after.keys() - before.keys()):
        yield Changed(what=f"{pair}: {_role(after[pair])} begins", effect=Effect.BEGINS_OR_ENDS)
    for pair in sorted(before.keys() - after.keys()):
        yield Changed(what=f"{pair}: {_role(before[pair])} ends", effect=Effect.BEGINS_OR_ENDS)
    flows_of: defaultdict[Changed, list[str]] = defaultdict(list)
    for pair in sorted(before.keys() & after.keys()):
        for each in _flow(before[pair], after[pair]):
            flows_of[each].append(str(pair))
    for each, flows in flows_of.items():
        yield Changed(what=f"{', '.join(flows)}: {each.what}", effect=each.effect)


def _role(pair: FlowConfig) -> str:
    return "mirroring" if pair.enabled else "heartbeats: writing"


def _flow(before: FlowConfig, after: FlowConfig) -> Iterator[Changed]:
    yield from _typed("", FLOW_KEYS, before, after)
    yield from _pipelines(before, after)
    old_steps, new_steps = (
        {each.name: each for each in flow.transforms} for flow in (before, after)
    )
    for alias in sorted(old_steps.keys() & new_steps.keys()):
        if old_steps[alias] != new_steps[alias]:
            renames = old_steps[alias].names_topics or new_steps[alias].names_topics
            effect = Effect.REPLANS if renames else Effect.AT_ONCE
            yield Changed(what=f"transform {alias}: changed", effect=effect)
    for client, field in _CLIENTS.items():
        old, new = getattr(before.clients, field), getattr(after.clients, field)
        for name in _names_apart(old, new):
            yield Changed(what=f"{client}: {name}: changed", effect=Effect.AT_ONCE)


def _pipelines(before: FlowConfig, after: FlowConfig) -> Iterator[Changed]:
    old = {each.name: each for each in before.pipelines}
    new = {each.name: each for each in after.pipelines}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            turned = "added" if name in new else "removed"
            yield Changed(what=f"pipeline {name}: {turned}", effect=Effect.AT_ONCE)
        else:
            yield from _typed(f"{PIPELINE_PREFIX}{name}.", PIPELINE_KEYS, old[name], new[name])


def _typed(
    prefix: str, keys: Iterable[Key], before: BaseModel, after: BaseModel
) -> Iterator[Changed]:
    for key in keys:
        if not key.path:
            continue
        old, new = _at(before, key.path), _at(after, key.path)
        if old != new:
            hidden = is_secret_key(key.name) or looks_secret(f"{_shown(old)} {_shown(new)}")
            turned = "changed" if hidden else _turned(old, new)
            yield Changed(what=f"{prefix}{key.name}: {turned}", effect=key.effect)


def _spark(before: MirrorConfig, after: MirrorConfig) -> Iterator[Changed]:
    for name in _names_apart(before.engine.spark, after.engine.spark):
        yield Changed(what=f"{name}: changed", effect=Effect.RESTART)


def _at(model: BaseModel, path: tuple[str, ...]) -> object:
    found: object = model
    for name in path:
        found = getattr(found, name)
    return found


def _turned(before: object, after: object) -> str:
    return f"{_shown(before)} -> {_shown(after)}"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Secret):
        return Secret.MASK
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)
