"""Where each key of `mm2.properties` belongs: the top, a cluster or a flow. Runs on the driver.

Every name is checked here, so that the translation may look up only what it knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from heliograph.config.client_names import (
    DECIDED_BY_SOURCE,
    DECIDED_HERE,
    LIBRDKAFKA_NAMES,
    SHARED_BY_FLOWS,
)
from heliograph.config.findings import Findings, Setting
from heliograph.config.mm2.inert import CONNECT, JAVA_ONLY, JAVA_ONLY_SECURITY, WORKER_OTHER
from heliograph.config.mm2.keys import (
    API_BY_NAME,
    CLUSTER_BY_NAME,
    ENGINE_BY_NAME,
    FLOW_BY_NAME,
    PIPELINE_BY_NAME,
    PLUGIN_PREFIXES,
    REST_BY_NAME,
    ROLES,
    TRANSFORM_PREFIXES,
    WORKER_BY_NAME,
)
from heliograph.config.mm2.names import REMOVED, RENAMED, SECURITY_KEYS, unknown_key
from heliograph.config.mm2.values import words
from heliograph.config.pipelines import PIPELINE_NAME, PIPELINE_PREFIX
from heliograph.model import ClusterAlias, FlowId

BOOTSTRAP: Final = "bootstrap.servers"
FLOW_CLIENT_PREFIXES: Final = (
    "producer.override.",
    *(f"{side}.{role}." for side in ("source", "target") for role in ROLES),
    *(f"{role}." for role in ROLES),
)
_ROLE_PREFIXES: Final = tuple(f"{role}." for role in ROLES)
_FLOW: Final = re.compile(r"(.*?)->(.*)", re.DOTALL)
_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_CLUSTER_NAMES: Final = (
    BOOTSTRAP,
    *SECURITY_KEYS,
    *CLUSTER_BY_NAME,
    *WORKER_BY_NAME,
    *WORKER_OTHER,
)
_TOP_NAMES: Final = (
    "clusters",
    "config.providers",
    *API_BY_NAME,
    *CLUSTER_BY_NAME,
    *ENGINE_BY_NAME,
    *FLOW_BY_NAME,
    *REST_BY_NAME,
    *SECURITY_KEYS,
    *(name for name, key in WORKER_BY_NAME.items() if key.top),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedSettings:
    """Settings by scope, each under its name without the scope's prefix."""

    aliases: tuple[ClusterAlias, ...]
    clusters: Setting | None
    """The line that names the aliases."""
    top: dict[str, Setting] = field(default_factory=dict)
    cluster: dict[ClusterAlias, dict[str, Setting]] = field(default_factory=dict)
    flow: dict[FlowId, dict[str, Setting]] = field(default_factory=dict)


def sort_into_scopes(settings: Iterable[Setting], findings: Findings) -> ScopedSettings:
    """Sort the settings into their scopes and report every unknown name."""
    kept = _without_duplicates(settings, findings)
    scoped = _begin(kept, findings)
    strangers: set[str] = set()
    for setting in kept:
        if setting.key == "clusters":
            continue
        matched = _FLOW.fullmatch(setting.key)
        if matched is not None:
            _sort_flow_key(setting, matched.group(1), matched.group(2), scoped, strangers, findings)
        else:
            _sort_cluster_or_top_key(setting, scoped, findings)
    for scope in (scoped.top, *scoped.flow.values()):
        _respell(scope, findings)
    return scoped


def _without_duplicates(settings: Iterable[Setting], findings: Findings) -> list[Setting]:
    first: dict[str, Setting] = {}
    for setting in settings:
        earlier = first.setdefault(setting.key, setting)
        if earlier is not setting:
            findings.problem(setting, f"is already set on line {earlier.line}")
    return list(first.values())


def _respell(scope: dict[str, Setting], findings: Findings) -> None:
    """Old spellings stand for the new ones, unless those are there too, as MirrorMaker 3 had it."""
    for old, new in RENAMED.items():
        setting = scope.pop(old, None)
        if setting is None:
            continue
        if new in scope:
            findings.note(setting, f"ignored: `{scope[new].key}` on line {scope[new].line} wins")
        else:
            scope[new] = setting
            findings.note(setting, f"read as `{new}`, its name since Kafka 2.7")


