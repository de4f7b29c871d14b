"""A connector's keys as those of `mm2.properties`. No I/O; runs anywhere.

A connector says `source.cluster.bootstrap.servers` and `topics` where a file says
`A.bootstrap.servers` and `A->B.topics`. Keys that neither MirrorMaker 2 nor Heliograph has are
ignored with a note, as Connect ignores them; in a file they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from heliograph.config.client_names import LIBRDKAFKA_NAMES
from heliograph.config.mm2.keys import FLOW_BY_NAME, PLUGIN_PREFIXES
from heliograph.config.mm2.names import REMOVED, RENAMED, SECURITY_KEYS
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.connect.model import Connector
from heliograph.connect.plugins import CLASS, SOURCE_ALIAS, TARGET_ALIAS, Plugin, owner_of
from heliograph.model import ClusterAlias, FlowId

_BOOTSTRAP: Final = "bootstrap.servers"
_SIDES: Final = ("source.cluster.", "target.cluster.")
_SKIPPED: Final = frozenset(
    {CLASS, SOURCE_ALIAS, TARGET_ALIAS, "key.converter", "value.converter", "header.converter"}
)
"""Said by the flow itself, or true of every record anyhow: bytes are never converted."""
_POLICY: Final = "replication.policy.class"
_SAME_AS_IDENTITY: Final = frozenset({"com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy"})
"""Classes of public guides that keep topic names and do nothing else."""
_HOOKS: Final = "failover."
"""Commands, URLs and files of the driver's machine."""
_OWN_SECURITY: Final = {
    # Which cluster and role a client of a connector is, by the prefix of its settings.
    "source.consumer.": (("source", "consumer"),),
    "source.admin.": (("source", "admin"),),
    "source.producer.": (("source", "producer"),),
    "target.producer.": (("target", "producer"),),
    "target.admin.": (("target", "admin"),),
    "target.consumer.": (("target", "consumer"),),
    "producer.override.": (("target", "producer"),),
    "consumer.": (("source", "consumer"), ("target", "consumer")),
    "admin.": (("source", "admin"), ("target", "admin")),
    "producer.": (("source", "producer"), ("target", "producer")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a file that nobody wrote, and the connector's key it stands for."""

    key: str
    value: str
    origin: str
    cluster: ClusterAlias | None = None
    """Of a cluster's own setting, which all connectors of that cluster share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    key: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    key: str
    why: str


Said = Line | Ignored | Refused


def lines_of(connector: Connector, plugin: Plugin, *, leads: bool) -> Iterator[Said]:
    """What a connector says. Of the connectors of one flow, the one that `leads` also says what
    none of them has for itself: names, policies, clients."""
    for key, text in connector.config.items():
        value = text.strip()
        if key in _SKIPPED:
            continue
        yield from _line(key, value, connector.flow, plugin, leads=leads)


def _line(key: str, value: str, flow: FlowId, plugin: Plugin, *, leads: bool) -> Iterator[Said]:
    side = next((prefix for prefix in _SIDES if key.startswith(prefix)), None)
    if side is not None:
        alias = flow.source if side == _SIDES[0] else flow.target
        yield _of_cluster(key, key.removeprefix(side), value, alias)
        return
    prefix = next((prefix for prefix in _OWN_SECURITY if key.startswith(prefix)), None)
    if prefix is not None and key not in FLOW_BY_NAME:
        if leads:
            yield from _of_client(key, prefix, value, flow)
        return
    yield from _of_flow(key, value, flow, plugin, leads=leads)


def _of_cluster(key: str, name: str, value: str, alias: ClusterAlias) -> Line | Ignored:
    if name == _BOOTSTRAP or name in SECURITY_KEYS:
        return Line(key=f"{alias}.{name}", value=value, origin=key, cluster=alias)
    return Ignored(
        key=key,
        why="does nothing, as in MirrorMaker 2: only brokers and security have this prefix; "
        f"write `consumer.{name}` or `producer.override.{name}`",
    )


def _of_client(key: str, prefix: str, value: str, flow: FlowId) -> Iterator[Line | Ignored]:
    name = key.removeprefix(prefix)
    if name in SECURITY_KEYS:
        for side, role in _OWN_SECURITY[prefix]:
            alias = flow.source if side == "source" else flow.target
            yield Line(key=f"{alias}.{role}.{name}", value=value, origin=key, cluster=alias)
        return
    role = prefix.removesuffix("override.").rstrip(".").rpartition(".")[2]
    if name in LIBRDKAFKA_NAMES[role]:
        yield Line(key=f"{flow}.{key}", value=value, origin=key)
    else:
        yield Ignored(key=key, why="does nothing here: no client of Heliograph has such a setting")


def _of_flow(key: str, value: str, flow: FlowId, plugin: Plugin, *, leads: bool) -> Iterator[Said]:
    if key.startswith(_HOOKS):
        why = "is only taken from a file: who may POST connectors may not run commands by it"
        yield Refused(key=key, why=f"{key} {why}")
    elif key in REMOVED:
        yield Ignored(key=key, why=REMOVED[key])
    elif key not in FLOW_BY_NAME and key not in RENAMED and not key.startswith(PLUGIN_PREFIXES):
        yield Ignored(key=key, why="is unknown and does nothing, as in Connect")
    elif (owner := owner_of(RENAMED.get(key, key))) is not None and owner is not plugin:
        yield Ignored(key=key, why=f"does nothing here: it is for a {owner.value}")
    elif owner is plugin or leads:
        same = key == _POLICY and value in _SAME_AS_IDENTITY
        yield Line(key=f"{flow}.{key}", value=IDENTITY_POLICY if same else value, origin=key)
