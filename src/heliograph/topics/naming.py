"""What topics are called on the target, and where a name says it is from. No I/O; driver.

The rules are MirrorMaker 2's `DefaultReplicationPolicy` and `IdentityReplicationPolicy`, to the
letter, since its users have topics, ACLs and consumers with these names already. A policy of the
operator's own is a Python class, constructed with the keyword arguments `source`, `separator` and
`internal_separator_enabled`; the simplest is a subclass of one of these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from heliograph.config.plugins import POLICY_METHODS, UnusableClass, is_python_path, load_class
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import NamingPolicyConfig
from heliograph.config.transforms import TransformConfig
from heliograph.errors import ConfigError, PluginFailed
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.routes import Route, renamed, routes_of

HEARTBEATS: Final = TopicName("heartbeats")
LEDGER_PREFIX: Final = "heliograph-ledger."
LETTERS_PREFIX: Final = "heliograph-letters."
"""Before the alias of the source whose dead letters are in the topic."""
CANARY_PREFIX: Final = "heliograph-canary-"
"""Before the alias of the cluster that the canary begins at. No dot: a name with dots would look
like one that a mirror has renamed."""
_SEPARATOR_DEFAULT: Final = "."
POLICY_KEY: Final = "replication.policy.class"
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

    def offset_syncs_topic(self, other: ClusterAlias) -> TopicName:
        """`other` is the cluster the topic is *not* on."""
        ...

    def checkpoints_topic(self, source: ClusterAlias) -> TopicName:
        """Checkpoints of groups of `source`, on the target."""
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
        # As Kafka 4 has it (KIP-1074): users may end names in `internal`.
        return (
            topic.startswith(("__", ".", LEDGER_PREFIX, LETTERS_PREFIX))
            or (topic.startswith("mm2") and topic.endswith(self._internal_suffix))
            or topic.endswith(self._checkpoints_suffix)
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


class PythonPolicy:
    """A policy of the operator's own; what it raises or gets wrong is told with the topic."""

    def __init__(self, path: str, policy: Any) -> None:
        self._path, self._policy = path, policy

    def target_topic(self, topic: TopicName) -> TopicName:
        return TopicName(self._text("target_topic", topic))

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        answer = self._text_or_none("topic_source", topic)
        return None if answer is None else ClusterAlias(answer)

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        answer = self._text_or_none("upstream_topic", topic)
        if answer is not None and answer != topic and len(answer) >= len(topic):
            # Walking upstream would not end.
            raise self._failed("upstream_topic", topic, f"gave `{answer}`, which is no shorter")
        return None if answer is None else TopicName(answer)

    def is_internal(self, topic: TopicName) -> bool:
        return self._bool("is_internal", topic)

    def is_mirror_bookkeeping(self, topic: TopicName) -> bool:
        # Heliograph's own bookkeeping is not for a policy to give away.
        return topic.startswith(LEDGER_PREFIX) or self._bool("is_mirror_bookkeeping", topic)

    def offset_syncs_topic(self, other: ClusterAlias) -> TopicName:
        return TopicName(self._text("offset_syncs_topic", other))

    def checkpoints_topic(self, source: ClusterAlias) -> TopicName:
        return TopicName(self._text("checkpoints_topic", source))

    def _text(self, method: str, name: str) -> str:
        answer = self._ask(method, name)
        if not isinstance(answer, str) or not answer:
            raise self._failed(method, name, f"gave {answer!r:.60}, not a name")
        return answer

    def _text_or_none(self, method: str, name: str) -> str | None:
        answer = self._ask(method, name)
        if answer is not None and not isinstance(answer, str):
            raise self._failed(method, name, f"gave {answer!r:.60}, neither a name nor None")
        return answer

    def _bool(self, method: str, name: str) -> bool:
        answer = self._ask(method, name)
        if not isinstance(answer, bool):
            raise self._failed(method, name, f"gave {answer!r:.60}, not a bool")
        return answer

    def _ask(self, method: str, name: str) -> object:
        try:
            return getattr(self._policy, method)(name)
        except Exception as exc:  # foreign code may raise anything
            said = f"raised {type(exc).__name__}: {exc}"
            raise self._failed(method, name, said) from exc

    def _failed(self, method: str, name: str, what: str) -> PluginFailed:
        return PluginFailed(f"`{self._path}`: {method}({name!r}) {what}")