def _begin(settings: list[Setting], findings: Findings) -> ScopedSettings:
    clusters = next((setting for setting in settings if setting.key == "clusters"), None)
    if clusters is None:
        if not findings.about("clusters"):
            findings.problem_at("clusters", "missing; name the aliases, as in `clusters = A, B`")
        # Go on with what the file seems to mean, so that its other mistakes are found too.
        suffix = f".{BOOTSTRAP}"
        named = [s.key.removesuffix(suffix) for s in settings if s.key.endswith(suffix)]
    else:
        named = [name for name in words(clusters.value) if name]
        if not named:
            findings.problem(clusters, "names no cluster")
        for name in named:
            if _ALIAS.fullmatch(name) is None:
                why = "an alias becomes part of topic names: letters, digits, `.`, `_` and `-`"
                findings.problem(clusters, f"`{name}` cannot be an alias; {why}")
            if named.count(name) > 1:
                findings.problem(clusters, f"`{name}` is named twice")
    aliases = tuple(ClusterAlias(name) for name in dict.fromkeys(named))
    flows = {
        FlowId(source=source, target=target): dict[str, Setting]()
        for source in aliases
        for target in aliases
        if source != target
    }
    return ScopedSettings(
        aliases=aliases, clusters=clusters, cluster={alias: {} for alias in aliases}, flow=flows
    )


def _split_alias(text: str, aliases: Iterable[ClusterAlias]) -> tuple[ClusterAlias, str] | None:
    """The alias `text` begins with and the name after it; aliases may hold dots."""
    for alias in sorted(aliases, key=len, reverse=True):
        if text.startswith(alias + "."):
            return alias, text[len(alias) + 1 :]
    return None


def _sort_flow_key(
    setting: Setting,
    source: str,
    rest: str,
    scoped: ScopedSettings,
    strangers: set[str],
    findings: Findings,
) -> None:
    split = _split_alias(rest, scoped.aliases)
    target, name = split if split is not None else (rest.partition(".")[0], rest.partition(".")[2])
    pair = f"{source}->{target}"
    unknown = [alias for alias in (source, target) if alias not in scoped.aliases]
    if unknown or source == target:
        # The first line is enough: the others of this pair have the same mistake.
        if pair not in strangers:
            strangers.add(pair)
            known = ", ".join(scoped.aliases) or "none"
            absent = " and ".join(f"`{alias}`" for alias in dict.fromkeys(unknown))
            are = "is" if len(set(unknown)) == 1 else "are"
            self_flow = (
                "source and target are the same cluster; its copies would be copied endlessly"
            )
            findings.problem(
                setting, f"{absent} {are} not in `clusters` ({known})" if unknown else self_flow
            )
        return
    flow = FlowId(source=ClusterAlias(source), target=ClusterAlias(target))
    if not _is_kept(setting, name, _wrong_in_flow(name, flow), findings):
        return
    scoped.flow[flow][name] = setting
    key = FLOW_BY_NAME.get(name)
    if key is not None and key.inert is not None:
        findings.note(setting, key.inert)
    elif key is None and name.startswith(TRANSFORM_PREFIXES):
        pass  # read by `transforms`
    elif key is None and name.startswith(PLUGIN_PREFIXES):
        findings.note(setting, CONNECT)
    elif key is None:
        _note_flow_client(setting, name, flow, findings)


