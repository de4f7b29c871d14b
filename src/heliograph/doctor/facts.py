"""A cluster as the checks see it: brokers, replicas, quorum, settings, disks. Values; anywhere.

What a cluster does not tell is `Untold`, with the reason, and never an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.model import ClusterAlias, TopicName, TopicPartition

TOPIC_KEYS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "cleanup.policy",
    "retention.ms",
    "delete.retention.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)
BROKER_KEYS: Final = (
    "producer.id.expiration.ms",
    "socket.request.max.bytes",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "log.message.timestamp.type",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "controller.quorum.voters",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    subject: str
    issuer: str
    begins_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    id: int
    host: str
    port: int
    rack: str | None = None
    versions: Mapping[int, tuple[int, int]] | None = None
    """Of each request the lowest and highest version; None where the broker did not answer."""
    settings: Mapping[str, str] | Untold = Untold(why="not asked")
    total_bytes: int | None = None
    """Of the volumes of its log directories, each counted once; None where it does not tell."""
    usable_bytes: int | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    name: TopicName
    partitions: Mapping[int, PartitionFacts]
    settings: Mapping[str, str] | Untold = field(default_factory=dict)

    def number(self, key: str) -> int | None:
        """The setting as a number; None where it is not told, or is none."""
        if isinstance(self.settings, Untold):
            return None
        return whole_number(self.settings.get(key))

    def text(self, key: str) -> str | None:
        return None if isinstance(self.settings, Untold) else self.settings.get(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    leader: int
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    user: str | None
    """None where the quota is not for a user; an empty text stands for the default."""
    client_id: str | None
    values: Mapping[str, float]

    def __str__(self) -> str:
        parts = [
            f"{kind} {name or '<default>'}"
            for kind, name in (("user", self.user), ("client id", self.client_id))
            if name is not None
        ]
        return ", ".join(parts) or "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    alias: ClusterAlias
    cluster_id: str | None
    brokers: Mapping[int, BrokerFacts]
    topics: Mapping[TopicName, TopicFacts]
    quorum: QuorumFacts | Untold
    features: Mapping[str, int] | Untold
    """Finalized levels, `metadata.version` among them."""
    sizes: Mapping[TopicPartition, int] | Untold
    """Bytes of the leader's log of each partition."""
    quotas: tuple[Quota, ...] | Untold
    partitions_total: int = 0
    """Replicas of all topics, internal ones too."""

    @property
    def racks(self) -> frozenset[str]:
        return frozenset(b.rack for b in self.brokers.values() if b.rack is not None)

    def broker_numbers(self, key: str) -> dict[int, int]:
        """A broker setting by broker, where it is told and is a number."""
        found: dict[int, int] = {}
        for broker in self.brokers.values():
            if not isinstance(broker.settings, Untold):
                number = whole_number(broker.settings.get(key))
                if number is not None:
                    found[broker.id] = number
        return found


def whole_number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