class RoutedPolicy:
    """A policy whose names go through the flow's `RegexRouter`s, as records do in Connect.

    In MirrorMaker 2 the records alone go to the topic of the new name; here all that has a name
    does: the topic that is created, its configs and ACLs, the map, checkpoints and groups. What a
    name says of its origin is read from the new name, by the policy: a name without the alias has
    nothing by which a cycle would be known, as under `IdentityReplicationPolicy`.
    """

    def __init__(self, policy: NamingPolicy, routes: tuple[Route, ...]) -> None:
        self._policy, self._routes = policy, routes
        self.topic_source = policy.topic_source
        self.upstream_topic = policy.upstream_topic
        self.is_internal = policy.is_internal
        self.is_mirror_bookkeeping = policy.is_mirror_bookkeeping
        self.offset_syncs_topic = policy.offset_syncs_topic
        self.checkpoints_topic = policy.checkpoints_topic

    def target_topic(self, topic: TopicName) -> TopicName:
        named = self._policy.target_topic(topic)
        if is_heartbeats(self._policy, topic) or canary_source(self._policy, topic) is not None:
            # The mirror's own records are found by their names.
            return named
        return renamed(self._routes, topic, named)


_POLICIES: Final[dict[str, type[DefaultReplicationPolicy]]] = {
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
}


def naming_policy(flow: FlowConfig) -> NamingPolicy:
    """The policy of a flow: MirrorMaker 2's by class name, with or without its package, or one of
    the operator's own as `module:Class`."""
    return naming_policy_of(flow.policy, source_alias(flow), str(flow.id), flow.transforms)


def naming_policy_of(
    policy: NamingPolicyConfig,
    source: ClusterAlias,
    place: str,
    transforms: Sequence[TransformConfig] = (),
) -> NamingPolicy:
    """As `naming_policy`, for who has no whole flow; errors begin with `place`."""
    path = policy.class_path
    problems: list[str] = []
    found: type[Any] | None = None
    if is_python_path(path):
        try:
            found = load_class(path, POLICY_METHODS)
        except UnusableClass as exc:
            problems.append(f"{POLICY_KEY}: is `{path}`, {exc}")
    else:
        found = _POLICIES.get(path.removeprefix(_JAVA_PACKAGE))
        if found is None:
            known = " or ".join(sorted(_POLICIES))
            problems.append(
                f"{POLICY_KEY}: {path} is not a known policy; use {known}, "
                "or a Python class written `module:Class`"
            )
    if not policy.separator:
        problems.append("replication.policy.separator: is empty, so no name could be read back")
    if found is None or problems:
        raise ConfigError(place, tuple(problems))
    made, routes = _constructed(policy, source, place, found), routes_of(transforms)
    return RoutedPolicy(made, routes) if routes else made


def _constructed(
    policy: NamingPolicyConfig, source: ClusterAlias, place: str, found: type[Any]
) -> NamingPolicy:
    path = policy.class_path
    try:
        made = found(
            source=source,
            separator=policy.separator,
            internal_separator_enabled=policy.internal_separator_enabled,
        )
    except Exception as exc:  # foreign code may raise anything
        said = f"{type(exc).__name__}: {exc}"
        why = f"{POLICY_KEY}: is `{path}`, which cannot be constructed: {said}"
        raise ConfigError(place, (why,)) from exc
    if not is_python_path(path):
        assert isinstance(made, DefaultReplicationPolicy)
        return made
    return PythonPolicy(path, made)


def source_alias(flow: FlowConfig) -> ClusterAlias:
    """What the source is called in names of topics and in records of a mirror."""
    return ClusterAlias(flow.connector.source_alias or flow.id.source)


def target_alias(flow: FlowConfig) -> ClusterAlias:
    """What the target is called in records of a mirror, and what a cycle is known by."""
    return ClusterAlias(flow.connector.target_alias or flow.id.target)


def original_topic(policy: NamingPolicy, topic: TopicName) -> TopicName:
    """The name at the origin, however many hops away; the name itself where it is not mirrored."""
    while True:
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return topic
        topic = upstream


def is_heartbeats(policy: NamingPolicy, topic: TopicName) -> bool:
    return original_topic(policy, topic) == HEARTBEATS


def canary_topic(source: ClusterAlias) -> TopicName:
    """The topic, on `source`, that canaries of all flows from there are written to."""
    return TopicName(CANARY_PREFIX + source)


def canary_source(policy: NamingPolicy, topic: TopicName) -> ClusterAlias | None:
    """Where canaries of this topic begin, however many hops away; None for any other topic."""
    if CANARY_PREFIX not in topic:
        return None
    origin = original_topic(policy, topic)
    if not origin.startswith(CANARY_PREFIX):
        return None
    return ClusterAlias(origin.removeprefix(CANARY_PREFIX))


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