def _note_flow_client(setting: Setting, name: str, flow: FlowId, findings: Findings) -> None:
    """What a client's setting of one flow does not do."""
    if name.startswith("producer.override."):
        _note_client(setting, "producer", name.removeprefix("producer.override."), findings)
        return
    prefix = next((each for each in FLOW_CLIENT_PREFIXES if name.startswith(each)), None)
    if prefix is None:
        return
    bare, role = name.removeprefix(prefix), prefix.split(".")[-2]
    if role == "producer":
        better = f"{flow}.producer.override.{bare}"
        findings.note(
            setting,
            f"applies to offset syncs only, as in MirrorMaker 2; for records write `{better}`",
        )
    elif prefix == "target.consumer.":
        findings.note(setting, "does nothing here: no flow reads records of its target")
    elif role == "consumer" and bare in SHARED_BY_FLOWS:
        better = f"{flow.source}.consumer.{bare}"
        findings.note(
            setting, f"does nothing here: flows of one source share connections; write `{better}`"
        )
    else:
        _note_client(setting, role, bare, findings)


def _wrong_in_flow(name: str, flow: FlowId) -> str | None:
    """The sentence for a name no flow has."""
    if name in FLOW_BY_NAME or name in RENAMED or name in REMOVED:
        return None
    if name.startswith(PLUGIN_PREFIXES):
        return None
    if name.startswith(PIPELINE_PREFIX):
        return _wrong_in_pipeline(name, flow)
    for prefix in FLOW_CLIENT_PREFIXES:
        if name.startswith(prefix) and name != prefix:
            bare = name.removeprefix(prefix)
            return _security_is_per_cluster(bare, flow) if bare in SECURITY_KEYS else None
    for prefix in ("source.cluster.", "target.cluster.", ""):
        if name.removeprefix(prefix) in SECURITY_KEYS:
            return _security_is_per_cluster(name.removeprefix(prefix), flow)
    if name in _CLUSTER_NAMES:
        return f"belongs to a cluster; write `{flow.source}.{name}` or `{flow.target}.{name}`"
    return unknown_key(name, FLOW_BY_NAME, f"{flow}.")


def _wrong_in_pipeline(name: str, flow: FlowId) -> str | None:
    """The sentence for what is no `pipeline.NAME.key`."""
    pipeline, _, key = name.removeprefix(PIPELINE_PREFIX).partition(".")
    if PIPELINE_NAME.fullmatch(pipeline) is None:
        return (
            f"a pipeline is named with letters, digits, `-` and `_`, a hundred at most; write "
            f"`{flow}.{PIPELINE_PREFIX}NAME.topics`"
        )
    if key in PIPELINE_BY_NAME:
        return None
    return unknown_key(key, PIPELINE_BY_NAME, f"{flow}.{PIPELINE_PREFIX}{pipeline}.")


def _is_kept(setting: Setting, name: str, wrong: str | None, findings: Findings) -> bool:
    """Whether the key is one of this scope; if not, it is said why."""
    if wrong is not None:
        findings.problem(setting, wrong)
    elif name in REMOVED:
        findings.note(setting, REMOVED[name])
    else:
        return True
    return False


def _security_is_per_cluster(name: str, flow: FlowId) -> str:
    return f"is set per cluster; write `{flow.source}.{name}` or `{flow.target}.{name}`"


def _sort_cluster_or_top_key(setting: Setting, scoped: ScopedSettings, findings: Findings) -> None:
    split = _split_alias(setting.key, scoped.aliases)
    if split is None:
        wrong = _wrong_at_top(setting, scoped, findings)
        if wrong is None:
            scoped.top[setting.key] = setting
        else:
            findings.problem(setting, wrong)
        return
    alias, name = split
    if not _is_kept(setting, name, _wrong_in_cluster(name, alias, scoped), findings):
        return
    scoped.cluster[alias][name] = setting
    worker = WORKER_BY_NAME.get(name)
    if worker is not None and worker.inert is not None:
        findings.note(setting, worker.inert)
    elif name in WORKER_OTHER:
        findings.note(setting, CONNECT)
    elif name.startswith(_ROLE_PREFIXES):
        role, _, bare = name.partition(".")
        _note_client(setting, role, bare, findings)
    elif name in JAVA_ONLY_SECURITY:
        findings.note(setting, JAVA_ONLY)


