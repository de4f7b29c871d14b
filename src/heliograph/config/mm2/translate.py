"""`mm2.properties` into the model, once every value's line is found. Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from heliograph.config.api import ApiConfig
from heliograph.config.findings import Findings, Setting
from heliograph.config.keys import Key
from heliograph.config.mm2.keys import (
    API_KEYS,
    ENGINE_KEYS,
    FLOW_KEYS,
    LOAD_KEYS,
    PIPELINE_KEYS,
    PROVENANCE_KEYS,
    REGISTRY_KEYS,
    REST_KEYS,
    WORKER_KEYS,
)
from heliograph.config.mm2.names import CLIENT_NUMBERS, FETCH_NUMBERS
from heliograph.config.mm2.precedence import Resolution, ResolvedCluster, ResolvedFlow, Scope
from heliograph.config.mm2.scopes import BOOTSTRAP, FLOW_CLIENT_PREFIXES, ScopedSettings
from heliograph.config.mm2.transforms import read_transforms
from heliograph.config.mm2.values import BadValue, choice, offset_reset, servers, whole
from heliograph.config.pipelines import PIPELINE_PREFIX, PipelineConfig
from heliograph.config.registry import REGISTRY_TLS_PREFIX, RegistryConfig
from heliograph.config.schema import (
    ClusterConfig,
    EngineConfig,
    FlowClients,
    FlowConfig,
    FlowLimits,
    MirrorConfig,
)
from heliograph.config.sections import ClusterLoadConfig, ClusterProvenance, WorkerConfig
from heliograph.config.tls.java_security import ReadBytes, read_security
from heliograph.model import ClusterAlias, FlowId

_ISOLATION: Final = ("read_committed", "read_uncommitted")
_OFFSET_SYNCS: Final = "emit.offset-syncs.enabled"
_CHECKPOINTS: Final = "emit.checkpoints.enabled"
_SYNC_GROUPS: Final = "sync.group.offsets.enabled"
_PIPELINE_NEEDS: Final = {
    "topics": "name the topics that it reads",
    "folder": "name the folder of its checkpoint",
}


def translate(
    scoped: ScopedSettings, resolution: Resolution, read_bytes: ReadBytes, findings: Findings
) -> MirrorConfig | None:
    """The model of the settings; None when `findings` has a problem."""
    engine = _engine(resolution, findings)
    api = _api(resolution, findings)
    _read_fields(REST_KEYS, resolution.rest, findings)  # checked; no field of ours holds them
    clusters = {
        alias: _cluster(alias, resolved, scoped, read_bytes, findings)
        for alias, resolved in resolution.clusters.items()
    }
    _check_client_values(scoped, findings)
    complete = {alias: cluster for alias, cluster in clusters.items() if cluster is not None}
    pairs = tuple(
        _flow(flow, resolved, complete, findings) for flow, resolved in resolution.flows.items()
    )
    _check_something_flows(scoped, pairs, findings)
    _check_pipelines(pairs, resolution, findings)
    if findings.problems or engine is None or api is None or len(complete) < len(clusters):
        return None
    return MirrorConfig(clusters=complete, pairs=pairs, engine=engine, api=api)


def _read_fields(keys: Iterable[Key], chosen: Scope, findings: Findings) -> dict[str, Any]:
    """Typed values by the fields they fill; those without effect are only checked."""
    fields: dict[str, Any] = {}
    for key in keys:
        setting = chosen.get(key.name)
        if setting is None:
            continue
        try:
            value = key.read(setting.value)
        except BadValue as exc:
            findings.bad_value(setting, exc)
            continue
        if key.path:
            *sections, name = key.path
            holder = fields
            for section in sections:
                holder = holder.setdefault(section, {})
            holder[name] = value
    return fields


def _values(overrides: Scope) -> dict[str, str]:
    return {name: setting.value for name, setting in overrides.items()}


def _engine(resolution: Resolution, findings: Findings) -> EngineConfig | None:
    """Rules of the model between fields come back as problems of the key they begin with."""
    fields = _read_fields(ENGINE_KEYS, resolution.engine, findings)
    fields["spark"] = _values(resolution.spark)
    try:
        return EngineConfig.model_validate(fields)
    except ValidationError as exc:
        for error in exc.errors():
            sentence = error["msg"].removeprefix("Value error, ")
            field = str(error["loc"][0]) if error["loc"] else sentence.partition(" ")[0]
            key = next(key for key in ENGINE_KEYS if key.path == (field,))
            findings.problem(resolution.engine[key.name], sentence.removeprefix(f"{field} "))
        return None


def _api(resolution: Resolution, findings: Findings) -> ApiConfig | None:
    """As `_engine`; its sentences begin with a key."""
    try:
        return ApiConfig.model_validate(_read_fields(API_KEYS, resolution.api, findings))
    except ValidationError as exc:
        for error in exc.errors():
            key, _, why = error["msg"].removeprefix("Value error, ").partition(" ")
            at = resolution.api.get(key) or next(iter(resolution.api.values()))
            findings.problem_at(key, why, line=at.line)
        return None


def _cluster(
    alias: ClusterAlias,
    resolved: ResolvedCluster,
    scoped: ScopedSettings,
    read_bytes: ReadBytes,
    findings: Findings,
) -> ClusterConfig | None:
    bootstrap = _bootstrap(alias, resolved.bootstrap, scoped.clusters, findings)
    role_security = {
        role: read_security(scope, read_bytes, findings, bootstrap or ())
        for role, scope in resolved.role_security.items()
    }
    worker = _read_fields(WORKER_KEYS, resolved.worker, findings)
    load = _read_fields(LOAD_KEYS, resolved.keys, findings)
    registry = _registry(resolved, read_bytes, findings)
    provenance = _read_fields(PROVENANCE_KEYS, resolved.keys, findings)
    security = read_security(resolved.security, read_bytes, findings, bootstrap or ())
    if bootstrap is None:
        return None
    return ClusterConfig(
        alias=alias,
        bootstrap_servers=bootstrap,
        security=security,
        role_security=role_security,
        consumer=_values(resolved.overrides["consumer"]),
        producer=_values(resolved.overrides["producer"]),
        admin=_values(resolved.overrides["admin"]),
        load=ClusterLoadConfig.model_validate(load),
        worker=WorkerConfig.model_validate(worker),
        registry=registry,
        provenance=ClusterProvenance.model_validate(provenance),
    )


def _registry(
    resolved: ResolvedCluster, read_bytes: ReadBytes, findings: Findings
) -> RegistryConfig:
    """A key of a registry without an address is a problem: it would be a registry not asked."""
    fields = _read_fields(REGISTRY_KEYS, resolved.keys, findings)
    url = resolved.keys.get("schema.registry.url")
    if url is None or not url.value:
        for key in REGISTRY_KEYS:
            stray = resolved.keys.get(key.name)
            if stray is not None and stray is not url:
                findings.problem(stray, "without `schema.registry.url` there is no registry")
                break
        return RegistryConfig()
    token = resolved.keys.get("schema.registry.bearer.auth.token")
    if token is not None and "user_info" in fields:
        findings.problem(
            token, "while `schema.registry.basic.auth.user.info` is set; one is enough"
        )
    settings = {
        name.removeprefix(REGISTRY_TLS_PREFIX): setting
        for name, setting in resolved.keys.items()
        if name.startswith(f"{REGISTRY_TLS_PREFIX}ssl.")
    }
    if not any(address.startswith("https") for address in fields.get("urls", ())):
        for setting in settings.values():
            findings.problem(setting, "while `schema.registry.url` is no `https://` address")
            break
        return RegistryConfig.model_validate(fields)
    with_tls = {**settings, "security.protocol": replace(url, value="SSL")}
    tls = read_security(with_tls, read_bytes, findings).tls
    return RegistryConfig.model_validate({**fields, "tls": tls})


def _bootstrap(
    alias: ClusterAlias, setting: Setting | None, clusters: Setting | None, findings: Findings
) -> tuple[str, ...] | None:
    if setting is None:
        if findings.about(f"{alias}.{BOOTSTRAP}"):
            return None
        line = clusters.line if clusters is not None else None
        why = f"`{alias}` has no brokers; set `{alias}.{BOOTSTRAP}`"
        findings.problem_at("clusters", why, line=line)
        return None
    try:
        return servers(setting.value)
    except BadValue as exc:
        findings.bad_value(setting, exc)
        return None


def _check_client_values(scoped: ScopedSettings, findings: Findings) -> None:
    """Client settings travel as text, but one that is no number is better met here."""
    for scope in (*scoped.cluster.values(), *scoped.flow.values()):
        for name, setting in scope.items():
            prefix = next((p for p in FLOW_CLIENT_PREFIXES if name.startswith(p)), None)
            bare = name.removeprefix(prefix or "")
            if prefix is None or bare not in CLIENT_NUMBERS:
                continue
            sizes_fetches = prefix.endswith("consumer.") and bare in FETCH_NUMBERS
            try:
                whole(1 if sizes_fetches else -1)(setting.value)
            except BadValue as exc:
                findings.bad_value(setting, exc)


def _flow(
    flow: FlowId,
    resolved: ResolvedFlow,
    clusters: Mapping[ClusterAlias, ClusterConfig],
    findings: Findings,
) -> FlowConfig:
    fields = _read_fields(FLOW_KEYS, resolved.keys, findings)
    _derive_from_reader(fields, resolved, findings)
    clients = FlowClients(
        source_consumer=_values(resolved.source_consumer),
        source_admin=_values(resolved.source_admin),
        target_producer=_values(resolved.target_producer),
        target_admin=_values(resolved.target_admin),
        offset_syncs_producer=_values(resolved.offset_syncs_producer),
    )
    source, target = clusters.get(flow.source), clusters.get(flow.target)
    limits = FlowLimits(
        source_bytes_per_s=None if source is None else source.load.read_bytes_per_s,
        target_bytes_per_s=None if target is None else target.load.write_bytes_per_s,
    )
    pipelines = tuple(
        pipeline
        for name, scope in sorted(resolved.pipelines.items())
        if (pipeline := _pipeline(name, scope, findings)) is not None
    )
    together = {"id": flow, "clients": clients, "limits": limits, "pipelines": pipelines}
    config = FlowConfig.model_validate({**fields, **together})
    if config.enabled:
        # A name at the top is every flow's, also of those that mirror nothing and lack its keys.
        transforms = read_transforms(config, resolved, clusters, findings)
        config = config.model_copy(update={"transforms": transforms})
        _check_emitting(config, resolved.keys, findings)
        _check_registries(config, resolved, clusters, findings)
        _check_exactly_once(config, resolved, findings)
    return config


def _pipeline(name: str, scope: Scope, findings: Findings) -> PipelineConfig | None:
    before = len(findings.problems)
    fields = _read_fields(PIPELINE_KEYS, scope, findings)
    first = next(iter(scope.values()))
    prefix = first.key[: first.key.index(f".{PIPELINE_PREFIX}")] + f".{PIPELINE_PREFIX}{name}."
    for key, what in _PIPELINE_NEEDS.items():
        if key not in scope:
            findings.problem_at(f"{prefix}{key}", f"missing; {what}", line=first.line)
    ways = [scope[key] for key in ("function", "sql") if key in scope]
    if not ways:
        why = "missing; a pipeline has a `function` or `sql`"
        findings.problem_at(f"{prefix}function", why, line=first.line)
    elif len(ways) > 1:
        findings.problem(ways[1], f"while `{ways[0].key}` is on line {ways[0].line}; one is enough")
    given = {key: scope[key] for key in ("on.error", "dead.letter.topic") if key in scope}
    if (fields.get("on_error") == "dead-letter") != ("dead.letter.topic" in given) and given:
        why = "`on.error = dead-letter` and `dead.letter.topic` are given together, or neither"
        findings.problem(next(iter(given.values())), why)
    if fields.get("deterministic") and "target.topic" not in scope:
        findings.problem(scope["deterministic"], "needs `target.topic`, one for all rows")
    if len(findings.problems) > before:
        return None
    return PipelineConfig.model_validate({**fields, "name": name})


def _check_pipelines(
    pairs: tuple[FlowConfig, ...], resolution: Resolution, findings: Findings
) -> None:
    """A pipeline's ledger is named by it alone, so two of one name cannot write to one cluster."""
    first: dict[tuple[ClusterAlias, str], FlowId] = {}
    for pair in pairs:
        for pipeline in pair.pipelines:
            other = first.setdefault((pair.id.target, pipeline.name), pair.id)
            setting = next(iter(resolution.flows[pair.id].pipelines[pipeline.name].values()))
            if other != pair.id:
                findings.problem(
                    setting,
                    f"`{other}` has a pipeline `{pipeline.name}` too; pipelines into one cluster "
                    "have names of their own",
                )
            elif not pair.enabled:
                findings.note(setting, f"does nothing while `{pair.id}.enabled` is not true")


