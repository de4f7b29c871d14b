"""What every cluster, flow and client ends up with, and from which line. Runs on the driver.

For people to read: secrets are masked here. A value that came through a config provider stays the
reference that was written, unless its key is known to hold nothing secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from heliograph.config.findings import Setting
from heliograph.config.keys import Key
from heliograph.config.load import ExplainedConfig
from heliograph.config.mm2.keys import (
    API_KEYS,
    ENGINE_KEYS,
    FLOW_KEYS,
    LOAD_KEYS,
    PIPELINE_KEYS,
    PROVENANCE_KEYS,
    REGISTRY_KEYS,
    REST_KEYS,
    ROLES,
    TRANSFORM_PREFIXES,
    WORKER_KEYS,
)
from heliograph.config.mm2.precedence import ResolvedCluster, ResolvedFlow, Scope
from heliograph.config.mm2.scopes import BOOTSTRAP
from heliograph.config.pipelines import PIPELINE_PREFIX
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.config.secrets import Secret, is_secret_key, looks_secret
from heliograph.config.sections import Section
from heliograph.model import FlowId

DEFAULT: Final = "default"
TOP_LEVEL: Final = "top level"
_HARMLESS: Final = frozenset(
    {BOOTSTRAP, "security.protocol", "sasl.mechanism", "auto.offset.reset", "isolation.level"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One value, masked where it must be, and where it came from."""

    name: str
    value: str
    source: str
    """`default`, `top level`, or the key as written."""
    line: int | None
    acts: bool = True
    """Whether it means anything here; what belongs to Kafka Connect does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The values of one cluster, flow, client or of the engine."""

    about: str
    part: str
    """Nothing for the cluster or flow itself, otherwise the client."""
    values: tuple[Effective, ...]


def explain_clusters(explained: ExplainedConfig) -> Iterator[Explanation]:
    """Each cluster, then its clients as they are where no flow says otherwise."""
    for alias, resolved in explained.resolution.clusters.items():
        cluster = explained.config.clusters[alias]
        yield Explanation(about=alias, part="", values=tuple(_cluster(cluster, resolved)))
        for role in ROLES:
            client = {**resolved.security_of(role), **resolved.overrides[role]}
            yield Explanation(about=alias, part=role, values=_client(client))


def explain_flow(
    explained: ExplainedConfig, flow: FlowId, reader_defaults: Mapping[str, str]
) -> Iterator[Explanation]:
    """A flow and its clients; `reader_defaults` are those of the consumer that reads records."""
    config, clusters = explained.config.flow(flow), explained.resolution.clusters
    resolved = explained.resolution.flows[flow]
    source, target = clusters[flow.source], clusters[flow.target]
    syncs = source if config.offset_syncs.location == "source" else target
    about = str(flow)
    yield Explanation(about=about, part="", values=tuple(_flow(config, resolved)))
    yield Explanation(
        about=about,
        part="source consumer",
        values=_reader(config, source.security_of("consumer"), resolved, reader_defaults),
    )
    for part, security, overrides in (
        ("source admin", source.security_of("admin"), resolved.source_admin),
        ("target producer", target.security_of("producer"), resolved.target_producer),
        ("target admin", target.security_of("admin"), resolved.target_admin),
        ("offset syncs producer", syncs.security_of("producer"), resolved.offset_syncs_producer),
    ):
        yield Explanation(about=about, part=part, values=_client({**security, **overrides}))


def flow_values(explained: ExplainedConfig, flow: FlowId) -> Mapping[str, Effective]:
    """The keys of a flow itself, its clients apart, by name."""
    config, resolved = explained.config.flow(flow), explained.resolution.flows[flow]
    return {row.name: row for row in _flow(config, resolved)}


def explain_engine(explained: ExplainedConfig) -> Iterator[Explanation]:
    """Spark and the slots, the REST server, then what was meant for Connect's REST server."""
    config, resolution = explained.config, explained.resolution
    engine = _typed(ENGINE_KEYS, config.engine, resolution.engine)
    spark = _listed(resolution.spark)
    yield Explanation(about="engine", part="", values=(*engine, *spark))
    api = _typed(API_KEYS, config.api, resolution.api)
    yield Explanation(about="api", part="", values=api)
    rest = _typed(REST_KEYS, None, resolution.rest)
    https = _listed(resolution.rest_https, acts=False)
    yield Explanation(about="Connect's REST server", part="", values=(*rest, *https))


