"""A `KafkaMirrorMaker2` resource into keys, values and lines of an `mm2.properties`. Driver only.

    spec.target, mirrors[].source              clusters, and B.key or A.key from their `config`
    spec.clusters, mirrors[].sourceCluster     the same, before Strimzi 0.49
    mirrors[].sourceConnector.config           A->B.key
    mirrors[].checkpointConnector.config       A->B.key; without this connector no checkpoints
    mirrors[].heartbeatConnector.config        A->B.key; without this connector no heartbeats
    mirrors[].topicsPattern, groupsPattern …   A->B.topics, A->B.groups …

What wins over what is as in Strimzi's operator: `config` of a cluster over `tls` and
`authentication`, the patterns over `config` of a connector.
"""

from __future__ import annotations

from typing import Final

import yaml

from heliograph.config.findings import Findings
from heliograph.config.mm2.keys import API_BY_NAME, ENGINE_BY_NAME, FLOW_BY_NAME
from heliograph.config.mm2.properties import Property
from heliograph.config.secrets import Environment
from heliograph.config.strimzi.mirrors import flow_settings
from heliograph.config.strimzi.parts import Part, Text
from heliograph.config.strimzi.references import MountedSecrets
from heliograph.config.strimzi.security import security_settings
from heliograph.config.yaml_nodes import Nodes, TooMuch

KIND: Final = "KafkaMirrorMaker2"
_VERSIONS: Final = ("kafka.strimzi.io/v1", "kafka.strimzi.io/v1beta2")
_OPERATORS: Final = (
    "version",
    "replicas",
    "image",
    "connectCluster",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "jvmOptions",
    "jmxOptions",
    "logging",
    "clientRackInitImage",
    "metricsConfig",
    "tracing",
    "template",
    "externalConfiguration",
)
"""Fields that say how Strimzi runs Kafka Connect."""
_WORKER: Final = (
    ("groupId", "group.id", "mirrormaker2-cluster"),
    ("offsetStorageTopic", "offset.storage.topic", "mirrormaker2-cluster-offsets"),
)
"""What `adopt` has to know: field, key, and what the operator set before there was a field."""


def kind_of(root: yaml.MappingNode) -> str | None:
    """The kind of a Kubernetes resource; None where the document is none."""
    fields = {key.value: value.value for key, value in root.value if isinstance(key.value, str)}
    kind = fields.get("kind")
    return kind if isinstance(kind, str) and "apiVersion" in fields else None


def resource_settings(
    root: yaml.MappingNode, around: Environment, findings: Findings
) -> list[Property]:
    """Every setting; what is wrong with the resource becomes a problem, with its path."""
    try:
        settings = _Resource(root, around, findings).settings()
    except TooMuch as exc:
        findings.problem_at("malformed", str(exc), line=exc.line)
        return []
    return settings


