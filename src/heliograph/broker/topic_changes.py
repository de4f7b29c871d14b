"""What can be asked of a cluster's topics: create, grow, reconfigure. Values; runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.model import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToCreate:
    source: TopicName
    name: TopicName
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    factor_key: str = "replication.factor"
    """The key of the configuration that has the replication factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsToGrow:
    name: TopicName
    partitions_before: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    name: str
    value: str | None
    """What the topic is set to; None takes its own setting away, so that the cluster's applies."""
    before: str | None
    """What is in force on the target; None where the target does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigChanges:
    topic: TopicName
    """The topic's name on the target."""
    changes: tuple[ConfigChange, ...]
