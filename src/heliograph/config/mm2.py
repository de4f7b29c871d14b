"""`mm2.properties` into the model, resolved as MirrorMaker 2 resolves it. Runs on the driver.

Precedence, strongest first, as MirrorMaker 2's driver has it in dedicated mode:

    a flow's key        `A->B.k`, then `k`
    a cluster's TLS     `A.consumer.k`, then `A.k`, then `k`
    reading records     `A->B.source.consumer.k`, then `A.consumer.k`, then `A->B.consumer.k`
    writing records     `A->B.producer.override.k`, then `B.producer.k`
    a Connect worker    `B.k`, then `k` where MirrorMaker 2 passes it on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from heliograph.config.findings import Findings, Setting
from heliograph.config.java_security import ReadBytes, read_security
from heliograph.config.keys import (
    ENGINE_KEYS,
    FLOW_KEYS,
    PLUGIN_PREFIXES,
    REST_KEYS,
    ROLES,
    WORKER_KEYS,
    Key,
)
from heliograph.config.names import CLIENT_NUMBERS, SECURITY_KEYS, WORKER_OTHER
from heliograph.config.placement import BOOTSTRAP, FLOW_CLIENT_PREFIXES, Placed, place
from heliograph.config.schema import (
    ClusterConfig,
    EngineConfig,
    FlowClients,
    FlowConfig,
    MirrorConfig,
)
from heliograph.config.sections import RestConfig, WorkerConfig
from heliograph.config.values import BadValue, choice, servers, whole
from heliograph.model import ClusterAlias, FlowId, StartAt

_ISOLATION: Final = ("read_committed", "read_uncommitted")

Scope = Mapping[str, Setting]


def translate(
    settings: Iterable[Setting], read_bytes: ReadBytes, findings: Findings
) -> MirrorConfig | None:
    """The model of the settings; None when `findings` gained a problem on the way."""
    placed = place(settings, findings)
    engine_fields = _read_fields(ENGINE_KEYS, [placed.top], findings)
    engine_fields["spark"] = _prefixed(placed.top, "spark.", keep_prefix=True)
    engine = _checked_engine(engine_fields, placed.top, findings)
    rest_fields = _read_fields(REST_KEYS, [placed.top], findings)
    rest_fields["https"] = _prefixed(placed.top, "listeners.https.", keep_prefix=True)
    clusters = {alias: _cluster(alias, placed, read_bytes, findings) for alias in placed.aliases}
    _check_client_values(placed, findings)
    pairs = tuple(_flow(flow, placed, findings) for flow in placed.flow)
    _check_something_flows(placed, pairs, findings)
    complete = {alias: cluster for alias, cluster in clusters.items() if cluster is not None}
    if findings.problems or engine is None or len(complete) < len(clusters):
        return None
    return MirrorConfig(
        clusters=complete, pairs=pairs, engine=engine, rest=RestConfig.model_validate(rest_fields)
    )


def _read_fields(
    keys: Iterable[Key], scopes: Iterable[Scope], findings: Findings
) -> dict[str, Any]:
    """Typed values by their place in the model; the first scope that has a key wins.

    The last scope is the top, where some keys mean nothing.
    """
    *own, top = scopes
    fields: dict[str, Any] = {}
    for key in keys:
        candidates = [*own, top] if key.top or not own else own
        setting = next((scope[key.name] for scope in candidates if key.name in scope), None)
        if setting is None:
            continue
        try:
            value = key.read(setting.value)
        except BadValue as exc:
            findings.bad(setting, exc)
            continue
        section, _, name = key.field.rpartition(".")
        holder = fields.setdefault(section, {}) if section else fields
        holder[name] = value
    return fields


def _checked_engine(fields: dict[str, Any], top: Scope, findings: Findings) -> EngineConfig | None:
    """Rules of the model between fields come back as problems of the key they begin with."""
    try:
        return EngineConfig.model_validate(fields)
    except ValidationError as exc:
        for error in exc.errors():
            sentence = error["msg"].removeprefix("Value error, ")
            field = str(error["loc"][0]) if error["loc"] else sentence.partition(" ")[0]
            key = next(key for key in ENGINE_KEYS if key.field == field)
            findings.problem(top[key.name], sentence.removeprefix(f"{field} "))
        return None


def _prefixed(scope: Scope, prefix: str, *, keep_prefix: bool = False) -> dict[str, str]:
    return {
        name if keep_prefix else name.removeprefix(prefix): setting.value
        for name, setting in scope.items()
        if name.startswith(prefix)
    }


def _cluster(
    alias: ClusterAlias, placed: Placed, read_bytes: ReadBytes, findings: Findings
) -> ClusterConfig | None:
    own = placed.cluster[alias]
    bootstrap = _bootstrap(alias, placed, findings)
    inherited = {
        **{name: found for name, found in placed.top.items() if name in SECURITY_KEYS},
        **{name: found for name, found in own.items() if name in SECURITY_KEYS},
    }
    role_security = {
        role: read_security({**inherited, **given}, read_bytes, findings)
        for role in ROLES
        if (given := _role_security(own, role))
    }
    worker = _read_fields(WORKER_KEYS, [own, placed.top], findings)
    worker["other"] = {name: s.value for name, s in own.items() if name in WORKER_OTHER}
    security = read_security(inherited, read_bytes, findings)
    if bootstrap is None:
        return None
    return ClusterConfig(
        alias=alias,
        bootstrap_servers=bootstrap,
        security=security,
        role_security=role_security,
        consumer=_values(_overrides(own, "consumer.")),
        producer=_values(_overrides(own, "producer.")),
        admin=_values(_overrides(own, "admin.")),
        worker=WorkerConfig.model_validate(worker),
    )


def _bootstrap(alias: ClusterAlias, placed: Placed, findings: Findings) -> tuple[str, ...] | None:
    setting = placed.cluster[alias].get(BOOTSTRAP)
    if setting is None:
        if findings.about(f"{alias}.{BOOTSTRAP}"):
            return None
        line = placed.clusters.line if placed.clusters is not None else None
        why = f"`{alias}` has no brokers; set `{alias}.{BOOTSTRAP}`"
        findings.lacking("clusters", why, line=line)
        return None
    try:
        return servers(setting.value)
    except BadValue as exc:
        findings.bad(setting, exc)
        return None


def _check_client_values(placed: Placed, findings: Findings) -> None:
    """Client settings travel as text, but one that is no number is better met here."""
    for scope in (*placed.cluster.values(), *placed.flow.values()):
        for name, setting in scope.items():
            prefix = next((p for p in FLOW_CLIENT_PREFIXES if name.startswith(p)), None)
            if prefix is None or name.removeprefix(prefix) not in CLIENT_NUMBERS:
                continue
            try:
                whole(-1)(setting.value)
            except BadValue as exc:
                findings.bad(setting, exc)


def _role_security(own: Scope, role: str) -> dict[str, Setting]:
    prefix = f"{role}."
    return {
        name.removeprefix(prefix): setting
        for name, setting in own.items()
        if name.startswith(prefix) and name.removeprefix(prefix) in SECURITY_KEYS
    }


def _overrides(scope: Scope, prefix: str) -> dict[str, Setting]:
    """Client settings under a prefix, by Java name; security has its own place in the model."""
    return {
        bare: setting
        for name, setting in scope.items()
        if name.startswith(prefix) and (bare := name.removeprefix(prefix)) not in SECURITY_KEYS
    }


def _values(overrides: Scope) -> dict[str, str]:
    return {name: setting.value for name, setting in overrides.items()}


def _flow(flow: FlowId, placed: Placed, findings: Findings) -> FlowConfig:
    own, source = placed.flow[flow], placed.cluster[flow.source]
    target = placed.cluster[flow.target]
    reader = {
        **_client_of_flow(own, "consumer."),
        **_overrides(source, "consumer."),
        **_overrides(own, "source.consumer."),
    }
    fields = _read_fields(FLOW_KEYS, [own, placed.top], findings)
    connector = fields.setdefault("connector", {})
    connector["plugins"] = {
        name: setting.value
        for name, setting in own.items()
        if name.startswith(PLUGIN_PREFIXES) and name != "topic.creation.groups"
    }
    asked = own.get("read.committed") or placed.top.get("read.committed")
    _derive_from_reader(fields, reader, asked, findings)
    admin = _client_of_flow(own, "admin.")
    clients = FlowClients(
        source_consumer=_values(reader),
        source_admin=_values(
            {**admin, **_overrides(source, "admin."), **_overrides(own, "source.admin.")}
        ),
        target_producer=_values(
            {**_overrides(target, "producer."), **_overrides(own, "producer.override.")}
        ),
        target_admin=_values(
            {**admin, **_overrides(target, "admin."), **_overrides(own, "target.admin.")}
        ),
        offset_syncs_producer=_values(_client_of_flow(own, "producer.")),
    )
    return FlowConfig.model_validate({**fields, "id": flow, "clients": clients})


def _client_of_flow(own: Scope, prefix: str) -> dict[str, Setting]:
    """`A->B.consumer.k` and the like; some keys of the flow itself begin with the same word."""
    known = {key.name for key in FLOW_KEYS}
    return {
        bare: setting
        for bare, setting in _overrides(own, prefix).items()
        if prefix + bare not in known and not bare.startswith("override.")
    }


def _derive_from_reader(
    fields: dict[str, Any], reader: Scope, asked: Setting | None, findings: Findings
) -> None:
    """What the reading consumer's own settings say about the flow."""
    reset, isolation = reader.get("auto.offset.reset"), reader.get("isolation.level")
    if reset is not None:
        try:
            fields["start_at"] = choice(StartAt)(reset.value)
        except BadValue as exc:
            findings.bad(reset, exc)
    if isolation is None:
        return
    try:
        committed = choice(_ISOLATION)(isolation.value) == "read_committed"
    except BadValue as exc:
        findings.bad(isolation, exc)
        return
    if fields.setdefault("read_committed", committed) != committed:
        said = "true" if fields["read_committed"] else "false"
        where = f" on line {asked.line}" if asked is not None else ""
        findings.bad(isolation, BadValue(f"while `read.committed` is {said}{where}"))


def _check_something_flows(
    placed: Placed, pairs: tuple[FlowConfig, ...], findings: Findings
) -> None:
    line = placed.clusters.line if placed.clusters is not None else None
    if len(placed.aliases) == 1:
        findings.lacking("clusters", "names one cluster; a mirror needs two", line=line)
    # A switch that could not be read is a problem already, and may have been meant to be true.
    switches = ["enabled", *(f"{pair.id}.enabled" for pair in pairs)]
    unread = any(findings.about(switch) for switch in switches)
    if len(placed.aliases) > 1 and not unread and not any(pair.enabled for pair in pairs):
        why = f"no flow is enabled; set `{pairs[0].id}.enabled = true`"
        findings.lacking("clusters", why, line=line)