class _Resource:
    def __init__(self, root: yaml.MappingNode, around: Environment, findings: Findings) -> None:
        self._findings = findings
        self._root = Part(root, "", Nodes(findings), findings)
        self._secrets = MountedSecrets(around, findings)
        self._settings: dict[str, Property] = {}

    def settings(self) -> list[Property]:
        version = self._root.required("apiVersion")
        if version is not None and version.value not in _VERSIONS:
            known = " and ".join(f"`{known}`" for known in _VERSIONS)
            sentence = f"is `{version.value}`; {known} are read"
            self._findings.problem_at(version.path, sentence, line=version.line)
        self._root.pass_over("kind", "metadata", "status")
        spec = self._root.required_part("spec")
        self._root.refuse_the_rest()
        if spec is not None:
            self._note_the_operators(spec)
            self._read(spec)
            spec.refuse_the_rest()
        return list(self._secrets.resolvable(self._settings.values()))

    def _read(self, spec: Part) -> None:
        mirrors = spec.parts("mirrors")
        if not mirrors:
            self._findings.problem_at("spec.mirrors", "missing", line=spec.line)
        if spec.has("target") or not spec.has("clusters"):
            self._read_new(spec, mirrors)
        else:
            self._read_old(spec, mirrors)

    def _read_new(self, spec: Part, mirrors: list[Part]) -> None:
        target = spec.required_part("target")
        sources = [mirror.required_part("source") for mirror in mirrors]
        ends = [None if part is None else self._cluster(part) for part in sources]
        end = None if target is None else self._cluster(target, is_target=True)
        self._put_at_top([*ends, end], spec.line)
        for mirror, source in zip(mirrors, ends, strict=True):
            self._flow(mirror, source, end, is_old=False)

    def _read_old(self, spec: Part, mirrors: list[Part]) -> None:
        named = [self._cluster(part, is_old=True) for part in spec.parts("clusters")]
        self._put_at_top(named, spec.line)
        for mirror in mirrors:
            ends = mirror.required("sourceCluster"), mirror.required("targetCluster")
            self._flow(mirror, *ends, is_old=True)

    def _put_at_top(self, aliases: list[Text | None], line: int) -> None:
        named = [alias.value for alias in aliases if alias is not None]
        self._put("clusters", ",".join(named), line)
        # Pairs without a mirror have no connector that would write any.
        self._put("emit.heartbeats.enabled", "false", line)

    def _cluster(self, part: Part, *, is_target: bool = False, is_old: bool = False) -> Text | None:
        alias, servers = part.required("alias"), part.required("bootstrapServers")
        prefix = "" if alias is None else f"{alias.value}."
        if servers is not None:
            self._put(f"{prefix}bootstrap.servers", servers.value, servers.line)
        for entry in security_settings(part, self._secrets, self._findings):
            self._put(prefix + entry.key, entry.value, entry.line)
        for field, key, before in _WORKER:
            text = part.text(field) if is_target else None
            if text is not None:
                self._put(prefix + key, text.value, text.line)
            elif is_old:
                self._put(prefix + key, before, part.line)
        if is_target:
            part.pass_over("configStorageTopic", "statusStorageTopic")
        for entry in part.settings("config"):
            self._cluster_key(prefix, entry)
        part.refuse_the_rest()
        return alias

    def _cluster_key(self, prefix: str, entry: Property) -> None:
        """The worker's `config` is also where keys may stand that belong to the whole file."""
        key = FLOW_BY_NAME.get(entry.key)
        if key is not None and key.inert is not None:
            self._findings.note_at(f"{prefix}{entry.key}", key.inert, line=entry.line)
        elif (
            entry.key in ENGINE_BY_NAME
            or entry.key in API_BY_NAME
            or entry.key.startswith(("spark.", "config.providers"))
        ):
            self._put(entry.key, entry.value, entry.line)
        else:
            self._put(prefix + entry.key, entry.value, entry.line)

    def _flow(
        self, mirror: Part, source: Text | None, target: Text | None, *, is_old: bool
    ) -> None:
        pair = None if source is None or target is None else f"{source.value}->{target.value}"
        settings = flow_settings(mirror, self._findings, is_old=is_old)
        mirror.refuse_the_rest()
        if pair is not None and f"{pair}.enabled" in self._settings:
            self._findings.problem_at(mirror.path, f"is a second mirror {pair}", line=mirror.line)
            return
        for entry in settings:
            self._put(f"{pair or '?'}.{entry.key}", entry.value, entry.line)

    def _note_the_operators(self, spec: Part) -> None:
        found = spec.pass_over(*_OPERATORS)
        if found:
            names = ", ".join(f"`{name}`" for name in found)
            sentence = f"do nothing here: they are for Strimzi's operator: {names}"
            self._findings.note_at("spec", sentence, line=spec.line)
        if spec.pass_over("rack"):
            sentence = "does nothing here; set `consumer.client.rack` in `config` of the source"
            self._findings.note_at("spec.rack", sentence, line=spec.line)

    def _put(self, key: str, value: str, line: int) -> None:
        """Of equal keys the last one wins, as where the operator fills its map."""
        self._settings[key] = Property(key=key, value=value, line=line)
