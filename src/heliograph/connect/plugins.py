"""The three connectors, the keys each is told, and Connect's word for a key. Runs anywhere.

The keys are those of a flow (`config.mm2.keys`): one list serves the file and the connectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from heliograph.config.keys import Key
from heliograph.config.mm2.keys import FLOW_BY_NAME

PACKAGE: Final = "org.apache.kafka.connect.mirror."
VERSION: Final = "4.3.1"
"""Of Kafka Connect, as whose tools expect to be answered."""

NAME: Final = "name"
CLASS: Final = "connector.class"
SOURCE_ALIAS: Final = "source.cluster.alias"
TARGET_ALIAS: Final = "target.cluster.alias"
TARGET_ALIAS_DEFAULT: Final = "target"
SOURCE_SERVERS: Final = "source.cluster.bootstrap.servers"
TARGET_SERVERS: Final = "target.cluster.bootstrap.servers"


class Plugin(StrEnum):
    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"

    @property
    def class_path(self) -> str:
        return PACKAGE + self.value

    @property
    def task_class(self) -> str:
        return self.class_path.removesuffix("Connector") + "Task"


_CHECKPOINT_KEYS: Final = frozenset(
    {
        "groups",
        "groups.exclude",
        "groups.blacklist",
        "group.filter.class",
        "refresh.groups.enabled",
        "refresh.groups.interval.seconds",
        "emit.checkpoints.enabled",
        "emit.checkpoints.interval.seconds",
        "sync.group.offsets.enabled",
        "sync.group.offsets.interval.seconds",
        "checkpoints.topic.replication.factor",
        "on.group.rewind",
    }
)
_HEARTBEAT_KEYS: Final = frozenset(
    {
        "emit.heartbeats.enabled",
        "emit.heartbeats.interval.seconds",
        "heartbeats.topic.replication.factor",
    }
)
_OF_ALL: Final = frozenset(
    {
        NAME,
        CLASS,
        SOURCE_ALIAS,
        TARGET_ALIAS,
        "admin.timeout.ms",
        "enabled",
        "forwarding.admin.class",
        "metric.names.formats",
        "metric.reporters",
        "replication.policy.class",
        "replication.policy.internal.topic.separator.enabled",
        "replication.policy.separator",
        "tasks.max",
        "tasks.max.enforce",
        "transforms",
        "predicates",
        "config.action.reload",
        "topic.creation.groups",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
        *(f"{part}.converter" for part in ("key", "value", "header")),
        *(name for name in FLOW_BY_NAME if name.startswith("errors.")),
    }
)
_TOPIC_KEYS: Final = frozenset(
    {"topics", "topics.exclude", "topic.filter.class", "offset-syncs.topic.location"}
)
"""Of the source connector; the checkpoint connector is told them too, and must be told the same."""
_REQUIRED: Final = frozenset({NAME, CLASS, SOURCE_ALIAS, SOURCE_SERVERS, TARGET_SERVERS})
_CLUSTER_KEYS: Final = (
    (SOURCE_SERVERS, "`host:port` of the source's brokers."),
    (TARGET_SERVERS, "`host:port` of the target's brokers."),
)
_COMMON: Final = (
    NAME,
    CLASS,
    "tasks.max",
    "tasks.max.enforce",
    "key.converter",
    "value.converter",
    "header.converter",
    "transforms",
    "predicates",
    "config.action.reload",
)
"""The keys of every connector of Connect, in its order."""


def owner_of(key: str) -> Plugin | None:
    """The one connector a key is for; None: whichever leads the flow."""
    if key in _CHECKPOINT_KEYS:
        return Plugin.CHECKPOINT
    if key in _HEARTBEAT_KEYS:
        return Plugin.HEARTBEAT
    return None if key in _OF_ALL | _TOPIC_KEYS else Plugin.SOURCE


def plugin_named(text: str) -> Plugin | None:
    """By class, by its simple name, or by that without `Connector`, as Connect finds plugins."""
    simple = text.strip().removeprefix(PACKAGE)
    return next(
        (plugin for plugin in Plugin if simple in (plugin, plugin.removesuffix("Connector"))), None
    )


def keys_of_plugin(plugin: Plugin) -> tuple[Key, ...]:
    """What a connector may be told, without the clusters' own settings."""
    wanted = [name for name in FLOW_BY_NAME if _is_told(plugin, name)]
    ordered = sorted(wanted, key=lambda name: name not in _COMMON)
    return tuple(FLOW_BY_NAME[name] for name in ordered)


def _is_told(plugin: Plugin, name: str) -> bool:
    owner = owner_of(name)
    if name in _TOPIC_KEYS:
        return plugin is not Plugin.HEARTBEAT
    return owner is None or owner is plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Connect's `ConfigKeyInfo`, field by field."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    width: str
    display_name: str
    dependents: tuple[str, ...]
    order: int


def definitions_of(plugin: Plugin) -> tuple[Definition, ...]:
    made = [_definition(key.name, key.default, key.meaning) for key in keys_of_plugin(plugin)]
    made += [_definition(name, None, meaning) for name, meaning in _CLUSTER_KEYS]
    return tuple(made)


def _definition(name: str, default: object, meaning: str) -> Definition:
    is_common = name in _COMMON or name.startswith("errors.")
    return Definition(
        name=name,
        type=_type(name, default),
        required=name in _REQUIRED,
        default_value=_text(_DEFAULTS.get(name, default)),
        importance="HIGH" if name in _REQUIRED | _TOPIC_KEYS else "LOW",
        documentation=meaning,
        group="Common" if is_common else None,
        width="MEDIUM" if is_common else "NONE",
        display_name=name,
        dependents=(),
        order=_COMMON.index(name) + 1 if name in _COMMON else -1,
    )


_DEFAULTS: Final[Mapping[str, object]] = {
    # As a connector; in a file a flow is off until it is switched on.
    "enabled": True,
    TARGET_ALIAS: TARGET_ALIAS_DEFAULT,
}


def _type(name: str, default: object) -> str:
    if name.endswith(".class"):
        return "CLASS"
    if isinstance(default, bool):
        return "BOOLEAN"
    if isinstance(default, int) or name == "tasks.max":
        return "LONG" if name.endswith((".ms", ".max")) and name != "tasks.max" else "INT"
    is_list = isinstance(default, tuple) or name.endswith("bootstrap.servers")
    return "LIST" if is_list else "STRING"


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def value_text(value: Any) -> str:
    """A value of the model as a connector is told it."""
    return _text(value) or ""


def listed(plugins: Iterable[Plugin] = Plugin) -> list[dict[str, str]]:
    """Connect's `PluginInfo` of each."""
    return [
        {"class": plugin.class_path, "type": "source", "version": VERSION} for plugin in plugins
    ]