def _derive_from_reader(fields: dict[str, Any], resolved: ResolvedFlow, findings: Findings) -> None:
    """What the reading consumer's own settings say about the flow."""
    reader = resolved.source_consumer
    reset, isolation = reader.get("auto.offset.reset"), reader.get("isolation.level")
    if reset is not None:
        _derive_start(fields, reset, resolved.keys.get("start.at"), findings)
    if isolation is None:
        return
    try:
        committed = choice(_ISOLATION)(isolation.value) == "read_committed"
    except BadValue as exc:
        findings.bad_value(isolation, exc)
        return
    if fields.setdefault("read_committed", committed) != committed:
        said = "true" if fields["read_committed"] else "false"
        asked = resolved.keys.get("read.committed")
        where = f" on line {asked.line}" if asked is not None else ""
        findings.bad_value(isolation, BadValue(f"while `read.committed` is {said}{where}"))


def _derive_start(
    fields: dict[str, Any], reset: Setting, asked: Setting | None, findings: Findings
) -> None:
    try:
        start = offset_reset(reset.value)
    except BadValue as exc:
        findings.bad_value(reset, exc)
        return
    if fields.setdefault("start_at", start) != start and asked is not None:
        why = f"while `{asked.key}` on line {asked.line} is {fields['start_at']}"
        findings.bad_value(reset, BadValue(why))