def _cluster(cluster: ClusterConfig, resolved: ResolvedCluster) -> Iterator[Effective]:
    assert resolved.bootstrap is not None
    yield _effective(BOOTSTRAP, ", ".join(cluster.bootstrap_servers), resolved.bootstrap)
    yield from _typed(LOAD_KEYS, cluster.load, resolved.keys)
    yield from _typed(REGISTRY_KEYS, cluster.registry, resolved.keys)
    yield from _typed(PROVENANCE_KEYS, cluster.provenance, resolved.keys)
    yield from _typed(WORKER_KEYS, cluster.worker, resolved.worker)
    yield from _listed(resolved.worker_other, acts=False)


def _flow(config: FlowConfig, resolved: ResolvedFlow) -> Iterator[Effective]:
    chosen = dict(resolved.keys)
    isolation = resolved.source_consumer.get("isolation.level")
    if isolation is not None:
        chosen.setdefault("read.committed", isolation)
    aliases = {
        "source_alias": config.connector.source_alias or config.id.source,
        "target_alias": config.connector.target_alias or config.id.target,
    }
    connector = config.connector.model_copy(update=aliases)
    yield from _typed(FLOW_KEYS, config.model_copy(update={"connector": connector}), chosen)
    transforms = {n: s for n, s in resolved.plugins.items() if n.startswith(TRANSFORM_PREFIXES)}
    yield from _listed(transforms)
    others = {name: s for name, s in resolved.plugins.items() if name not in transforms}
    yield from _listed(others, acts=False)
    for pipeline in config.pipelines:
        for row in _typed(PIPELINE_KEYS, pipeline, resolved.pipelines[pipeline.name]):
            yield replace(row, name=f"{PIPELINE_PREFIX}{pipeline.name}.{row.name}")


def _reader(
    config: FlowConfig, security: Scope, resolved: ResolvedFlow, defaults: Mapping[str, str]
) -> tuple[Effective, ...]:
    """What the flow says of its reading comes back in the words of a consumer."""
    chosen = {**security, **resolved.source_consumer}
    rows = {row.name: row for row in _client(chosen)}
    level = "read_committed" if config.read_committed else "read_uncommitted"
    asked = resolved.keys.get("read.committed")
    derived = {
        "auto.offset.reset": _effective("auto.offset.reset", str(config.start_at), None),
        "isolation.level": _effective("isolation.level", level, asked),
        **{name: _effective(name, value, None) for name, value in defaults.items()},
    }
    return tuple((derived | rows).values())


def _client(chosen: Scope) -> tuple[Effective, ...]:
    rows = _listed(chosen)
    if "security.protocol" in chosen:
        return rows
    return (_effective("security.protocol", "PLAINTEXT", None), *rows)


def _typed(keys: Iterable[Key], model: Section | None, chosen: Scope) -> tuple[Effective, ...]:
    """Every key with its value: the model's own, which cannot disagree with what acts."""
    return tuple(
        _effective(
            key.name,
            _shown(_value(key, model, chosen.get(key.name))),
            chosen.get(key.name),
            acts=key.inert is None,
        )
        for key in keys
    )


def _value(key: Key, model: Section | None, setting: Setting | None) -> object:
    if not key.path:
        return key.default if setting is None else key.read(setting.value)
    found: object = model
    for name in key.path:
        found = getattr(found, name)
    return found


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _listed(scope: Scope, *, acts: bool = True) -> tuple[Effective, ...]:
    """Settings as written, in order of name."""
    return tuple(
        _effective(name, _as_written(name, setting), setting, acts=acts)
        for name, setting in sorted(scope.items())
    )


def _as_written(name: str, setting: Setting) -> str:
    if setting.written != setting.value and name not in _HARMLESS:
        return setting.written
    return setting.value


def _effective(name: str, value: str, setting: Setting | None, *, acts: bool = True) -> Effective:
    if setting is None:
        return Effective(name=name, value=value, source=DEFAULT, line=None, acts=acts)
    hidden = is_secret_key(setting.key) or looks_secret(value)
    return Effective(
        name=name,
        value=Secret.MASK if hidden else value,
        source=TOP_LEVEL if setting.key == name else setting.key,
        line=setting.line,
        acts=acts,
    )
