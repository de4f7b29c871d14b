"""What was seen of a cluster: topics, partitions, configs. Values; runs anywhere.

Reading a view never asks a broker. What a view does not know is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heliograph.model import ClusterAlias, TopicId, TopicName


class ConfigOrigin(StrEnum):
    """Where a topic's setting comes from, in the words of Kafka's DescribeConfigs."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_DEFAULT = "broker default"
    STATIC_BROKER = "static broker"
    DEFAULT = "default"
    GROUP = "group"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    name: str
    value: str | None
    """None where the broker keeps it to itself."""
    origin: ConfigOrigin = ConfigOrigin.TOPIC
    read_only: bool = False
    sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    partition: int
    leader: int | None
    """Broker id; None while there is no leader."""
    replica_count: int | None = None
    """None where nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    name: TopicName
    id: TopicId | None
    partitions: tuple[PartitionView, ...]
    settings: Mapping[str, TopicSetting] | None = None
    """Every setting in force, by name; None where they were not asked for."""
    settings_refused: str | None = None
    """The sentence why the cluster would not show them; None where it did or was not asked."""

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def led_partition_count(self) -> int:
        return sum(partition.leader is not None for partition in self.partitions)

    def setting(self, name: str) -> str | None:
        """The value in force, wherever it comes from; None where it is not known."""
        found = None if self.settings is None else self.settings.get(name)
        return None if found is None else found.value


TOPIC_DEFAULT_NAMES: Final[Mapping[str, str]] = {
    "message.timestamp.type": "log.message.timestamp.type",
    "compression.type": "compression.type",
    "max.message.bytes": "message.max.bytes",
}
"""Topic settings a plan looks at, and what brokers call the same thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    alias: ClusterAlias
    cluster_id: str | None
    broker_count: int
    """Brokers that are up, as the cluster said."""
    topics: Mapping[TopicName, TopicView]
    topic_defaults: Mapping[str, str] | None = None
    """What a new topic gets, for `TOPIC_DEFAULT_NAMES`; None where not asked or not shown."""