def _check_emitting(config: FlowConfig, keys: Mapping[str, Setting], findings: Findings) -> None:
    """MirrorMaker 2's rules about what is emitted, where there is a reason for them here."""
    syncs, checkpoints = keys.get(_OFFSET_SYNCS), keys.get(_CHECKPOINTS)
    if syncs is not None and not config.offset_syncs.enabled:
        for name, setting in keys.items():
            if name.startswith("offset-syncs.topic."):
                why = f"while `{setting.key}` on line {setting.line} says how to write them"
                findings.bad_value(syncs, BadValue(why))
        if config.checkpoints.enabled:
            findings.note(
                syncs,
                "checkpoints are still written: they come from the ledger (MirrorMaker 2 "
                "writes none without offset syncs)",
            )
    if checkpoints is not None and not config.checkpoints.enabled:
        asked = keys.get(_SYNC_GROUPS)
        if asked is not None and config.groups.sync_offsets_enabled:
            findings.note(
                checkpoints,
                f"`{asked.key}` still acts: group offsets come from the ledger (MirrorMaker 2 "
                "syncs no group without checkpoints)",
            )


def _check_registries(
    config: FlowConfig,
    resolved: ResolvedFlow,
    clusters: Mapping[ClusterAlias, ClusterConfig],
    findings: Findings,
) -> None:
    asked = resolved.keys.get("schemas.enabled")
    if asked is None or not config.schemas.enabled:
        return
    for alias in (config.id.source, config.id.target):
        if alias in clusters and not clusters[alias].registry.is_set:
            findings.problem(asked, f"needs `{alias}.schema.registry.url`")


