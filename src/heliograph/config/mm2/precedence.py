"""Which line of a file each value comes from, as MirrorMaker 2 resolves it. Runs on the driver.

Kept beside the model, never inside: the model is made from it, and `heliograph config` tells
it. Precedence, strongest first, as MirrorMaker 2's driver has it in dedicated mode:

    a flow's key        `A->B.k`, then `k`
    a cluster's TLS     `A.consumer.k`, then `A.k`, then `k`
    reading records     `A->B.source.consumer.k`, then `A.consumer.k`, then `A->B.consumer.k`
    writing records     `A->B.producer.override.k`, then `B.producer.k`
    a Connect worker    `B.k`, then `k` where MirrorMaker 2 passes it on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliograph.config.findings import Setting
from heliograph.config.keys import Key
from heliograph.config.mm2.inert import WORKER_OTHER
from heliograph.config.mm2.keys import (
    API_KEYS,
    CLUSTER_KEYS,
    ENGINE_KEYS,
    FLOW_BY_NAME,
    FLOW_KEYS,
    PLUGIN_PREFIXES,
    REST_KEYS,
    ROLES,
    WORKER_KEYS,
)
from heliograph.config.mm2.names import SECURITY_KEYS
from heliograph.config.mm2.scopes import BOOTSTRAP, ScopedSettings
from heliograph.config.pipelines import PIPELINE_PREFIX
from heliograph.config.security import ClientRole
from heliograph.model import ClusterAlias, FlowId

Scope = Mapping[str, Setting]
"""Settings by their name without the prefix of cluster, flow or client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCluster:
    bootstrap: Setting | None
    security: Scope
    """Of clients that were given none of their own."""
    role_security: Mapping[ClientRole, Scope]
    """Whole, of the roles that were given their own."""
    overrides: Mapping[ClientRole, Scope]
    keys: Scope
    """Of the cluster itself, which only Heliograph has."""
    worker: Scope
    worker_other: Scope

    def security_of(self, role: ClientRole) -> Scope:
        return self.role_security.get(role, self.security)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedFlow:
    keys: Scope
    plugins: Scope
    """Keys of converters, transforms and topic creation."""
    source_consumer: Scope
    source_admin: Scope
    target_producer: Scope
    target_admin: Scope
    offset_syncs_producer: Scope
    """Of the cluster that `offset-syncs.topic.location` names."""
    pipelines: Mapping[str, Scope]
    """By their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    clusters: Mapping[ClusterAlias, ResolvedCluster]
    flows: Mapping[FlowId, ResolvedFlow]
    engine: Scope
    spark: Scope
    api: Scope
    rest: Scope
    rest_https: Scope


def resolve_settings(scoped: ScopedSettings) -> Resolution:
    """Pick, for every value there is, the setting that decides it."""
    return Resolution(
        clusters={alias: _cluster(alias, scoped) for alias in scoped.aliases},
        flows={flow: _flow(flow, scoped) for flow in scoped.flow},
        engine=_chosen(ENGINE_KEYS, {}, scoped.top, has_scope=False),
        spark=_prefixed(scoped.top, "spark."),
        api=_chosen(API_KEYS, {}, scoped.top, has_scope=False),
        rest=_chosen(REST_KEYS, {}, scoped.top, has_scope=False),
        rest_https=_prefixed(scoped.top, "listeners.https."),
    )


def _chosen(keys: Iterable[Key], own: Scope, top: Scope, *, has_scope: bool = True) -> Scope:
    """The setting of each key; at the top some keys of flows and clusters mean nothing."""
    found: dict[str, Setting] = {}
    for key in keys:
        setting = own.get(key.name)
        if setting is None and (key.top or not has_scope):
            setting = top.get(key.name)
        if setting is not None:
            found[key.name] = setting
    return found


def _prefixed(scope: Scope, prefix: str) -> Scope:
    return {name: setting for name, setting in scope.items() if name.startswith(prefix)}


def _cluster(alias: ClusterAlias, scoped: ScopedSettings) -> ResolvedCluster:
    own = scoped.cluster[alias]
    inherited = {
        **{name: found for name, found in scoped.top.items() if name in SECURITY_KEYS},
        **{name: found for name, found in own.items() if name in SECURITY_KEYS},
    }
    given = {role: _role_security(own, role) for role in ROLES}
    return ResolvedCluster(
        bootstrap=own.get(BOOTSTRAP),
        security=inherited,
        role_security={role: {**inherited, **scope} for role, scope in given.items() if scope},
        overrides={role: _overrides(own, f"{role}.") for role in ROLES},
        keys=_chosen(CLUSTER_KEYS, own, scoped.top),
        worker=_chosen(WORKER_KEYS, own, scoped.top),
        worker_other={name: found for name, found in own.items() if name in WORKER_OTHER},
    )


def _role_security(own: Scope, role: str) -> Scope:
    prefix = f"{role}."
    return {
        bare: setting
        for name, setting in own.items()
        if name.startswith(prefix) and (bare := name.removeprefix(prefix)) in SECURITY_KEYS
    }


def _overrides(scope: Scope, prefix: str) -> dict[str, Setting]:
    """Client settings under a prefix, by Java name; security has its own place in the model."""
    return {
        bare: setting
        for name, setting in scope.items()
        if name.startswith(prefix) and (bare := name.removeprefix(prefix)) not in SECURITY_KEYS
    }


def _flow(flow: FlowId, scoped: ScopedSettings) -> ResolvedFlow:
    own, source = scoped.flow[flow], scoped.cluster[flow.source]
    target = scoped.cluster[flow.target]
    admin = _client_of_flow(own, "admin.")
    keys = _chosen(FLOW_KEYS, own, scoped.top)
    location = keys.get("offset-syncs.topic.location")
    on_target = location is not None and location.value.lower() == "target"
    return ResolvedFlow(
        keys=keys,
        plugins={
            name: setting
            for name, setting in own.items()
            if name.startswith(PLUGIN_PREFIXES) and name not in FLOW_BY_NAME
        },
        source_consumer={
            **_client_of_flow(own, "consumer."),
            **_overrides(source, "consumer."),
            **_overrides(own, "source.consumer."),
        },
        source_admin={
            **admin,
            **_overrides(source, "admin."),
            **_overrides(own, "source.admin."),
        },
        target_producer={
            **_overrides(target, "producer."),
            **_overrides(own, "producer.override."),
        },
        target_admin={
            **admin,
            **_overrides(target, "admin."),
            **_overrides(own, "target.admin."),
        },
        offset_syncs_producer={
            **_client_of_flow(own, "producer."),
            **_overrides(target if on_target else source, "producer."),
            **_overrides(own, "target.producer." if on_target else "source.producer."),
        },
        pipelines=_pipelines(own),
    )


def _pipelines(own: Scope) -> dict[str, dict[str, Setting]]:
    found: dict[str, dict[str, Setting]] = {}
    for name, setting in own.items():
        if name.startswith(PIPELINE_PREFIX):
            pipeline, _, key = name.removeprefix(PIPELINE_PREFIX).partition(".")
            found.setdefault(pipeline, {})[key] = setting
    return found


def _client_of_flow(own: Scope, prefix: str) -> Scope:
    """`A->B.consumer.k` and the like; some keys of the flow itself begin with the same word."""
    return {
        bare: setting
        for bare, setting in _overrides(own, prefix).items()
        if prefix + bare not in FLOW_BY_NAME and not bare.startswith("override.")
    }
