"""`transforms` and `predicates` of a file, as Kafka Connect writes them. Runs on the driver.

What cannot be done to bytes is refused with what does it here: a record that should be masked
must not be mirrored unmasked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from heliograph.config.findings import Findings, Setting
from heliograph.config.mm2.precedence import ResolvedFlow
from heliograph.config.mm2.regexes import RegexRefused, from_java, replacer
from heliograph.config.mm2.values import BadValue, choice, regexes, switch, words
from heliograph.config.plugins import UnusableClass, is_python_path, load_function
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.config.transforms import PredicateConfig, SchemaIdsConfig, TransformConfig
from heliograph.model import ClusterAlias

TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"
DROP: Final = "provenance.drop"
WRITE: Final = "provenance.write"
_JAVA: Final = "org.apache.kafka.connect.transforms."
_COLUMNS: Final = "write a function on columns, `type = module:function`"
_STRUCTS: Final[Mapping[str, str]] = {
    "Cast": "",
    "ExtractField": "json_field",
    "Flatten": "",
    "HeaderFrom": "json_field",
    "HoistField": "",
    "InsertField": "json_fields(set=...)",
    "MaskField": "json_fields(mask=...)",
    "ReplaceField": "json_fields(drop=..., rename=...)",
    "SetSchemaMetadata": "",
    "TimestampConverter": "",
    "ValueToKey": "json_field",
}
"""With what of `heliograph.transform.fields` does it, or helps; avro and protobuf have the same."""
_CLASSES: Final = ("Filter", "InsertHeader", "DropHeaders", "RegexRouter")
_SCHEMA_IDS: Final = "SchemaIds"
_OWN: Final = ("type", "predicate", "negate", "topics", "on")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "Filter": (),
    "InsertHeader": ("header", "value.literal"),
    "DropHeaders": ("headers",),
    "RegexRouter": ("regex", "replacement"),
    _SCHEMA_IDS: (),
    "columns": (),
    "record": (),
    "handler": (),
    "TopicNameMatches": ("pattern",),
    "HasHeaderKey": ("name",),
    "RecordIsTombstone": (),
}
"""The keys of each, all of which it needs."""
_MAY_BE_EMPTY: Final = ("replacement",)
_OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "handler": ("args",),
    _SCHEMA_IDS: ("parts", "id.bytes", "on.unknown", "on.unframed"),
}


def read_transforms(
    flow: FlowConfig,
    resolved: ResolvedFlow,
    clusters: Mapping[ClusterAlias, ClusterConfig],
    findings: Findings,
) -> tuple[TransformConfig, ...]:
    """The transforms of a flow in their order; what is wrong with them is in `findings`."""
    predicates = dict(_predicates(flow, resolved, findings))
    found: list[TransformConfig] = []
    for alias in flow.transform_aliases:
        own = _below(resolved.plugins, f"{TRANSFORMS}.{alias}.")
        place = f"{flow.id}.{TRANSFORMS}.{alias}"
        step = _transform(place, own, resolved.keys[TRANSFORMS], predicates, findings)
        if step is not None and step.kind == _SCHEMA_IDS:
            routers = tuple(each for each in found if each.names_topics)
            step = _with_registries(step, own, flow, clusters, routers, findings)
        if step is not None:
            bounds = {
                "timeout_ms": flow.transform_timeout_ms,
                "memory_bytes_max": flow.transform_memory_bytes_max,
            }
            found.append(step.model_copy(update=bounds))
    _report_names_too_early(found, resolved.plugins, findings)
    first, last = _provenance(flow, resolved, clusters, findings)
    _report_strays(resolved, TRANSFORMS, flow.transform_aliases, findings)
    _report_strays(resolved, PREDICATES, flow.predicate_aliases, findings)
    return (*first, *found, *last)


def _provenance(
    flow: FlowConfig,
    resolved: ResolvedFlow,
    clusters: Mapping[ClusterAlias, ClusterConfig],
    findings: Findings,
) -> tuple[list[TransformConfig], list[TransformConfig]]:
    """What `provenance.drop` and `provenance.write` do, before and behind all others."""
    first: list[TransformConfig] = []
    last: list[TransformConfig] = []
    drop, write = flow.provenance.drop, flow.provenance.write
    if drop and (known := _id_of(flow.id.target, DROP, resolved, clusters, findings)):
        named = PredicateConfig(kind="HeaderNames", text=known, headers=drop)
        first.append(TransformConfig(name=DROP, kind="Filter", predicate=named))
    if write and (known := _id_of(flow.id.source, WRITE, resolved, clusters, findings)):
        added = TransformConfig(name=WRITE, kind="InsertHeader", headers=(write,), literal=known)
        last.append(added)
    return first, last


def _id_of(
    alias: ClusterAlias,
    key: str,
    resolved: ResolvedFlow,
    clusters: Mapping[ClusterAlias, ClusterConfig],
    findings: Findings,
) -> str | None:
    if alias not in clusters:
        return None
    found = clusters[alias].provenance.id
    if found is None and not findings.about(f"{alias}.provenance.id"):
        findings.problem(resolved.keys[key], f"needs `{alias}.provenance.id`, the cluster's id")
    return found


def _alias_of(place: str) -> str:
    """Of `A->B.transforms.alias`; an alias may hold dots."""
    for scope in (TRANSFORMS, PREDICATES):
        place = place.partition(f".{scope}.")[2] or place
    return place


def _below(plugins: Mapping[str, Setting], prefix: str) -> dict[str, Setting]:
    return {
        name.removeprefix(prefix): setting
        for name, setting in plugins.items()
        if name.startswith(prefix)
    }


def _transform(
    place: str,
    own: Mapping[str, Setting],
    named: Setting,
    predicates: Mapping[str, PredicateConfig | None],
    findings: Findings,
) -> TransformConfig | None:
    kind = _kind(place, own, named, findings)
    if kind is None or not _has_its_keys(kind, own, _OWN, findings):
        return None
    try:
        fields: dict[str, Any] = {"name": _alias_of(place), "kind": kind}
        if kind in ("columns", "record", "handler"):
            fields["function"] = own["type"].value
        if kind == "handler" and "args" in own:
            fields["args"] = own["args"].value
        if kind == "InsertHeader":
            fields["headers"] = (own["header"].value,)
            fields["literal"] = own["value.literal"].value
        if kind == "DropHeaders":
            fields["headers"] = words(own["headers"].value)
        if (topics := own.get("topics")) is not None:
            fields["topics"] = _read(regexes, topics, findings)
        predicate = _predicate_of(own, predicates, findings)
        if kind == "RegexRouter":
            fields |= _names(own, predicate, findings)
    except BadValue:
        return None
    return TransformConfig(**fields, predicate=predicate)


def _with_registries(
    step: TransformConfig,
    own: Mapping[str, Setting],
    flow: FlowConfig,
    clusters: Mapping[ClusterAlias, ClusterConfig],
    routers: tuple[TransformConfig, ...],
    findings: Findings,
) -> TransformConfig | None:
    """Ids become what two registries say, so both clusters need one."""
    for alias in (flow.id.source, flow.id.target):
        if alias in clusters and not clusters[alias].registry.is_set:
            findings.problem(own["type"], f"{_SCHEMA_IDS} needs `{alias}.schema.registry.url`")
            return None
    fields: dict[str, Any] = {}
    try:
        for key, (field, read) in _SCHEMA_IDS_KEYS.items():
            if (setting := own.get(key)) is not None:
                fields[field] = _read(read, setting, findings)
    except BadValue:
        return None
    ids = SchemaIdsConfig(
        **fields,
        rename=flow.schemas.rename,
        source=ClusterAlias(flow.connector.source_alias or flow.id.source),
        target=flow.id.target,
        policy=flow.policy,
        routers=routers,
    )
    return step.model_copy(update={"schema_ids": ids})


def _parts(value: str) -> tuple[str, ...]:
    found = words(value)
    if not found or len(set(found)) < len(found) or set(found) - {"key", "value"}:
        raise BadValue("not `key`, `value` or both")
    return found


_SCHEMA_IDS_KEYS: Final[Mapping[str, tuple[str, Any]]] = {
    "parts": ("parts", _parts),
    "id.bytes": ("id_bytes", lambda value: int(str(choice(("4", "8"))(value)))),
    "on.unknown": ("on_unknown", choice(("fail", "pass"))),
    "on.unframed": ("on_unframed", choice(("fail", "pass"))),
}
"""Fields, and how their text is read."""


def _kind(place: str, own: Mapping[str, Setting], named: Setting, findings: Findings) -> str | None:
    setting = own.get("type")
    if setting is None:
        findings.problem(named, f"`{_alias_of(place)}` has no type; set `{place}.type`")
        return None
    if setting.value == _SCHEMA_IDS:
        return _SCHEMA_IDS
    if is_python_path(setting.value):
        return _python_kind(own, setting, findings)
    wrong = _why_not(setting.value)
    if wrong is not None:
        findings.bad_value(setting, BadValue(wrong))
        return None
    return setting.value.removeprefix(_JAVA)


def _python_kind(own: Mapping[str, Setting], setting: Setting, findings: Findings) -> str | None:
    try:
        load_function(setting.value)
    except UnusableClass as exc:
        findings.bad_value(setting, BadValue(str(exc)))
        return None
    on = own.get("on")
    if on is None:
        return "columns"
    try:
        return str(_read(choice(("columns", "record", "handler")), on, findings))
    except BadValue:
        return None


def _why_not(value: str) -> str | None:
    """Why a Java class cannot be a transform here."""
    name = value.removeprefix(_JAVA).partition("$")[0]
    if value.startswith(_JAVA) and value.removeprefix(_JAVA) in _CLASSES:
        return None
    if value == f"{_JAVA}TimestampRouter":
        return (
            "which puts the records of one partition into topics by their times, so that no map "
            "could tell groups where they are; a pipeline can, `pipelines = ...`"
        )
    if value.startswith(_JAVA) and name in _STRUCTS:
        helper = _STRUCTS[name]
        by = f", with `{helper}` of heliograph.transform.fields" if helper else ""
        return f"which needs fields where a mirror has bytes, also in MirrorMaker 2; {_COLUMNS}{by}"
    return f"a Java class that cannot run here; {_COLUMNS}"


def _names(
    own: Mapping[str, Setting], predicate: PredicateConfig | None, findings: Findings
) -> dict[str, str]:
    """What a router makes of which names; whole topics are renamed, or else groups and configs
    could not follow."""
    if predicate is not None and predicate.kind != "TopicNameMatches":
        bad = BadValue(
            f"`{predicate.kind}` says it of records one by one; a topic is renamed as a whole, by "
            "`TopicNameMatches` or `topics`"
        )
        findings.bad_value(own["predicate"], bad)
        raise bad
    regex = _read(_one_regex, own["regex"], findings)
    replacement = own["replacement"].value
    try:
        replacer(regex, replacement)
    except RegexRefused as exc:
        bad = BadValue(str(exc))
        findings.bad_value(own["replacement"], bad)
        raise bad from exc
    return {"regex": regex, "replacement": replacement}


def _report_names_too_early(
    found: list[TransformConfig], plugins: Mapping[str, Setting], findings: Findings
) -> None:
    """A lane knows the name its topic ends up with, not those on the way there."""
    routers = [row for row, each in enumerate(found) if each.names_topics]
    for each in found[: routers[-1] if routers else 0]:
        predicate = each.predicate
        if not each.names_topics and predicate is not None and predicate.kind == "TopicNameMatches":
            findings.bad_value(
                plugins[f"{TRANSFORMS}.{each.name}.predicate"],
                BadValue(
                    "is asked for the name before a `RegexRouter` changes it; name the router "
                    "first in `transforms`, or say the source's topics with `topics`"
                ),
            )


def _predicates(
    flow: FlowConfig, resolved: ResolvedFlow, findings: Findings
) -> Iterator[tuple[str, PredicateConfig | None]]:
    """By alias; None for one that is a problem already."""
    for alias in flow.predicate_aliases:
        own = _below(resolved.plugins, f"{PREDICATES}.{alias}.")
        place = f"{flow.id}.{PREDICATES}.{alias}"
        yield alias, _predicate(place, own, resolved.keys[PREDICATES], findings)


def _predicate(
    place: str, own: Mapping[str, Setting], named: Setting, findings: Findings
) -> PredicateConfig | None:
    setting = own.get("type")
    if setting is None:
        findings.problem(named, f"`{_alias_of(place)}` has no type; set `{place}.type`")
        return None
    kind = setting.value.removeprefix(f"{_JAVA}predicates.")
    if kind == setting.value or kind not in (
        "TopicNameMatches",
        "HasHeaderKey",
        "RecordIsTombstone",
    ):
        why = f"a Java class that cannot run here; {_COLUMNS}, which may return a mask"
        findings.bad_value(setting, BadValue(why))
        return None
    if not _has_its_keys(kind, own, ("type",), findings):
        return None
    text = next((own[key].value for key in _KEYS[kind]), "")
    if kind == "TopicNameMatches":
        try:
            text = _read(_one_regex, own["pattern"], findings)
        except BadValue:
            return None
    return PredicateConfig.model_validate({"kind": kind, "text": text})


def _one_regex(value: str) -> str:
    try:
        return from_java(value)
    except RegexRefused as exc:
        raise BadValue(str(exc)) from exc


def _predicate_of(
    own: Mapping[str, Setting],
    predicates: Mapping[str, PredicateConfig | None],
    findings: Findings,
) -> PredicateConfig | None:
    asked, negate = own.get("predicate"), own.get("negate")
    negated = negate is not None and bool(_read(switch, negate, findings))
    if asked is None:
        if negated and negate is not None:
            findings.bad_value(negate, BadValue("without a `predicate` it could negate"))
        return None
    if asked.value not in predicates:
        known = ", ".join(predicates) or "none"
        bad = BadValue(f"not one of `predicates` ({known})")
        findings.bad_value(asked, bad)
        raise bad
    found = predicates[asked.value]
    if found is None:
        raise BadValue("a problem already")
    return found.model_copy(update={"negate": negated})


def _has_its_keys(
    kind: str, own: Mapping[str, Setting], common: tuple[str, ...], findings: Findings
) -> bool:
    wanted, fine = _KEYS[kind], True
    may_have = (*wanted, *_OPTIONAL.get(kind, ()), *common)
    for name, setting in own.items():
        if name not in may_have:
            known = ", ".join(f"`{key}`" for key in may_have)
            findings.problem(setting, f"{kind} has no such key; it has {known}")
            fine = False
    for name in wanted:
        if name not in own or not (own[name].value or name in _MAY_BE_EMPTY):
            prefix = own["type"].key.removesuffix("type")
            findings.problem(own["type"], f"{kind} needs `{prefix}{name}`")
            fine = False
    return fine


def _report_strays(
    resolved: ResolvedFlow, scope: str, aliases: tuple[str, ...], findings: Findings
) -> None:
    """Keys of an alias that nobody named: of a transform it would never run."""
    for name, setting in resolved.plugins.items():
        if not name.startswith(f"{scope}."):
            continue
        if not any(name.startswith(f"{scope}.{alias}.") for alias in aliases):
            known = ", ".join(aliases) or "none"
            findings.problem(setting, f"belongs to no alias of `{scope}` ({known})")


def _read(reader: Any, setting: Setting, findings: Findings) -> Any:
    try:
        return reader(setting.value)
    except BadValue as exc:
        findings.bad_value(setting, exc)
        raise