def _check_exactly_once(config: FlowConfig, resolved: ResolvedFlow, findings: Findings) -> None:
    required = resolved.keys.get("exactly.once.support")
    if required is None or config.read_committed:
        return
    if config.connector.exactly_once_support != "required":
        return
    asked = resolved.keys.get("read.committed") or resolved.source_consumer["isolation.level"]
    why = f"while `{asked.key}` on line {asked.line} asks for records of aborted transactions"
    findings.bad_value(required, BadValue(why))


def _check_something_flows(
    scoped: ScopedSettings, pairs: tuple[FlowConfig, ...], findings: Findings
) -> None:
    line = scoped.clusters.line if scoped.clusters is not None else None
    if len(scoped.aliases) == 1:
        findings.problem_at("clusters", "names one cluster; a mirror needs two", line=line)
    # A switch that could not be read is a problem already, and may have been meant to be true.
    switches = ["enabled", *(f"{pair.id}.enabled" for pair in pairs)]
    unread = any(findings.about(switch) for switch in switches)
    if not pairs or unread or any(pair.enabled for pair in pairs):
        return
    needed = f"`{pairs[0].id}.enabled = true`"
    if any(pair.heartbeats.enabled for pair in pairs):
        why = f"no flow is enabled, so only heartbeats are written; {needed} mirrors records"
        findings.note_at("clusters", why, line=line)
    else:
        why = f"no flow is enabled and no heartbeats are written; set {needed}"
        findings.problem_at("clusters", why, line=line)
