"""What topics are called on the target, and where a name says it is from. Pure; runs anywhere.

The rules are MirrorMaker 2's `DefaultReplicationPolicy` and `IdentityReplicationPolicy`, to the
letter, since its users have topics, ACLs and consumers with these names already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from heliograph.config.schema import FlowConfig
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, TopicName

HEARTBEATS: Final = TopicName("heartbeats")
LEDGER_PREFIX: Final = "heliograph-ledger."
_SEPARATOR_DEFAULT: Final = "."
_JAVA_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_WORKER_TOPIC_PREFIXES: Final = ("mm2-offset-syncs", "mm2-offsets", "mm2-configs", "mm2-status")


class NamingPolicy(Protocol):
    """Names topics of one flow.

    Promises: every answer depends on the name alone, and `upstream_topic` of a name is the name
    itself or shorter, so walking upstream ends.
    """

    def target_topic(self, topic: TopicName) -> TopicName:
        """The topic's name on the target; equal names mean the policy is identity."""
        ...

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        """The alias a mirrored topic came from; None where the name does not look mirrored."""
        ...

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        """The name one hop nearer to the origin; None where `topic_source` is None."""
        ...

    def is_internal(self, topic: TopicName) -> bool:
        """Whether the name belongs to Kafka, Connect or a mirror rather than to a user."""
        ...

    def is_mirror_bookkeeping(self, topic: TopicName) -> bool:
        """Whether the topic describes a mirror; a copy would describe one that is not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultReplicationPolicy:
    """`alias + separator + topic`; any name that holds the separator looks mirrored."""

    source: ClusterAlias
    separator: str = _SEPARATOR_DEFAULT
    internal_separator_enabled: bool = True
    """KIP-949: whether internal topics use `separator` too, rather than a dot."""

    def target_topic(self, topic: TopicName) -> TopicName:
        return TopicName(f"{self.source}{self.separator}{topic}")

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        head, found, rest = topic.partition(self.separator)
        # Java's split drops empty strings at the end: `a.` and `a..` are one part, `.a` is two.
        if not found or not rest.replace(self.separator, ""):
            return None
        return ClusterAlias(head)

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        source = self.topic_source(topic)
        if source is None:
            return None
        return TopicName(topic[len(source) + len(self.separator) :])

    def is_internal(self, topic: TopicName) -> bool:
        return (
            topic.startswith(("__", ".", LEDGER_PREFIX))
            or topic.endswith(("-internal", ".internal", self._internal_suffix))
            or self.is_mirror_bookkeeping(topic)
        )

    def is_mirror_bookkeeping(self, topic: TopicName) -> bool:
        if topic.startswith(LEDGER_PREFIX):
            return True
        if topic.endswith(self._checkpoints_suffix):
            return True
        return topic.endswith(("-internal", ".internal", self._internal_suffix)) and (
            topic.startswith(_WORKER_TOPIC_PREFIXES)
        )

    def offset_syncs_topic(self, other: ClusterAlias) -> TopicName:
        """`other` is the cluster the topic is *not* on."""
        return TopicName(
            f"mm2-offset-syncs{self._internal_separator}{other}{self._internal_suffix}"
        )

    def checkpoints_topic(self, source: ClusterAlias) -> TopicName:
        return TopicName(f"{source}{self._checkpoints_suffix}")

    @property
    def _internal_separator(self) -> str:
        return self.separator if self.internal_separator_enabled else _SEPARATOR_DEFAULT

    @property
    def _internal_suffix(self) -> str:
        return f"{self._internal_separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self._internal_separator}checkpoints{self._internal_suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Names are kept, so nothing in a name can stop a cycle; heartbeats alone are renamed.

    A user topic whose name ends in `heartbeats` is renamed as well, as MirrorMaker 2 does.
    """

    # `super()` without arguments does not work in a dataclass with slots on Python 3.11:
    # the decorator replaces the class that the call would look up.

    def target_topic(self, topic: TopicName) -> TopicName:
        if _looks_like_heartbeats(topic):
            return DefaultReplicationPolicy.target_topic(self, topic)
        return topic

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        if _looks_like_heartbeats(topic):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return self.source

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        if _looks_like_heartbeats(topic):
            return DefaultReplicationPolicy.upstream_topic(self, topic)
        return topic


def _looks_like_heartbeats(topic: TopicName) -> bool:
    return topic.endswith(HEARTBEATS)


_POLICIES: Final[dict[str, type[DefaultReplicationPolicy]]] = {
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
}


def naming_policy(flow: FlowConfig) -> NamingPolicy:
    """The policy of a flow, by MirrorMaker 2's class name, with or without its package."""
    chosen = flow.policy
    found = _POLICIES.get(chosen.class_path.removeprefix(_JAVA_PACKAGE))
    problems: list[str] = []
    if found is None:
        known = " or ".join(sorted(_POLICIES))
        problems.append(
            f"replication.policy.class: {chosen.class_path} is not a known policy; use {known}"
        )
    if not chosen.separator:
        problems.append("replication.policy.separator: is empty, so no name could be read back")
    if found is None or problems:
        raise ConfigError(str(flow.id), tuple(problems))
    return found(
        source=ClusterAlias(flow.connector.source_alias or flow.id.source),
        separator=chosen.separator,
        internal_separator_enabled=chosen.internal_separator_enabled,
    )


def original_topic(policy: NamingPolicy, topic: TopicName) -> TopicName:
    """The name at the origin, however many hops away; the name itself where it is not mirrored."""
    while True:
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return topic
        topic = upstream


def is_heartbeats(policy: NamingPolicy, topic: TopicName) -> bool:
    return original_topic(policy, topic) == HEARTBEATS


def is_cycle(policy: NamingPolicy, topic: TopicName, target: ClusterAlias) -> bool:
    """Whether any hop in the topic's name is the cluster it would be mirrored to."""
    while True:
        source = policy.topic_source(topic)
        if source is None:
            return False
        if source == target:
            return True
        upstream = policy.upstream_topic(topic)
        # An identity policy names itself as its own upstream; there is no chain to follow.
        if upstream is None or upstream == topic:
            return False
        topic = upstream