def _note_client(setting: Setting, role: str, name: str, findings: Findings) -> None:
    if role == "producer" and name in DECIDED_BY_SOURCE:
        findings.note(
            setting, "does nothing here: batches are copied as the source's producers made them"
        )
    elif role == "producer" and name in DECIDED_HERE:
        findings.note(
            setting, "does nothing here: records are always appended exactly once, with acks=all"
        )
    elif name in JAVA_ONLY_SECURITY:
        findings.note(setting, JAVA_ONLY)
    elif name not in LIBRDKAFKA_NAMES[role] and name not in SECURITY_KEYS:
        findings.note(setting, "does nothing here: no client of Heliograph has such a setting")


def _wrong_in_cluster(name: str, alias: ClusterAlias, scoped: ScopedSettings) -> str | None:
    """The sentence for a name no cluster has."""
    if name in _CLUSTER_NAMES or (name.startswith(_ROLE_PREFIXES) and name.partition(".")[2]):
        return None
    if name in REMOVED:
        return None
    if name in FLOW_BY_NAME or name in RENAMED:
        name = RENAMED.get(name, name)
        other = next((other for other in scoped.aliases if other != alias), "B")
        return f"belongs to a flow; write `{alias}->{other}.{name}`"
    return unknown_key(name, _CLUSTER_NAMES, f"{alias}.")


def _wrong_at_top(setting: Setting, scoped: ScopedSettings, findings: Findings) -> str | None:
    """The sentence for a name that cannot stand alone; notes what MirrorMaker 2 ignores there."""
    name = setting.key
    flow = f"{scoped.aliases[0]}->{scoped.aliases[1]}" if len(scoped.aliases) > 1 else "A->B"
    key = FLOW_BY_NAME.get(name) or REST_BY_NAME.get(name) or WORKER_BY_NAME.get(name)
    if key is not None:
        owner = flow if name in FLOW_BY_NAME else flow.rpartition("->")[2]
        ignored = f"ignored here, as by MirrorMaker 2; write `{owner}.{name}`"
        sentence = key.inert if key.top else ignored
        if sentence is not None:
            findings.note(setting, sentence)
        return None
    if name in JAVA_ONLY_SECURITY:
        findings.note(setting, JAVA_ONLY)
    if any(name in known for known in (API_BY_NAME, CLUSTER_BY_NAME, ENGINE_BY_NAME)):
        return None
    if name in SECURITY_KEYS:
        return None
    if name == "config.providers" or name.startswith(("spark.", "config.providers.")):
        return None
    if name.startswith("listeners.https."):
        findings.note(setting, CONNECT)
        return None
    if name in WORKER_OTHER or name.startswith((*PLUGIN_PREFIXES, *_ROLE_PREFIXES)):
        source, _, target = flow.rpartition("->")
        owner = source if name.startswith("consumer.") else target
        if name.startswith(PLUGIN_PREFIXES):
            owner = flow
        findings.note(setting, f"ignored here, as by MirrorMaker 2; write `{owner}.{name}`")
        return None
    if name in REMOVED:
        findings.note(setting, REMOVED[name])
        return None
    if name in RENAMED:
        return None
    return _stranger_at_top(setting, scoped)


def _stranger_at_top(setting: Setting, scoped: ScopedSettings) -> str:
    name, known = setting.key, ", ".join(scoped.aliases) or "none"
    if setting.value.startswith("->"):
        return f"a key ends at its first space; write `{name}->…` without spaces"
    if name == "num.streams":
        return "MirrorMaker 1 had it; write `slots`, or leave it to Heliograph"
    if name == BOOTSTRAP and scoped.aliases:
        return f"belongs to a cluster; write `{scoped.aliases[0]}.{BOOTSTRAP}`"
    if name.startswith(("source.cluster.", "target.cluster.")):
        return "configures a connector in Kafka Connect; here `clusters` names the clusters"
    head, _, rest = name.partition(".")
    if rest in _CLUSTER_NAMES or rest.startswith(_ROLE_PREFIXES):
        return f"`{head}` is not in `clusters` ({known})"
    return unknown_key(name, _TOP_NAMES, "")
